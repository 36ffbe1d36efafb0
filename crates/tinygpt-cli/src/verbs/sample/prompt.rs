//! What a text begins with: typed, from a file, or from standard input.

use crate::{failure::Failure, out::tell, progress::unless_soon};
use clap::ArgMatches;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use tinygpt::files::{read_all, read_named};

/// Bytes of the longest prompt that is read.
const LONGEST: u64 = 1 << 24;

/// The prompt; empty leaves the beginning to the model. Standard input is read only when asked for:
/// one that nobody closes would keep the program waiting for ever.
pub fn prompt(matches: &ArgMatches) -> Result<String, Failure> {
    let typed = matches.get_one::<String>("prompt").map(String::as_str);
    let file = matches.get_one::<PathBuf>("prompt-file").map(PathBuf::as_path);
    let file = file.or(typed.and_then(|text| text.strip_prefix("FILE:")).map(Path::new));
    if file == Some(Path::new("")) {
        return Err(
            Failure::usage("--prompt FILE: names no file").with_hint("--prompt FILE:my.txt")
        );
    }
    let file = file.or((typed == Some("-")).then_some(Path::new("-")));
    match (typed, file) {
        (_, Some(path)) if path == Path::new("-") => {
            if io::stdin().is_terminal() {
                tell("type the prompt; Ctrl-D on a line of its own ends it");
            }
            let _heard = unless_soon("waiting for standard input".into());
            Ok(without_mark(read_all(io::stdin(), LONGEST, Path::new("standard input"))?))
        }
        (_, Some(path)) => {
            let _heard = unless_soon(format!("waiting for {}", path.display()));
            Ok(without_mark(read_named(path, LONGEST)?))
        }
        (Some(text), None) if matches.get_flag("escape") => Ok(unescaped(text)),
        (Some(text), None) => Ok(text.into()),
        (None, None) => {
            if something_is_piped_in() {
                tell("note: standard input is not read; --prompt - takes the prompt from it");
            }
            Ok(String::new())
        }
    }
}

/// Whether standard input is a pipe or a file.
#[cfg(unix)]
fn something_is_piped_in() -> bool {
    use std::os::{fd::AsFd, unix::fs::FileTypeExt};
    let copy = io::stdin().as_fd().try_clone_to_owned();
    let kind = copy.and_then(|copy| std::fs::File::from(copy).metadata());
    kind.is_ok_and(|kind| kind.is_file() || kind.file_type().is_fifo())
}

#[cfg(not(unix))]
fn something_is_piped_in() -> bool {
    false
}

/// A text without the mark that some editors put before it.
fn without_mark(text: String) -> String {
    text.strip_prefix('\u{feff}').map(Into::into).unwrap_or(text)
}

/// C's escapes; an unknown one stays as it is.
pub fn unescaped(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text.chars());
    while let Some(c) = rest.next() {
        match (c, rest.clone().next()) {
            ('\\', Some(escape @ ('n' | 't' | 'r' | '\\'))) => {
                plain.push(match escape {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    _ => '\\',
                });
                rest.next();
            }
            _ => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_cs_and_unknown_ones_stay() {
        assert_eq!(unescaped(r"A\nB\\n\t\x\"), "A\nB\\n\t\\x\\");
    }
}
