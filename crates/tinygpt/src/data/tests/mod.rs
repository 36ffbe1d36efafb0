//! From files to tokens, as a user's files are: every kind of damage and every size.

mod files;
mod splits;
mod texts;
mod token_files;
mod tokenizers;

use super::{DataOptions, Dataset, Input, Tokens};
use crate::error::Result;
use std::fs;
use std::path::Path;

/// Files in a folder that goes away with the value.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn input(&self, names: &[&str]) -> Input {
        Input::Paths(names.iter().map(|name| self.path().join(name)).collect())
    }
}

fn build(input: &Input, options: &DataOptions) -> Result<Dataset> {
    Dataset::build(input, options, None, &mut |_, _| ())
}

fn build_text(text: impl AsRef<[u8]>, options: &DataOptions) -> Result<Dataset> {
    let folder = Folder::new(&[("text.txt", text.as_ref())]);
    build(&folder.input(&["text.txt"]), options)
}

fn everything_trains() -> DataOptions {
    DataOptions { val_fraction: 0.0, ..Default::default() }
}

fn ids(tokens: &Tokens) -> Vec<u32> {
    let mut ids = vec![0; tokens.len()];
    tokens.read(0, &mut ids).unwrap();
    ids
}

fn text_of(dataset: &Dataset) -> String {
    let val = dataset.val.as_ref().map(ids).unwrap_or_default();
    dataset.tokenizer.decode(&[ids(&dataset.train), val].concat())
}

/// Message and hint of what must fail.
fn failure(result: Result<Dataset>) -> String {
    let error = result.unwrap_err();
    format!("{error} | {}", error.hint().unwrap_or("no hint"))
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}
