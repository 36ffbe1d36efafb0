//! `tinygpt export`: a model for other programs.

use crate::trained::{named, read};
use crate::{Outcome, failure::Failure, out::Out, out::tell};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::DecimalBytes;
use std::path::{Path, PathBuf};
use tinygpt::Tokenizer;
use tinygpt::checkpoint::{self, StateRef, TrainState, read_progress};
use tinygpt::files::quoted;
use tinygpt::formats::{self, Export, Format, Kept, Model};
use tinygpt::model::Params;
use tinygpt::run::Run;

const HELP: &str = "\
Formats, and what opens them elsewhere:
  hf           a folder for transformers: AutoModelForCausalLM, AutoTokenizer
  nanogpt      nanoGPT's out_dir with a ckpt.pt (or OUT.pt alone): sample.py,
               init_from=resume. With the optimizer's moments where there are any,
               so that a training goes on; a folder has the tokenizer too, as
               meta.pkl or tokenizer.json
  gguf         one file for llama.cpp; for tokens made of bytes: byte, gpt2, bpe:SIZE
  safetensors  one file with the weights by nanoGPT's names, (out, in), and in its
               metadata the shape and the tokenizer

Every verb reads each of them back, as it reads models of those programs: give `sample`, `eval`,
`info`, `check` or `train --init-from` the folder or file. What it is, its contents tell, not its
name. Nothing in it is run: a ckpt.pt is read as data.

A format that cannot hold a model refuses it and says why; one whose program computes a little
otherwise (another GELU, biases as zeros) is written with a warning.

Examples:
  tinygpt export --to hf my-model                 the newest run's best checkpoint
  tinygpt export runs/quick/last --to nanogpt out  its last, with the optimizer
  tinygpt export gpt2 --to gguf gpt2.gguf --dtype q8_0
  tinygpt sample my-model                         each is read back";

/// The formats, as they are typed.
const FORMATS: [(&str, Format); 4] = [
    ("hf", Format::HuggingFace),
    ("nanogpt", Format::NanoGpt),
    ("gguf", Format::Gguf),
    ("safetensors", Format::Safetensors),
];

pub fn arguments(command: Command) -> Command {
    command
        .after_help(HELP)
        .override_usage("tinygpt export [MODEL] OUT --to FORMAT [OPTIONS]")
        .args([
        // One list, because a first argument that may be left out cannot stand apart from the
        // second by a flag.
        Arg::new("paths")
            .value_name("[MODEL] OUT")
            .required(true)
            .num_args(1..)
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .help("A run or a model of any format [default: the newest run]; what to write"),
        Arg::new("to")
            .long("to")
            .value_name(FORMATS.map(|(name, _)| name).join("|"))
            .required(true)
            .value_parser(PossibleValuesParser::new(FORMATS.map(|(name, _)| name)))
            .hide_possible_values(true)
            .help("The format"),
        Arg::new("dtype")
            .long("dtype")
            .value_name(Kept::NAMES.join("|"))
            .value_parser(PossibleValuesParser::new(Kept::NAMES))
            .hide_possible_values(true)
            .default_value("f32")
            .help("What to keep the weights in; q8_0, 8 bits with a scale for every 32, is gguf's"),
        Arg::new("force")
            .long("force")
            .action(ArgAction::SetTrue)
            .help("Replace what an earlier export wrote at OUT"),
    ])
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let word = |name| matches.get_one::<String>(name).expect("required, or has a default");
    let paths: Vec<_> = matches.get_many::<PathBuf>("paths").into_iter().flatten().collect();
    let (typed, to) = match paths[..] {
        [to] => {
            check_is_out(to, word("to"), matches.get_flag("force"))?;
            (None, to)
        }
        [model, to] => (Some(model), to),
        _ => {
            let problem = format!("{} paths; expected a model and what to write", paths.len());
            return Err(Failure::usage(problem).with_hint("tinygpt export [MODEL] OUT --to FORMAT"));
        }
    };
    let (_, format) = FORMATS.iter().find(|(name, _)| name == word("to")).expect("one of them");
    let kept = Kept::named(word("dtype")).expect("one of the names");

    let model = named(typed.map(|path| path.as_path()))?;
    let (params, tokenizer) = read(&model)?;
    let state = match format {
        Format::NanoGpt => state(&model, &params)?,
        _ => None,
    };
    let name = to.file_stem().map_or("tinygpt".into(), |stem| stem.to_string_lossy());
    let export = Export {
        name: &name,
        config: &model.config,
        params: &params,
        tokenizer: tokenizer.as_ref(),
        state: state.as_ref().map(|state| StateRef {
            progress: &state.progress,
            exp_avg: &state.exp_avg,
            exp_avg_sq: &state.exp_avg_sq,
        }),
        kept,
    };
    let warnings = export.warnings(*format)?;
    let (force, there) = (matches.get_flag("force"), formats::exists(to));
    let bytes = export.write(*format, to, force).map_err(|error| {
        let failure = Failure::from(error);
        // The only path may have been meant as the model.
        match typed.is_none() && there && !force {
            true => failure.and_hint(format!(
                "to export it: tinygpt export {} OUT --to {}",
                quoted(to),
                word("to")
            )),
            false => failure,
        }
    })?;
    warnings.iter().for_each(|warning| tell(&format!("note: {warning}")));
    notes(*format, to, tokenizer.as_ref());
    let optimizer = match (format, &state) {
        (Format::NanoGpt, Some(state)) => {
            format!(", with the optimizer of step {}", state.progress.step)
        }
        (Format::NanoGpt, None) => ", without an optimizer".into(),
        _ => String::new(),
    };
    let size = DecimalBytes(bytes);
    out.write(&format!(
        "written  {}: {}, {size}, {}{optimizer}\n{}",
        to.display(),
        format.title(),
        kept.name(),
        elsewhere(*format, to, tokenizer.as_ref()),
    ))
}

/// Whether the only path is a run of ours: then what to write was forgotten.
fn check_is_out(path: &Path, format: &str, force: bool) -> Result<(), Failure> {
    let is_ours = || Format::of(path).is_ok_and(|format| format == Format::TinyGpt);
    let is_run =
        Run::open(Path::new(""), Some(path)).is_ok() || checkpoint::exists(path) && is_ours();
    if force || !is_run {
        return Ok(());
    }
    let problem = format!("{} is a run's: what to write is missing", path.display());
    let hint = format!("tinygpt export {} OUT --to {format}", quoted(path));
    Err(Failure::usage(problem).with_hint(hint))
}

/// The training state of a checkpoint of ours; none if it has weights only.
fn state(model: &Model, params: &Params) -> Result<Option<TrainState>, Failure> {
    if model.format != Format::TinyGpt || read_progress(&model.path)?.is_none() {
        return Ok(None);
    }
    Ok(Some(TrainState::load(&model.path, params)?))
}

/// What the user should know of the place: a file that holds no tokenizer, other files in a folder.
fn notes(format: Format, to: &Path, tokenizer: Option<&Tokenizer>) {
    const STALE: [&str; 4] =
        ["special_tokens_map.json", "vocab.json", "merges.txt", "model.safetensors.index.json"];
    if format == Format::NanoGpt && to.is_file() && tokenizer.is_some_and(|t| t.name() != "gpt2") {
        tell(&format!(
            "note: {} alone does not hold the tokenizer: a folder, a name without .pt, does",
            quoted(to)
        ));
    }
    if format == Format::NanoGpt && to.is_dir() && tokenizer.is_some_and(|t| !nanogpt_knows(t)) {
        tell(
            "note: nanoGPT's scripts know characters and GPT-2's tokens: they would write this \
              model's tokens as other text; here its tokenizer.json is read",
        );
    }
    let stale: Vec<_> = STALE.into_iter().filter(|name| to.join(name).exists()).collect();
    if format == Format::HuggingFace && !stale.is_empty() {
        tell(&format!(
            "note: {} has {} of another model, which transformers may read: remove them",
            quoted(to),
            stale.join(", ")
        ));
    }
}

/// Whether nanoGPT's sample.py can turn its tokens into text.
fn nanogpt_knows(tokenizer: &Tokenizer) -> bool {
    matches!(tokenizer.name(), "char" | "gpt2")
}

/// How another program opens it, in a line or two.
fn elsewhere(format: Format, to: &Path, tokenizer: Option<&Tokenizer>) -> String {
    let path = quoted(to);
    let characters = matches!(tokenizer, Some(Tokenizer::Char(_)));
    match format {
        Format::HuggingFace => format!(
            "open     python -c \"from transformers import pipeline; \
             print(pipeline('text-generation', '{}')('\\n'))\"\n",
            to.display()
        ),
        Format::NanoGpt => {
            // nanoGPT opens a folder with a ckpt.pt.
            if !to.is_dir() || tokenizer.is_some_and(|t| !nanogpt_knows(t)) {
                return String::new();
            }
            let folder = to;
            let meta = match characters {
                true => format!(
                    "first    put {}/meta.pkl into nanoGPT's data/tinygpt/, for its characters\n",
                    quoted(folder)
                ),
                false => String::new(),
            };
            format!("{meta}open     python sample.py --out_dir={} (in nanoGPT)\n", quoted(folder))
        }
        Format::Gguf => format!("open     llama-cli -m {path} -p 'Once upon a time' (llama.cpp)\n"),
        _ => format!(
            "open     python -c \"from safetensors.torch import load_file; \
             print(load_file('{}').keys())\"\n",
            to.display()
        ),
    }
}
