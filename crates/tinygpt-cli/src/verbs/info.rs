//! `tinygpt info`: every shape, count and byte of a model, before or after it is trained.

use crate::anatomy::Anatomy;
use crate::args::settled;
use crate::{Outcome, failure::Failure, out::Out};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::HumanDuration;
use std::path::Path;
use std::time::Duration;
use tinygpt::checkpoint::{self, Progress};
use tinygpt::formats::{Format, Model};
use tinygpt::run::{folder::RUNS, keys, read::PRESETS, thousands};
use tinygpt::{GptConfig, Layers, Run, TrainConfig};

const HELP: &str = "\
Read the page from top to bottom and you have followed a token through the model: the parameters
it meets, the shapes it takes (B sequences of T tokens, width C, H heads of D, vocabulary V), the
work it costs.

Examples:
  tinygpt info                              the preset quick
  tinygpt info gpt2 --batch-size 1          the published GPT-2, one sequence at a time
  tinygpt info runs/quick --all             a run, every block written out
  tinygpt info my.toml                      a config file, before training it";

pub fn arguments(command: Command) -> Command {
    let count = |name: &'static str, value_name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value_name)
            .value_parser(value_parser!(u32).range(1..))
            .help(help)
    };
    command.after_help(HELP).args([
        Arg::new("model")
            .value_name("RUN|PRESET")
            .default_value("quick")
            .help("A preset, a run, a model of any format, or a config file"),
        count("batch-size", "B", "Sequences in a batch [default: the model's recipe]"),
        count("block-size", "T", "Tokens in a sequence [default: as long as the model takes]"),
        Arg::new("all").long("all").action(ArgAction::SetTrue).help("Write out every block"),
    ])
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let model = named_model(matches.get_one::<String>("model").expect("has a default"))?;
    let size = |name, default| matches.get_one::<u32>(name).map_or(default, |&n| n as usize);
    let (b, t) =
        (size("batch-size", model.batch_size), size("block-size", model.config.block_size));
    if t > model.config.block_size {
        let most = model.config.block_size;
        return Err(Failure::usage(format!("--block-size {t}: this model takes at most {most}")));
    }
    let anatomy = Anatomy::new(&model.config, (b, t), model.accumulated);
    out.write(&anatomy.page(&model.title, matches.get_flag("all")))
}

/// A model that need not be trained yet.
pub struct NamedModel {
    pub title: String,
    pub config: GptConfig,
    pub batch_size: usize,
    /// How many such batches make one optimizer step.
    pub accumulated: usize,
}

impl NamedModel {
    fn new(title: String, config: GptConfig, train: &TrainConfig) -> Self {
        let TrainConfig { batch_size, gradient_accumulation_steps: accumulated, .. } = *train;
        Self { title, config, batch_size, accumulated }
    }
}

/// What the user called `name`: a preset, a run or checkpoint, or a config file.
pub fn named_model(name: &str) -> Result<NamedModel, Failure> {
    if PRESETS.iter().any(|(preset, _)| *preset == name) {
        let layers = Layers { preset: Some(name.into()), ..Default::default() };
        return recipe(format!("preset {name}"), &layers);
    }
    let path = Path::new(name);
    if path.extension().is_some_and(|end| end == "toml") {
        return recipe(name.into(), &Layers { file: Some(path.into()), ..Default::default() });
    }
    if let Ok(run) = Run::open(Path::new(RUNS), Some(path)) {
        return of_run(&run);
    }
    if path.exists() {
        return of_model(path);
    }
    let names = PRESETS.iter().map(|(preset, _)| *preset);
    let near = keys::nearest(name, names.clone()).map(|near| format!("did you mean {near}?"));
    let presets = format!("the presets are {}", names.collect::<Vec<_>>().join(", "));
    Err(Failure::usage(format!("{name}: no such preset, folder or file"))
        .with_hint(near.unwrap_or(presets)))
}

fn recipe(title: String, layers: &Layers) -> Result<NamedModel, Failure> {
    let (settings, vocabulary) = settled(layers)?;
    let title = match vocabulary {
        Some(of) => format!("{title}, with a vocabulary of {of}"),
        None => title,
    };
    Ok(NamedModel::new(title, settings.model, &settings.train))
}

fn of_run(run: &Run) -> Result<NamedModel, Failure> {
    let layers = Layers { file: Some(run.config()), ..Default::default() };
    let mut model = recipe(run.folder().display().to_string(), &layers)?;
    for (name, path) in [("best", run.best()), ("last", run.last())] {
        if checkpoint::exists(&path) {
            model.title += &line(name, &training_of(&path).0);
        }
    }
    if let Some(saved) = run.model().ok().and_then(|path| Model::open(&path).ok()) {
        model.title += &line("tokenizer", &tokenizer_of(&saved));
    }
    Ok(model)
}

fn of_model(path: &Path) -> Result<NamedModel, Failure> {
    let model = Model::open(path)?;
    let mut title = model.path.display().to_string();
    let (training, train) = match (model.format, model.iterations()) {
        (Format::TinyGpt, _) => training_of(path),
        (_, Some(step)) => {
            (format!("step {} of nanoGPT's trainer", thousands(step)), TrainConfig::default())
        }
        _ if model.has_state() => {
            ("of nanoGPT's trainer, which does not say its step".into(), TrainConfig::default())
        }
        _ => ("weights only".into(), TrainConfig::default()),
    };
    if model.format != Format::TinyGpt {
        title += &line("format", model.format.title());
        title.extend(model.notices.iter().map(|notice| line("note", notice)));
    }
    title += &line("training", &training);
    title += &line("tokenizer", &tokenizer_of(&model));
    Ok(NamedModel::new(title, model.config, &train))
}

fn line(name: &str, text: &str) -> String {
    format!("\n{name:<10} {text}")
}

/// How far the training of a checkpoint had come, and how it was trained. What is damaged is
/// said: the rest of the page is worth reading without it.
fn training_of(path: &Path) -> (String, TrainConfig) {
    let progress = match checkpoint::read_progress(path) {
        Ok(Some(progress)) => progress,
        Ok(None) => return ("weights only".into(), TrainConfig::default()),
        Err(error) => return (format!("damaged: {error}"), TrainConfig::default()),
    };
    let Progress { step, best_val_loss, tokens, elapsed_s, train, data, .. } = progress;
    let loss = match best_val_loss {
        Some(loss) => format!("best validation loss {loss:.4} ({})", train.evaluated_on()),
        None if data.val_fraction > 0.0 => "not validated yet".into(),
        None => "no validation".into(),
    };
    let [step, all, tokens] = [step, train.max_iters, tokens].map(thousands);
    let time = HumanDuration(Duration::try_from_secs_f64(elapsed_s).unwrap_or_default());
    (format!("step {step} of {all}, {loss}, {tokens} tokens in {time}"), train)
}

fn tokenizer_of(model: &Model) -> String {
    match model.tokenizer() {
        Err(error) => format!("damaged: {error}"),
        Ok(None) => "none".into(),
        Ok(Some(tokenizer)) => match (tokenizer.name(), tokenizer.vocab_size()) {
            ("char", size) => format!("{size} characters"),
            ("byte", _) => "bytes".into(),
            (name, size) => format!("{name}, {} tokens", thousands(size)),
        },
    }
}
