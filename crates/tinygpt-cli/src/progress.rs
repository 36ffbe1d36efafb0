//! A bar on standard error for work that takes longer than a moment.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Shows nothing for work that is done within this time.
const PATIENCE: Duration = Duration::from_millis(500);

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
        if self.bar.is_none() && self.started.elapsed() > PATIENCE {
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
