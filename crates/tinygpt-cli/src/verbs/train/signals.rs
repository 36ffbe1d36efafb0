//! Ctrl-C and SIGTERM: the first finishes the step and saves, the second stops at once.

use crate::{failure::Failure, out::tell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a signal has come.
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Whether to stop after this step.
    pub fn stop(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Watches from now on.
pub fn watch() -> Result<Signals, Failure> {
    let seen = Arc::new(AtomicBool::new(false));
    let signals = Signals(seen.clone());
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        tell("stopping after this step, to save; once more stops at once");
    })
    .map_err(|error| Failure::run(format!("cannot watch for Ctrl-C: {error}")))?;
    Ok(signals)
}
