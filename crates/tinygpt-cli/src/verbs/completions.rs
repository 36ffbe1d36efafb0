//! `tinygpt completions`: a script that completes verbs, flags and choices at a Tab.

use crate::{Outcome, out::Out, program};
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

const HELP: &str = "\
Examples:
  tinygpt completions bash > ~/.local/share/bash-completion/completions/tinygpt
  tinygpt completions zsh  > ~/.zfunc/_tinygpt         (a folder in your fpath)
  tinygpt completions fish > ~/.config/fish/completions/tinygpt.fish";

pub fn arguments(command: Command) -> Command {
    command.after_help(HELP).arg(
        Arg::new("shell")
            .value_name("SHELL")
            .required(true)
            .value_parser(value_parser!(Shell))
            .help("Which shell"),
    )
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let shell = *matches.get_one::<Shell>("shell").expect("required");
    // Made in memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program(), "tinygpt", &mut script);
    out.write(&String::from_utf8_lossy(&script))
}
