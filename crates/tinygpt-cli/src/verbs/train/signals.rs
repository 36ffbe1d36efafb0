//! Ctrl-C and SIGTERM: before a run has its folder the first ends the program and leaves nothing
//! behind; after that it saves first, and a second one stops at once. A signal that was ignored when
//! the program started (`nohup`, a script's `&`) stays ignored.

use crate::{failure::Failure, out::tell};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The exit code of a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// What there is to lose.
enum Phase {
    /// Nothing, and perhaps a folder to remove.
    Preparing(Option<PathBuf>),
    /// The run, or the steps since its last checkpoint.
    Training,
    /// The same, and it was asked to stop.
    Stopping,
}

/// The signals, watched.
pub struct Signals(Arc<Mutex<Phase>>);

impl Signals {
    /// Watches from now on.
    pub fn watch() -> Result<Self, Failure> {
        #[cfg(target_os = "linux")]
        leave_ignored();
        let phase = Arc::new(Mutex::new(Phase::Preparing(None)));
        let seen = phase.clone();
        let watching = ctrlc::set_handler(move || {
            let mut phase = locked(&seen);
            match &*phase {
                Phase::Preparing(folder) => {
                    if let Some(folder) = folder {
                        let _ = std::fs::remove_dir_all(folder);
                    }
                    exit(INTERRUPTED);
                }
                Phase::Training => {
                    // A terminal shows ^C at the end of the live line.
                    let apart = if std::io::stderr().is_terminal() { "\n" } else { "" };
                    tell(&format!("{apart}stopping, to save; again stops at once"));
                    *phase = Phase::Stopping;
                }
                Phase::Stopping => exit(INTERRUPTED),
            }
        });
        watching.map_err(|error| Failure::run(format!("cannot watch for Ctrl-C: {error}")))?;
        Ok(Self(phase))
    }

    /// A folder that a signal before the run removes.
    pub fn preparing(&self, folder: &Path) {
        *locked(&self.0) = Phase::Preparing(Some(folder.to_owned()));
    }

    /// From now on a signal saves first.
    pub fn training(&self) {
        let mut phase = locked(&self.0);
        if matches!(*phase, Phase::Preparing(_)) {
            *phase = Phase::Training;
        }
    }

    /// Whether to stop.
    pub fn stop(&self) -> bool {
        matches!(*locked(&self.0), Phase::Stopping)
    }
}

/// Keeps out the signals that whoever started the program had it ignore, before a handler takes
/// them. Blocked, not ignored again, which would need `unsafe`; later threads inherit it.
#[cfg(target_os = "linux")]
fn leave_ignored() {
    use nix::sys::signal::{SigSet, Signal};
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let signals = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
    let kept_out = signals.into_iter().filter(|&signal| ignored >> (signal as u32 - 1) & 1 == 1);
    let _ = kept_out.collect::<SigSet>().thread_block();
}

fn locked(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}
