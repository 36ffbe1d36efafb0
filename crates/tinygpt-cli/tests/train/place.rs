//! An empty folder in which the real program trains models so small that a run takes milliseconds.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use tinygpt::checkpoint::{Checkpoint, TrainState};

/// 1,376 parameters on Tiny Shakespeare, evaluated (and saved) every five of twenty steps.
pub const TINY: &str = "--n-layer 1 --n-head 2 --n-embd 8 --block-size 8 --batch-size 2 \
     --max-iters 20 --eval-interval 5 --eval-iters 1 --log-interval 1 --sample-tokens 4 \
     --threads 1";

/// What a command came to.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        let Output { status, stdout, stderr } = output;
        Self { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    /// It succeeded, with no error, warning or NaN.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        let clean = !self.err.contains("error") && !self.err.contains("warning");
        assert!(self.code == Some(0) && clean && !self.out.contains("NaN"), "{self:?}");
        self
    }

    /// It failed with that exit code, an `error:` line and at most a `hint:`, which are returned.
    #[track_caller]
    pub fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        let error = self.err.find("error: ").unwrap_or_else(|| panic!("no error: {self:?}"));
        let lines: Vec<_> = self.err[error..].lines().collect();
        assert!(lines[1..].iter().all(|line| line.starts_with("hint: ")), "{self:?}");
        lines.join("\n")
    }

    /// It was interrupted, saved, and said how to go on.
    #[cfg(unix)]
    #[track_caller]
    pub fn stopped(self) -> Self {
        assert_eq!(self.code, Some(130), "{self:?}");
        assert!(self.out.contains("go on       tinygpt train --resume "), "{self:?}");
        self
    }
}

/// The folder.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), contents).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    /// What is in a folder of it, by name.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// `tinygpt` with these words, in the folder.
    pub fn command(&self, words: &str) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_tinygpt"), words)
    }

    /// Another program, in the folder.
    pub fn command_of(&self, program: impl AsRef<OsStr>, words: &str) -> Command {
        let mut command = Command::new(program);
        command.args(words.split_whitespace()).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, words: &str) -> Said {
        Said::of(self.command(words).output().unwrap())
    }

    /// `tinygpt train` of the tiny model with more words, whose flags replace its own.
    pub fn train(&self, words: &str) -> Said {
        self.run(&tiny(words))
    }

    /// The checkpoint loads with its training state; its step.
    #[track_caller]
    pub fn step_of(&self, checkpoint: &str) -> u64 {
        let path = self.at(checkpoint);
        let loaded = Checkpoint::load(&path).unwrap();
        TrainState::load(&path, &loaded.params).unwrap().progress.step
    }

    /// The metrics of a run without what the clock decides.
    pub fn timeless_metrics(&self, run: &str) -> String {
        let timeless = |line: &str| match line.split_once(",\"ms\":") {
            Some((before, after)) => format!("{before} {}\n", &after[after.rfind(',').unwrap()..]),
            None => format!("{line}\n"),
        };
        self.read(&format!("{run}/metrics.jsonl")).lines().map(timeless).collect()
    }
}

/// The words of `tinygpt train` for the tiny model, in which later flags replace earlier ones.
pub fn tiny(words: &str) -> String {
    let has = |flag: &str| {
        words
            .split_whitespace()
            .any(|word| word.split('=').next().unwrap().replace('_', "-") == flag)
    };
    let flags: Vec<_> = TINY.split_whitespace().collect();
    let kept = flags.chunks(2).filter(|pair| !has(pair[0])).map(|pair| pair.join(" "));
    format!("train {} {words}", kept.collect::<Vec<_>>().join(" "))
}

/// Waits until `seen`, for at most half a minute.
#[cfg(unix)]
#[track_caller]
pub fn wait_until(what: &str, mut seen: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !seen() {
        assert!(std::time::Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Sends a signal by its name. Tests that a script's `&` started ignore INT, as the program then
/// does: TERM stands in for it.
#[cfg(unix)]
pub fn signal(child: &std::process::Child, name: &str) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let name = if name == "INT" && ignored & 2 != 0 { "TERM" } else { name };
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}
