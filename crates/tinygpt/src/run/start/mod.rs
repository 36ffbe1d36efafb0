//! What a training starts from: a text and new weights, other weights, or a run that stopped.
//!
//! **Nothing is left behind by a start that fails**: a new run's folder is made last, and what a
//! text becomes on the way there is in a folder of its own (`room.rs`).

mod room;
mod weights;
mod anew;
mod again;

use super::folder::Run;
use super::keys::{Group, KEYS, find};
use super::layers::Origin;
use super::read::FINETUNE;
use super::settings::{Change, Layers, Settings};
use crate::error::{Error, Result};
use crate::formats::{self, Format, Model};
use crate::train::Trainer;
pub use again::again;
pub use anew::anew;
use std::path::Path;
pub use weights::fitted;

/// A training about to start, and the folder it keeps.
pub struct Begun {
    /// The folder.
    pub run: Run,
    /// Every setting, with where it came from.
    pub settings: Settings,
    /// The model, its text and its optimizer.
    pub trainer: Trainer,
}

impl Begun {
    /// Whether a run that goes on has nothing to do. One that was stopped in its last evaluation has
    /// only that to do.
    pub fn is_done(&self) -> bool {
        let progress = self.trainer.progress();
        progress.step >= self.trainer.config().max_iters
            && progress.last_eval == Some(progress.step)
    }
}

/// What a new run is made of.
pub struct New {
    /// What it is told.
    pub settings: Settings,
    /// The weights to start from; without, they are new.
    pub model: Option<Model>,
    /// Whether the training of `model`, of nanoGPT's, goes on: its step and its optimizer too.
    pub goes_on: bool,
    /// Replace the run in `out_dir`.
    pub overwrite: bool,
}

/// What a start tells on the way. Whoever hears it may panic to break it off: nothing of it is left.
#[derive(Debug)]
#[non_exhaustive]
pub enum Starting<'a> {
    /// What the user should know, in whole sentences without a stop.
    Note(&'a str),
    /// A setting of a run that goes on is not what it was.
    Changed(&'a Change),
    /// What is done until the next of these comes, which may take long.
    Doing(&'a str),
    /// A folder for tokens in the making, for whoever ends the process to remove.
    Room(&'a Path),
    /// So many bytes of the text are read.
    Reading {
        /// Bytes done.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
}

/// Who hears what a start tells.
pub type Hear<'a> = &'a mut dyn FnMut(Starting);

/// Whether a path that is to be resumed is a model of another program's, for [`New::goes_on`], and no
/// run for [`again`].
pub fn is_foreign(path: &Path) -> bool {
    formats::exists(path) && Format::of(path).is_ok_and(|format| format != Format::TinyGpt)
}

/// The settings of a new run. A model of another program's is fine-tuned unless a recipe is named,
/// and brings its own recipe where its training `goes_on`; which settings that are is told in
/// [`Settings::notices`].
///
/// # Errors
/// As for [`Settings::resolve`]; two texts.
pub fn settings(layers: Layers, model: Option<&Model>, goes_on: bool) -> Result<Settings> {
    if let (Some(name), [text, ..]) = (&layers.dataset, &layers.text[..]) {
        return Err(Error::usage(format!("--dataset {name} and {}: two texts", text.display()))
            .with_hint("leave one of them out"));
    }
    let foreign = model.filter(|model| model.format != Format::TinyGpt);
    let unasked = !goes_on && layers.preset.is_none() && foreign.is_some();
    let layers = Layers {
        usual_preset: foreign.map(|_| FINETUNE),
        brought: foreign.filter(|_| goes_on).map(|model| (model.path.clone(), brought(model))),
        has_weights: model.is_some(),
        ..layers
    };
    let mut settings = Settings::resolve(&layers)?;
    if unasked && settings.preset == FINETUNE {
        let shown = settings.shown();
        let of_preset = |name: &str| settings.origins[name] == Origin::Preset(FINETUNE.into());
        let rows = KEYS.iter().map(|key| key.name).filter(|name| of_preset(name));
        let rows: Vec<_> = rows.map(|name| format!("{name} = {}", shown[name])).collect();
        settings.notices.push(format!("preset {FINETUNE}: {}", rows.join(", ")));
    }
    Ok(settings)
}

/// How nanoGPT's trainer was told to train: not where, nor on what.
fn brought(model: &Model) -> Vec<(String, String)> {
    let kept = |(key, _): &&(String, String)| {
        let group = find(key).map(|key| key.group);
        let ours = matches!(group, Some(Group::Training | Group::Evaluation));
        ours && !matches!(key.as_str(), "eval_only" | "dtype")
    };
    model.settings().iter().filter(kept).cloned().collect()
}
