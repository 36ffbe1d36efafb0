//! Whether a model fits into this machine's memory, asked before it is made: a program that takes
//! more than there is has no last words.

use crate::failure::Failure;
use indicatif::DecimalBytes;
use std::fs;
use std::path::Path;
use tinygpt::formats::Model;
use tinygpt::sample::cache_bytes;
use tinygpt::train::Memory;
use tinygpt::{Error, GptConfig, peak};

/// Says that training such a model with so many sequences in a step takes more than there is.
pub fn check_training(model: &GptConfig, sequences: usize) -> Result<(), Failure> {
    let memory = Memory::of(model, (sequences, model.block_size));
    let tables = 4 * (model.vocab_size * model.n_embd) as u64;
    let (key, value, lower) = if 2 * u128::from(memory.activations) > u128::from(memory.total()) {
        ("block_size", model.block_size, "block_size, n_layer or n_embd")
    } else if 2 * tables > memory.weights {
        ("vocab_size", model.vocab_size, "vocab_size or n_embd")
    } else {
        ("n_embd", model.n_embd, "n_embd or n_layer")
    };
    let Some(problem) = lacking(memory.total()) else { return Ok(()) };
    Err(Error::Config {
        key,
        found: value.to_string(),
        expected: format!("training such a model {problem}"),
        hint: Some(format!("lower {lower}; `tinygpt info` shows what takes how much")),
    }
    .into())
}

/// Says that a model cannot be loaded.
pub fn check_loading(model: &Model) -> Result<(), Failure> {
    // Every model has room for gradients.
    match lacking(model.bytes().saturating_mul(2)) {
        Some(problem) => Err(Failure::run(format!("{}: it {problem}", model.path.display()))),
        None => Ok(()),
    }
}

/// Says that the limits of the machine, with which a profile is compared, cannot be measured.
pub fn check_limits() -> Result<(), Failure> {
    match lacking(peak::BYTES as u64) {
        Some(problem) => Err(Failure::run(format!("measuring the memory's speed {problem}"))),
        None => Ok(()),
    }
}

/// Of up to `most` texts of up to `longest` tokens, how many may be written together by a model
/// that is loaded from `path`: one at least, or there is no room for its keys and values.
pub fn texts_together(
    path: &Path,
    model: &GptConfig,
    most: u32,
    longest: usize,
) -> Result<u32, Failure> {
    let problem = |texts: u32| lacking(cache_bytes(model, texts as usize, longest));
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

/// Bytes to leave for what is not counted: stacks of threads, texts, the allocator's own.
const BESIDE: u64 = 64 << 20;

/// What is wrong with taking so many bytes.
fn lacking(needed: u64) -> Option<String> {
    let reserves = || {
        let bytes = usize::try_from(needed.saturating_add(BESIDE)).unwrap_or(usize::MAX);
        Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
    };
    let there = match available() {
        Some(available) if needed > available => {
            format!("{} are available", DecimalBytes(available))
        }
        // What the system does not tell, such as a limit of the shell's, it may still refuse.
        _ if !reserves() => "the system does not give that much".into(),
        _ => return None,
    };
    Some(format!("takes {} of memory, and {there}", DecimalBytes(needed)))
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
