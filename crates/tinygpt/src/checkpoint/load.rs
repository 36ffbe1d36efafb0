//! Reading a checkpoint back, whoever wrote it and in whatever state a kill left it.

use super::stored::rows;
use super::{CONFIG, Checkpoint, MODEL, PROGRESS, Progress, STATE, TOKENIZER};
use super::{SavedProgress, TrainState};
use super::{config_file, exists, swap, tensor_file::TensorFile};
use crate::config::GptConfig;
use crate::error::{Error, Result};
use crate::files;
use crate::model::Params;
use crate::tokenizer::{self, Tokenizer};
use std::path::{Path, PathBuf};

impl Checkpoint {
    /// Loads a checkpoint folder, or a `.safetensors` file with its `config.json` beside it.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] says which file or tensor is wrong, and how; [`Error::Io`] which file
    /// the system does not let us read.
    pub fn load(path: &Path) -> Result<Self> {
        let (folder, model) = locate(path)?;
        let file = TensorFile::open(&model)?;
        let config = config_file::read(&folder.join(CONFIG))?;
        let params = file.weights.params(&config)?;
        let tokenizer_json = read_tokenizer_json(&folder.join(TOKENIZER))?;
        Ok(Self { config, params, tokenizer_json })
    }
}

/// Whether every number of `params` is one to go on from; `path` is where they are from.
///
/// # Errors
/// [`Error::NotFinite`] names the first that is not.
pub fn check_finite(params: &Params, path: &Path) -> Result<()> {
    for (spec, values) in params.iter() {
        if let Some((at, &value)) = values.iter().enumerate().find(|(_, x)| !x.is_finite()) {
            let what = format!("{}[{at}] of {}", spec.name, path.display());
            let hint = "it was damaged, or its training diverged: start from another checkpoint";
            return Err(Error::NotFinite { what, value, hint: Some(hint.into()) });
        }
    }
    Ok(())
}

/// Checks that AdamW can go on from its moments, which were read from `path`: the mean of squares
/// comes under a root.
///
/// # Errors
/// [`Error::NotFinite`]; [`Error::Checkpoint`] names a mean of squares below 0, and its tensor.
pub(crate) fn check_moments(exp_avg: &Params, exp_avg_sq: &Params, path: &Path) -> Result<()> {
    check_finite(exp_avg, path)?;
    check_finite(exp_avg_sq, path)?;
    for (spec, values) in exp_avg_sq.iter() {
        if let Some((at, value)) = values.iter().enumerate().find(|(_, x)| **x < 0.0) {
            let problem = format!(
                "exp_avg_sq.{}[{at}] is {value}; a mean of squares is 0 or more",
                spec.name
            );
            return Err(Error::checkpoint(path, problem).with_hint("it was damaged: copy it again"));
        }
    }
    Ok(())
}

/// The configuration of the checkpoint at `path`, without its parameters.
///
/// # Errors
/// As for [`Checkpoint::load`].
pub fn read_config(path: &Path) -> Result<GptConfig> {
    config_file::read(&locate(path)?.0.join(CONFIG))
}

/// Bytes of the weights of the checkpoint at `path`; what is no file is for loading to say.
pub(crate) fn model_bytes(path: &Path) -> u64 {
    let file = locate(path)
        .and_then(|(_, model)| std::fs::metadata(&model).map_err(Error::io("read", &model)));
    file.map_or(0, |file| file.len())
}

/// The tokenizer of the checkpoint at `path`; none if it was saved without one.
///
/// # Errors
/// [`Error::Checkpoint`] if there is a tokenizer.json and it cannot be read or used.
pub fn read_tokenizer(path: &Path) -> Result<Option<Tokenizer>> {
    let file = locate(path)?.0.join(TOKENIZER);
    let Some(json) = read_tokenizer_json(&file)? else { return Ok(None) };
    Tokenizer::from_json(&json).map(Some).map_err(|error| error.in_checkpoint(&file))
}

fn read_tokenizer_json(path: &Path) -> Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = files::read_text(path, tokenizer::LONGEST_FILE);
    text.map(Some).map_err(|error| error.in_checkpoint(path))
}

/// How far the training of the checkpoint at `path` had come; none if it has weights only.
///
/// # Errors
/// [`Error::Checkpoint`] if there is a training state and it cannot be read.
pub fn read_progress(path: &Path) -> Result<Option<Progress>> {
    let state = locate(path)?.0.join(STATE);
    if !state.exists() {
        return Ok(None);
    }
    saved_progress(&TensorFile::open(&state)?).map(|saved| Some(saved.progress))
}

fn saved_progress(file: &TensorFile) -> Result<SavedProgress> {
    let Some(json) = file.metadata.get(PROGRESS) else {
        return Err(Error::checkpoint(
            &file.weights.path,
            format!("has no `{PROGRESS}` in its metadata"),
        ));
    };
    serde_json::from_str(json).map_err(|error| {
        Error::checkpoint(&file.weights.path, format!("`{PROGRESS}` in its metadata: {error}"))
    })
}

impl TrainState {
    /// Loads what the training of the checkpoint at `path` needs to go on; `model` is what
    /// [`Checkpoint::load`] found there.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the checkpoint has weights only, or the state is another model's,
    /// or as for [`Checkpoint::load`].
    pub fn load(path: &Path, model: &Params) -> Result<Self> {
        let (folder, _) = locate(path)?;
        let state = folder.join(STATE);
        if !state.exists() {
            let problem = format!("has weights only: no {STATE}, so it cannot be resumed");
            return Err(Error::checkpoint(folder, problem)
                .with_hint("start a new run from these weights instead (--init-from)"));
        }
        let file = TensorFile::open(&state)?;
        let SavedProgress { progress, of_model } = saved_progress(&file)?;
        let table = model.table();
        file.weights.check(&[rows(table, "exp_avg."), rows(table, "exp_avg_sq.")].concat())?;
        let expected = model.fingerprint();
        if let Some(found) = of_model.filter(|found| *found != expected) {
            let problem =
                format!("belongs to model {found:016x}; {MODEL} beside it is {expected:016x}");
            return Err(Error::checkpoint(state, problem).with_hint(
                "put the two files of one save together, or start a new run from these weights \
                 (--init-from)",
            ));
        }
        let moment = |prefix| file.weights.read_all(table.clone(), prefix);
        let (exp_avg, exp_avg_sq) = (moment("exp_avg.")?, moment("exp_avg_sq.")?);
        check_moments(&exp_avg, &exp_avg_sq, &state)?;
        Ok(Self { progress, exp_avg, exp_avg_sq })
    }
}

/// The folder and the model file of a checkpoint that is given as either.
fn locate(path: &Path) -> Result<(PathBuf, PathBuf)> {
    if path.is_file() {
        return Ok((path.parent().unwrap_or(Path::new("")).to_owned(), path.to_owned()));
    }
    let folder = swap::current(path);
    let model = folder.join(MODEL);
    if model.exists() {
        return Ok((folder, model));
    }
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return Err(Error::checkpoint(path, "there is no such file or folder"));
    };
    if exists(&folder.join("best")) || exists(&folder.join("last")) {
        return Err(Error::checkpoint(path, "is a run, not one of its checkpoints")
            .with_hint(format!("{0}/best or {0}/last", path.display())));
    }
    let mut others: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    others.sort();
    const KINDS: [&str; 6] = ["safetensors", "pt", "pth", "bin", "ckpt", "gguf"];
    let weights =
        |name: &&String| Path::new(name).extension().is_some_and(|e| KINDS.iter().any(|&k| k == e));
    let error = match others.first() {
        None => Error::checkpoint(path, format!("is an empty folder; expected {MODEL}, {CONFIG}")),
        Some(_) => Error::checkpoint(path, format!("is no checkpoint: it has no {MODEL}")),
    };
    Err(match others.iter().find(weights) {
        Some(name) => {
            error.with_hint(format!("it has {name}; give that file's path if it is meant"))
        }
        None => error,
    })
}
