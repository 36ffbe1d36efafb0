//! A new run: from new weights, from those of a model, or going on where nanoGPT stopped.

use super::weights::Weights;
use super::{Begun, Hear, New, Starting, reading, tell};
use crate::checkpoint::{Progress, TrainState};
use crate::data::{DataOptions, Dataset, Input, Room};
use crate::error::{Error, Result};
use crate::files::{quoted, write_whole};
use crate::formats::{self, GoesOn, Model, with_vocabulary};
use crate::model::{Gpt, Params, Tensors};
use crate::run::dataset::{data_options, settle_tokenizer};
use crate::run::folder::{RUNS, Run};
use crate::run::memory::check_training;
use crate::run::processor::cpu;
use crate::run::settings::Settings;
use crate::train::Trainer;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A new run, from new weights or from those of a model. Its folder is made last, when only writing
/// to it can go wrong.
///
/// # Errors
/// Settings, weights and a text that cannot be used, or not together; a folder that is taken.
pub fn anew(new: New, hear: Hear) -> Result<Begun> {
    let New { mut settings, model, goes_on, overwrite } = new;
    check_asked(&settings, model.as_ref(), goes_on)?;
    let (runs, out_dir) = (Path::new(RUNS), out_dir(&settings, overwrite)?);
    let cpu = cpu(settings.run.threads)?;
    settings.settle_dtype(cpu.isa());
    let load = |model| Weights::load(&model, &mut settings, goes_on, hear);
    let mut weights = model.map(load).transpose()?;
    let beside = out_dir.as_deref().map_or(Some(runs), Path::parent);
    let (data, room) = with_text(&mut settings, weights.as_mut(), goes_on, beside, hear)?;
    check_training(&settings.model, settings.train.sequences_per_step())?;
    let (params, state) = match weights {
        Some(Weights { params, goes_on, .. }) => {
            let state = goes_on.map(|from| state(from, &settings, &data)).transpose()?;
            (params, state)
        }
        None => {
            tell(hear, Starting::Doing("making the first weights"))?;
            let table = Arc::new(Tensors::of(&settings.model));
            (Params::init(table, settings.train.seed), None)
        }
    };
    let gpt = Gpt::with_params(settings.model.clone(), params, cpu)?;

    tell(hear, Starting::Folder)?;
    tell(hear, Starting::Doing("making the run's folder"))?;
    let mut run = match &out_dir {
        Some(folder) => Run::create_at(folder, overwrite)?,
        None if goes_on => Run::create(runs, "nanogpt")?,
        None => Run::create(runs, &settings.preset)?,
    };
    match furnished(&run, &settings, gpt, state, data, room) {
        // An evaluation alone leaves the latest run what `sample` should go on meaning.
        Ok(trainer) => Ok(Begun { run, is_latest: !settings.train.eval_only, settings, trainer }),
        Err(error) => {
            run.take_back();
            Err(error)
        }
    }
}

/// What cannot be is said before anything is read.
fn check_asked(settings: &Settings, model: Option<&Model>, goes_on: bool) -> Result<()> {
    match model {
        None => settings.check_from_scratch(),
        // Its text is not the built-in one, and what it knows would be lost on that.
        Some(model) if goes_on && settings.text.is_empty() => {
            let problem = format!("{} names no text", model.path.display());
            Err(Error::usage(problem)
                .with_hint(format!("tinygpt train TEXT --resume {}", quoted(&model.path))))
        }
        Some(_) => Ok(()),
    }
}

/// The folder that the run is to have, if it was named.
///
/// # Errors
/// It is taken, or another process trains the run in it: said before a long text is read, and asked
/// again when it is made.
fn out_dir(settings: &Settings, overwrite: bool) -> Result<Option<PathBuf>> {
    let folder = PathBuf::from(&settings.run.out_dir);
    let named = !folder.as_os_str().is_empty();
    if overwrite && !named {
        return Err(Error::usage("--overwrite: no --out-dir says what to replace")
            .with_hint("without --out-dir every run has a new folder"));
    }
    if named {
        Run::check_place(&folder, overwrite)?;
        Run::at(folder.clone()).map_or(Ok(()), |mut run| run.lock())?;
    }
    Ok(named.then_some(folder))
}

/// The text in the tokens of `weights` or its own, and the settings made to fit it.
fn with_text(
    settings: &mut Settings,
    weights: Option<&mut Weights>,
    goes_on: bool,
    beside: Option<&Path>,
    hear: Hear,
) -> Result<(Dataset, Option<Room>)> {
    let vocabulary = weights.as_ref().and_then(|weights| weights.tokenizer.clone());
    let known = vocabulary.is_some();
    if !known {
        settle_tokenizer(settings)?;
    }
    let options = with_vocabulary(DataOptions { vocabulary, ..data_options(settings) })?;
    let (data, room) = read(&settings.text, &options, beside, hear)?;
    if goes_on && !known {
        refuse_guess(settings, &data)?;
    }
    settings.settle_vocab_size(data.tokenizer.vocab_size()).map_err(|error| match &weights {
        Some(_) => error.with_hint("name the tokenizer that the weights were trained with"),
        None => error,
    })?;
    if let Some(weights) = weights {
        weights.crop(settings, &data, hear)?;
    }
    data.check(settings.model.block_size)?;
    settings.model.check()?;
    Ok((data, room))
}

/// The trainer of a run whose folder now has its tokens and its settings.
fn furnished(
    run: &Run,
    settings: &Settings,
    gpt: Gpt,
    state: Option<TrainState>,
    data: Dataset,
    room: Option<Room>,
) -> Result<Trainer> {
    let data = match room {
        Some(room) => moved(data, &room, run)?,
        None => data,
    };
    write_whole(&run.config(), settings.to_toml())?;
    let train = settings.train.clone();
    match state {
        Some(state) => Trainer::resume(gpt, state, data, train),
        None => Trainer::new(gpt, data, train),
    }
}

/// A training that goes on must mean the same by its tokens: a text that has as many characters as
/// the model tokens is taken for the one it was trained on, any other is not.
fn refuse_guess(settings: &Settings, data: &Dataset) -> Result<()> {
    let origin = &settings.origins["tokenizer"];
    let (found, expected) = (data.tokenizer.vocab_size(), settings.model.vocab_size);
    if origin.is_chosen() || found == expected {
        return Ok(());
    }
    let problem = format!(
        "nothing says what the model's {expected} tokens mean, and the text has {found} characters"
    );
    Err(Error::usage(problem).with_hint(
        "put the data set's meta.pkl beside the checkpoint, or name the tokenizer (--tokenizer)",
    ))
}

/// Where nanoGPT's trainer stopped, for ours to go on from.
fn state(from: GoesOn, settings: &Settings, data: &Dataset) -> Result<TrainState> {
    let GoesOn { step, exp_avg, exp_avg_sq, .. } = from;
    let train = settings.train.clone();
    if step >= train.max_iters {
        let all = train.max_iters;
        return Err(Error::usage(format!("already at {step} of {all} steps (max_iters)"))
            .with_hint(format!("raise it with --max-iters {}", 2 * step.max(1))));
    }
    let tokens = (train.sequences_per_step() * settings.model.block_size) as u64;
    let progress = Progress {
        step,
        // The model that had nanoGPT's best loss is not in the new run's folder.
        best_val_loss: None,
        stale_evals: 0,
        last_eval: None,
        tokens: step.saturating_mul(tokens),
        elapsed_s: 0.0,
        source: data.source.clone(),
        train_tokens: data.train.len() as u64,
        train,
        data: data.options.clone(),
    };
    Ok(TrainState { progress, exp_avg, exp_avg_sq })
}

/// The text as tokens; those of a user's own text in a folder that is to be moved to the run.
fn read(
    text: &[PathBuf],
    options: &DataOptions,
    beside: Option<&Path>,
    hear: Hear,
) -> Result<(Dataset, Option<Room>)> {
    let (input, room) = match text {
        [] => (Input::TinyShakespeare, None),
        paths => (Input::Paths(paths.to_vec()), Some(Room::beside(beside)?)),
    };
    let folder = room.as_ref().map(Room::path);
    if let Some(folder) = folder {
        tell(hear, Starting::Room(folder))?;
    }
    if let Some(pipe) = text.iter().find(|path| !path.is_file() && !path.is_dir()) {
        let pipe = match pipe == Path::new("-") {
            true => "standard input".into(),
            false => pipe.display().to_string(),
        };
        tell(hear, Starting::Doing(&format!("waiting for {pipe}")))?;
    }
    let data = reading(hear, |progress| match (text, folder) {
        ([prepared], Some(folder)) if Dataset::is_prepared(prepared) => {
            formats::adopt(prepared, options, folder, progress)
        }
        _ => Dataset::build(&input, options, folder, progress),
    })?;
    Ok((data, room))
}

/// The data set in the run's own folder, where files of the user's may be.
fn moved(data: Dataset, room: &Room, run: &Run) -> Result<Dataset> {
    // What is left out closes its files here: an open one cannot move everywhere.
    let Dataset { source, options, notices, .. } = data;
    let to = run.data();
    let move_all = || {
        fs::create_dir_all(&to)?;
        for file in fs::read_dir(room.path())? {
            let file = file?;
            fs::rename(file.path(), to.join(file.file_name()))?;
        }
        Ok(())
    };
    move_all().map_err(Error::io("move the tokens to", &to))?;
    Ok(Dataset { source, options, notices, ..Dataset::open(&to)? })
}
