//! Ctrl-C and SIGTERM: before training the first ends the program and leaves nothing behind; in
//! training it saves first, and a second one stops at once.

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
    /// The steps since the last checkpoint.
    Training,
    /// The same, and it was asked to stop.
    Stopping,
}

/// The signals, watched.
pub struct Signals(Arc<Mutex<Phase>>);

impl Signals {
    /// Watches from now on.
    pub fn watch() -> Result<Self, Failure> {
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

    /// A folder that a signal before training removes.
    pub fn preparing(&self, folder: &Path) {
        *locked(&self.0) = Phase::Preparing(Some(folder.to_owned()));
    }

    /// From now on a signal saves first.
    pub fn training(&self) {
        *locked(&self.0) = Phase::Training;
    }

    /// Whether to stop.
    pub fn stop(&self) -> bool {
        matches!(*locked(&self.0), Phase::Stopping)
    }
}

fn locked(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}
