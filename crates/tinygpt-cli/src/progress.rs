//! A bar or a line on standard error for work that takes longer than a moment.

use crate::out::tell;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Shows no bar for work that is done within this time.
pub const MOMENT: Duration = Duration::from_millis(500);
/// How long a user who sees no bar is left without a word.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Does work that cannot say how far it is, and says what it does if it takes long.
pub fn patiently<T>(doing: &str, work: impl FnOnce() -> T) -> T {
    let (done, waiting) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                tell(&format!("{doing} ..."));
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// A bar that counts to a total it is told as it goes. Hidden where standard error is no terminal.
pub struct Bar {
    name: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Bar {
    pub fn new(name: &'static str) -> Self {
        Self { name, started: Instant::now(), bar: None }
    }

    /// `done` of `total`.
    pub fn at(&mut self, done: u64, total: u64) {
        if self.bar.is_none() && self.started.elapsed() > MOMENT {
            let style = ProgressStyle::with_template("{msg} {bar:30} {percent}%  {eta} left");
            let bar = ProgressBar::new(total).with_message(self.name);
            self.bar = Some(bar.with_style(style.expect("the template is well formed")));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    /// Takes it away.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
