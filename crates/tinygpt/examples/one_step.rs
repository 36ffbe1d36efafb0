//! One training step by hand, every shape printed: `cargo run --release --example one_step`.

use tinygpt::optim::{AdamW, learning_rate};
use tinygpt::{Gpt, GptConfig, TrainConfig};

fn main() -> tinygpt::Result<()> {
    let config = GptConfig {
        vocab_size: 11,
        block_size: 8,
        n_layer: 2,
        n_head: 2,
        n_embd: 16,
        ..GptConfig::default()
    };
    let train = TrainConfig { warmup_iters: 0, ..TrainConfig::default() };
    let mut gpt = Gpt::new(config.clone(), 1337)?;
    println!("the parameters, {} numbers in all:", gpt.num_params());
    for spec in gpt.params().table().iter() {
        let decays = if spec.decays() { "decays" } else { "" };
        println!("  {:<34} {:<10} {decays}", spec.name, format!("{:?}", spec.shape));
    }

    // A batch of B = 2 sequences of T = 4 tokens; each target is the token one later.
    let (b, t) = (2, 4);
    let text: [u32; 10] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];
    let idx = [&text[0..4], &text[5..9]].concat();
    let targets: Vec<i32> =
        [&text[1..5], &text[6..10]].concat().iter().map(|&id| id as i32).collect();
    println!("idx ({b}, {t}) = {idx:?}\ntargets ({b}, {t}) = {targets:?}");

    let (logits, loss) = gpt.forward(&idx, Some(&targets), (b, t))?;
    println!("logits ({b}, {t}, {}): {} numbers", config.vocab_size, logits.len());
    println!("loss = {:.4}; knowing nothing is ln {} = {:.4}", loss.unwrap(), 11, 11f32.ln());

    gpt.zero_grad();
    gpt.backward();
    let mut optimizer = AdamW::new(&gpt);
    let lr = learning_rate(&train, 0);
    let norm = optimizer.step(&mut gpt, &train, lr);
    println!("gradient norm {norm:.4}, learning rate {lr:e}");

    let (_, loss) = gpt.forward(&idx, Some(&targets), (b, t))?;
    println!("loss on the same batch after the step = {:.4}", loss.unwrap());
    Ok(())
}
