//! `tinygpt train`: from a text to a run folder with checkpoints, metrics and samples.

use crate::args::{recipe, typed_settings, with_settings};
use crate::{Outcome, failure::Failure, out::Out, out::tell};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::PathBuf;
use tinygpt::{Layers, Settings};

const HELP: &str = "\
Settings come in layers, each over the last: nanoGPT's defaults, a preset, a config file, the flags
here. The run's config.toml says where every value came from. When max_iters changes, the cosine's
end lr_decay_iters goes with it; when learning_rate changes, min_lr stays a tenth of it.

Examples:
  tinygpt train                                  the built-in Tiny Shakespeare, preset quick
  tinygpt train my.txt                           your text
  tinygpt train books/ --tokenizer byte          every .txt in a folder, bytes as tokens
  cat *.log | tinygpt train -                    standard input
  tinygpt train --preset shakespeare-char        the 10.65M model that nanoGPT's readme trains
  tinygpt train --n_layer=6 --dropout=0.1        any setting, in nanoGPT's spelling
  tinygpt train --resume                         go on with the newest run
  tinygpt train --resume --max-iters 4000        ... for longer
  tinygpt train my.txt --init-from runs/quick    start from another run's weights
  tinygpt train --print-config > my.toml         a config file to edit, for --config my.toml";

pub fn arguments(command: Command) -> Command {
    let command = command
        .after_help(HELP)
        .arg(
            Arg::new("text")
                .value_name("TEXT")
                .num_args(0..)
                .value_parser(value_parser!(PathBuf))
                .help("Files, a folder, or - for standard input [default: Tiny Shakespeare]"),
        )
        .args(recipe())
        .arg(
            Arg::new("resume")
                .long("resume")
                .value_name("RUN")
                .num_args(0..=1)
                .value_parser(value_parser!(PathBuf))
                .conflicts_with_all(["preset", "config", "init-from", "overwrite"])
                .help("Go on with a run where it stopped [default: the newest]"),
        )
        .arg(
            Arg::new("init-from")
                .long("init-from")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("Start from these weights: a run, a checkpoint or a .safetensors file"),
        )
        .arg(
            Arg::new("overwrite")
                .long("overwrite")
                .action(ArgAction::SetTrue)
                .help("Replace the run in out_dir"),
        )
        .arg(
            Arg::new("print-config")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .conflicts_with("resume")
                .help("Show every setting and where it came from, and stop"),
        );
    with_settings(command)
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let settings = Settings::resolve(&Layers {
        preset: matches.get_one::<String>("preset").cloned(),
        file: matches.get_one::<PathBuf>("config").cloned(),
        command_line: typed_settings(matches),
    })
    .map_err(|error| Failure::from(error).into_usage())?;
    if matches.get_flag("print-config") {
        return out.write(&settings.to_toml());
    }
    if cfg!(debug_assertions) {
        tell("note: this is a debug build; `cargo run --release` is faster");
    }
    Err(Failure::run("this build has no trainer yet"))
}
