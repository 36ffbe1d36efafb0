//! `tinygpt eval`: the loss of a trained model on the whole of its training and validation text.

use crate::anatomy::aligned;
use crate::args::{number_of, precision, precision_of, threads, trained, trained_path};
use crate::memory::check_evaluating;
use crate::progress::{Bar, reading};
use crate::{Outcome, failure::Failure, out::Out, out::tell, trained::Trained};
use clap::{Arg, ArgMatches, Command, builder::PossibleValuesParser, value_parser};
use std::f64::consts::LN_2;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tinygpt::checkpoint::read_progress;
use tinygpt::files::quoted;
use tinygpt::formats::exists;
use tinygpt::run::{data_options, dataset, folder::RUNS, thousands};
use tinygpt::train::exact_loss;
use tinygpt::{DataOptions, Dataset, Error, Input, Layers, Precision, Run, Settings};
use tinygpt::{Tokenizer, Tokens};

const HELP: &str = "\
The loss is the mean of -ln p(next token) over every token but the first, seen in windows of
block_size, one after the other. ln V is the loss of knowing nothing; the perplexity, exp(loss), is
how many tokens the model wavers between. Losses of different tokenizers cannot be compared; bits
per byte can.

--dtype bf16 and --quantize int8 show beside it what the loss is when the weights are rounded so, as
`tinygpt sample` does to write faster.

Examples:
  tinygpt eval                              the newest run, on its validation text
  tinygpt eval runs/quick --split both      also on what it was trained on
  tinygpt eval runs/quick/last              its last checkpoint instead of its best
  tinygpt eval runs/quick --text other.txt  on another text, in the model's tokens
  tinygpt eval runs/quick --quantize int8   also with weights of 8 bits";

pub fn arguments(command: Command) -> Command {
    let part = [
        Arg::new("split")
            .long("split")
            .value_name("train|val|both")
            .value_parser(PossibleValuesParser::new(["train", "val", "both"]))
            .hide_possible_values(true)
            .default_value("val")
            .help("Which part of the run's text"),
        Arg::new("text")
            .long("text")
            .value_name("FILE")
            .num_args(1..)
            .value_parser(value_parser!(PathBuf))
            .conflicts_with("split")
            .help("Another text: files, a folder, or - for standard input"),
    ];
    command.after_help(HELP).args(trained()).args(part).args(precision("f32")).arg(threads())
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let texts: Option<Vec<_>> =
        matches.get_many::<PathBuf>("text").map(|all| all.cloned().collect());
    texts_only(matches, texts.as_deref().unwrap_or_default())?;
    let mut model = Trained::load(trained_path(matches), number_of(matches, "threads"))?;
    check_evaluating(&model.path, model.gpt.config())?;
    let (data, parts) = match texts {
        Some(paths) => (another_text(paths, &model)?, &["text"][..]),
        None => {
            let split = matches.get_one::<String>("split").expect("has a default");
            let parts = match split.as_str() {
                "train" => &["train"][..],
                "val" => &["val"],
                _ => &["train", "val"],
            };
            (own_text(&model)?, parts)
        }
    };
    data.notices.iter().for_each(|notice| tell(&format!("note: {notice}")));
    let mut rows = vec![HEADINGS.map(Into::into)];
    let there = measurable(&data, parts)?;
    for &(part, tokens, bytes) in &there {
        rows.push(measured(&mut model, part, tokens, bytes)?);
    }
    let precision = precision_of(matches, model.gpt.cpu().isa());
    if precision != Precision::F32 {
        model.gpt.keep_in(precision);
        for (part, tokens, bytes) in there {
            rows.push(measured(&mut model, part, tokens, bytes)?);
        }
    }
    // The weights are what counts: a training state that is damaged only leaves the step unsaid.
    let progress = read_progress(&model.path).ok().flatten();
    let step = progress.map(|at| format!(", step {}", thousands(at.step)));
    let v = model.gpt.config().vocab_size;
    let whole = if parts == ["text"] { "all of it" } else { "the whole split" };
    out.write(&format!(
        "model   {}{}\ntext    {}, {whole}\n\
         chance  ln {v} = {:.4}, the loss of knowing nothing\n\n{}",
        model.path.display(),
        step.unwrap_or_default(),
        data.source,
        (v as f64).ln(),
        aligned(&rows, [false, true, true, true, true, true, true, true]),
    ))
}

/// The parts of the text that there are, with their tokens and bytes.
fn measurable<'a>(
    data: &'a Dataset,
    parts: &[&'static str],
) -> Result<Vec<(&'static str, &'a Tokens, u64)>, Failure> {
    let mut there = Vec::new();
    for &part in parts {
        match (part, &data.val) {
            ("val", Some(val)) => there.push((part, val, data.val_bytes)),
            ("val", None) if parts.len() > 1 => {
                tell("note: this run has no validation split (val_fraction = 0)");
            }
            ("val", None) => {
                let problem = "there is no validation split (val_fraction = 0)";
                return Err(Failure::run(format!("{}: {problem}", data.source))
                    .with_hint("--split train, or another text with --text FILE"));
            }
            _ => there.push((part, &data.train, data.train_bytes)),
        }
    }
    Ok(there)
}

const HEADINGS: [&str; 8] =
    ["part", "tokens", "loss", "perplexity", "bits/char", "bits/byte", "seconds", "tokens/s"];

/// A row of the table.
fn measured(
    model: &mut Trained,
    part: &'static str,
    tokens: &Tokens,
    bytes: u64,
) -> Result<[String; 8], Failure> {
    let n = tokens.len();
    if n < 2 {
        let tokens = if n == 1 { "token" } else { "tokens" };
        let problem =
            format!("{part} has {n} {tokens}; a loss needs 2, one to see and one to guess");
        return Err(Failure::run(problem));
    }
    let (started, mut bar) = (Instant::now(), Bar::new(part));
    let loss = exact_loss(&mut model.gpt, tokens, &mut |done, total| {
        bar.at(done, total);
        ControlFlow::Continue(())
    });
    drop(bar);
    let (loss, seconds) = (loss?.expect("nobody ends it"), started.elapsed().as_secs_f64());
    if !loss.is_finite() {
        let hint = "the model holds NaN or infinite weights; use an earlier checkpoint";
        let what = format!("the loss of {}", model.path.display());
        return Err(Error::NotFinite { what, value: loss, hint: Some(hint.into()) }.into());
    }
    let loss = f64::from(loss);
    let bits = loss / LN_2;
    let precision = model.gpt.precision();
    Ok([
        match precision {
            Precision::F32 => part.into(),
            _ => format!("{part}:{}", precision.name()),
        },
        thousands(n),
        format!("{loss:.4}"),
        format!("{:.3}", loss.exp()),
        match model.tokenizer {
            Tokenizer::Char(_) => format!("{bits:.4}"),
            _ => "-".into(),
        },
        format!("{:.4}", bits * n as f64 / bytes as f64),
        format!("{seconds:.1}"),
        thousands((n as f64 / seconds) as u64),
    ])
}

/// Refuses a run among the texts: `--text` takes every word after it.
fn texts_only(matches: &ArgMatches, paths: &[PathBuf]) -> Outcome {
    let is_run = |path: &&PathBuf| {
        !path.is_file() && (Run::open(Path::new(RUNS), Some(path)).is_ok() || exists(path))
    };
    let Some(run) = paths.iter().find(is_run) else { return Ok(()) };
    let (run, failure) =
        (quoted(run), Failure::usage(format!("{}: a model, not a text", run.display())));
    Err(match trained_path(matches) {
        None => failure.with_hint(format!("put it first: tinygpt eval {run} --text FILE")),
        Some(_) => failure,
    })
}

/// The text of the run that the model is of.
fn own_text(model: &Trained) -> Result<Dataset, Failure> {
    let Some((run, settings)) = settings_of(&model.path)? else {
        let problem = format!("{} is not in a run, so its text is unknown", model.path.display());
        return Err(Failure::run(problem).with_hint("name a text: --text FILE"));
    };
    Ok(reading(&[], |progress| dataset(&run, &model.path, &settings, progress))?)
}

/// A text of the user's, all of it, in the model's tokens.
fn another_text(paths: Vec<PathBuf>, model: &Trained) -> Result<Dataset, Failure> {
    let own = settings_of(&model.path)?.map(|(_, settings)| data_options(&settings));
    let options = DataOptions {
        vocabulary: Some(model.tokenizer.clone()),
        val_fraction: 0.0,
        ..own.unwrap_or_default()
    };
    let input = Input::Paths(paths.clone());
    Ok(reading(&paths, |progress| Dataset::build(&input, &options, None, progress))?)
}

/// The run that has the checkpoint at `path`, if one has, and what it was told.
fn settings_of(path: &Path) -> Result<Option<(Run, Settings)>, Failure> {
    let mut above = path.ancestors().skip(1);
    let folder = if path.is_file() { above.nth(1) } else { above.next() };
    // `best`, typed inside the run's folder, is in "".
    let here = folder.map(|folder| if folder == Path::new("") { Path::new(".") } else { folder });
    let Some(run) = here.and_then(|folder| Run::open(folder, Some(folder)).ok()) else {
        return Ok(None);
    };
    let layers = Layers { file: Some(run.config()), ..Layers::default() };
    let settings = Settings::resolve(&layers)?;
    Ok(Some((run, settings)))
}
