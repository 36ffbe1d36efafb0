//! `tinygpt check`: the facts that a GPT stands on, tested on this machine.

use super::info::named_model;
use crate::args::threads;
use crate::{Outcome, failure::Failure, out::Out};
use clap::{Arg, ArgMatches, Command};

const HELP: &str = "\
One row a fact: the parameter count; the first loss against ln V; the variance of attention scores
with and without 1/sqrt(D); every gradient against finite differences; that no position sees the
future, and that a broken mask is found out; that the KV cache, the fused attention and the number
of threads change nothing.

Examples:
  tinygpt check                 the preset quick
  tinygpt check runs/quick      a trained model";

pub fn arguments(command: Command) -> Command {
    command
        .after_help(HELP)
        .arg(
            Arg::new("model")
                .value_name("RUN|PRESET")
                .default_value("quick")
                .help("A preset, a run or checkpoint folder, or a config file"),
        )
        .arg(threads())
}

pub fn run(matches: &ArgMatches, _out: &mut Out) -> Outcome {
    named_model(matches.get_one::<String>("model").expect("has a default"))?;
    Err(Failure::run("this build has no model to check yet"))
}
