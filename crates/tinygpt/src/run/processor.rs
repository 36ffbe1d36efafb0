//! The processor that a user means.

use crate::error::{Error, Result};
use std::env;
use tinygpt_kernels::{Cpu, Isa};

/// More than any machine has: what they would cost in memory ends the program.
const MOST_THREADS: usize = 1024;

/// The processor with that many threads; 0 is as many as `RAYON_NUM_THREADS` says, which users of
/// other Rust programs set, or else as the machine allows. `TINYGPT_ISA` names a lesser instruction
/// set, for tests and bug reports.
///
/// # Errors
/// [`Error::Usage`] says which of these cannot be.
pub fn cpu(threads: usize) -> Result<Cpu> {
    let asked = match env::var_os("RAYON_NUM_THREADS") {
        Some(text) if threads == 0 && !text.is_empty() => {
            let text = text.to_string_lossy();
            Some(text.parse().map_err(|_| {
                Error::usage(format!("RAYON_NUM_THREADS={text}: must be a whole number"))
                    .with_hint("unset it, or say --threads")
            })?)
        }
        _ => None,
    };
    let (name, threads) = match asked {
        Some(asked) if threads == 0 => ("RAYON_NUM_THREADS", asked),
        _ => ("threads", threads),
    };
    if threads > MOST_THREADS {
        return Err(Error::usage(format!("{name} = {threads}: must be at most {MOST_THREADS}")));
    }
    let isa = match env::var_os("TINYGPT_ISA").filter(|name| !name.is_empty()) {
        None => Isa::best(),
        Some(name) => name.to_str().and_then(Isa::named).ok_or_else(|| {
            let names: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
            let (name, here) = (name.to_string_lossy(), names.join(", "));
            Error::usage(format!("TINYGPT_ISA={name}: this machine has {here}"))
                .with_hint("unset it for the best")
        })?,
    };
    Ok(Cpu::new(threads, isa))
}
