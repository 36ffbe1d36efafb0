//! Whether what a verb does fits into this machine's memory, asked before it is done.

use crate::failure::Failure;
use std::path::Path;
use tinygpt::run::memory::lacking;
use tinygpt::sample::cache_bytes;
use tinygpt::train::Memory;
use tinygpt::{Gpt, GptConfig, peak};

/// Says that the limits of the machine, with which a profile is compared, cannot be measured.
pub fn check_limits() -> Result<(), Failure> {
    match lacking(peak::BYTES as u64) {
        Some(problem) => Err(Failure::run(format!("measuring the memory's speed {problem}"))),
        None => Ok(()),
    }
}

/// Of up to `most` texts of up to `longest` tokens, how many `gpt`, loaded from `path`, may write
/// together: one at least, or there is no room for its keys and values.
pub fn texts_together(path: &Path, gpt: &Gpt, most: u32, longest: usize) -> Result<u32, Failure> {
    let bytes = |texts| cache_bytes(gpt.config(), gpt.precision(), texts as usize, longest);
    let problem = |texts: u32| lacking(bytes(texts));
    match (1..=most.max(1)).rev().find(|&texts| problem(texts).is_none()) {
        Some(texts) => Ok(texts),
        None => {
            let problem = problem(1).unwrap_or_default();
            Err(Failure::run(format!("{}: writing with it {problem}", path.display())))
        }
    }
}

/// Says that a model that is loaded cannot be evaluated.
pub fn check_evaluating(path: &Path, model: &GptConfig) -> Result<(), Failure> {
    match lacking(Memory::of(model, (usize::MAX, model.block_size)).activations) {
        Some(problem) => Err(Failure::run(format!("{}: evaluating it {problem}", path.display()))),
        None => Ok(()),
    }
}

/// Says that a model called `name` cannot be checked, which takes so many bytes.
pub fn check_checking(name: &str, needed: u64) -> Result<(), Failure> {
    match lacking(needed) {
        Some(problem) => Err(Failure::run(format!("{name}: checking it {problem}"))),
        None => Ok(()),
    }
}

/// Says that a model cannot be measured, which takes so many bytes.
pub fn check_measuring(needed: u64) -> Result<(), Failure> {
    match lacking(needed) {
        Some(problem) => Err(Failure::run(format!("measuring such a model {problem}"))
            .with_hint("choose a smaller --preset, or lower --n-layer or --n-embd")),
        None => Ok(()),
    }
}
