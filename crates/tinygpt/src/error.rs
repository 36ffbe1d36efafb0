//! What can go wrong, sorted by what the caller can do about it.
//!
//! Every message says what was found and what was expected; [`Error::hint`] says what to do.

use std::path::{Path, PathBuf};

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure the user can act on. Programmer errors are panics instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for cannot be, or not together: ask for something else.
    #[error("{problem}")]
    Usage {
        /// What cannot be.
        problem: String,
        /// What to do, when we know.
        hint: Option<String>,
    },
    /// A setting has a value that cannot work: change that setting.
    #[error("{key} = {found}: {expected}")]
    Config {
        /// The configuration key.
        key: &'static str,
        /// Its value.
        found: String,
        /// What would be valid, in words.
        expected: String,
        /// What to do, when we know.
        hint: Option<String>,
    },
    /// A text, token file or prompt cannot be used: change the data.
    #[error("{}", about(source_name, problem))]
    Data {
        /// The file, or what the text is called.
        source_name: String,
        /// What was found and what was expected.
        problem: String,
        /// What to do, when we know.
        hint: Option<String>,
    },
    /// A checkpoint or run folder cannot be used: choose another or repair it.
    #[error("{}", about(&path.display().to_string(), problem))]
    Checkpoint {
        /// The file or folder.
        path: PathBuf,
        /// What was found and what was expected.
        problem: String,
        /// What to do, when we know.
        hint: Option<String>,
    },
    /// The operating system refused: check the path, the rights, the disk.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb: "read", "write", "create".
        doing: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
        /// What to do, when we know.
        hint: Option<String>,
    },
    /// Somebody who was told how it goes on broke it off: nothing is left of it.
    #[error("stopped before it began")]
    Stopped,
    /// A loss, gradient or logit is NaN or infinite: the model's state is not to be trusted.
    #[error("{what} is not finite ({value})")]
    NotFinite {
        /// What was computed, with its step or position.
        what: String,
        /// Its value.
        value: f32,
        /// What to do, when we know.
        hint: Option<String>,
    },
}

/// A problem that begins with a verb goes on after the name; any other stands after a colon.
fn about(name: &str, problem: &str) -> String {
    const VERBS: [&str; 5] = ["is", "has", "looks", "belongs", "changed"];
    let verb = VERBS.iter().any(|&verb| problem.split(' ').next() == Some(verb));
    format!("{name}{} {problem}", if verb { "" } else { ":" })
}

impl Error {
    /// What to do about it, when we know.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Usage { hint, .. }
            | Error::Config { hint, .. }
            | Error::Data { hint, .. }
            | Error::Checkpoint { hint, .. }
            | Error::Io { hint, .. }
            | Error::NotFinite { hint, .. } => hint.as_deref(),
            Error::Stopped => None,
        }
    }

    pub(crate) fn usage(problem: impl Into<String>) -> Self {
        Error::Usage { problem: problem.into(), hint: None }
    }

    pub(crate) fn config(
        key: &'static str,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        Error::Config { key, found: found.to_string(), expected: expected.into(), hint: None }
    }

    pub(crate) fn data(source_name: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Data { source_name: source_name.into(), problem: problem.into(), hint: None }
    }

    pub(crate) fn checkpoint(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Error::Checkpoint { path: path.into(), problem: problem.into(), hint: None }
    }

    /// For `map_err`: `fs::read(path).map_err(Error::io("read", path))`.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::Io { doing, path, source, hint: None }
    }

    /// What is wrong with the text or the settings in a checkpoint's file, as a fault of that file.
    pub(crate) fn in_checkpoint(self, path: &Path) -> Self {
        let path = path.to_owned();
        match self {
            Error::Data { problem, hint, .. } => Error::Checkpoint { path, problem, hint },
            Error::Config { .. } => Error::Checkpoint {
                path,
                problem: self.to_string(),
                hint: self.hint().map(Into::into),
            },
            other => other,
        }
    }

    /// The same error with a hint.
    pub(crate) fn with_hint(mut self, text: impl Into<String>) -> Self {
        match &mut self {
            Error::Usage { hint, .. }
            | Error::Config { hint, .. }
            | Error::Data { hint, .. }
            | Error::Checkpoint { hint, .. }
            | Error::Io { hint, .. }
            | Error::NotFinite { hint, .. } => *hint = Some(text.into()),
            Error::Stopped => {}
        }
        self
    }

    /// The same error with one more way out, before the one that it has.
    pub(crate) fn and_hint(self, text: &str) -> Self {
        let both = self.hint().map_or(text.to_owned(), |first| format!("{text}; {first}"));
        self.with_hint(both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_its_problem_read_as_one_sentence() {
        assert_eq!(Error::data("a.txt", "is empty").to_string(), "a.txt is empty");
        let error = Error::checkpoint("runs/a", "there is no such run").to_string();
        assert_eq!(error, "runs/a: there is no such run");
        assert_eq!(Error::data("a", "isolated").to_string(), "a: isolated");
    }
}
