//! Trains a tiny model on Tiny Shakespeare for a few seconds: `cargo run --release --example
//! train_tiny`.

use std::ops::ControlFlow;
use tinygpt::{
    DataOptions, Dataset, Gpt, GptConfig, Input, Sampler, Sampling, TrainConfig, Trainer,
};

fn main() -> tinygpt::Result<()> {
    // text -> tokens
    let options = DataOptions::default();
    let data = Dataset::build(&Input::TinyShakespeare, &options, None, &mut |_, _| {})?;
    let tokenizer = data.tokenizer.clone();

    // tokens -> model
    let model = GptConfig {
        vocab_size: tokenizer.vocab_size(),
        block_size: 32,
        n_layer: 2,
        n_head: 2,
        n_embd: 64,
        bias: false,
        ..GptConfig::default()
    };
    let train = TrainConfig {
        max_iters: 200,
        learning_rate: 3e-3,
        min_lr: 3e-4,
        warmup_iters: 20,
        lr_decay_iters: 200,
        eval_iters: 20,
        ..TrainConfig::default()
    };
    let mut trainer = Trainer::new(Gpt::new(model, train.seed)?, data, train)?;
    println!("{} parameters", trainer.gpt().num_params());

    // batch -> forward -> loss -> backward -> optimizer
    while trainer.progress().step < trainer.config().max_iters {
        let report = trainer.step()?;
        if report.iter % 50 == 0 {
            println!("iter {:3}: loss {:.4}", report.iter, report.loss);
        }
    }
    let evaluation = trainer.evaluate()?;
    println!("val loss {:.4}", evaluation.val_loss.expect("a tenth of the text validates"));

    // sample
    let start = tokenizer.encode("ROMEO:", "prompt")?;
    let mut sampler = Sampler::new(&Sampling { temperature: 0.8, ..Sampling::default() }, 0)?;
    let text =
        trainer.gpt().generate_with(&start, 200, &mut sampler, |_| ControlFlow::Continue(()))?;
    println!("{}", tokenizer.decode(&text));
    Ok(())
}
