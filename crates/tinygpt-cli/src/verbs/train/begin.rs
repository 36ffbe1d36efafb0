//! What a training starts from: a text and new weights, other weights, or a run that stopped.

use super::room::Room;
use super::signals::Signals;
use super::weights::Weights;
use crate::args::{cpu, typed_settings, with_vocabulary};
use crate::memory::check_training;
use crate::out::tell;
use crate::progress::{patiently, reading};
use crate::{failure::Failure, trained};
use clap::ArgMatches;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};
use tinygpt::checkpoint::{self, Progress, TrainState, check_finite, read_config, read_progress};
use tinygpt::files::{quoted, read_text, write_whole};
use tinygpt::formats::{self, Format, GoesOn, Model};
use tinygpt::model::{Params, Tensors};
use tinygpt::run::keys::{self, Group};
use tinygpt::run::layers::Origin;
use tinygpt::run::read::{FINETUNE, LONGEST_CONFIG, is_python};
use tinygpt::run::{data_options, dataset, folder::RUNS};
use tinygpt::run::{settings::diff, values::RunSettings};
use tinygpt::{Checkpoint, DataOptions, Dataset, Gpt, Input, Layers, Run, Settings, Trainer};

/// A training about to start, and the folder it keeps.
pub struct Begun {
    pub run: Run,
    pub settings: Settings,
    pub trainer: Trainer,
}

/// The model that a new run starts from, if it does: that of `--init-from`, or another program's
/// whose training `--resume` goes on with.
pub fn model(matches: &ArgMatches) -> Result<Option<Model>, Failure> {
    let path = |name| matches.try_get_one::<PathBuf>(name).ok().flatten();
    if let Some(path) = path("init-from") {
        return trained::named(Some(path)).map(Some);
    }
    let foreign = |path: &&PathBuf| {
        formats::exists(path) && Format::of(path).is_ok_and(|format| format != Format::TinyGpt)
    };
    path("resume").filter(foreign).map(|path| trained::named(Some(path))).transpose()
}

/// The settings of a new run; a model of another program's is fine-tuned unless a recipe is named,
/// and brings its own recipe where its training goes on.
pub fn settings(matches: &ArgMatches, model: Option<&Model>) -> Result<Settings, Failure> {
    let foreign = model.filter(|model| trained::is_foreign(model));
    let goes_on = foreign.filter(|_| matches.contains_id("resume"));
    let (file, text) = file_and_text(matches)?;
    let dataset = matches.get_one::<String>("dataset").cloned();
    if let (Some(name), [text, ..]) = (&dataset, &text[..]) {
        let problem = format!("--dataset {name} and {}: two texts", text.display());
        return Err(Failure::usage(problem).with_hint("leave one of them out"));
    }
    let layers = Layers {
        preset: matches.get_one::<String>("preset").cloned(),
        usual_preset: foreign.map(|_| FINETUNE),
        brought: goes_on.map(|model| (model.path.clone(), brought(model))),
        file,
        text,
        dataset,
        has_weights: model.is_some(),
        command_line: typed_settings(matches),
    };
    let settings = Settings::resolve(&layers).map_err(|error| Failure::from(error).into_usage())?;
    settings.notices.iter().for_each(|notice| tell(&format!("note: {notice}")));
    let unasked = goes_on.is_none() && layers.preset.is_none() && foreign.is_some();
    if unasked && settings.preset == FINETUNE {
        let shown = settings.shown();
        let of_preset =
            |key: &&keys::Key| settings.origins[key.name] == Origin::Preset(FINETUNE.into());
        let rows = keys::KEYS.iter().filter(of_preset);
        let rows: Vec<_> = rows.map(|key| format!("{} = {}", key.name, shown[key.name])).collect();
        tell(&format!("note: preset {FINETUNE}: {}", rows.join(", ")));
    }
    Ok(settings)
}

/// The config file and the texts: one of the words may be a config of nanoGPT's.
fn file_and_text(matches: &ArgMatches) -> Result<(Option<PathBuf>, Vec<PathBuf>), Failure> {
    let texts = matches.get_many::<PathBuf>("text").into_iter().flatten().cloned();
    let (configs, text): (Vec<_>, Vec<_>) = texts.partition(|path| is_python(path));
    let named = matches.get_one::<PathBuf>("config").cloned();
    let mut configs: Vec<PathBuf> = named.into_iter().chain(configs).collect();
    if let [one, another, ..] = &configs[..] {
        let problem = format!("{} and {}: two config files", one.display(), another.display());
        return Err(Failure::usage(problem).with_hint(
            "the text of Python files goes through a pipe: cat *.py | tinygpt train -",
        ));
    }
    Ok((configs.pop(), text))
}

/// How nanoGPT's trainer was told to train: not where, nor on what.
fn brought(model: &Model) -> Vec<(String, String)> {
    let kept = |(key, _): &&(String, String)| {
        let group = keys::find(key).map(|key| key.group);
        let ours = matches!(group, Some(Group::Training | Group::Evaluation));
        ours && !matches!(key.as_str(), "eval_only" | "dtype")
    };
    model.settings().iter().filter(kept).cloned().collect()
}

/// A new run, from new weights or from those of `model`. Its folder is made last, when nothing can
/// go wrong any more.
pub fn anew(
    matches: &ArgMatches,
    mut settings: Settings,
    model: Option<Model>,
    signals: &Signals,
) -> Result<Begun, Failure> {
    let goes_on = matches.contains_id("resume");
    match &model {
        None => settings.check_from_scratch().map_err(|error| Failure::from(error).into_usage())?,
        // Its text is not the built-in one, and what it knows would be lost on that.
        Some(model) if goes_on && settings.text.is_empty() => {
            let problem = format!("{} names no text", model.path.display());
            return Err(Failure::usage(problem)
                .with_hint(format!("tinygpt train TEXT --resume {}", quoted(&model.path))));
        }
        Some(_) => {}
    }
    let (runs, overwrite) = (Path::new(RUNS), matches.get_flag("overwrite"));
    let out_dir = PathBuf::from(&settings.run.out_dir);
    let named = !out_dir.as_os_str().is_empty();
    match named {
        // Asked here too, before a long text is read.
        true => Run::check_place(&out_dir, overwrite)?,
        false if overwrite => {
            return Err(Failure::usage("--overwrite: no --out-dir says what to replace")
                .with_hint("without --out-dir every run has a new folder"));
        }
        false => {}
    }
    let cpu = cpu(settings.run.threads)?;
    settings.settle_dtype(cpu.isa());
    let mut weights =
        model.map(|model| Weights::load(&model, &mut settings, goes_on)).transpose()?;
    let vocabulary = weights.as_ref().and_then(|weights| weights.tokenizer.clone());
    let known = vocabulary.is_some();
    let options = with_vocabulary(DataOptions { vocabulary, ..data_options(&settings) })?;
    let beside = if named { out_dir.parent() } else { Some(runs) };
    let (data, room) = read(&settings.text, &options, beside, signals)?;
    if goes_on && !known {
        refuse_guess(&settings, &data)?;
    }
    settings.settle_vocab_size(data.tokenizer.vocab_size())?;
    if let Some(weights) = &mut weights {
        weights.crop(&mut settings, &data);
    }
    data.check(settings.model.block_size)?;
    settings.model.check()?;
    check_training(&settings.model, settings.train.sequences_per_step())?;
    let (params, state) = match weights {
        Some(Weights { params, goes_on, .. }) => {
            let state = goes_on.map(|from| state(from, &settings, &data)).transpose()?;
            (params, state)
        }
        None => {
            let table = Arc::new(Tensors::of(&settings.model));
            let params = || Params::init(table, settings.train.seed);
            (patiently("making the first weights", params), None)
        }
    };
    let gpt = Gpt::with_params(settings.model.clone(), params, cpu)?;

    let run = match named {
        true => Run::create_at(&out_dir, overwrite)?,
        false if goes_on => Run::create(runs, "nanogpt")?,
        false => Run::create(runs, &settings.preset)?,
    };
    // An evaluation alone leaves the latest run what `sample` should go on meaning.
    if !settings.train.eval_only && !run.call_latest(runs) {
        let folder = quoted(run.folder());
        tell(&format!("note: runs/latest cannot be made to name this run: name it, {folder}"));
    }
    let data = match room {
        Some(room) => moved(data, &room, &run)?,
        None => data,
    };
    write_whole(&run.config(), settings.to_toml())?;
    let train = settings.train.clone();
    let trainer = match state {
        Some(state) => Trainer::resume(gpt, state, data, train)?,
        None => Trainer::new(gpt, data, train)?,
    };
    Ok(Begun { run, settings, trainer })
}

/// A training that goes on must mean the same by its tokens: a text that has as many characters as
/// the model tokens is taken for the one it was trained on, any other is not.
fn refuse_guess(settings: &Settings, data: &Dataset) -> Result<(), Failure> {
    let named = matches!(settings.origins["tokenizer"], Origin::CommandLine | Origin::File(_));
    let (found, expected) = (data.tokenizer.vocab_size(), settings.model.vocab_size);
    if named || found == expected {
        return Ok(());
    }
    let problem = format!(
        "nothing says what the model's {expected} tokens mean, and the text has {found} characters"
    );
    Err(Failure::usage(problem).with_hint(
        "put the data set's meta.pkl beside the checkpoint, or name the tokenizer (--tokenizer)",
    ))
}

/// Where nanoGPT's trainer stopped, for ours to go on from.
fn state(from: GoesOn, settings: &Settings, data: &Dataset) -> Result<TrainState, Failure> {
    let GoesOn { step, exp_avg, exp_avg_sq, .. } = from;
    let train = settings.train.clone();
    if step >= train.max_iters {
        let all = train.max_iters;
        return Err(Failure::usage(format!("already at {step} of {all} steps (max_iters)"))
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
    signals: &Signals,
) -> Result<(Dataset, Option<Room>), Failure> {
    let (input, room) = match text {
        [] => (Input::TinyShakespeare, None),
        paths => (Input::Paths(paths.to_vec()), Some(Room::beside(beside)?)),
    };
    let folder = room.as_ref().map(Room::path);
    if let Some(folder) = folder {
        signals.preparing(folder);
    }
    let data = reading(text, |progress| match (text, folder) {
        ([prepared], Some(folder)) if Dataset::is_prepared(prepared) => {
            formats::adopt(prepared, options, folder, progress)
        }
        _ => Dataset::build(&input, options, folder, progress),
    })?;
    Ok((data, room))
}

/// The data set in the run's own folder, where files of the user's may be.
fn moved(data: Dataset, room: &Room, run: &Run) -> Result<Dataset, Failure> {
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
    move_all().map_err(|error: io::Error| {
        Failure::run(format!("cannot move the tokens to {}: {error}", to.display()))
    })?;
    Ok(Dataset { source, options, notices, ..Dataset::open(&to)? })
}

/// The run that stopped, with whatever settings were changed on the command line.
pub fn again(matches: &ArgMatches) -> Result<Begun, Failure> {
    if matches.contains_id("text") || matches.contains_id("dataset") {
        return Err(Failure::usage("a resumed run keeps its text").with_hint(
            "`tinygpt train TEXT --init-from RUN` starts a new run from a run's weights",
        ));
    }
    let typed = matches.get_one::<PathBuf>("resume").map(PathBuf::as_path);
    if let Some(path) = typed.filter(|path| checkpoint::exists(path)) {
        // What a checkpoint lacks for a resume is said by loading it; nothing lacking, it is in a
        // run.
        TrainState::load(path, &Checkpoint::load(path)?.params)?;
        return Err(Failure::usage(format!("{} is a checkpoint, not a run", path.display()))
            .with_hint("--resume takes the run's folder, the one with metrics.jsonl"));
    }
    let run = Run::open(Path::new(RUNS), typed)?;
    let newest = run.newest()?;
    let best = run.best();
    // Said now, because saving would refuse to replace it.
    if newest != best && checkpoint::is_damaged(&best) {
        let problem = format!("{} is damaged: it has no model.safetensors", best.display());
        return Err(Failure::run(problem).with_hint(format!(
            "remove {}: {} is what the run goes on from",
            quoted(&best),
            quoted(&newest)
        )));
    }
    let file = Layers { file: Some(run.config()), ..Layers::default() };
    let typed = Layers { command_line: typed_settings(matches), ..file.clone() };
    let (written, mut settings) = (Settings::resolve(&file)?, Settings::resolve(&typed)?);
    settings.notices.iter().for_each(|notice| tell(&format!("note: {notice}")));
    let cpu = cpu(settings.run.threads)?;
    settings.settle_dtype(cpu.isa());
    let before =
        as_trained(&newest, &written).map_err(|failure| or_best(&run, &newest, failure))?;
    // Before anything is compared with it: it may be another run's.
    check_training(&before.model, before.train.sequences_per_step())?;
    let loaded = patiently("loading the checkpoint", || resumable(&newest));
    let (params, state) = loaded.map_err(|failure| or_best(&run, &newest, failure))?;
    let mut changed = Vec::new();
    for change in diff(&before, &settings) {
        let (name, old, new) = (change.key.name, change.old, change.new);
        let fixed = matches!(change.key.group, Group::Model | Group::Data);
        // The seed says which part of the text validates, and which batches were seen.
        if fixed || matches!(name, "seed" | "out_dir") {
            let typed = diff(&written, &settings).iter().any(|typed| typed.key.name == name);
            let (place, hint) = match typed {
                true => ("", "what the model and its text are cannot change; start a new run"),
                false => (" in its config.toml", "put the old value back; it cannot change"),
            };
            let problem = format!("{name} = {new}{place}: this run has {name} = {old}");
            return Err(Failure::usage(problem).with_hint(hint));
        }
        changed.push(format!("changed: {name} {old} -> {new}"));
    }
    if settings.train.eval_only {
        let eval = format!("`tinygpt eval {}` evaluates it", quoted(run.folder()));
        return Err(Failure::usage("eval_only = true: there is no step to resume")
            .with_hint(format!("{eval}; --eval-only=false trains on")));
    }
    check_training(&settings.model, settings.train.sequences_per_step())?;
    let data = reading(&[], |progress| dataset(&run, &newest, &settings, progress))?;
    let gpt = Gpt::with_params(settings.model.clone(), params, cpu)?;
    let trainer = Trainer::resume(gpt, state, data, settings.train.clone())?;
    if written.train.eval_only {
        run.call_latest(Path::new(RUNS));
    }
    write_whole(&run.config(), changed_lines(&run, &written, &settings)?)?;
    changed.iter().for_each(|change| tell(change));
    Ok(Begun { run, settings, trainer })
}

/// The settings as the checkpoint has them: what was edited in config.toml since then is a change
/// like one on the command line.
fn as_trained(checkpoint: &Path, written: &Settings) -> Result<Settings, Failure> {
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
fn resumable(checkpoint: &Path) -> Result<(Params, TrainState), Failure> {
    let loaded = Checkpoint::load(checkpoint)?;
    check_finite(&loaded.params, checkpoint)?;
    let state = TrainState::load(checkpoint, &loaded.params)?;
    Ok((loaded.params, state))
}

/// The failure to go on from `checkpoint`, with a way out if the run's best one is whole.
fn or_best(run: &Run, checkpoint: &Path, failure: Failure) -> Failure {
    let best = run.best();
    match read_progress(&best) {
        Ok(Some(Progress { step, .. })) if best != checkpoint && resumable(&best).is_ok() => {
            failure.and_hint(format!(
                "{} is whole, of step {step}: remove {} to go on from there",
                quoted(&best),
                quoted(checkpoint)
            ))
        }
        _ => failure,
    }
}

/// The run's config.toml with the lines of changed settings replaced: the others still say where
/// their values first came from.
fn changed_lines(run: &Run, before: &Settings, after: &Settings) -> Result<String, Failure> {
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
