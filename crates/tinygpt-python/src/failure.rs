//! The engine's errors as Python's exceptions.

use pyo3::PyErr;
use pyo3::exceptions::{PyAssertionError, PyFloatingPointError, PyOSError, PyValueError};
use tinygpt::Error;
use tinygpt::run::keys;

/// The exception that Python's own libraries would raise for it; the hint is its second line.
pub fn exception(error: Error) -> PyErr {
    let problem = match error {
        Error::Usage { .. } => in_python(&error.to_string()),
        _ => error.to_string(),
    };
    let text = match error.hint() {
        Some(hint) => format!("{problem}\nhint: {}", in_python(hint)),
        None => problem,
    };
    match error {
        // nanoGPT asserts it.
        Error::Config { key: "n_head", .. } => PyAssertionError::new_err(text),
        Error::NotFinite { .. } => PyFloatingPointError::new_err(text),
        // By its number Python makes it a FileNotFoundError, a PermissionError..
        Error::Io { path, source, .. } => match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, text, path.display().to_string())),
            None => PyOSError::new_err(text),
        },
        _ => PyValueError::new_err(text),
    }
}

/// Whether a flag, and what may stand behind it, is an argument of `train` too.
fn is_argument(flag: &str) -> bool {
    let end = flag.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(flag.len());
    let name = &flag[..end];
    keys::find(name).is_some() || matches!(name, "init-from" | "resume" | "overwrite")
}

/// Words with the arguments of a call in place of flags: `--out-dir` is `out_dir`. What is to be
/// typed in a shell stays.
pub fn in_python(hint: &str) -> String {
    if hint.contains("tinygpt ") {
        return hint.into();
    }
    let words = hint.split(' ').map(|word| {
        let bare = word.trim_start_matches(['(', '`']);
        let opening = &word[..word.len() - bare.len()];
        let flag = bare.strip_prefix("--").filter(|flag| is_argument(flag));
        match flag {
            Some(flag) => format!("{opening}{}", flag.replace('-', "_")),
            None => word.into(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
