//! `tinygpt train`: from a text to a run folder with checkpoints, metrics and samples.

mod begin;
mod profile;
mod report;
mod signals;

use crate::args::{idle, recipe, with_settings};
use crate::{Outcome, failure::Failure, out::Out, out::tell, render::Renderer};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use profile::Profile;
use signals::Signals;
use std::io::ErrorKind;
use std::path::PathBuf;
use tinygpt::checkpoint::read_progress;
use tinygpt::files::quoted;
use tinygpt::run::{Ending, Event, start, start::Begun};
use tinygpt::{Error, Run, Trainer};

const HELP: &str = "\
Settings come in layers, each over the last: nanoGPT's defaults, a preset, a config file, the flags
here. The run's config.toml says where every value came from. When max_iters changes, the cosine's
end lr_decay_iters goes with it; when learning_rate changes, min_lr stays a tenth of it; a warm-up
is at most a tenth of lr_decay_iters. What you have set yourself, here or in a file, stays.

Examples:
  tinygpt train                                  the built-in Tiny Shakespeare, preset quick
  tinygpt train my.txt                           your text
  tinygpt train books/ --tokenizer bpe:4096      every .txt in a folder, in tokens learned from them
  cat *.log | tinygpt train -                    standard input
  tinygpt train --preset shakespeare-char        the 10.65M model that nanoGPT's readme trains
  tinygpt train --n_layer=6 --dropout=0.1        any setting, in nanoGPT's spelling
  tinygpt train config/train_x.py --max_iters=9  a config file of nanoGPT's, without Python
  tinygpt train --dataset=mine --device=cpu      nanoGPT's data/mine, in its own words
  tinygpt train --resume                         go on with the newest run
  tinygpt train --resume --max-iters 4000        ... for longer
  tinygpt train my.txt --init-from runs/quick    start from another run's weights
  tinygpt train my.txt --init-from ./gpt2        fine-tune a model of another program's, gently
  tinygpt train my.txt --resume out/ckpt.pt      go on where nanoGPT stopped
  tinygpt train --profile                        show where the time goes
  tinygpt train --print-config > my.toml         a config file to edit, for --config my.toml";

pub fn arguments(command: Command) -> Command {
    let command = command
        .after_help(HELP)
        .arg(
            Arg::new("text")
                .value_name("TEXT")
                .num_args(0..)
                .value_parser(value_parser!(PathBuf))
                .help(
                    "Files, a folder, or - for standard input [default: Tiny Shakespeare]; a \
                     folder with nanoGPT's train.bin and val.bin; a config of nanoGPT's (.py)",
                ),
        )
        .arg(
            Arg::new("dataset")
                .long("dataset")
                .value_name("NAME")
                .help("The text in nanoGPT's spelling: its folder of tokens data/NAME"),
        )
        .args(recipe())
        .args(idle())
        .arg(
            Arg::new("resume")
                .long("resume")
                .value_name("RUN")
                .num_args(0..=1)
                .value_parser(value_parser!(PathBuf))
                .conflicts_with_all(["preset", "config", "init-from", "overwrite"])
                .help("Go on with a run, or a ckpt.pt of nanoGPT's, where it stopped [default: the newest]"),
        )
        .arg(
            Arg::new("init-from")
                .long("init-from")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help(
                    "Start from these weights: a run, or a model of any format (see export --help)",
                ),
        )
        .arg(
            Arg::new("overwrite")
                .long("overwrite")
                .action(ArgAction::SetTrue)
                .help("Replace the run in out_dir"),
        )
        .arg(
            Arg::new("profile")
                .long("profile")
                .action(ArgAction::SetTrue)
                .help("At the end, show what each op took, and write it to profile.json"),
        )
        .arg(
            Arg::new("print-config")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .conflicts_with("resume")
                .help("Show every setting and where it came from, and stop"),
        );
    with_settings(command, |_| true)
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let model = begin::model(matches)?;
    let resumes = matches.contains_id("resume") && model.is_none();
    let settings = if resumes { None } else { Some(begin::settings(matches, model.as_ref())?) };
    if let Some(settings) = settings.as_ref().filter(|_| matches.get_flag("print-config")) {
        return out.write(&start::fitted(settings.clone(), model.as_ref())?.to_toml());
    }
    let signals = Signals::watch()?;
    let mut begun = match settings {
        Some(settings) => begin::anew(matches, settings, model, &signals)?,
        None => begin::again(matches, &signals)?,
    };
    let progress = begun.trainer.progress().clone();
    let (done, all) = (progress.step, begun.trainer.config().max_iters);
    if resumes && begun.is_done() {
        let longer = format!("raise it with --max-iters {}", 2 * done.max(1));
        return out.write(&format!("already at {done} of {all} steps (max_iters); {longer}\n"));
    }
    if cfg!(debug_assertions) {
        tell("note: this is a debug build; `cargo run --release` is faster");
    }
    out.write(&report::opening(&mut begun))?;
    report::room(&mut begun).iter().for_each(|warning| tell(warning));
    signals.training();
    let knows = matches.contains_id("init-from");
    let profile = matches.get_flag("profile").then(|| Profile::start(&mut begun)).transpose()?;
    let (ending, sample) = train(&mut begun, out, &signals, knows)?;
    out.write(&report::closing(&mut begun, &progress, ending, &sample))?;
    if let Some(profile) = profile {
        let (page, written) = profile.finish(&mut begun);
        out.write(&page)?;
        written?;
    }
    match ending {
        Ending::Stopped => Err(Failure::interrupted()),
        _ => Ok(()),
    }
}

/// Runs the loop under the renderer's eyes. Also returns the last text that the model wrote.
fn train(
    begun: &mut Begun,
    out: &mut Out,
    signals: &Signals,
    knows: bool,
) -> Result<(Ending, String), Failure> {
    let (trainer, split) = (&mut begun.trainer, begun.settings.run.split);
    let (start, end) = (trainer.progress().step, trainer.config().max_iters);
    let vocab_size = trainer.gpt().config().vocab_size;
    let mut renderer = Renderer::new(out, start, end, trainer.config().log_interval);
    let (mut last_sample, mut unheard) = (String::new(), Ok(()));
    let (mut first, mut gap_told) = (start == 0 && !knows, false);
    let mut first_loss = |loss| match std::mem::take(&mut first) {
        true => report::first_loss(loss, vocab_size),
        false => String::new(),
    };
    let ending = begun.train(&|| signals.stop(), &mut |event| {
        // A reader who has gone is no reason to stop training; the first other trouble is
        // told at the end.
        let said = match event {
            Event::Step(step) => {
                renderer.text(&first_loss(step.loss)).and_then(|()| renderer.step(step))
            }
            Event::Evaluation(evaluation) => {
                let loss = evaluation.val_loss.unwrap_or(evaluation.train_loss);
                let gap = report::gap(evaluation, split).filter(|_| !gap_told);
                gap_told |= gap.is_some();
                renderer
                    .text(&first_loss(loss))
                    .and_then(|()| renderer.evaluation(evaluation))
                    .and_then(|()| renderer.text(&gap.unwrap_or_default()))
            }
            Event::Sample(text) => {
                last_sample = text.into();
                Ok(())
            }
            Event::Progress { what, done, total } => {
                renderer.progress(what, done, total);
                Ok(())
            }
            Event::Note(note) => {
                renderer.warn(&format!("note: {note}"));
                Ok(())
            }
            Event::Failed(error) => {
                renderer.warn(&format!("warning: {error}; training goes on and tries again"));
                Ok(())
            }
            _ => Ok(()),
        };
        if unheard.is_ok() {
            unheard = said;
        }
    });
    renderer.finish();
    let ending = ending.map_err(|error| failed(error, &begun.run, &begun.trainer))?;
    unheard.map(|()| (ending, last_sample))
}

/// Why a run ended, what of it is saved, and how to go on.
fn failed(error: Error, run: &Run, trainer: &Trainer) -> Failure {
    let Error::Io { source, .. } = &error else { return error.into() };
    let full = matches!(
        source.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    );
    let failure = Failure::from(error);
    let Ok(checkpoint) = run.newest() else { return failure };
    let shown = checkpoint.display();
    let saved = read_progress(&checkpoint).ok().flatten().map(|progress| progress.step);
    let step = trainer.progress().step;
    if saved == Some(step) {
        return failure.with_hint(format!("the model is saved, as of step {step}, in {shown}"));
    }
    let first = if full { "make room" } else { "put that right" };
    let resume = format!("tinygpt train --resume {}", quoted(run.folder()));
    failure.with_hint(format!("{shown} is as it was before; {first}, then: {resume}"))
}
