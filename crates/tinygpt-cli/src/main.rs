//! The program `tinygpt`: one table of verbs, one file per verb.
//!
//! Exit codes: 0 for success and for a reader that stopped reading, 1 for a failed run, 2 for bad
//! usage, 130 for a training that Ctrl-C or SIGTERM stopped. Errors are `error:` and `hint:` lines
//! on standard error.
#![forbid(unsafe_code)]

mod anatomy;
mod args;
mod failure;
mod machine;
mod memory;
mod ops;
mod out;
mod progress;
mod render;
mod trained;
mod verbs;

use clap::{ArgMatches, Command};
use failure::Failure;
use out::Out;
use std::process::ExitCode;
use verbs::{bench, check, completions, eval, export, info, prepare, sample, tokenize, train};

/// Name, purpose, arguments, action.
type Verb =
    (&'static str, &'static str, fn(Command) -> Command, fn(&ArgMatches, &mut Out) -> Outcome);

/// What a verb comes to.
type Outcome = Result<(), Failure>;

const VERBS: &[Verb] = &[
    ("train", "Train a model on a text, and resume", train::arguments, train::run),
    ("sample", "Write text with a trained model", sample::arguments, sample::run),
    ("eval", "Measure a trained model on its text", eval::arguments, eval::run),
    (
        "tokenize",
        "Show a text's tokens, count or write a file's",
        tokenize::arguments,
        tokenize::run,
    ),
    ("prepare", "Write nanoGPT's folder of a text's tokens", prepare::arguments, prepare::run),
    ("info", "Every shape, count and byte of a model", info::arguments, info::run),
    ("export", "Write a model for other programs", export::arguments, export::run),
    ("check", "Test the facts a GPT stands on, on your machine", check::arguments, check::run),
    ("bench", "Measure how fast it is on your machine", bench::arguments, bench::run),
    ("completions", "Tab completion for your shell", completions::arguments, completions::run),
];

const FIRST_STEPS: &str = "\
Start here:
  tinygpt train                        learn Shakespeare's letters, in minutes
  tinygpt sample                       write some
  tinygpt info                         see every shape in the model
  tinygpt train my.txt --n-layer 6     your text, your model

A flag may be written --n-layer 6, --n-layer=6 or --n_layer=6. \
`tinygpt VERB --help` explains a verb.";

/// The command line as a whole.
fn program() -> Command {
    let program = Command::new("tinygpt")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A GPT from scratch: train it on a text, sample from it, look inside.")
        .after_help(FIRST_STEPS)
        .max_term_width(100)
        .args_override_self(true)
        .subcommand_value_name("VERB")
        .subcommand_help_heading("Verbs");
    VERBS.iter().fold(program, |program, (name, about, arguments, _)| {
        program.subcommand(arguments(Command::new(*name).about(*about)))
    })
}

/// Makes a write past a limit on the size of files fail as on a full disk, instead of ending the
/// program. Blocked, not ignored, which would need `unsafe`; later threads inherit it.
#[cfg(unix)]
fn outlive_limits_on_files() {
    use nix::sys::signal::{SigSet, Signal};
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    let _ = signals.thread_block();
}

fn main() -> ExitCode {
    #[cfg(unix)]
    outlive_limits_on_files();
    let mut out = Out::new();
    match act(&mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn act(out: &mut Out) -> Outcome {
    let mut program = program();
    let matches = match program.try_get_matches_from_mut(args::normalised(std::env::args_os())) {
        Ok(matches) => matches,
        Err(message) if !message.use_stderr() => return out.write_help(&message),
        Err(mistake) => return Err(failure::usage(&mistake)),
    };
    match matches.subcommand() {
        None => out.write(&program.render_help().to_string()),
        Some((name, matches)) => {
            let (.., run) = VERBS.iter().find(|(verb, ..)| *verb == name).expect("clap knows them");
            run(matches, out)
        }
    }
}
