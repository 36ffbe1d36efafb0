//! A checkpoint: a folder with a model, its tokenizer, and what training needs to go on.
//!
//! ```text
//!   model.safetensors            every parameter, f32, under its name in the table
//!   config.json                  the keys of GptConfig, "model_type", "format_version"
//!   tokenizer.json               if the model has one
//!   training_state.safetensors   exp_avg.NAME, exp_avg_sq.NAME; Progress as JSON in the metadata.
//!                                Without it the model can be sampled and fine-tuned, not resumed
//! ```
//!
//! **All or nothing.** A save replaces the folder as a whole; how, and why a kill at any moment
//! leaves a checkpoint to load, is explained in `swap.rs`. One process saves; others may
//! load the model meanwhile. A save needs room for two checkpoints.
//!
//! **Loading trusts nothing**: sizes are compared with the file's before anything is allocated, and
//! every name and shape with the table that `config.json` gives.

mod config_file;
pub(crate) mod foreign;
pub(crate) mod stored;
pub(crate) mod tensor_file;
pub(crate) mod swap;
mod load;

#[cfg(test)]
mod tests;

pub(crate) use load::check_moments;
pub(crate) use load::model_bytes;
pub use load::{check_finite, read_config, read_progress, read_tokenizer};

use crate::config::{GptConfig, TrainConfig};
use crate::data::DataOptions;
use crate::error::{Error, Result};
use crate::files;
use crate::model::Params;
use crate::tokenizer::TOKENIZER_FILE as TOKENIZER;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

const MODEL: &str = "model.safetensors";
const CONFIG: &str = "config.json";
const STATE: &str = "training_state.safetensors";
/// All that a checkpoint folder holds; anything else in it is the user's.
const FILES: [&str; 4] = [MODEL, CONFIG, TOKENIZER, STATE];

/// The metadata key of [`Progress`] in the training state.
const PROGRESS: &str = "state";

/// What sampling needs: a model and, if it was saved with one, its tokenizer.
#[derive(Debug)]
pub struct Checkpoint {
    /// The model's shape.
    pub config: GptConfig,
    /// Its parameters.
    pub params: Params,
    /// The text of `tokenizer.json`.
    pub tokenizer_json: Option<String>,
}

/// How far training had come, in a few numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Optimizer steps done.
    pub step: u64,
    /// The best validation loss so far, in nats; none before the first evaluation.
    pub best_val_loss: Option<f32>,
    /// Evaluations since then (what `patience` counts).
    pub stale_evals: u64,
    /// The step of the last evaluation: a resume there does not evaluate again.
    pub last_eval: Option<u64>,
    /// Tokens trained on.
    pub tokens: u64,
    /// Seconds of training, over all resumes.
    pub elapsed_s: f64,
    /// What the text was called.
    pub source: String,
    /// Tokens of its training split: a resume on another text is refused.
    pub train_tokens: u64,
    /// How it was trained.
    pub train: TrainConfig,
    /// How its text became tokens.
    #[serde(default)]
    pub data: DataOptions,
}

/// The metadata of a training state.
#[derive(Serialize, Deserialize)]
struct SavedProgress {
    #[serde(flatten)]
    progress: Progress,
    /// The fingerprint of the model it belongs to: two runs may have the same shapes.
    #[serde(default)]
    of_model: Option<u64>,
}

/// What resuming needs beside the model.
#[derive(Debug)]
pub struct TrainState {
    /// How far training had come.
    pub progress: Progress,
    /// AdamW's mean of gradients.
    pub exp_avg: Params,
    /// AdamW's mean of squared gradients.
    pub exp_avg_sq: Params,
}

/// A [`TrainState`] to save, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct StateRef<'a> {
    /// How far training has come.
    pub progress: &'a Progress,
    /// AdamW's mean of gradients.
    pub exp_avg: &'a Params,
    /// AdamW's mean of squared gradients.
    pub exp_avg_sq: &'a Params,
}

/// Replaces the checkpoint at `folder`, or makes one, all or nothing.
///
/// # Errors
/// [`Error::Io`] (a full disk, say): the previous checkpoint stays. [`Error::Checkpoint`] if
/// `folder` holds other things than a checkpoint.
pub fn save(
    folder: &Path,
    config: &GptConfig,
    params: &Params,
    tokenizer_json: Option<&str>,
    state: Option<StateRef<'_>>,
) -> Result<()> {
    swap::replace(folder, &FILES, |new| {
        tensor_file::write(&new.join(MODEL), ("format", "pt".into()), &[("", params)])?;
        write_text(&new.join(CONFIG), &config_file::to_json(config))?;
        if let Some(text) = tokenizer_json {
            write_text(&new.join(TOKENIZER), text)?;
        }
        if let Some(state) = state {
            let of_model = Some(params.fingerprint());
            let saved = SavedProgress { progress: state.progress.clone(), of_model };
            let saved = serde_json::to_string(&saved).expect("numbers and booleans");
            let moments = [("exp_avg.", state.exp_avg), ("exp_avg_sq.", state.exp_avg_sq)];
            tensor_file::write(&new.join(STATE), (PROGRESS, saved), &moments)?;
        }
        Ok(())
    })
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    files::write_synced(path, |file| file.write_all(text.as_bytes()))
        .map_err(Error::io("write", path))
}

/// Whether there is a checkpoint at `folder`, be it one that a killed save left half-way.
pub fn exists(folder: &Path) -> bool {
    swap::current(folder).join(MODEL).is_file()
}

/// Whether there are files at `folder` but no model among them: a save would refuse to replace it.
pub fn is_damaged(folder: &Path) -> bool {
    let holds_files =
        |at: &Path| std::fs::read_dir(at).is_ok_and(|mut files| files.next().is_some());
    !exists(folder) && holds_files(&swap::current(folder))
}

/// Removes the checkpoint at `folder`; files that no checkpoint has stay, with the folder.
pub fn remove(folder: &Path) -> Result<()> {
    swap::remove(folder)
}

/// A file in `folder` that no checkpoint has: the user's, if there is one.
pub(crate) fn foreign_file(folder: &Path) -> Option<PathBuf> {
    let ours = |path: &PathBuf| FILES.iter().any(|&name| path.file_name() == Some(name.as_ref()));
    std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(|path| !ours(path))
}
