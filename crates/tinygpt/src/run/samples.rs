//! `samples.txt`: the texts that a model in training writes, each under a line with its step.

use crate::error::{Error, Result};
use crate::files;
use std::path::Path;

/// What a heading begins with. A line of a text that does too is written with a blank before it.
const HEADING: &str = "=== step ";

/// Adds a text after `step` steps.
pub fn append(path: &Path, step: u64, text: &str) -> Result<()> {
    let mut section = format!("{HEADING}{step} ===\n");
    for line in text.lines() {
        if line.starts_with(HEADING) {
            section.push(' ');
        }
        section += line;
        section.push('\n');
    }
    section.push('\n');
    let mut file = files::open_to_append(path)?;
    files::append(&mut file, section.as_bytes()).map_err(Error::io("write", path))
}

/// Drops the texts that a checkpoint of `step` does not know, before a run resumes from it.
pub fn keep_until(path: &Path, step: u64) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let known = |line: &str| {
        let heading = line.strip_prefix(HEADING).and_then(|rest| rest.split(' ').next());
        let later = heading.is_some_and(|n| !n.parse().is_ok_and(|written: u64| written <= step));
        // A line without an end was cut.
        line.ends_with('\n') && !later
    };
    let text = files::read_log(path)?;
    let kept: String = text.split_inclusive('\n').take_while(|line| known(line)).collect();
    files::write_whole(path, kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Write;

    #[test]
    fn a_resumed_file_has_the_texts_its_checkpoint_knows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.txt");
        keep_until(&path, 0).unwrap();
        append(&path, 0, "xq ä\n\nzz").unwrap();
        append(&path, 250, "ROMEO:\n=== step 999 ===\nAy.").unwrap();
        let kept = fs::read_to_string(&path).unwrap();
        append(&path, 500, "JULIET").unwrap();
        for cut_by_a_kill in [&b"=== step 7"[..], b"=== s", b"\xC3"] {
            File::options().append(true).open(&path).unwrap().write_all(cut_by_a_kill).unwrap();
            keep_until(&path, 250).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), kept);
        }
        assert_eq!(
            kept,
            "=== step 0 ===\nxq ä\n\nzz\n\n=== step 250 ===\nROMEO:\n === step 999 ===\nAy.\n\n"
        );
    }
}
