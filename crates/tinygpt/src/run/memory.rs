//! Whether a model fits into this machine's memory, asked before it is made: a program that takes
//! more than there is has no last words.

use crate::config::GptConfig;
use crate::error::{Error, Result};
use crate::formats::Model;
use crate::train::Memory;
use std::fs;
use unit_prefix::NumberPrefix;

/// Says that training such a model with so many sequences in a step takes more than there is.
///
/// # Errors
/// [`Error::Config`] names the setting that takes most.
pub fn check_training(model: &GptConfig, sequences: usize) -> Result<()> {
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
    })
}

/// Says that a model cannot be loaded.
///
/// # Errors
/// [`Error::Checkpoint`].
pub fn check_loading(model: &Model) -> Result<()> {
    // Every model has room for gradients.
    match lacking(model.bytes().saturating_mul(2)) {
        Some(problem) => Err(Error::checkpoint(&model.path, format!("it {problem}"))),
        None => Ok(()),
    }
}

/// Bytes to leave for what is not counted: stacks of threads, texts, the allocator's own.
const BESIDE: u64 = 64 << 20;

/// What is wrong with taking so many bytes, in words that go on after what would take them.
pub fn lacking(needed: u64) -> Option<String> {
    let reserves = || {
        let bytes = usize::try_from(needed.saturating_add(BESIDE)).unwrap_or(usize::MAX);
        Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
    };
    let there = match available() {
        Some(available) if needed > available => {
            format!("{} are available", in_words(available))
        }
        // What the system does not tell, such as a limit of the shell's, it may still refuse.
        _ if !reserves() => "the system does not give that much".into(),
        _ => return None,
    };
    Some(format!("takes {} of memory, and {there}", in_words(needed)))
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

/// Bytes as a user reads them: 464.00 MB.
fn in_words(bytes: u64) -> String {
    match NumberPrefix::decimal(bytes as f64) {
        NumberPrefix::Standalone(bytes) => format!("{bytes:.0} B"),
        NumberPrefix::Prefixed(prefix, number) => format!("{number:.2} {}B", prefix.symbol()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_lacks_nothing_and_what_does_not_is_said_in_words() {
        assert_eq!(lacking(1 << 20), None);
        let text = lacking(2_500_000_000_000_000).unwrap();
        assert!(text.starts_with("takes 2.50 PB of memory, and "), "{text}");
        assert_eq!([in_words(999), in_words(464_000_000)], ["999 B", "464.00 MB"]);
    }
}
