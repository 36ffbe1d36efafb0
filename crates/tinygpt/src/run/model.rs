//! A model that a user named, opened and read, with a way out where it is damaged.

use super::memory::check_loading;
use crate::error::{Error, Result};
use crate::files::quoted;
use crate::formats::Model;
use crate::model::Params;
use crate::tokenizer::Tokenizer;
use std::path::Path;

/// [`Model::open`], with a way out if it is a damaged best checkpoint of a run whose last one is
/// whole.
///
/// # Errors
/// As for `Model::open`.
pub fn open_model(path: &Path) -> Result<Model> {
    Model::open(path).map_err(|error| or_last(path, error))
}

/// Its weights and its tokenizer, with the same way out. The training state of a checkpoint is not
/// looked at.
///
/// # Errors
/// As for [`Model::read`] and [`Model::tokenizer`]; a model larger than the memory there is.
pub fn read_model(model: &Model) -> Result<(Params, Option<Tokenizer>)> {
    whole(model).map_err(|error| or_last(&model.path, error))
}

fn whole(model: &Model) -> Result<(Params, Option<Tokenizer>)> {
    check_loading(model)?;
    Ok((model.read()?, model.tokenizer()?))
}

fn or_last(path: &Path, error: Error) -> Error {
    let last = path.with_file_name("last");
    let is_whole = || Model::open(&last).is_ok_and(|model| whole(&model).is_ok());
    match path.ends_with("best") && is_whole() {
        true => error.with_hint(format!(
            "{} is whole: name it instead, or copy it over {}",
            quoted(&last),
            quoted(path)
        )),
        false => error,
    }
}
