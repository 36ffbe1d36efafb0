//! A run that stopped, going on.

use super::{Begun, Hear, Starting, reading, tell};
use crate::checkpoint::{self, Checkpoint, Progress, TrainState};
use crate::checkpoint::{check_finite, read_config, read_progress};
use crate::data::DataOptions;
use crate::error::{Error, Result};
use crate::files::{quoted, read_text, write_whole};
use crate::model::{Gpt, Params};
use crate::run::dataset::dataset;
use crate::run::folder::{RUNS, Run};
use crate::run::keys::Group;
use crate::run::memory::check_training;
use crate::run::processor::cpu;
use crate::run::read::LONGEST_CONFIG;
use crate::run::settings::{Layers, Settings, diff};
use crate::run::values::RunSettings;
use crate::train::Trainer;
use std::path::Path;

/// The run that a user typed, or the latest, with whatever settings `changed` has over those of its
/// config.toml; of these only [`command_line`](Layers::command_line) and text may be given.
///
/// # Errors
/// A path that is no run, or one without a checkpoint that can be resumed; a changed setting that
/// says what the model and its text are; a run that another process is training.
pub fn again(typed: Option<&Path>, changed: Layers, hear: Hear) -> Result<Begun> {
    if !changed.text.is_empty() || changed.dataset.is_some() {
        return Err(Error::usage("a resumed run keeps its text").with_hint(
            "`tinygpt train TEXT --init-from RUN` starts a new run from a run's weights",
        ));
    }
    if let Some(path) = typed.filter(|path| checkpoint::exists(path)) {
        // What a checkpoint lacks for a resume is said by loading it; nothing lacking, it is in a
        // run.
        TrainState::load(path, &Checkpoint::load(path)?.params)?;
        return Err(Error::usage(format!("{} is a checkpoint, not a run", path.display()))
            .with_hint("--resume takes the run's folder, the one with metrics.jsonl"));
    }
    let mut run = Run::open(Path::new(RUNS), typed)?;
    // Before any of it is read, which another process may be about to replace.
    run.lock()?;
    let newest = run.newest()?;
    let best = run.best();
    // Said now, because saving would refuse to replace it.
    if newest != best && checkpoint::is_damaged(&best) {
        let problem = "is damaged: it has no model.safetensors";
        return Err(Error::checkpoint(&best, problem).with_hint(format!(
            "remove {}: {} is what the run goes on from",
            quoted(&best),
            quoted(&newest)
        )));
    }
    let file = Layers { file: Some(run.config()), ..Layers::default() };
    let typed = Layers { file: file.file.clone(), ..changed };
    let (written, mut settings) = (Settings::resolve(&file)?, Settings::resolve(&typed)?);
    settings.notices.iter().try_for_each(|notice| tell(hear, Starting::Note(notice)))?;
    let cpu = cpu(settings.run.threads)?;
    settings.settle_dtype(cpu.isa());
    let before = as_trained(&newest, &written).map_err(|error| or_best(&run, &newest, error))?;
    // Before anything is compared with it: it may be another run's.
    check_training(&before.model, before.train.sequences_per_step())?;
    tell(hear, Starting::Doing("loading the checkpoint"))?;
    let (params, state) = resumable(&newest).map_err(|error| or_best(&run, &newest, error))?;
    let changes = diff(&before, &settings);
    for change in &changes {
        let (name, old, new) = (change.key.name, &change.old, &change.new);
        let fixed = matches!(change.key.group, Group::Model | Group::Data);
        // The seed says which part of the text validates, and which batches were seen.
        if fixed || matches!(name, "seed" | "out_dir") {
            let typed = diff(&written, &settings).iter().any(|typed| typed.key.name == name);
            let (place, hint) = match typed {
                true => ("", "what the model and its text are cannot change; start a new run"),
                false => (" in its config.toml", "put the old value back; it cannot change"),
            };
            let problem = format!("{name} = {new}{place}: this run has {name} = {old}");
            return Err(Error::usage(problem).with_hint(hint));
        }
    }
    if settings.train.eval_only {
        let eval = format!("`tinygpt eval {}` evaluates it", quoted(run.folder()));
        return Err(Error::usage("eval_only = true: there is no step to resume")
            .with_hint(format!("{eval}; --eval-only=false trains on")));
    }
    check_training(&settings.model, settings.train.sequences_per_step())?;
    let data = reading(hear, |progress| dataset(&run, &newest, &settings, progress))?;
    let gpt = Gpt::with_params(settings.model.clone(), params, cpu)?;
    let trainer = Trainer::resume(gpt, state, data, settings.train.clone())?;
    changes.iter().try_for_each(|change| tell(hear, Starting::Changed(change)))?;
    tell(hear, Starting::Doing("writing the run's settings"))?;
    write_whole(&run.config(), changed_lines(&run, &written, &settings)?)?;
    // An evaluation alone did not make it the latest.
    Ok(Begun { run, is_latest: written.train.eval_only, settings, trainer })
}

/// The settings as the checkpoint has them: what was edited in config.toml since then is a change
/// like one on the command line.
fn as_trained(checkpoint: &Path, written: &Settings) -> Result<Settings> {
    let model = read_config(checkpoint)?;
    let mut saved = Settings { model, ..written.clone() };
    if let Some(Progress { train, data, .. }) = read_progress(checkpoint)? {
        let DataOptions { tokenizer, val_fraction, split, newline, lossy, allow_special, .. } =
            data;
        saved.run = RunSettings {
            tokenizer,
            val_fraction,
            split,
            newline,
            lossy,
            allow_special,
            ..saved.run.clone()
        };
        saved.train = train;
    }
    Ok(saved)
}

/// What a run goes on from.
fn resumable(checkpoint: &Path) -> Result<(Params, TrainState)> {
    let loaded = Checkpoint::load(checkpoint)?;
    check_finite(&loaded.params, checkpoint)?;
    let state = TrainState::load(checkpoint, &loaded.params)?;
    Ok((loaded.params, state))
}

/// The error of going on from `checkpoint`, with a way out if the run's best one is whole.
fn or_best(run: &Run, checkpoint: &Path, error: Error) -> Error {
    let best = run.best();
    match read_progress(&best) {
        Ok(Some(Progress { step, .. })) if best != checkpoint && resumable(&best).is_ok() => error
            .and_hint(&format!(
                "{} is whole, of step {step}: remove {} to go on from there",
                quoted(&best),
                quoted(checkpoint)
            )),
        _ => error,
    }
}

/// The run's config.toml with the lines of changed settings replaced: the others still say where
/// their values first came from.
fn changed_lines(run: &Run, before: &Settings, after: &Settings) -> Result<String> {
    let old = read_text(&run.config(), LONGEST_CONFIG)?;
    let new = after.to_toml();
    fn key(line: &str) -> Option<&str> {
        line.split(" = ").next()
    }
    let changes = diff(before, after);
    let changed = changes.iter().map(|change| change.key.name);
    let lines = old.lines().map(|line| {
        let name = changed.clone().find(|name| key(line) == Some(name));
        name.and_then(|name| new.lines().find(|line| key(line) == Some(name))).unwrap_or(line)
    });
    Ok(lines.map(|line| format!("{line}\n")).collect())
}
