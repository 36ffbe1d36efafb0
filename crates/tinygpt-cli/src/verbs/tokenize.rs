//! `tinygpt tokenize`: the tokens of a text, one by one; those of a file, counted or written.

use crate::args::setting_called;
use crate::progress::reading;
use crate::{Outcome, failure::Failure, out::Out, out::tell};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use tinygpt::data::Count;
use tinygpt::files::{place, quoted};
use tinygpt::run::thousands;
use tinygpt::{DataOptions, Input, Tokenizer, TokenizerKind, formats};

const HELP: &str = "\
A file, a folder of .txt files or - for standard input is counted; any other words are a text, whose
tokens are shown. A file is read in pieces, so it may be larger than memory.

Which tokenizer for what:
  char        a small text in one language: the fewest tokens to learn, a model of minutes
  byte        any file, any language, 256 tokens; the longest token sequences
  gpt2        to go on from GPT-2's weights, or to compare with them; 50,257 tokens are most of a
              small model's weights
  bpe:4096    your own text, too large for characters: words and their parts, learned from it
  FILE        the tokenizer.json of a model you have, or its folder, or a run
Their losses cannot be compared, their bits per byte can: `tinygpt eval` shows them.

Examples:
  tinygpt tokenize \"Hello world\"                       GPT-2's tokens
  tinygpt tokenize my.txt                              how many they are
  tinygpt tokenize my.txt --tokenizer bpe:4096         how many, of 4,096 learned from it
  tinygpt tokenize \"to be\" --tokenizer runs/quick      a run's own
  tinygpt tokenize my.txt --out my.tokens              write them to a token file
  tinygpt tokenize \"a<|endoftext|>\" --allow-special    the end of a text as one token";

pub fn arguments(command: Command) -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    command.after_help(HELP).args([
        Arg::new("text")
            .value_name("TEXT|FILE")
            .num_args(1..)
            .required(true)
            .allow_hyphen_values(false)
            .help("A text to show, or files, a folder or - to count"),
        setting_called("tokenizer").default_value("gpt2"),
        flag("allow-special", "Take <|endoftext|> for the token, not for text"),
        flag("lossy", "Replace bytes that are not UTF-8 instead of refusing them"),
        Arg::new("out")
            .long("out")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Write the tokens of the files to FILE, a new one"),
        flag("force", "Replace the FILE of --out if it is there").requires("out"),
        flag("json", "Write JSON instead"),
    ])
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let kind = matches.get_one::<String>("tokenizer").expect("has a default");
    let options = DataOptions {
        tokenizer: TokenizerKind::try_from(kind.clone())
            .map_err(|expected| Failure::usage(format!("--tokenizer {kind}: {expected}")))?,
        allow_special: matches.get_flag("allow-special"),
        lossy: matches.get_flag("lossy"),
        val_fraction: 0.0,
        ..DataOptions::default()
    };
    let options = formats::with_vocabulary(options)?;
    let words: Vec<&String> = matches.get_many("text").expect("is required").collect();
    let is_file = |word: &&&String| word.as_str() == "-" || Path::new(word.as_str()).exists();
    let to = matches.get_one::<PathBuf>("out").map(PathBuf::as_path);
    match words.iter().filter(is_file).count() {
        0 if to.is_none() => show(&words, &options, matches.get_flag("json"), out),
        n if n == words.len() => {
            if let Some(to) = to {
                check_place(to, &words, matches.get_flag("force"))?;
            }
            count(&words, &options, to, matches.get_flag("json"), out)
        }
        _ => {
            let missing = words.iter().find(|word| !is_file(word)).expect("not all are files");
            Err(Failure::usage(format!("{missing}: there is no such file"))
                .with_hint("a text is shown alone, in quotes; files are counted together"))
        }
    }
}

/// The tokens of a text, one by one.
fn show(words: &[&String], options: &DataOptions, json: bool, out: &mut Out) -> Outcome {
    let text = words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" ");
    if let [word] = words
        && (word.ends_with(".txt") || word.contains('/'))
        && !word.contains(' ')
    {
        tell(&format!("note: there is no file {word}: it is taken for the text"));
    }
    let tokenizer = match &options.vocabulary {
        Some(tokenizer) => tokenizer.clone(),
        None => Tokenizer::from_text(&options.tokenizer, &text)?,
    };
    let ids = match options.allow_special {
        true => tokenizer.encode_with_special(&text, "the text")?,
        false => tokenizer.encode(&text, "the text")?,
    };
    let pieces: Vec<String> =
        ids.iter().map(|&id| printable(&tokenizer.bytes(id).unwrap_or_default())).collect();
    let distinct = ids.iter().collect::<std::collections::BTreeSet<_>>().len();
    let (name, size) = (tokenizer.name(), tokenizer.vocab_size());
    if json {
        let mut value = summary(&tokenizer, text.len() as u64, ids.len() as u64, distinct);
        value["ids"] = json!(ids);
        value["pieces"] = json!(pieces);
        return out.write(&format!("{value}\n"));
    }
    let mut page = String::new();
    if std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        let shown: Vec<String> = ids.iter().map(u32::to_string).collect();
        page += &(coloured(&pieces, "") + "\n" + &coloured(&shown, " ") + "\n");
    } else {
        for (id, piece) in ids.iter().zip(&pieces) {
            page += &format!("{id:>6}  \"{piece}\"\n");
        }
    }
    let (tokens, bytes) = (ids.len(), text.len());
    page += &format!(
        "{} tokens, {} bytes, {} a token ({name}, vocabulary {})\n",
        thousands(tokens),
        thousands(bytes),
        ratio(bytes as u64, tokens as u64),
        thousands(size)
    );
    out.write(&page)
}

/// Whether tokens may be written to `to`: asked before a long text is read.
fn check_place(to: &Path, words: &[&String], force: bool) -> Result<(), Failure> {
    let wrong = |what: &str| Failure::usage(format!("--out {}: {what}", to.display()));
    if let Ok(real) = to.canonicalize() {
        let is_text = |word: &&String| {
            let text = Path::new(word.as_str()).canonicalize().unwrap_or_default();
            let inside = text.is_dir() && real.starts_with(&text);
            real == text || inside && real.extension().is_some_and(|end| end == "txt")
        };
        if real.is_file() && words.iter().any(is_text) {
            return Err(wrong("is the text itself"));
        }
    }
    place(to)?;
    if !force && to.symlink_metadata().is_ok() {
        return Err(wrong("is there already").with_hint("--force replaces it"));
    }
    Ok(())
}

/// What files come to.
fn count(
    words: &[&String],
    options: &DataOptions,
    to: Option<&Path>,
    json: bool,
    out: &mut Out,
) -> Outcome {
    let paths: Vec<PathBuf> = words.iter().map(PathBuf::from).collect();
    let input = Input::Paths(paths.clone());
    let count = reading(&paths, |progress| Count::of(&input, options, to, progress))?;
    count.notices.iter().for_each(|notice| tell(&format!("note: {notice}")));
    let Count { tokenizer, source, bytes, times, .. } = &count;
    let (tokens, distinct) = (count.tokens(), count.distinct());
    if json {
        return out.write(&format!("{}\n", summary(tokenizer, *bytes, tokens, distinct)));
    }
    let mut order: Vec<u32> = (0..times.len() as u32).collect();
    order.sort_by_key(|&id| std::cmp::Reverse(times[id as usize]));
    let common = order.iter().take(8).filter(|&&id| times[id as usize] > 0).map(|&id| {
        let piece = printable(&tokenizer.bytes(id).unwrap_or_default());
        format!("\"{piece}\" {}", thousands(times[id as usize]))
    });
    let (common, size) = (common.collect::<Vec<_>>().join("  "), tokenizer.vocab_size());
    let mut page = format!(
        "text       {source}: {} bytes\n\
         tokenizer  {}, vocabulary {}\n\
         tokens     {}, {} bytes each\n\
         distinct   {} of {} ({:.1} %)\n\
         commonest  {common}\n",
        thousands(bytes),
        tokenizer.name(),
        thousands(size),
        thousands(tokens),
        ratio(*bytes, tokens),
        thousands(distinct),
        thousands(size),
        100.0 * distinct as f64 / size as f64,
    );
    if let Some(path) = to {
        page += &format!("written    {}\n", quoted(path));
    }
    out.write(&page)
}

fn summary(tokenizer: &Tokenizer, bytes: u64, tokens: u64, distinct: usize) -> serde_json::Value {
    json!({
        "tokenizer": tokenizer.name(),
        "vocab_size": tokenizer.vocab_size(),
        "bytes": bytes,
        "tokens": tokens,
        "bytes_per_token": if tokens > 0 { bytes as f64 / tokens as f64 } else { 0.0 },
        "distinct": distinct,
    })
}

fn ratio(bytes: u64, tokens: u64) -> String {
    format!("{:.2}", bytes as f64 / tokens.max(1) as f64)
}

/// Bytes as text that a terminal can show: escapes for what is no printable character.
fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.extend(chunk.valid().chars().flat_map(|c| match c {
            '\'' => vec![c],
            c => c.escape_debug().collect(),
        }));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Each part on a ground of another colour than the one before.
fn coloured(parts: &[String], between: &str) -> String {
    const GROUNDS: [u8; 4] = [153, 223, 157, 218];
    let part = |(i, part): (usize, &String)| {
        let ground = GROUNDS[i % GROUNDS.len()];
        format!("\x1b[30;48;5;{ground}m{part}\x1b[0m{between}")
    };
    parts.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_terminal_can_show_is_escaped() {
        assert_eq!(printable(b" it's\n\x1b[0m"), " it's\\n\\u{1b}[0m");
        assert_eq!(printable("é\u{202e}".as_bytes()), "é\\u{202e}");
        assert_eq!(printable(&[0xf0, 0x9f, b'a']), "\\xf0\\x9fa");
    }

    #[test]
    fn tokens_side_by_side_differ_in_colour() {
        let text = coloured(&["a".into(), "b".into()], "");
        assert_eq!(text, "\x1b[30;48;5;153ma\x1b[0m\x1b[30;48;5;223mb\x1b[0m");
    }
}
