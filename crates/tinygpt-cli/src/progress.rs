//! A bar or a line on standard error for work that takes longer than a moment.

use crate::out::tell;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Shows no bar for work that is done within this time.
pub const MOMENT: Duration = Duration::from_millis(500);
/// How long a user who sees no bar is left without a word.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Does work that cannot say how far it is, and says what it does if it takes long.
pub fn patiently<T>(doing: &str, work: impl FnOnce() -> T) -> T {
    let _done = unless_soon(doing.into());
    work()
}

/// Says what is being done after a while, unless the result is dropped before.
pub fn unless_soon(doing: String) -> Sender<()> {
    let (done, waiting) = channel();
    thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tell(&format!("{doing} ..."));
        }
    });
    done
}

/// Reads a text under a bar, and says what it waits for if that is a pipe in which nothing comes.
pub fn reading<T>(text: &[PathBuf], read: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let pipe = text.iter().find(|path| !path.is_file() && !path.is_dir());
    let mut waiting = pipe.map(|path| match path == Path::new("-") {
        true => unless_soon("waiting for standard input".into()),
        false => unless_soon(format!("waiting for {}", path.display())),
    });
    let mut bar = Bar::new("reading the text");
    read(&mut |done, total| {
        drop(waiting.take());
        bar.at(done, total);
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
}

/// It goes when nothing is counted any more.
impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
