//! `tinygpt prepare`: nanoGPT's folder of tokens from a text.

use crate::args::{typed_settings, with_settings};
use crate::progress::reading;
use crate::{Outcome, failure::Failure, out::Out, out::tell};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::PathBuf;
use tinygpt::files::quoted;
use tinygpt::run::{data_options, keys::Group, thousands};
use tinygpt::{Input, Layers, Settings, formats};

const HELP: &str = "\
TinyGPT needs no such step: `tinygpt train my.txt` makes its tokens itself. This is for nanoGPT's
train.py, for its config files, which name such a folder, and for a text that many runs share.

The folder has train.bin and val.bin, bare ids of two bytes each, so at most 65,536 different ones;
meta.pkl, if tokens are characters; and tokenizer.json, which says in any case what they mean. With
characters the ids are those of nanoGPT's own prepare.py: sorted, the first 90 % to train on.

Examples:
  tinygpt prepare my.txt --out data/mine                      characters
  tinygpt prepare my.txt --out data/mine --tokenizer gpt2     GPT-2's tokens
  tinygpt prepare --out data/shakespeare_char                 the built-in Tiny Shakespeare
  tinygpt prepare books/ --out data/books --tokenizer bpe:4096 --val-fraction 0.05
  tinygpt train data/mine                                     train on it
  python train.py --dataset=mine                              ... with nanoGPT, in its own folder";

pub fn arguments(command: Command) -> Command {
    let command = command.after_help(HELP).args([
        Arg::new("text")
            .value_name("TEXT")
            .num_args(0..)
            .value_parser(value_parser!(PathBuf))
            .help("Files, a folder, or - for standard input [default: Tiny Shakespeare]"),
        Arg::new("out")
            .long("out")
            .value_name("FOLDER")
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("The folder to write; nanoGPT looks for it as data/NAME"),
        Arg::new("force")
            .long("force")
            .action(ArgAction::SetTrue)
            .help("Replace the tokens that are there"),
    ]);
    with_settings(command, |key| key.group == Group::Data || key.name == "seed")
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let layers = Layers { command_line: typed_settings(matches), ..Layers::default() };
    let settings = Settings::resolve(&layers).map_err(|e| Failure::from(e).into_usage())?;
    let text: Vec<PathBuf> = matches.get_many("text").into_iter().flatten().cloned().collect();
    let to: &PathBuf = matches.get_one("out").expect("is required");
    let input = match &text[..] {
        [] => Input::TinyShakespeare,
        _ => Input::Paths(text.clone()),
    };
    let options = formats::with_vocabulary(data_options(&settings))?;
    let done = reading(&text, |progress| {
        formats::prepare(&input, &options, to, matches.get_flag("force"), progress)
    })?;
    done.notices.iter().for_each(|notice| tell(&format!("note: {notice}")));
    let val = match done.val {
        Some(val) => format!(", {} validation tokens", thousands(val)),
        None => " tokens, none to validate on".into(),
    };
    let (name, size) = (done.tokenizer.name(), thousands(done.tokenizer.vocab_size()));
    out.write(&format!(
        "text       {}: {} training{val}\n\
         tokenizer  {name}, vocabulary {size}\n\
         written    {}: {}\n\
         train      tinygpt train {}\n",
        done.source,
        thousands(done.train),
        quoted(to),
        done.files.join(" "),
        quoted(to)
    ))
}
