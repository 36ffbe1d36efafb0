//! The logits of a model of any format: `cargo run --example logits -- MODEL 1 2 3` prints a line for
//! each of these tokens, with a number for every token that may come next.

use std::io::{BufWriter, Write};
use std::path::Path;
use tinygpt::Gpt;
use tinygpt::formats::Model;
use tinygpt::{Cpu, Isa};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((path, ids)) = words.split_first() else {
        return Err("give a model, then token ids: logits runs/quick/best 1 2 3".into());
    };
    let ids = ids.iter().map(|id| id.parse()).collect::<Result<Vec<u32>, _>>()?;

    let model = Model::open(Path::new(path))?;
    model.notices.iter().for_each(|notice| eprintln!("note: {notice}"));
    let params = model.read()?;
    let v = model.config.vocab_size;
    let mut gpt = Gpt::with_params(model.config, params, Cpu::new(0, Isa::best()))?;

    let (logits, _) = gpt.forward(&ids, None, (1, ids.len()))?;
    let mut out = BufWriter::new(std::io::stdout());
    for row in logits.chunks(v) {
        let line: Vec<_> = row.iter().map(f32::to_string).collect();
        writeln!(out, "{}", line.join(" "))?;
    }
    Ok(out.flush()?)
}
