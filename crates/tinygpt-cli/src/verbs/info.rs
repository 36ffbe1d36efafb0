//! `tinygpt info`: every shape, count and byte of a model, before or after it is trained.

use crate::anatomy::Anatomy;
use crate::{Outcome, failure::Failure, out::Out};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};
use tinygpt::run::{keys, read::PRESETS};
use tinygpt::{GptConfig, Layers, Settings, TokenizerKind, TrainConfig};

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
            .help("A preset, a run or checkpoint folder, or a config file"),
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
    out.write(&Anatomy::new(&model.config, b, t).page(&model.title, matches.get_flag("all")))
}

/// A model that need not be trained yet.
pub struct NamedModel {
    pub title: String,
    pub config: GptConfig,
    pub batch_size: usize,
}

/// What the user called `name`: a preset, a run or checkpoint folder, or a config file.
pub fn named_model(name: &str) -> Result<NamedModel, Failure> {
    if PRESETS.iter().any(|(preset, _)| *preset == name) {
        let layers = Layers { preset: Some(name.into()), ..Default::default() };
        return recipe(format!("preset {name}"), &layers);
    }
    let path = Path::new(name);
    let inside = |file: &str| Some(path.join(file)).filter(|path| path.is_file());
    if path.extension().is_some_and(|end| end == "toml") || inside("config.toml").is_some() {
        let file = inside("config.toml").unwrap_or(path.into());
        return recipe(name.into(), &Layers { file: Some(file), ..Default::default() });
    }
    if let Some(file) = inside("config.json") {
        return checkpoint(name.into(), &file);
    }
    let (problem, hint) = if path.is_dir() {
        (format!("{name}: neither a run (config.toml) nor a checkpoint (config.json)"), None)
    } else {
        let names = PRESETS.iter().map(|(preset, _)| *preset);
        let near = keys::nearest(name, names.clone()).map(|near| format!("did you mean {near}?"));
        let presets = format!("the presets are {}", names.collect::<Vec<_>>().join(", "));
        (format!("{name}: no such preset, folder or file"), Some(near.unwrap_or(presets)))
    };
    let failure = Failure::usage(problem);
    Err(if let Some(hint) = hint { failure.with_hint(hint) } else { failure })
}

fn recipe(title: String, layers: &Layers) -> Result<NamedModel, Failure> {
    let mut settings = Settings::resolve(layers).map_err(|e| Failure::from(e).into_usage())?;
    let (tokens, of) = match settings.run.tokenizer {
        TokenizerKind::Char => (65, "Tiny Shakespeare's characters"),
        TokenizerKind::Byte => (256, "bytes"),
    };
    let title = match settings.model.vocab_size {
        0 => format!("{title}, with a vocabulary of {of}"),
        _ => title,
    };
    if settings.model.vocab_size == 0 {
        settings.settle_vocab_size(tokens)?;
    }
    Ok(NamedModel { title, config: settings.model, batch_size: settings.train.batch_size })
}

fn checkpoint(title: String, file: &PathBuf) -> Result<NamedModel, Failure> {
    let wrong = |problem: String| Failure::run(format!("{}: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    fields.retain(|key, _| key != "model_type" && key != "format_version");
    let config: GptConfig =
        serde_json::from_value(fields.into()).map_err(|error| wrong(error.to_string()))?;
    config.check()?;
    Ok(NamedModel { title, config, batch_size: TrainConfig::default().batch_size })
}
