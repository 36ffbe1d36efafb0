//! What a text begins with: typed, from a file, or piped in.

use crate::failure::Failure;
use clap::ArgMatches;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

/// The prompt; empty leaves the beginning to the model.
pub fn prompt(matches: &ArgMatches) -> Result<String, Failure> {
    let typed = matches.get_one::<String>("prompt").map(String::as_str);
    let file = matches.get_one::<PathBuf>("prompt-file").map(PathBuf::as_path);
    match (typed, file.or(typed.and_then(|text| text.strip_prefix("FILE:")).map(Path::new))) {
        (_, Some(path)) if path != Path::new("-") => {
            let bytes = std::fs::read(path);
            let name = path.display().to_string();
            utf8(
                bytes.map_err(|error| Failure::run(format!("cannot read {name}: {error}")))?,
                &name,
            )
        }
        (Some(text), None) if matches.get_flag("escape") => Ok(unescaped(text)),
        (Some(text), None) => Ok(text.into()),
        (None, None) if std::io::stdin().is_terminal() => Ok(String::new()),
        _ => {
            let (mut bytes, name) = (Vec::new(), "standard input");
            let read = std::io::stdin().read_to_end(&mut bytes);
            read.map_err(|error| Failure::run(format!("cannot read {name}: {error}")))?;
            utf8(bytes, name)
        }
    }
}

/// The text of a file, without the mark that some editors put before it.
fn utf8(bytes: Vec<u8>, name: &str) -> Result<String, Failure> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::run(format!("{name}: byte {at} is not UTF-8"))
    })?;
    Ok(text.strip_prefix('\u{feff}').map(Into::into).unwrap_or(text))
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
