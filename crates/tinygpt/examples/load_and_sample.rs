//! Loads a run's best checkpoint and writes text with it. After `tinygpt train`:
//! `cargo run --release --example load_and_sample -- runs/latest/best "ROMEO:"`

use std::io::Write;
use std::ops::ControlFlow;
use tinygpt::{Checkpoint, Cpu, Error, Gpt, Isa, Sampler, Sampling, Tokenizer};

fn main() {
    let mut words = std::env::args().skip(1);
    let folder = words.next().unwrap_or("runs/latest/best".into());
    let prompt = words.next().unwrap_or("\n".into());
    if let Err(error) = write_text(&folder, &prompt) {
        eprintln!("error: {error}\n{}", error.hint().unwrap_or("is there a trained model?"));
        std::process::exit(1);
    }
}

fn write_text(folder: &str, prompt: &str) -> Result<(), Error> {
    // checkpoint -> model and tokenizer
    let Checkpoint { config, params, tokenizer_json } = Checkpoint::load(folder.as_ref())?;
    let tokenizer = Tokenizer::from_json(&tokenizer_json.expect("runs keep their tokenizer"))?;
    let mut gpt = Gpt::with_params(config, params, Cpu::new(0, Isa::best()))?;

    // text -> tokens -> logits -> token -> text, as it comes
    let idx = tokenizer.encode(prompt, "prompt")?;
    let sampling = Sampling { temperature: 0.8, top_k: 200, ..Sampling::default() };
    let mut sampler = Sampler::new(&sampling, 0)?;
    let mut decoder = tokenizer.decoder();
    let mut out = std::io::stdout();
    // A reader who has gone (`| head`) ends the text.
    let mut show = |text: &str| match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    if show(prompt).is_continue() {
        gpt.generate_with(&idx, 300, &mut sampler, |token| show(&decoder.push(token)))?;
    }
    let _ = show(&(decoder.finish() + "\n"));
    Ok(())
}
