//! nanoGPT's Python config files, read without Python: lines of `name = value  # comment`.
//!
//! ```text
//!   file    = lines of: nothing | import NAME | NAME = sum
//!   sum     = product (+|- product)*         product = sign (*|/|//|% sign)*
//!   sign    = (+|-)* power                   power   = atom [** sign]
//!   atom    = number | text | True | False | None | a name assigned before | ( sum )
//! ```
//!
//! The numbers are Python's, but a whole number ends at 64 bits. Anything else is an error that names
//! its line: what is no such assignment may mean something, and nothing here can run it. Keys that
//! mean nothing here ([`keys::IDLE`]) are skipped unread.

mod expression;

use super::keys;
use super::read::{ConfigFile, Setting, fitted, key_called};
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::tokenizer::TOKENIZER_FILE;
use expression::{Sum, Word, Words};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::Value;

/// The preset with nanoGPT's defaults.
const PRESET: &str = "nanogpt";
/// Where nanoGPT keeps prepared tokens.
const DATA: &str = "data";
/// The data set of a config that names none.
const DATASET: &str = "openwebtext";

/// What a line gives, or what is wrong with it.
type Read<T> = std::result::Result<T, String>;

/// What such a file says, and what to do with it in the folder `here`. `dataset` takes the place of
/// the one that it names.
///
/// # Errors
/// A line that is no assignment of a value, an unknown key, a value of the wrong type.
pub(super) fn parse(
    text: &str,
    source: &str,
    here: &Path,
    dataset: Option<&str>,
) -> Result<ConfigFile> {
    let mut script = Script::default();
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{source}, line {number}");
        script.line(line, place.clone()).map_err(|problem| {
            Error::data(place, problem).with_hint(
                "a config of nanoGPT's is read, not run: only `name = value` can stand here. To \
                 train on the text of a Python file: tinygpt train - < FILE",
            )
        })?;
    }
    script.config(here, dataset)
}

/// What the data set called `name` says beside a config that is none of nanoGPT's: its text and
/// tokens.
///
/// # Errors
/// A name that leads elsewhere; data that are not there.
pub(super) fn dataset(name: &str, here: &Path) -> Result<ConfigFile> {
    if !is_plain(name) {
        return Err(Error::config("dataset", name, format!("must be a folder's name in {DATA}/"))
            .with_hint("name a text itself: tinygpt train my.txt"));
    }
    let mut file = ConfigFile::default();
    find_data(&mut file, name, here)?;
    match file.missing {
        None => Ok(file),
        Some(folder) => {
            let folder = folder.display();
            Err(Error::config("dataset", name, format!("{folder} is not here")).with_hint(format!(
                "name the text, tinygpt train my.txt, or prepare it: \
                 tinygpt prepare my.txt --out {folder}"
            )))
        }
    }
}

#[derive(Default)]
struct Script {
    /// Every name assigned so far, with where and what.
    names: BTreeMap<String, (String, Found)>,
    /// Those that a later line used.
    used: BTreeSet<String>,
    /// Keys that mean nothing here.
    skipped: Vec<String>,
}

/// A value of Python's.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    None,
    Value(Value),
}

impl Script {
    fn line(&mut self, line: &str, place: String) -> Read<()> {
        let mut words = Words(line.trim_end());
        match words.next()? {
            Word::End => Ok(()),
            Word::Name("import") => match (words.next()?, words.next()?) {
                (Word::Name(_), Word::End) => Ok(()),
                _ => Err("only `import NAME` is skipped".into()),
            },
            Word::Name(name) if !line.starts_with([' ', '\t']) => {
                match words.next()? {
                    Word::Sign("=") => {}
                    other => return Err(format!("found {other} after `{name}`, expected `=`")),
                }
                if keys::is_idle(name) {
                    if !self.skipped.iter().any(|other| other == name) {
                        self.skipped.push(name.into());
                    }
                    return Ok(());
                }
                let mut sum = Sum { next: words.next()?, words, script: self, depth: 0 };
                let value = sum.sum()?;
                if sum.next != Word::End {
                    return Err(format!("found {} where the line should end", sum.next));
                }
                self.names.insert(name.into(), (place, value));
                Ok(())
            }
            other => Err(format!("found {other}, expected `name = value`")),
        }
    }

    fn config(self, here: &Path, instead: Option<&str>) -> Result<ConfigFile> {
        let mut file = ConfigFile { preset: Some(PRESET.into()), ..ConfigFile::default() };
        let mut dataset = DATASET.to_owned();
        file.idle = self.skipped;
        for (name, (place, value)) in self.names {
            match (name.as_str(), value) {
                ("dataset", Found::Value(Value::String(name))) if is_plain(&name) => dataset = name,
                ("dataset", value) => {
                    let problem = format!("dataset = {value}: expected the name of a folder");
                    return Err(Error::data(place, problem));
                }
                ("init_from", value) => file.init_from = init_from(&place, &value)?,
                (name, _) if keys::find(name).is_none() && self.used.contains(name) => {}
                (name, value) => {
                    let key = key_called(name, &place)?;
                    let Found::Value(value) = value else {
                        let problem = format!("{name} = None: expected a value, or no such line");
                        return Err(Error::data(place, problem));
                    };
                    file.settings.push((key, fitted(key, value, Some(&place))?));
                }
            }
        }
        find_data(&mut file, instead.unwrap_or(&dataset), here)?;
        Ok(file)
    }
}

/// Whether a name stays in the folder of data sets.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':'])
}

/// The weights to start from, which only `--init-from` can name.
fn init_from(place: &str, value: &Found) -> Result<Option<String>> {
    match value {
        Found::Value(Value::String(from)) if from == "scratch" => Ok(None),
        Found::Value(Value::String(from)) if from.starts_with("gpt2") => Ok(Some(from.clone())),
        Found::Value(Value::String(from)) if from == "resume" => Err(Error::data(
            place,
            "init_from = 'resume': a run says itself how it goes on",
        )
        .with_hint(
            "tinygpt train --resume RUN; for a ckpt.pt: tinygpt train TEXT --resume ckpt.pt",
        )),
        value => Err(Error::data(
            place,
            format!("init_from = {value}: expected 'scratch', 'resume' or one of 'gpt2...'"),
        )),
    }
}

/// The tokens that nanoGPT would read, or the built-in text where it is the same.
fn find_data(file: &mut ConfigFile, name: &str, here: &Path) -> Result<()> {
    let folder = Path::new(DATA).join(name);
    let has = |name: &str| here.join(&folder).join(name).is_file();
    let prepared = Dataset::is_prepared(&here.join(&folder));
    // Without a meta.pkl nanoGPT takes tokens for GPT-2's.
    let tokenizer = match () {
        () if prepared && has("meta.pkl") => "char".into(),
        () if prepared && has(TOKENIZER_FILE) => folder.join(TOKENIZER_FILE).display().to_string(),
        () if !prepared && name.ends_with("_char") => "char".into(),
        () => "gpt2".to_owned(),
    };
    let (key, says) =
        (key_called("tokenizer", name)?, |(key, _): &Setting| key.name == "tokenizer");
    if !file.settings.iter().any(says) {
        file.settings.push((key, fitted(key, tokenizer.into(), None)?));
    }
    match name {
        _ if prepared => file.text = vec![folder],
        "shakespeare" | "shakespeare_char" => {
            file.notices.push(format!("{} is not here: the built-in text", folder.display()));
        }
        _ => file.missing = Some(folder),
    }
    Ok(())
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Found::None => write!(f, "None"),
            Found::Value(value) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests;
