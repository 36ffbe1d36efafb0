//! `tinygpt eval`: the loss of a trained model on the whole of its training and validation text.

use crate::args::{threads, trained, trained_path};
use crate::{Outcome, failure::Failure, out::Out};
use clap::{ArgMatches, Command};

const HELP: &str = "\
The loss is the mean of -ln p(next token): ln V is what knowing nothing gives, and exp(loss) is how
many tokens the model wavers between. Losses of different tokenizers cannot be compared; bits per
byte can.

Examples:
  tinygpt eval                  the newest run
  tinygpt eval runs/quick       its best checkpoint
  tinygpt eval runs/quick/last  its last";

pub fn arguments(command: Command) -> Command {
    command.after_help(HELP).args(trained()).arg(threads())
}

pub fn run(matches: &ArgMatches, _out: &mut Out) -> Outcome {
    let _ = trained_path(matches);
    Err(Failure::run("this build has no model to evaluate yet"))
}
