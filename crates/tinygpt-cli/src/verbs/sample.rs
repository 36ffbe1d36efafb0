//! `tinygpt sample`: text from a trained model, written as it comes.

use crate::args::{threads, trained, trained_path};
use crate::{Outcome, failure::Failure, out::Out};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

const HELP: &str = "\
The model gives every token a probability. --temperature sharpens (below 1) or flattens them (above
1); 0 always takes the likeliest. --top-k and --top-p then cut off the unlikely ones.

The prompt is --prompt, or --prompt-file, or what is piped in; without one the model begins a line.

Examples:
  tinygpt sample --prompt \"ROMEO:\"
  tinygpt sample runs/quick -p \"O God, \" -n 100 --temp 0.5 --seed 1
  tinygpt sample --start=FILE:prompt.txt --num_samples=3 --max_new_tokens=200
  tinygpt sample --escape -p 'ROMEO:\\nO, ' --stop '\\n\\n'
  echo \"First Citizen:\" | tinygpt sample --top-k 0 --top-p 0.9";

pub fn arguments(command: Command) -> Command {
    command
        .after_help(HELP)
        .args(trained())
        .next_help_heading("Prompt")
        .args([
            Arg::new("prompt")
                .long("prompt")
                .short('p')
                .visible_alias("start")
                .value_name("TEXT")
                .help("The beginning; FILE:prompt.txt reads it from a file"),
            Arg::new("prompt-file")
                .long("prompt-file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("prompt")
                .help("Read the beginning from a file; - is standard input"),
            Arg::new("escape")
                .long("escape")
                .short('e')
                .action(ArgAction::SetTrue)
                .help("In --prompt and --stop, read \\n, \\t, \\r and \\\\ as C does"),
            Arg::new("skip-unknown")
                .long("skip-unknown")
                .action(ArgAction::SetTrue)
                .help("Leave out what the vocabulary lacks instead of refusing it"),
        ])
        .next_help_heading("How much")
        .args([
            whole("max-new-tokens", "500", "Tokens to write")
                .short('n')
                .visible_alias("num-tokens")
                .alias("n-predict"),
            whole("num-samples", "1", "Texts to write"),
            Arg::new("stop")
                .long("stop")
                .value_name("TEXT")
                .action(ArgAction::Append)
                .help("End where this text appears; may be given several times"),
        ])
        .next_help_heading("How freely")
        .args([
            real("temperature", "0.8", "0 takes the likeliest token, 1 samples as learnt")
                .visible_alias("temp"),
            whole("top-k", "200", "Choose among the K likeliest; 0 is all")
                .short('k')
                .value_name("K"),
            real("top-p", "1", "Choose among the likeliest that together reach P").value_name("P"),
            real("min-p", "0", "Leave out what is below P times the likeliest").value_name("P"),
            whole("seed", "1337", "The same seed writes the same text").short('s'),
        ])
        .next_help_heading("Run")
        .arg(threads())
}

fn whole(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    number::<u64>(name, default, help, "must be a whole number, 0 or more")
}

fn real(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    number::<f32>(name, default, help, "must be a number")
}

fn number<T: FromStr + Clone + Send + Sync + 'static>(
    name: &'static str,
    default: &'static str,
    help: &'static str,
    expected: &'static str,
) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("N")
        .default_value(default)
        .allow_negative_numbers(true)
        .value_parser(move |text: &str| text.parse::<T>().map_err(|_| expected))
        .help(help)
}

pub fn run(matches: &ArgMatches, _out: &mut Out) -> Outcome {
    let _ = (trained_path(matches), prompt(matches)?);
    Err(Failure::run("this build has no model to sample from yet"))
}

/// What the text begins with; empty leaves the beginning to the model.
fn prompt(matches: &ArgMatches) -> Result<String, Failure> {
    let typed = matches.get_one::<String>("prompt").map(String::as_str);
    let file = matches.get_one::<PathBuf>("prompt-file").map(PathBuf::as_path);
    match (typed, file.or(typed.and_then(|text| text.strip_prefix("FILE:")).map(Path::new))) {
        (_, Some(path)) if path != Path::new("-") => {
            let bytes = std::fs::read(path);
            let name = path.display().to_string();
            utf8(
                bytes.map_err(|error| Failure::run(format!("cannot read {name}: {error}")))?,
                &name,
            )
        }
        (Some(text), None) if matches.get_flag("escape") => Ok(unescaped(text)),
        (Some(text), None) => Ok(text.into()),
        (None, None) if std::io::stdin().is_terminal() => Ok(String::new()),
        _ => {
            let (mut bytes, name) = (Vec::new(), "standard input");
            let read = std::io::stdin().read_to_end(&mut bytes);
            read.map_err(|error| Failure::run(format!("cannot read {name}: {error}")))?;
            utf8(bytes, name)
        }
    }
}

fn utf8(bytes: Vec<u8>, name: &str) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::run(format!("{name}: byte {at} is not UTF-8"))
    })
}

/// C's escapes; an unknown one stays as it is.
fn unescaped(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text.chars());
    while let Some(c) = rest.next() {
        match (c, rest.clone().next()) {
            ('\\', Some(escape @ ('n' | 't' | 'r' | '\\'))) => {
                plain.push(match escape {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    _ => '\\',
                });
                rest.next();
            }
            _ => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_cs_and_unknown_ones_stay() {
        assert_eq!(unescaped(r"A\nB\\n\t\x\"), "A\nB\\n\t\\x\\");
    }
}
