//! `tinygpt sample`: text from a trained model, written as it comes.

mod page;
mod prompt;

use crate::args::{
    idle, number_of, precision, precision_of, tell_idle, threads, trained, trained_path,
};
use crate::memory::texts_together;
use crate::{Outcome, failure::Failure, out::Out, out::tell, trained::Trained};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use page::Page;
use prompt::{prompt, unescaped};
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;
use tinygpt::files::quoted;
use tinygpt::run::thousands;
use tinygpt::{Sampler, Sampling};

const HELP: &str = "\
The model gives every token a probability. --temperature sharpens (below 1) or flattens them (above
1); 0 always takes the likeliest, and soon repeats itself. --top-k and --top-p then cut off the
unlikely ones.

Writing a token reads every weight once: --dtype bf16 halves them, --quantize int8 halves them again
(both keep keys and values in bf16), and several texts (--num-samples) are written together, each
as it would be alone; only the first of eight is shown as it comes. `tinygpt eval --quantize int8`
shows what rounding the weights costs.

The prompt is --prompt, or --prompt-file; `-` reads standard input. Without one the model begins a
line or, where its tokens have <|endoftext|>, a text. In a prompt that name means the token; --stop
'<|endoftext|>' ends a text there.

Examples:
  tinygpt sample --prompt \"ROMEO:\"
  tinygpt sample runs/quick -p \"O God, \" -n 100 --temp 0.5 --seed 1
  tinygpt sample --start=FILE:prompt.txt --num_samples=3 --max_new_tokens=200
  tinygpt sample --escape -p 'ROMEO:\\nO, ' --stop '\\n\\n'
  echo \"First Citizen:\" | tinygpt sample --prompt - --top-k 0 --top-p 0.9
  tinygpt sample --num-samples 8 --dtype bf16
  tinygpt sample --quantize int8";

/// Texts written together: with each more the weights are read no more often, but there is more to
/// compute, and the others are shown later.
const TOGETHER: u32 = 8;

/// Between two texts.
const RULE: &str = "---------------\n";

/// Bytes collected before they go into a file or pipe, where nobody watches letters appear.
const BLOCK: usize = 256;

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
        .args(precision("auto"))
        .arg(threads())
        .args(idle())
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
    tell_idle(matches)?;
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
        false => model.tokenizer.encode_with_special(&prompt, "the prompt").map_err(|error| {
            let hint = "--skip-unknown leaves them out; a model of bytes knows every text";
            Failure::from(error).with_hint(hint)
        })?,
    };
    let precision = precision_of(matches, model.gpt.cpu().isa());
    model.gpt.keep_in(precision);
    let (texts, most) =
        (number_of::<u32>(matches, "num-samples"), number_of::<usize>(matches, "max-new-tokens"));
    let longest = ids.len().saturating_add(most);
    let together = texts_together(&model.path, &model.gpt, texts.min(TOGETHER), longest)?;
    let started = Instant::now();
    let (mut first, mut tokens) = (0, 0);
    while first < texts && !out.is_closed() {
        if first > 0 {
            out.write(RULE)?;
        }
        let last = texts.min(first.saturating_add(together));
        let samplers: Result<Vec<_>, _> =
            (first..last).map(|index| Sampler::new(&sampling, index)).collect();
        tokens += write_texts(&mut model, &ids, most, &mut samplers?, &stops, out)?;
        first = last;
    }
    if io::stderr().is_terminal() && tokens > 0 {
        tell(&speed(&model, tokens, started.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// What a reader at a terminal is told in the end.
fn speed(model: &Trained, tokens: usize, seconds: f64) -> String {
    let (cpu, precision) = (model.gpt.cpu(), model.gpt.precision().name());
    let (count, threads) = (thousands(tokens as u64), cpu.threads());
    let rate = thousands((tokens as f64 / seconds) as u64);
    let isa = cpu.isa().name();
    format!(
        "{count} tokens in {seconds:.1} s, {rate} tokens/s ({threads} threads, {isa}, {precision})"
    )
}

/// The failure to find a model, with a way out if what was typed for one looks like a prompt.
fn or_a_prompt(typed: Option<&PathBuf>, failure: Failure) -> Failure {
    match typed.filter(|path| !path.exists()) {
        Some(path) => failure
            .and_hint(format!("to begin a text so: tinygpt sample --prompt {}", quoted(path))),
        None => failure,
    }
}

/// One text for each sampler: the prompt, then what the model makes of it. The first is written as
/// it comes, the others once all are whole. Returns how many tokens are new.
fn write_texts(
    model: &mut Trained,
    prompt: &[u32],
    max_new_tokens: usize,
    samplers: &mut [Sampler],
    stops: &[String],
    out: &mut Out,
) -> Result<usize, Failure> {
    let Trained { gpt, tokenizer, .. } = model;
    let (start, shown) = ([tokenizer.start()], tokenizer.decode(prompt));
    let ids = if prompt.is_empty() { &start } else { prompt };
    let page = |_: &Sampler| Page::new(&shown, tokenizer.decoder(), stops);
    let mut pages: Vec<_> = samplers.iter().map(page).collect();
    out.write_text(&pages[0].take())?;
    let least = if io::stdout().is_terminal() { 1 } else { BLOCK };
    let mut outcome = Ok(());
    let written = gpt.generate_many(ids, max_new_tokens, samplers, |text, id| {
        let wanted = pages[text].add(id);
        if text == 0 && pages[0].waiting() >= least && outcome.is_ok() {
            outcome = out.write_text(&pages[0].take());
        }
        if out.is_closed() || outcome.is_err() { ControlFlow::Break(()) } else { wanted }
    });
    outcome?;
    // Of texts that a broken model ends, the one that was shown.
    let whole = if written.is_ok() { pages.len() } else { 1 };
    for (i, page) in pages[..whole].iter_mut().enumerate() {
        if i > 0 {
            out.write(RULE)?;
        }
        page.end();
        out.write_text(&page.take())?;
    }
    let texts: Vec<_> = written?.into_iter().map(|text| text[ids.len()..].to_vec()).collect();
    if samplers[0].is_greedy() && texts.iter().any(|text| goes_round(text)) {
        tell(
            "note: always taking the likeliest token, this model goes round in a circle; \
             --temperature 0.8 leaves it",
        );
    }
    Ok(texts.iter().map(Vec::len).sum())
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
