//! The verbs that work on a trained model, on tiny ones that `tinygpt train` makes.

mod eval;
mod formats;
mod info;
mod sample;
mod tokens;
#[cfg(unix)]
mod trouble;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tinygpt::checkpoint::{self, Checkpoint};

const TEXT: &str = "To be, or not to be: that is the question.\n";
const BLOCK_SIZE: usize = 16;

/// A folder that a user works in.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A place with one run, trained a little on [`TEXT`].
    fn with_run(flags: &[&str]) -> Self {
        let place = Self::new();
        place.write("my.txt", TEXT.repeat(20));
        place.train(&[&["my.txt"], flags].concat());
        place
    }

    fn train(&self, flags: &[&str]) {
        let tiny = "--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --max-iters 3 \
                    --batch-size 2 --eval-iters 1 --sample-tokens 0 --threads 1";
        let tiny: Vec<_> = tiny.split_whitespace().collect();
        let (code, _, message) = self.run(&[&["train"], flags, &tiny].concat());
        assert_eq!(code, 0, "{message}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), contents).unwrap();
    }

    fn tinygpt(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tinygpt"));
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Exit code, standard output, standard error but for the newest run's name; both are UTF-8.
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        ended(self.tinygpt(args))
    }

    fn succeeds(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args);
        assert_eq!((code, &*stderr), (0, ""), "{args:?}");
        stdout
    }

    fn succeeds_given(&self, stdin: &str, args: &[&str]) -> String {
        let mut child = self.tinygpt(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let said = (output.status.code(), unnamed(text(output.stderr)));
        assert_eq!(said, (Some(0), String::new()), "{args:?}");
        text(output.stdout)
    }

    /// What is said by a command that fails with `code`: an `error:` line and perhaps a `hint:`.
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let (found, _, stderr) = self.run(args);
        assert_eq!(found, code, "{args:?}: {stderr}");
        let mut lines = stderr.lines();
        assert!(lines.next().unwrap().starts_with("error: "), "{args:?}: {stderr}");
        assert!(lines.all(|line| line.starts_with("hint: ")), "{args:?}: {stderr}");
        stderr
    }

    /// The error of a command that fails with `code`, after whatever it noted.
    fn fails_noting(&self, code: i32, args: &[&str]) -> String {
        let (found, _, stderr) = self.run(args);
        assert_eq!(found, code, "{args:?}: {stderr}");
        stderr
    }

    /// Puts a NaN into the best checkpoint of `runs/quick`.
    fn break_a_weight(&self) {
        let best = self.path("runs/quick/best");
        let Checkpoint { config, mut params, tokenizer_json } = Checkpoint::load(&best).unwrap();
        params.data_mut()[3] = f32::NAN;
        checkpoint::save(&best, &config, &params, tokenizer_json.as_deref(), None).unwrap();
    }
}

fn ended(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), unnamed(text(output.stderr)))
}

/// What was said on standard error beside the name of the run that was taken for none typed.
fn unnamed(said: String) -> String {
    let lines = said.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("the newest run: ")).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
