//! Reading a checkpoint back, whoever wrote it and in whatever state a kill left it.

use super::{CONFIG, Checkpoint, MODEL, PROGRESS, Progress, STATE, TOKENIZER};
use super::{SavedProgress, TrainState};
use super::{config_file, exists, swap, tensor_file::TensorFile};
use crate::config::GptConfig;
use crate::error::{Error, Result};
use crate::files;
use crate::model::tensors::Spec;
use crate::model::{Params, Tensors};
use crate::tokenizer::{self, Tokenizer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The unembedding's name, for files that store it although it is the token embedding.
const HEAD: &str = "lm_head.weight";
impl Checkpoint {
    /// Loads a checkpoint folder, or a `.safetensors` file with its `config.json` beside it.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] says which file or tensor is wrong, and how; [`Error::Io`] which file
    /// the system does not let us read.
    pub fn load(path: &Path) -> Result<Self> {
        let (folder, model) = locate(path)?;
        let mut file = TensorFile::open(&model)?;
        let config = config_file::read(&folder.join(CONFIG))?;
        // Before the table is built: a block has at least six tensors, so more blocks than tensors
        // cannot be, whatever a damaged config.json says.
        if config.n_layer > file.len() {
            let (n, m) = (config.n_layer, file.len());
            let problem = format!("has {m} tensors; n_layer = {n} in config.json needs more");
            return Err(Error::checkpoint(model, problem));
        }
        let params = read_params(&mut file, &config)?;
        let tokenizer_json = read_tokenizer_json(&folder.join(TOKENIZER))?;
        Ok(Self { config, params, tokenizer_json })
    }

    /// Whether every weight is a number to go on from; `path` is what an error calls the
    /// checkpoint.
    ///
    /// # Errors
    /// [`Error::NotFinite`] names the first that is not.
    pub fn check_finite(&self, path: &Path) -> Result<()> {
        finite(&self.params, path)
    }
}

fn finite(params: &Params, path: &Path) -> Result<()> {
    for (spec, values) in params.iter() {
        if let Some((at, &value)) = values.iter().enumerate().find(|(_, x)| !x.is_finite()) {
            let what = format!("{}[{at}] of {}", spec.name, path.display());
            let hint = "it was damaged, or its training diverged: start from another checkpoint";
            return Err(Error::NotFinite { what, value, hint: Some(hint.into()) });
        }
    }
    Ok(())
}

fn read_params(file: &mut TensorFile, config: &GptConfig) -> Result<Params> {
    let table = Arc::new(Tensors::of(config));
    let mut rows = rows(&table, "");
    let stored_tied_head = config.tied && file.has(HEAD);
    if stored_tied_head {
        rows.push((HEAD.to_owned(), &table.wte.shape));
    }
    file.check(&rows)?;
    let mut params = Params::zeros(table.clone());
    for spec in table.iter() {
        file.read(&spec.name, params.get_mut(spec))?;
    }
    if stored_tied_head {
        let mut head = vec![0.0; table.wte.len()];
        file.read(HEAD, &mut head)?;
        // By bits, so that a NaN equals itself.
        if head.iter().zip(params.get(&table.wte)).any(|(a, b)| a.to_bits() != b.to_bits()) {
            let wte = &table.wte.name;
            let problem = format!("{HEAD} differs from {wte}, though config.json says tied");
            return Err(Error::checkpoint(&file.path, problem)
                .with_hint("\"tied\": false in config.json gives the model both"));
        }
    }
    Ok(params)
}

/// The names (after `prefix`) and shapes that a file of that table has.
fn rows<'a>(table: &'a Tensors<Spec>, prefix: &str) -> Vec<(String, &'a [usize])> {
    table.iter().map(|spec| (format!("{prefix}{}", spec.name), &*spec.shape)).collect()
}

/// The configuration of the checkpoint at `path`, without its parameters.
///
/// # Errors
/// As for [`Checkpoint::load`].
pub fn read_config(path: &Path) -> Result<GptConfig> {
    config_file::read(&locate(path)?.0.join(CONFIG))
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
        return Err(Error::checkpoint(&file.path, format!("has no `{PROGRESS}` in its metadata")));
    };
    serde_json::from_str(json).map_err(|error| {
        Error::checkpoint(&file.path, format!("`{PROGRESS}` in its metadata: {error}"))
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
        let mut file = TensorFile::open(&state)?;
        let SavedProgress { progress, of_model } = saved_progress(&file)?;
        let table = model.table();
        file.check(&[rows(table, "exp_avg."), rows(table, "exp_avg_sq.")].concat())?;
        let expected = model.fingerprint();
        if let Some(found) = of_model.filter(|found| *found != expected) {
            let problem =
                format!("belongs to model {found:016x}; {MODEL} beside it is {expected:016x}");
            return Err(Error::checkpoint(state, problem).with_hint(
                "put the two files of one save together, or start a new run from these weights \
                 (--init-from)",
            ));
        }
        let mut moment = |prefix: &str| {
            let mut params = Params::zeros(table.clone());
            for spec in table.iter() {
                file.read(&format!("{prefix}{}", spec.name), params.get_mut(spec))?;
            }
            finite(&params, &state)?;
            Ok(params)
        };
        Ok(Self { progress, exp_avg: moment("exp_avg.")?, exp_avg_sq: moment("exp_avg_sq.")? })
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
