//! What a training starts from: a text and new weights, other weights, or a run that stopped.

use crate::args::{cpu, typed_settings};
use crate::{failure::Failure, out::tell, progress::Bar};
use clap::ArgMatches;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tinygpt::checkpoint::{Checkpoint, TrainState};
use tinygpt::model::{Params, Tensors};
use tinygpt::run::keys::Group;
use tinygpt::run::layers::Origin;
use tinygpt::run::{data_options, dataset, folder::RUNS, model_path, settings::diff};
use tinygpt::{
    DataOptions, Dataset, Error, Gpt, GptConfig, Input, Layers, Run, Settings, Tokenizer, Trainer,
};

/// A training about to start, and the folder it keeps.
pub struct Begun {
    pub run: Run,
    pub settings: Settings,
    pub trainer: Trainer,
}

/// The settings of a new run.
pub fn settings(matches: &ArgMatches) -> Result<Settings, Failure> {
    let layers = Layers {
        preset: matches.get_one::<String>("preset").cloned(),
        file: matches.get_one::<PathBuf>("config").cloned(),
        command_line: typed_settings(matches),
    };
    Settings::resolve(&layers).map_err(|error| Failure::from(error).into_usage())
}

/// A new run, from new weights or from those at `--init-from`.
pub fn anew(matches: &ArgMatches, mut settings: Settings) -> Result<Begun, Failure> {
    let weights = match matches.get_one::<PathBuf>("init-from") {
        Some(path) => Some(Weights::load(path, &mut settings)?),
        None => None,
    };
    let input = match matches.get_many::<PathBuf>("text") {
        Some(paths) => Input::Paths(paths.cloned().collect()),
        None => Input::TinyShakespeare,
    };
    let vocabulary = weights.as_ref().and_then(|weights| weights.tokenizer.clone());
    let options = DataOptions { vocabulary, ..data_options(&settings) };
    let runs = Path::new(RUNS);
    // A text of the user's is kept as tokens in the run's folder, which is made only when all is well.
    let room = match input {
        Input::TinyShakespeare => None,
        Input::Paths(_) => Some(preparing(&settings, runs)?),
    };
    let mut bar = Bar::new("reading the text");
    let data = Dataset::build(
        &input,
        &options,
        room.as_ref().map(|room| room.path()),
        &mut |done, total| {
            bar.at(done, total);
        },
    )?;
    bar.finish();
    settings.settle_vocab_size(data.tokenizer.vocab_size())?;
    data.check(settings.model.block_size)?;
    settings.model.check()?;

    let run = match settings.run.out_dir.as_str() {
        "" => Run::create(runs, &settings.preset)?,
        folder => Run::create_at(runs, Path::new(folder), matches.get_flag("overwrite"))?,
    };
    let data = match room {
        Some(room) => moved(data, room, &run)?,
        None => data,
    };
    tinygpt::files::write_whole(&run.config(), settings.to_toml())?;
    let params = match weights {
        Some(weights) => weights.params,
        None => Params::init(Arc::new(Tensors::of(&settings.model)), settings.train.seed),
    };
    let gpt = Gpt::with_params(settings.model.clone(), params, cpu(settings.run.threads)?)?;
    let trainer = Trainer::new(gpt, data, settings.train.clone())?;
    Ok(Begun { run, settings, trainer })
}

/// A folder on the disk where the run will be, for its tokens.
fn preparing(settings: &Settings, runs: &Path) -> Result<tempfile::TempDir, Failure> {
    let beside = match Path::new(&settings.run.out_dir).parent() {
        Some(parent) if !settings.run.out_dir.is_empty() => parent,
        _ => runs,
    };
    let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
    let made = std::fs::create_dir_all(beside)
        .and_then(|()| tempfile::Builder::new().prefix(".preparing-").tempdir_in(beside));
    made.map_err(|error| Failure::run(format!("cannot write in {}: {error}", beside.display())))
}

/// The data set in the run's own folder.
fn moved(data: Dataset, room: tempfile::TempDir, run: &Run) -> Result<Dataset, Failure> {
    let Dataset { source, notices, .. } = data; // closes the files: an open one cannot move everywhere
    let room = room.keep();
    std::fs::rename(&room, run.data()).map_err(|error| {
        Failure::run(format!("cannot move {} to {}: {error}", room.display(), run.data().display()))
    })?;
    Ok(Dataset { source, notices, ..Dataset::open(&run.data())? })
}

/// Weights to start from.
struct Weights {
    params: Params,
    tokenizer: Option<Tokenizer>,
}

impl Weights {
    /// Loads them, and makes the architecture of `settings` theirs.
    fn load(path: &Path, settings: &mut Settings) -> Result<Self, Failure> {
        let path = model_path(Path::new(RUNS), Some(path))?;
        let Checkpoint { config, params, tokenizer_json } = Checkpoint::load(&path)?;
        let asked = settings.clone();
        settings.model = GptConfig { dropout: settings.model.dropout, ..config };
        for change in diff(&asked, settings) {
            let name = change.key.name;
            if asked.origins[name] == Origin::CommandLine {
                return Err(Failure::usage(format!(
                    "{name} = {}: the weights at {} have {name} = {}",
                    change.old,
                    path.display(),
                    change.new
                ))
                .with_hint("weights keep their shape; leave that flag out"));
            }
            settings.origins.insert(name, Origin::File(path.clone()));
        }
        let tokenizer = match &tokenizer_json {
            Some(json) => Some(Tokenizer::from_json(json)?),
            None => {
                tell(&format!(
                    "note: {} has no tokenizer.json; the text's own is used",
                    path.display()
                ));
                None
            }
        };
        if let Some(tokenizer) = &tokenizer {
            settings.run.tokenizer = tokenizer.kind();
        }
        if tinygpt::checkpoint::read_progress(&path)?.is_none() {
            tell(&format!(
                "note: {} holds weights only; the optimizer starts afresh",
                path.display()
            ));
        }
        Ok(Self { params, tokenizer })
    }
}

/// The run that stopped, with whatever settings were changed on the command line.
pub fn again(matches: &ArgMatches) -> Result<Begun, Failure> {
    if matches.contains_id("text") {
        return Err(Failure::usage("a resumed run keeps its text").with_hint(
            "`tinygpt train TEXT --init-from RUN` starts a new run from a run's weights",
        ));
    }
    let run =
        Run::open(Path::new(RUNS), matches.get_one::<PathBuf>("resume").map(PathBuf::as_path))?;
    let before = Layers { file: Some(run.config()), ..Layers::default() };
    let after = Layers { command_line: typed_settings(matches), ..before.clone() };
    let (before, settings) = (Settings::resolve(&before)?, Settings::resolve(&after)?);
    for change in diff(&before, &settings) {
        let (name, old, new) = (change.key.name, change.old, change.new);
        if matches!(change.key.group, Group::Model | Group::Data) || name == "out_dir" {
            return Err(Failure::usage(format!("{name} = {new}: this run has {name} = {old}"))
                .with_hint("what the model and its text are cannot change; start a new run"));
        }
        tell(&format!("changed: {name} {old} -> {new}"));
    }
    let Checkpoint { config, params, .. } = Checkpoint::load(&run.last())?;
    let shape = GptConfig { dropout: settings.model.dropout, ..config };
    if shape != settings.model {
        return Err(Failure::from(Error::Checkpoint {
            path: run.last(),
            problem: "the model is not the one of the run's config.toml".into(),
            hint: Some("one of the two was changed by hand".into()),
        }));
    }
    let state = TrainState::load(&run.last(), params.table())?;
    let mut bar = Bar::new("reading the text");
    let data = dataset(&run, &settings, &mut |done, total| bar.at(done, total))?;
    bar.finish();
    let gpt = Gpt::with_params(settings.model.clone(), params, cpu(settings.run.threads)?)?;
    let trainer = Trainer::resume(gpt, state, data, settings.train.clone())?;
    tinygpt::files::write_whole(&run.config(), settings.to_toml())?;
    Ok(Begun { run, settings, trainer })
}
