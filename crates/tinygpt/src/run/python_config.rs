//! nanoGPT's Python config files, read without Python: lines of `name = value  # comment`.
//!
//! ```text
//!   file    = lines of: nothing | import NAME | NAME = sum
//!   sum     = product (+|- product)*         product = sign (*|/|//|% sign)*
//!   sign    = (+|-)* power                   power   = atom [** sign]
//!   atom    = number | text | True | False | None | a name assigned before | ( sum )
//! ```
//!
//! The numbers are Python's, but a whole number ends at 64 bits. Anything else is an error that names
//! its line: what is no such assignment may mean something, and nothing here can run it. Keys that
//! mean nothing here ([`keys::means_nothing`]) are skipped unread.

use super::keys;
use super::read::{ConfigFile, Setting, fitted, key_called};
use crate::data::Dataset;
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::Value;

/// The preset with nanoGPT's defaults.
const PRESET: &str = "nanogpt";
/// Where nanoGPT keeps prepared tokens.
const DATA: &str = "data";
/// The data set of a config that names none.
const DATASET: &str = "openwebtext";
/// The parentheses, signs and powers that may lie in one another.
const DEEPEST: usize = 64;
/// Bytes of the longest text: two of them joined in every line would outgrow any memory.
const LONGEST_TEXT: usize = 1 << 12;

/// What a line gives, or what is wrong with it.
type Read<T> = std::result::Result<T, String>;

/// What such a file says, and what to do with it in the folder `here`.
///
/// # Errors
/// A line that is no assignment of a value, an unknown key, a value of the wrong type.
pub(super) fn parse(text: &str, source: &str, here: &Path) -> Result<ConfigFile> {
    let mut script = Script::default();
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{source}, line {number}");
        script.line(line, place.clone()).map_err(|problem| {
            Error::data(place, problem).with_hint(
                "a config of nanoGPT's is read, not run: only `name = value` can stand here. To \
                 train on the text of a Python file: tinygpt train - < FILE",
            )
        })?;
    }
    script.config(here)
}

#[derive(Default)]
struct Script {
    /// Every name assigned so far, with where and what.
    names: BTreeMap<String, (String, Found)>,
    /// Those that a later line used.
    used: BTreeSet<String>,
    /// Keys that mean nothing here.
    skipped: Vec<String>,
}

/// A value of Python's.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    None,
    Value(Value),
}

impl Script {
    fn line(&mut self, line: &str, place: String) -> Read<()> {
        let mut words = Words(line.trim_end());
        match words.next()? {
            Word::End => Ok(()),
            Word::Name("import") => match (words.next()?, words.next()?) {
                (Word::Name(_), Word::End) => Ok(()),
                _ => Err("only `import NAME` is skipped".into()),
            },
            Word::Name(name) if !line.starts_with([' ', '\t']) => {
                match words.next()? {
                    Word::Sign("=") => {}
                    other => return Err(format!("found {other} after `{name}`, expected `=`")),
                }
                if keys::means_nothing(name) {
                    if !self.skipped.iter().any(|other| other == name) {
                        self.skipped.push(name.into());
                    }
                    return Ok(());
                }
                let mut sum = Sum { next: words.next()?, words, script: self, depth: 0 };
                let value = sum.sum()?;
                if sum.next != Word::End {
                    return Err(format!("found {} where the line should end", sum.next));
                }
                self.names.insert(name.into(), (place, value));
                Ok(())
            }
            other => Err(format!("found {other}, expected `name = value`")),
        }
    }

    fn config(self, here: &Path) -> Result<ConfigFile> {
        let mut file = ConfigFile { preset: Some(PRESET.into()), ..ConfigFile::default() };
        let mut dataset = DATASET.to_owned();
        for (name, (place, value)) in self.names {
            match (name.as_str(), value) {
                ("dataset", Found::Value(Value::String(name))) if is_plain(&name) => dataset = name,
                ("dataset", value) => {
                    let problem = format!("dataset = {value}: expected the name of a folder");
                    return Err(Error::data(place, problem));
                }
                ("init_from", value) => file.init_from = init_from(&place, &value)?,
                (name, _) if keys::find(name).is_none() && self.used.contains(name) => {}
                (name, value) => {
                    let key = key_called(name, &place)?;
                    let Found::Value(value) = value else {
                        let problem = format!("{name} = None: expected a value, or no such line");
                        return Err(Error::data(place, problem));
                    };
                    file.settings.push((key, fitted(key, value, Some(&place))?));
                }
            }
        }
        if !self.skipped.is_empty() {
            let keys = self.skipped.join(", ");
            file.notices.push(format!("these keys of nanoGPT's mean nothing here: {keys}"));
        }
        find_data(&mut file, &dataset, here)?;
        Ok(file)
    }
}

/// Whether a name stays in the folder of data sets.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':'])
}

/// The weights to start from, which only `--init-from` can name.
fn init_from(place: &str, value: &Found) -> Result<Option<String>> {
    match value {
        Found::Value(Value::String(from)) if from == "scratch" => Ok(None),
        Found::Value(Value::String(from)) if from.starts_with("gpt2") => Ok(Some(from.clone())),
        Found::Value(Value::String(from)) if from == "resume" => Err(Error::data(
            place,
            "init_from = 'resume': a run says itself how it goes on",
        )
        .with_hint(
            "tinygpt train --resume RUN; for a ckpt.pt: tinygpt train TEXT --resume ckpt.pt",
        )),
        value => Err(Error::data(
            place,
            format!("init_from = {value}: expected 'scratch', 'resume' or one of 'gpt2...'"),
        )),
    }
}

/// The tokens that nanoGPT would read, or the built-in text where it is the same.
fn find_data(file: &mut ConfigFile, name: &str, here: &Path) -> Result<()> {
    let folder = Path::new(DATA).join(name);
    let has = |name: &str| here.join(&folder).join(name).is_file();
    let prepared = Dataset::is_prepared(&here.join(&folder));
    // Without a meta.pkl nanoGPT takes tokens for GPT-2's.
    let tokenizer = match () {
        () if prepared && has("meta.pkl") => "char".into(),
        () if prepared && has("tokenizer.json") => {
            folder.join("tokenizer.json").display().to_string()
        }
        () if !prepared && name.ends_with("_char") => "char".into(),
        () => "gpt2".to_owned(),
    };
    let (key, says) =
        (key_called("tokenizer", name)?, |(key, _): &Setting| key.name == "tokenizer");
    if !file.settings.iter().any(says) {
        file.settings.push((key, fitted(key, tokenizer.into(), None)?));
    }
    match name {
        _ if prepared => file.text = vec![folder],
        "shakespeare" | "shakespeare_char" => {
            file.notices.push(format!("{} is not here: the built-in text", folder.display()));
        }
        _ => file.missing = Some(folder),
    }
    Ok(())
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Found::None => write!(f, "None"),
            Found::Value(value) => write!(f, "{value}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Word<'a> {
    Name(&'a str),
    /// Digits, a point, an exponent, as they stand there.
    Number(&'a str),
    /// What stands between the quotes.
    Text(&'a str),
    Sign(&'a str),
    End,
}

impl std::fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Name(text) | Word::Number(text) | Word::Sign(text) => write!(f, "`{text}`"),
            Word::Text(text) => write!(f, "the text '{text}'"),
            Word::End => write!(f, "the end of the line"),
        }
    }
}

/// The rest of a line.
#[derive(Clone, Copy)]
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn next(&mut self) -> Read<Word<'a>> {
        let text = self.0.trim_start();
        let Some(first) = text.chars().next().filter(|&c| c != '#') else { return Ok(Word::End) };
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let after_point = text[first.len_utf8()..].starts_with(|c: char| c.is_ascii_digit());
        if first == '\'' || first == '"' {
            return self.text(text, first);
        }
        let number = first.is_ascii_digit() || first == '.' && after_point;
        let length = if number {
            number_length(text)
        } else if letter(first) {
            text.find(|c| !letter(c)).unwrap_or(text.len())
        } else {
            let long = ["**", "//", "==", "+=", "-=", "*=", "/="];
            long.iter().find(|sign| text.starts_with(**sign)).map_or(first.len_utf8(), |s| s.len())
        };
        let (word, rest) = text.split_at(length);
        self.0 = rest;
        Ok(match () {
            () if number => Word::Number(word),
            () if letter(first) => Word::Name(word),
            () => Word::Sign(word),
        })
    }

    fn text(&mut self, text: &'a str, quote: char) -> Read<Word<'a>> {
        let inside = &text[1..];
        let end = inside.find(quote).ok_or(format!("the text {text} does not end in its line"))?;
        let (inside, rest) = (&inside[..end], &inside[end + 1..]);
        if inside.contains('\\') {
            return Err(format!("the text '{inside}' has a `\\`, which is not read here"));
        }
        if inside.is_empty() && rest.starts_with(quote) {
            return Err("a text in three quotes is not read here".into());
        }
        self.0 = rest;
        Ok(Word::Text(inside))
    }
}

/// Bytes of the number that `text` begins with, and of letters that run on from it.
fn number_length(text: &str) -> usize {
    let mut before = ' ';
    let ends = |c: char| {
        let exponents = matches!(before, 'e' | 'E') && matches!(c, '+' | '-');
        before = c;
        !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_') || exponents)
    };
    text.find(ends).unwrap_or(text.len())
}

/// What is left of an expression, read from left to right.
struct Sum<'a, 's> {
    next: Word<'a>,
    words: Words<'a>,
    script: &'s mut Script,
    depth: usize,
}

impl Sum<'_, '_> {
    /// Takes the next word if it is one of `signs`.
    fn sign(&mut self, signs: &[&'static str]) -> Read<Option<&'static str>> {
        let found = signs.iter().find(|sign| self.next == Word::Sign(sign)).copied();
        if found.is_some() {
            self.next = self.words.next()?;
        }
        Ok(found)
    }

    fn sum(&mut self) -> Read<Found> {
        let mut value = self.product()?;
        while let Some(sign) = self.sign(&["+", "-"])? {
            value = joined(value, sign, self.product()?)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Read<Found> {
        let mut value = self.signed()?;
        while let Some(sign) = self.sign(&["*", "//", "/", "%"])? {
            value = joined(value, sign, self.signed()?)?;
        }
        Ok(value)
    }

    fn signed(&mut self) -> Read<Found> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("more than {DEEPEST} things lie in one another"));
        }
        let value = match self.sign(&["-", "+"])? {
            None => self.power()?,
            Some(sign) => {
                let zero = Found::Value(Value::Integer(0));
                match (sign, self.signed()?) {
                    // 0 - 0.0 would lose its sign.
                    ("-", Found::Value(Value::Float(x))) => Found::Value(Value::Float(-x)),
                    (sign, value) => joined(zero, sign, value)?,
                }
            }
        };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Read<Found> {
        let value = self.atom()?;
        match self.sign(&["**"])? {
            None => Ok(value),
            Some(sign) => joined(value, sign, self.signed()?),
        }
    }

    fn atom(&mut self) -> Read<Found> {
        let word = self.next;
        if self.sign(&["("])?.is_some() {
            let value = self.sum()?;
            return match self.sign(&[")"])? {
                Some(_) => Ok(value),
                None => Err(format!("found {}, expected `)`", self.next)),
            };
        }
        let value = match word {
            Word::Name("True") => Value::Boolean(true),
            Word::Name("False") => Value::Boolean(false),
            Word::Name("None") => {
                self.next = self.words.next()?;
                return Ok(Found::None);
            }
            Word::Number(digits) => number(digits)?,
            Word::Text(text) => text.into(),
            Word::Name(name) => {
                let Some((_, value)) = self.script.names.get(name) else {
                    return Err(format!("`{name}` has no value in the lines before"));
                };
                let value = value.clone();
                self.script.used.insert(name.into());
                self.next = self.words.next()?;
                return Ok(value);
            }
            other => return Err(format!("found {other}, expected a value")),
        };
        self.next = self.words.next()?;
        Ok(Found::Value(value))
    }
}

fn number(digits: &str) -> Read<Value> {
    let wrong = || format!("`{digits}` is no number that is read here");
    let plain = digits.replace('_', "");
    if plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return plain.parse().map(Value::Integer).map_err(|_| format!("`{digits}` is too large"));
    }
    let float = plain.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    let value = plain.parse::<f64>().ok().filter(|_| float).ok_or_else(wrong)?;
    finite(value)
}

fn finite(value: f64) -> Read<Value> {
    match value.is_finite() {
        true => Ok(Value::Float(value)),
        false => Err("the value is too large for a number".into()),
    }
}

/// `a sign b` as Python has it.
fn joined(a: Found, sign: &str, b: Found) -> Read<Found> {
    let (Found::Value(a), Found::Value(b)) = (&a, &b) else {
        return Err(format!("`{sign}` needs two numbers, found {a} and {b}"));
    };
    let value = match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => whole(*a, sign, *b)?,
        (Value::String(a), Value::String(b)) if sign == "+" => {
            if a.len() + b.len() > LONGEST_TEXT {
                return Err(format!("the text is longer than {LONGEST_TEXT} bytes"));
            }
            format!("{a}{b}").into()
        }
        _ => match (as_float(a), as_float(b)) {
            (Some(a), Some(b)) => real(a, sign, b)?,
            _ => return Err(format!("`{sign}` needs two numbers, found {a} and {b}")),
        },
    };
    Ok(Found::Value(value))
}

fn as_float(value: &Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|n| n as f64))
}

fn whole(a: i64, sign: &str, b: i64) -> Read<Value> {
    let value = match sign {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "**" if b >= 0 => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        // Rounded down, and the rest has the sign of the divisor.
        "//" if b != 0 => a.checked_div(b).map(|q| q - i64::from(a % b != 0 && (a < 0) != (b < 0))),
        "%" if b != 0 => {
            a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r })
        }
        _ => return real(a as f64, sign, b as f64),
    };
    value.map(Value::Integer).ok_or_else(|| format!("{a} {sign} {b} is too large a number"))
}

fn real(a: f64, sign: &str, b: f64) -> Read<Value> {
    if b == 0.0 && matches!(sign, "/" | "//" | "%") {
        return Err(format!("{a} {sign} 0 divides by zero"));
    }
    finite(match sign {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "//" => (a / b).floor(),
        "%" => a - b * (a / b).floor(),
        _ => a.powf(b),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Layers, Settings};
    use proptest::prelude::*;

    fn read(text: &str) -> Result<ConfigFile> {
        parse(text, "my.py", tempfile::tempdir().unwrap().path())
    }

    fn value(expression: &str) -> Read<Found> {
        let mut script = Script::default();
        script.line("five = 5", String::new())?;
        script.line(&format!("x = {expression}"), String::new())?;
        Ok(script.names["x"].1.clone())
    }

    fn problem(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn a_character_config_of_nanogpts_kind_gives_its_settings_over_nanogpts_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train_char.py");
        let text = "# a small one\n\nout_dir = 'out-char'\neval_interval = 250 # often\n\
                    wandb_log = False\nwandb_run_name = 'a' + str(b)\ndataset = 'shakespeare_char'\n\
                    gradient_accumulation_steps = 1\nn = 2\nn_layer = 3*n\nn_head = 6\n\
                    n_embd = 64 * n_head\nlearning_rate = 1e-3 # high\nmin_lr = learning_rate / 10\n\
                    decay_lr = True\ndevice = 'cpu'  # run on cpu only\ncompile = False\n";
        std::fs::write(&path, text).unwrap();
        let layers = Layers { file: Some(path), ..Layers::default() };
        let settings = Settings::resolve(&layers).unwrap();
        assert_eq!((settings.model.n_layer, settings.model.n_embd), (6, 384));
        assert_eq!(settings.train.learning_rate, 1e-3);
        assert_eq!((settings.train.batch_size, settings.train.eval_interval), (12, 250));
        assert!(!settings.model.bias);
        assert_eq!(settings.run.out_dir, "out-char");
        assert_eq!(settings.run.tokenizer.to_string(), "char");
        assert!(settings.text.is_empty() && settings.preset == "nanogpt");
        let said = settings.notices.join("; ");
        assert!(said.contains("wandb_log, wandb_run_name, device, compile"), "{said}");
    }

    #[test]
    fn arithmetic_is_pythons() {
        for (text, expected) in [
            ("5 * 8", "40"),
            ("-2 ** 2", "-4"),
            ("2 ** -1", "0.5"),
            ("2 ** 3 ** 2", "512"),
            ("-7 // 2", "-4"),
            ("-7 % 3", "2"),
            ("7 % -3", "-2"),
            ("7 / 2", "3.5"),
            ("8/4", "2.0"),
            ("(1 + 2) * five", "15"),
            ("1_000", "1000"),
            ("6e-4", "0.0006"),
            (".5", "0.5"),
            ("1.", "1.0"),
            ("--5", "5"),
            ("-five", "-5"),
            ("'a' + \"b\"", "\"ab\""),
            ("None", "None"),
            ("7.5 // 2", "3.0"),
            ("True", "true"),
            ("'#' # a comment", "\"#\""),
            ("1e+2", "100.0"),
        ] {
            assert_eq!(value(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_an_error_that_says_what_stands_there() {
        for (text, part) in [
            ("print('hi')", "found `(` after `print`"),
            ("x = open('a')", "`open` has no value in the lines before"),
            ("x = [1]", "found `[`, expected a value"),
            ("x = 1, 2", "found `,` where the line should end"),
            ("x += 1", "found `+=` after `x`"),
            ("x = (1", "found the end of the line, expected `)`"),
            ("x = 'a", "does not end in its line"),
            ("x = 1 / 0", "divides by zero"),
            ("x = 0x10", "`0x10` is no number"),
            ("x = 99999999999999999999", "too large"),
            ("x = 9 ** 99", "too large"),
            ("x = 1e999", "too large"),
            ("x = 'a' * 9", "needs two numbers"),
            ("  x = 1", "found `x`, expected `name = value`"),
            ("from a import b", "found `a` after `from`"),
        ] {
            let error = problem(&format!("n_layer = 2\n{text}\n"));
            assert!(error.starts_with("my.py, line 2: ") && error.contains(part), "{error}");
        }
        assert!(problem("learning_rte = 1").contains("line 1: unknown key `learning_rte`"));
        assert!(problem("n_layer = 1.5").contains("a whole number"));
        assert!(read("import time\nn_layer = 2").is_ok());
    }

    #[test]
    fn other_weights_and_missing_data_are_told_with_what_to_type() {
        let resolve = |text: &str, change: fn(&mut Layers)| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("my.py");
            std::fs::write(&path, text).unwrap();
            let mut layers = Layers { file: Some(path), ..Layers::default() };
            change(&mut layers);
            Settings::resolve(&layers)
        };
        let error = resolve("init_from = 'gpt2-xl'\ndataset = 'shakespeare'", |_| ()).unwrap_err();
        assert!(error.hint().unwrap().contains("--init-from"), "{error}");
        let text = "init_from = 'gpt2-xl'\ndataset = 'shakespeare'";
        let settings = resolve(text, |layers| layers.has_weights = true).unwrap();
        assert_eq!(settings.run.tokenizer.to_string(), "gpt2");
        let error = resolve("init_from = 'resume'", |_| ()).unwrap_err();
        assert!(error.hint().unwrap().contains("--resume"), "{error}");
        let error = resolve("dataset = 'mine'", |_| ()).unwrap_err();
        assert!(error.to_string().contains("data/mine"), "{error}");
        assert!(error.hint().unwrap().contains("tinygpt prepare"), "{error}");
        let texts = |layers: &mut Layers| layers.text = vec!["my.txt".into()];
        assert_eq!(
            resolve("dataset = 'mine'", texts).unwrap().text,
            ["my.txt".to_owned()].map(std::path::PathBuf::from)
        );
        assert!(resolve("dataset = '../mine'", texts).is_err());
    }

    #[test]
    fn prepared_tokens_below_the_current_folder_are_found_with_their_tokenizer() {
        let here = tempfile::tempdir().unwrap();
        let folder = here.path().join("data/mine");
        std::fs::create_dir_all(&folder).unwrap();
        let tokenizer = || {
            let file = parse("dataset = 'mine'", "my.py", here.path()).unwrap();
            assert_eq!(file.text, [Path::new("data/mine")]);
            let found = file.settings.into_iter().find(|(key, _)| key.name == "tokenizer");
            found.unwrap().1.as_str().unwrap().to_owned()
        };
        std::fs::write(folder.join("train.bin"), "").unwrap();
        assert_eq!(tokenizer(), "gpt2");
        std::fs::write(folder.join("meta.pkl"), "").unwrap();
        assert_eq!(tokenizer(), "char");
    }

    #[test]
    fn nesting_ends_before_the_stack_does() {
        for open in ["(", "-", "2**"] {
            assert!(problem(&format!("n_layer = {}1", open.repeat(100_000))).contains("more than"));
        }
        assert!(problem(&format!("a = 'x'\n{}", "a = a + a\n".repeat(64))).contains("longer than"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(?s).{0,200}") {
            let _ = read(&text);
        }

        #[test]
        fn nothing_like_arithmetic_makes_the_reader_panic(
            words in prop::collection::vec(
                "[-+*/%()]|\\*\\*|//|9223372036854775807|0|1e308|-1|.5|'a'|five|None|True| |é|#", 0..24,
            )
        ) {
            let _ = value(&words.concat());
        }
    }
}
