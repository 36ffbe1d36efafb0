//! What a training starts from: a text and new weights, other weights, or a run that stopped.
//!
//! **Nothing is left behind by a start that fails or is broken off**: a new run's folder is made last
//! and taken away again unless something is trained in it, and what a text becomes on the way there
//! is in a folder of its own (`data/room.rs`).

mod weights;
mod anew;
mod again;

use super::event::{Ending, Event};
use super::folder::{RUNS, Run};
use super::keeper::Keeper;
use super::keys::{Group, KEYS, find};
use super::layers::Origin;
use super::read::FINETUNE;
use super::settings::{Change, Layers, Settings};
use super::training::kept;
use crate::error::{Error, Result};
use crate::files::quoted;
use crate::formats::{self, Format, Model};
use crate::train::Trainer;
pub use again::again;
pub use anew::anew;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
pub use weights::fitted;

/// A training about to start, and the folder it keeps. Dropped before it [trains](Self::train), it
/// takes a new run's folder away again.
pub struct Begun {
    /// The folder.
    pub run: Run,
    /// Every setting, with where it came from.
    pub settings: Settings,
    /// The model, its text and its optimizer.
    pub trainer: Trainer,
    /// Whether `runs/latest` is to name it.
    is_latest: bool,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.run.take_back();
    }
}

impl Begun {
    /// [Trains](super::train). From now on a new run stays, and is the latest.
    ///
    /// # Errors
    /// As for [`train`](super::train).
    pub fn train(
        &mut self,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ending> {
        let (trainer, settings) = (&mut self.trainer, &self.settings.run);
        let keeper = Keeper::open(&mut self.run, trainer, settings.tensorboard)?;
        if self.is_latest && !keeper.run().call_latest(Path::new(RUNS)) {
            let folder = quoted(keeper.run().folder());
            let note = format!("runs/latest cannot be made to name this run: name it, {folder}");
            on_event(Event::Note(&note));
        }
        kept(keeper, trainer, settings.sample_tokens, stop, on_event)
    }

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

/// What a start tells on the way.
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
    /// The folder of a new run is about to be made: whoever ends the process leaves it there.
    Folder,
    /// So many bytes of the text are read.
    Reading {
        /// Bytes done.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
}

/// Who hears what a start tells, and may break it off: it ends with [`Error::Stopped`] then.
pub type Hear<'a> = &'a mut dyn FnMut(Starting) -> ControlFlow<()>;

fn tell(hear: Hear, starting: Starting) -> Result<()> {
    if hear(starting).is_break() { Err(Error::Stopped) } else { Ok(()) }
}

/// What `read` makes of a text, its progress told. It knows no end but its own, so that to break it
/// off is to unwind out of it; no further than here.
fn reading<T>(hear: Hear, read: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<T>) -> Result<T> {
    let mut progress = |done, total| {
        if let Err(stopped) = tell(hear, Starting::Reading { done, total }) {
            resume_unwind(Box::new(stopped));
        }
    };
    // What it was making is dropped, whole or not.
    let read = catch_unwind(AssertUnwindSafe(|| read(&mut progress)));
    read.unwrap_or_else(|panic| match panic.downcast::<Error>() {
        Ok(stopped) => Err(*stopped),
        Err(panic) => resume_unwind(panic),
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_is_broken_off_anywhere_leaves_nothing_and_says_so() {
        let place = tempfile::tempdir().unwrap();
        let (text, out) = (place.path().join("my.txt"), place.path().join("new/out"));
        std::fs::write(&text, "to be or not to be ".repeat(100)).unwrap();
        let set = |key: &str, value: String| (key.to_owned(), value);
        let layers = Layers {
            text: vec![text],
            command_line: vec![
                set("out_dir", out.display().to_string()),
                set("block_size", "8".into()),
                set("n_embd", "8".into()),
                set("threads", "1".into()),
            ],
            ..Layers::default()
        };
        let settings = settings(layers, None, false).unwrap();
        let begin = |until: usize| {
            let mut told = 0;
            let settings = settings.clone();
            let new = New { settings, model: None, goes_on: false, overwrite: false };
            let begun = anew(new, &mut |_| {
                told += 1;
                if told > until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            (begun, told)
        };
        let (begun, all) = begin(usize::MAX);
        assert!(begun.unwrap().run.folder() == out && all > 4, "{all}");
        assert!(!out.exists(), "dropped, and never trained");
        for until in 0..all {
            let (begun, told) = begin(until);
            assert!(matches!(begun, Err(Error::Stopped)) && told == until + 1, "{until}");
            let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().flatten().collect();
            assert_eq!(left.len(), 1, "{until}: {left:?}");
        }
    }
}
