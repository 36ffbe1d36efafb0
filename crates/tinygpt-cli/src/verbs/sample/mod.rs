//! `tinygpt sample`: text from a trained model, written as it comes.

mod page;
mod prompt;

use crate::args::{number_of, threads, trained, trained_path};
use crate::{Outcome, failure::Failure, out::Out, out::tell, trained::Trained};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use page::Page;
use prompt::{prompt, unescaped};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;
use tinygpt::files::quoted;
use tinygpt::{Sampler, Sampling};

const HELP: &str = "\
The model gives every token a probability. --temperature sharpens (below 1) or flattens them (above
1); 0 always takes the likeliest, and soon repeats itself. --top-k and --top-p then cut off the
unlikely ones.

The prompt is --prompt, or --prompt-file; `-` reads standard input. Without one the model begins a
line.

Examples:
  tinygpt sample --prompt \"ROMEO:\"
  tinygpt sample runs/quick -p \"O God, \" -n 100 --temp 0.5 --seed 1
  tinygpt sample --start=FILE:prompt.txt --num_samples=3 --max_new_tokens=200
  tinygpt sample --escape -p 'ROMEO:\\nO, ' --stop '\\n\\n'
  echo \"First Citizen:\" | tinygpt sample --prompt - --top-k 0 --top-p 0.9";

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
                .allow_hyphen_values(true)
                .value_name("TEXT")
                .help("The beginning; - reads standard input, FILE:prompt.txt a file"),
            Arg::new("prompt-file")
                .long("prompt-file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("prompt")
                .help("Read the beginning from a file; - is standard input too"),
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
            whole::<usize>("max-new-tokens", "500", "Tokens to write")
                .short('n')
                .visible_alias("num-tokens")
                .alias("n-predict"),
            whole::<u32>("num-samples", "1", "Texts to write"),
            Arg::new("stop")
                .long("stop")
                .allow_hyphen_values(true)
                .value_name("TEXT")
                .action(ArgAction::Append)
                .help("End where this text appears; may be given several times"),
        ])
        .next_help_heading("How freely")
        .args([
            real("temperature", "0.8", "0 takes the likeliest token, 1 samples as learnt")
                .visible_alias("temp"),
            whole::<usize>("top-k", "200", "Choose among the K likeliest; 0 is all")
                .short('k')
                .value_name("K"),
            real("top-p", "1", "Choose among the likeliest that together reach P").value_name("P"),
            real("min-p", "0", "Leave out what is below P times the likeliest").value_name("P"),
            whole::<u64>("seed", "1337", "The same seed writes the same text").short('s'),
        ])
        .next_help_heading("Run")
        .arg(threads())
}

fn whole<T: FromStr + Clone + Send + Sync + 'static>(
    name: &'static str,
    default: &'static str,
    help: &'static str,
) -> Arg {
    number::<T>(name, default, help, "must be a whole number, 0 or more")
}

fn real(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    number::<f64>(name, default, help, "must be a number")
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

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let stops = stops(matches)?;
    // Before anything is read: a mistake on the command line should not wait for a model.
    let sampling = sampling(matches);
    sampling.check()?;
    let prompt = prompt(matches)?;
    let typed = trained_path(matches);
    let mut model = Trained::load(typed, number_of(matches, "threads"))
        .map_err(|failure| or_a_prompt(typed, failure))?;
    let sampling = Sampling { vocab_size: model.tokenizer.vocab_size(), ..sampling };
    let ids = match matches.get_flag("skip-unknown") {
        true => model.tokenizer.encode_known(&prompt),
        false => model.tokenizer.encode(&prompt, "the prompt").map_err(|error| {
            let hint = "--skip-unknown leaves them out; a model of bytes knows every text";
            Failure::from(error).with_hint(hint)
        })?,
    };
    for index in 0..number_of::<u32>(matches, "num-samples") {
        if index > 0 {
            out.write("---------------\n")?;
        }
        let mut sampler = Sampler::new(&sampling, index)?;
        write_text(
            &mut model,
            &ids,
            number_of(matches, "max-new-tokens"),
            &mut sampler,
            &stops,
            out,
        )?;
        if out.is_closed() {
            break;
        }
    }
    Ok(())
}

/// The failure to find a model, with a way out if what was typed for one looks like a prompt.
fn or_a_prompt(typed: Option<&PathBuf>, failure: Failure) -> Failure {
    match typed.filter(|path| !path.exists()) {
        Some(path) => failure
            .and_hint(format!("to begin a text so: tinygpt sample --prompt {}", quoted(path))),
        None => failure,
    }
}

/// One text: the prompt, then what the model makes of it.
fn write_text(
    model: &mut Trained,
    prompt: &[u32],
    max_new_tokens: usize,
    sampler: &mut Sampler,
    stops: &[String],
    out: &mut Out,
) -> Outcome {
    let Trained { gpt, tokenizer, .. } = model;
    let mut page = Page::new(out, &tokenizer.decode(prompt), stops);
    let start = [tokenizer.start()];
    let ids = if prompt.is_empty() { &start } else { prompt };
    let mut decoder = tokenizer.decoder();
    let mut wanted = ControlFlow::Continue(());
    let written = gpt.generate_with(ids, max_new_tokens, sampler, |id| {
        wanted = page.add(&decoder.push(id));
        wanted
    });
    if wanted.is_continue() {
        let _ = page.add(&decoder.finish());
    }
    page.end()?;
    let written = written?;
    if sampler.is_greedy() && goes_round(&written[ids.len()..]) {
        tell(
            "note: always taking the likeliest token, this model goes round in a circle; \
             --temperature 0.8 leaves it",
        );
    }
    Ok(())
}

/// Whether the second half of a text of some length is a few tokens over and over.
fn goes_round(tokens: &[u32]) -> bool {
    let half = &tokens[tokens.len() / 2..];
    half.len() >= 16
        && (1..=half.len() / 4).any(|period| half.iter().zip(&half[period..]).all(|(a, b)| a == b))
}

fn sampling(matches: &ArgMatches) -> Sampling {
    Sampling {
        temperature: number_of(matches, "temperature"),
        top_k: number_of(matches, "top-k"),
        top_p: number_of(matches, "top-p"),
        min_p: number_of(matches, "min-p"),
        seed: number_of(matches, "seed"),
        ..Sampling::default()
    }
}

fn stops(matches: &ArgMatches) -> Result<Vec<String>, Failure> {
    let typed = matches.get_many::<String>("stop").into_iter().flatten();
    let stops = typed.map(|stop| match matches.get_flag("escape") {
        true => unescaped(stop),
        false => stop.clone(),
    });
    let stops: Vec<String> = stops.collect();
    match stops.iter().any(String::is_empty) {
        true => Err(Failure::usage("--stop is empty: it would end every text before it begins")),
        false => Ok(stops),
    }
}

#[cfg(test)]
mod tests {
    use super::goes_round;

    #[test]
    fn a_circle_is_a_few_tokens_over_and_over() {
        let rising: Vec<u32> = (0..40).collect();
        let ends_in = |circle: &[u32]| {
            let circle = circle.iter().copied().cycle().take(24);
            rising.iter().copied().take(20).chain(circle).collect::<Vec<_>>()
        };
        for (tokens, round) in [
            (&ends_in(&[1, 2])[..], true),
            (&ends_in(&[5]), true),
            (&ends_in(&[1, 2, 3, 4, 5, 6, 7, 8]), false),
            (&rising, false),
            (&[1, 1, 1], false),
            (&[], false),
        ] {
            assert_eq!(goes_round(tokens), round, "{tokens:?}");
        }
    }
}
