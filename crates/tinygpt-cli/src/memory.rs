//! Whether a model fits into this machine's memory, asked before it is made: a program that takes more
//! than there is has no last words.

use crate::failure::Failure;
use indicatif::BinaryBytes;
use std::fs;
use tinygpt::train::Memory;
use tinygpt::{Error, GptConfig};

/// Says that training such a model with so many sequences in a step takes more than there is.
pub fn check_training(model: &GptConfig, sequences: usize) -> Result<(), Failure> {
    let memory = Memory::of(model, sequences);
    let tables = 4 * (model.vocab_size * model.n_embd) as u64;
    let (key, value, lower) = match () {
        () if memory.activations > memory.weights + memory.training => {
            ("block_size", model.block_size, "block_size, n_layer or n_embd")
        }
        () if 2 * tables > memory.weights => {
            ("vocab_size", model.vocab_size, "vocab_size or n_embd")
        }
        () => ("n_embd", model.n_embd, "n_embd or n_layer"),
    };
    check(memory.total(), "training this model", key, value, lower)
}

/// Says that a model of that kind cannot even be loaded.
pub fn check_loading(model: &GptConfig) -> Result<(), Failure> {
    // Every model has room for gradients.
    let bytes = Memory::of(model, 1).weights.saturating_mul(2);
    check(bytes, "this model", "n_embd", model.n_embd, "nothing: another machine is needed")
}

fn check(
    needed: u64,
    what: &str,
    key: &'static str,
    value: usize,
    lower: &str,
) -> Result<(), Failure> {
    let reserves = || {
        let bytes = usize::try_from(needed).unwrap_or(usize::MAX);
        Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
    };
    let found = match available() {
        Some(available) if needed > available => format!("{} are available", BinaryBytes(available)),
        // What the system does not tell, such as a limit of the shell's, it may still refuse.
        _ if !reserves() => "the system does not give that much".into(),
        _ => return Ok(()),
    };
    Err(Error::Config {
        key,
        found: value.to_string(),
        expected: format!("{what} takes {} of memory; {found}", BinaryBytes(needed)),
        hint: Some(format!("lower {lower}")),
    }
    .into())
}

/// Bytes the system could still give, where it tells.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let system = bytes("MemAvailable:")? + bytes("SwapFree:").unwrap_or(0);
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = container.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    Some(system.min(limit))
}
