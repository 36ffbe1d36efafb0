//! From a config file, a preset or a flag to keys and values of their keys' types.
//!
//! A value's type is that of its key's default. Any text gives rows or an error that names the file
//! and the line; none panics. nanoGPT's config files are read by `python_config.rs`.

use super::keys::{self, Key};
use super::python_config;
use super::values::default_table;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::files;
use crate::tokenizer::TokenizerKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};

/// The built-in recipes: name and text. Each holds only what differs from the defaults.
pub const PRESETS: &[(&str, &str)] = &[
    ("quick", include_str!("../../../../configs/quick.toml")),
    ("shakespeare-char", include_str!("../../../../configs/shakespeare-char.toml")),
    (FINETUNE, include_str!("../../../../configs/finetune.toml")),
    ("nanogpt", include_str!("../../../../configs/nanogpt.toml")),
    ("gpt2", include_str!("../../../../configs/gpt2.toml")),
    ("gpt2-medium", include_str!("../../../../configs/gpt2-medium.toml")),
    ("gpt2-large", include_str!("../../../../configs/gpt2-large.toml")),
    ("gpt2-xl", include_str!("../../../../configs/gpt2-xl.toml")),
];

/// The preset for weights that know a language already.
pub const FINETUNE: &str = "finetune";

/// The text of the preset called `name`.
///
/// # Errors
/// There is none of that name.
pub fn preset_text(name: &str) -> Result<&'static str> {
    if let Some((_, text)) = PRESETS.iter().find(|(preset, _)| *preset == name) {
        return Ok(text);
    }
    let names: Vec<_> = PRESETS.iter().map(|(name, _)| *name).collect();
    let error = Error::config("preset", name, format!("must be one of {}", names.join(", ")));
    Err(match keys::nearest(name, names) {
        Some(near) => error.with_hint(format!("did you mean `{near}`?")),
        None => error,
    })
}

/// A key and a value of its type.
pub(super) type Setting = (&'static Key, Value);

/// What a config file says.
#[derive(Debug, Default)]
pub(super) struct ConfigFile {
    pub preset: Option<String>,
    /// The texts to train on, if it names any.
    pub text: Vec<PathBuf>,
    pub settings: Vec<Setting>,
    /// What stands after a value in its line: in a run's `config.toml` whence it came.
    pub comments: BTreeMap<&'static str, String>,
    /// Of nanoGPT's: its keys that mean nothing here.
    pub idle: Vec<String>,
    /// Of nanoGPT's: the published weights to start from.
    pub init_from: Option<String>,
    /// Of nanoGPT's: the folder of prepared tokens that it means and that is not there.
    pub missing: Option<PathBuf>,
    /// What was made of it that its words do not say, in whole sentences without a stop.
    pub notices: Vec<String>,
}

/// Bytes of the longest config file that is read: a hundred times what all keys need.
pub const LONGEST_CONFIG: u64 = 1 << 20;

impl ConfigFile {
    /// `dataset` takes the place of the one that a config of nanoGPT's names.
    pub fn read(path: &Path, dataset: Option<&str>) -> Result<Self> {
        let text = files::read_named(path, LONGEST_CONFIG)?;
        let source = path.display().to_string();
        match is_python(path) {
            true => python_config::parse(&text, &source, Path::new(""), dataset),
            false => Self::parse(&text, &source),
        }
    }

    /// `source` is what errors call the text.
    pub fn parse(text: &str, source: &str) -> Result<Self> {
        let place = |at: usize| {
            let before = text.as_bytes().iter().take(at);
            format!("{source}, line {}", 1 + before.filter(|&&byte| byte == b'\n').count())
        };
        let read = toml::from_str::<BTreeMap<Spanned<String>, Spanned<Value>>>(text);
        let lines = read.map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            Error::data(place(at), error.message().replace('\n', ", "))
                .with_hint("a config file is TOML: n_layer = 6, bias = false, tokenizer = \"char\"")
        })?;
        let mut file = Self::default();
        for (name, value) in lines {
            let (place, end) = (place(name.span().start), value.span().end);
            match (name.as_ref().as_str(), value.into_inner()) {
                ("preset", Value::String(text)) => file.preset = Some(text),
                ("preset", value) => {
                    return Err(wrong("preset", &value, "a name in quotes", Some(&place)));
                }
                ("text", value) => file.text = paths(value, &place)?,
                (name, Value::Table(_)) => {
                    let problem = format!("[{name}] is a section, and settings have none");
                    return Err(Error::data(place, problem)
                        .with_hint("write every key flat, without [headings]"));
                }
                (name, value) => {
                    let key = key_called(name, &place)?;
                    if file.settings.iter().any(|(other, _)| *other == key) {
                        return Err(Error::data(place, format!("`{}` is given twice", key.name)));
                    }
                    file.settings.push((key, fitted(key, value, Some(&place))?));
                    let rest = text.get(end..).and_then(|rest| rest.lines().next());
                    if let Some((_, comment)) = rest.and_then(|rest| rest.split_once('#')) {
                        file.comments.insert(key.name, comment.trim().into());
                    }
                }
            }
        }
        Ok(file)
    }
}

/// Whether a config file is one of nanoGPT's.
pub fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "py")
}

/// The value of `text`: a path, or several.
fn paths(value: Value, place: &str) -> Result<Vec<PathBuf>> {
    let path = |value: &Value| value.as_str().map(PathBuf::from);
    let paths = match &value {
        Value::Array(several) => several.iter().map(path).collect(),
        one => path(one).map(|path| vec![path]),
    };
    paths.ok_or_else(|| wrong("text", &value, "a path in quotes, or [several]", Some(place)))
}

pub(super) fn key_called(name: &str, place: &str) -> Result<&'static Key> {
    keys::find(name).ok_or_else(|| {
        let error = Error::data(place, format!("unknown key `{name}`"));
        match keys::suggest(name) {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    })
}

/// A flag's name and text.
pub(super) fn typed_value(name: &str, text: &str) -> Result<Setting> {
    let key = key_called(name, "argument")?;
    let digits = text.replace('_', "");
    let number = match default_of(key) {
        Value::Integer(_) => digits.parse::<i64>().map(Value::from).ok(),
        Value::Float(_) => digits.parse::<f64>().map(Value::from).ok(),
        _ => None,
    };
    Ok((key, fitted(key, number.unwrap_or(text.into()), None)?))
}

fn default_of(key: &Key) -> Value {
    default_table()[key.name].clone()
}

/// `found` in the type of the key's default. A whole number is a number; 0, 1, True and False are
/// booleans too, and float32 and bfloat16 dtypes, because they are in nanoGPT.
pub(super) fn fitted(key: &'static Key, found: Value, place: Option<&str>) -> Result<Value> {
    let dtype = found.as_str().filter(|_| key.name == "dtype").and_then(Dtype::named);
    let found = dtype.map_or(found, |dtype| dtype.name().into());
    let expected = match (default_of(key), &found) {
        (Value::Boolean(_), Value::Boolean(_)) | (Value::Float(_), Value::Float(_)) => {
            return Ok(found);
        }
        (_, Value::String(text)) if key.name == "tokenizer" => {
            match TokenizerKind::try_from(text.clone()) {
                Ok(kind) => return Ok(kind.to_string().into()),
                Err(expected) => expected.trim_start_matches("must be ").to_owned(),
            }
        }
        (Value::Boolean(_), Value::Integer(n @ (0 | 1))) => return Ok((*n == 1).into()),
        (Value::Boolean(_), Value::String(text)) if matches!(&**text, "true" | "True" | "1") => {
            return Ok(true.into());
        }
        (Value::Boolean(_), Value::String(text)) if matches!(&**text, "false" | "False" | "0") => {
            return Ok(false.into());
        }
        (Value::Integer(_), Value::Integer(n)) if usize::try_from(*n).is_ok() => return Ok(found),
        (Value::Float(_), Value::Integer(n)) => return Ok((*n as f64).into()),
        (Value::String(_), Value::String(text))
            if key.choices.is_empty() || key.choices.contains(&text.as_str()) =>
        {
            return Ok(found);
        }
        (Value::Boolean(_), _) => "true or false".into(),
        (Value::Integer(_), Value::String(text))
            if !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') =>
        {
            "a whole number below 2^63".into()
        }
        (Value::Integer(_), _) => "a whole number, 0 or more".into(),
        (Value::Float(_), _) => "a number".into(),
        _ if key.choices.is_empty() => "a text in quotes".into(),
        _ => key.choices.join(" or "),
    };
    Err(wrong(key.name, &found, &expected, place))
}

fn wrong(key: &'static str, found: &Value, expected: &str, place: Option<&str>) -> Error {
    let place = place.map_or(String::new(), |place| format!(" ({place})"));
    let error = Error::config(key, show(found), format!("must be {expected}{place}"));
    let choices = keys::find(key).into_iter().flat_map(|key| {
        key.choices.iter().copied().chain(key.forms.split('|').filter(|form| !form.is_empty()))
    });
    match found.as_str().and_then(|text| keys::nearest(text, choices)) {
        Some(near) => error.with_hint(format!("did you mean `{near}`?")),
        None => error,
    }
}

/// As TOML, the shortest that reads back: 1e-8, not 0.00000001.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Float(x) if x.is_finite() => format!("{x:?}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem(text: &str) -> (String, String) {
        let error = ConfigFile::parse(text, "my.toml").unwrap_err();
        (error.to_string(), error.hint().unwrap_or_default().to_string())
    }

    #[test]
    fn an_unknown_key_names_file_line_and_the_nearest_key() {
        let (error, hint) = problem("# mine\nn_layer = 4\nlearning_rte = 1e-3\n");
        assert_eq!(error, "my.toml, line 3: unknown key `learning_rte`");
        assert_eq!(hint, "did you mean `learning_rate`?");
    }

    #[test]
    fn a_value_of_the_wrong_type_names_key_value_type_and_line() {
        let (error, _) = problem("n_layer = \"six\"");
        assert_eq!(error, "n_layer = \"six\": must be a whole number, 0 or more (my.toml, line 1)");
        assert!(problem("n_layer = -1").0.contains("a whole number, 0 or more"));
        let error = typed_value("seed", "9223372036854775808").unwrap_err().to_string();
        assert!(error.contains("must be a whole number below 2^63"), "{error}");
        assert!(problem("n_layer = 1.5").0.contains("a whole number, 0 or more"));
        assert!(problem("\ndropout = true").0.contains("must be a number (my.toml, line 2)"));
        assert!(problem("bias = 2").0.contains("must be true or false"));
        assert!(problem("out_dir = 3").0.contains("must be a text in quotes"));
        assert!(problem("preset = 3").0.contains("must be a name in quotes"));
    }

    #[test]
    fn a_wrong_choice_names_the_choices_and_the_nearest() {
        let (error, hint) = problem("split = \"shufled\"");
        assert!(error.contains("must be contiguous or shuffled"), "{error}");
        assert_eq!(hint, "did you mean `shuffled`?");
        let error = preset_text("shakespear").unwrap_err();
        assert!(error.to_string().contains("gpt2-medium"), "{error}");
        assert_eq!(error.hint(), Some("did you mean `shakespeare-char`?"));
    }

    #[test]
    fn text_that_is_not_toml_names_its_line_and_shows_the_form() {
        let (error, hint) = problem("n_layer = 4\nbias = False\n");
        assert!(error.starts_with("my.toml, line 2: "), "{error}");
        assert!(hint.contains("bias = false"), "{hint}");
        assert!(problem("n_layer = 4\nn_layer = 5").0.contains("line 2"));
        assert!(problem("n_layer = 4\nn-layer = 5").0.contains("`n_layer` is given twice"));
        assert!(problem("[model]\nn_layer = 4").1.contains("flat"));
    }

    #[test]
    fn what_stands_after_a_value_and_the_texts_are_kept() {
        let text = "text = [\"a b\", \"c#\"]\nout_dir = \"x # y\"  # command line\nn_layer = 2#3\n\
                    seed = 1";
        let file = ConfigFile::parse(text, "my.toml").unwrap();
        assert_eq!(file.text, ["a b", "c#"].map(PathBuf::from));
        let comments: Vec<_> = file.comments.iter().map(|(key, text)| (*key, &**text)).collect();
        assert_eq!(comments, [("n_layer", "3"), ("out_dir", "command line")]);
        let one = ConfigFile::parse("text = \"my.txt\"", "my.toml").unwrap();
        assert_eq!(one.text, [PathBuf::from("my.txt")]);
        assert!(problem("text = 3").0.contains("must be a path in quotes"));
        assert!(problem("text = [3]").0.contains("(my.toml, line 1)"));
    }

    #[test]
    fn a_whole_number_is_a_number_and_booleans_may_be_pythons() {
        for text in ["0", "0.0", "0e0"] {
            assert_eq!(typed_value("dropout", text).unwrap().1, Value::Float(0.0));
        }
        assert_eq!(typed_value("learning-rate", "1").unwrap().1, Value::Float(1.0));
        assert_eq!(typed_value("max_iters", "600_000").unwrap().1, Value::Integer(600_000));
        for (text, value) in [("True", true), ("1", true), ("false", false), ("False", false)] {
            assert_eq!(typed_value("bias", text).unwrap().1, Value::Boolean(value));
        }
        for (text, value) in [("bfloat16", "bf16"), ("float32", "f32"), ("auto", "auto")] {
            assert_eq!(typed_value("dtype", text).unwrap().1.as_str(), Some(value));
        }
        let rows = ConfigFile::parse("\u{feff}dropout = 0\r\nbias = 1\r\n", "my.toml").unwrap();
        assert_eq!(rows.settings[0].1, Value::Boolean(true));
        assert_eq!(rows.settings[1].1, Value::Float(0.0));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,200}") {
            let _ = ConfigFile::parse(&text, "my.toml");
        }

        #[test]
        fn nothing_like_a_config_makes_the_reader_panic(
            lines in prop::collection::vec(
                ("(n_layer|n-layer|bias|split|preset|text|[a-z\"é.\\[]{1,6})",
                 "( = | = \\[|=\"|\\])",
                 "(1|-1|99999999999999999999|1e999|nan|true|\"a|\\{a=1\\}|1979-05-27|.{0,8})"),
                0..6,
            )
        ) {
            let text: String = lines.iter().map(|(k, eq, v)| format!("{k}{eq}{v}\n")).collect();
            let _ = ConfigFile::parse(&text, "my.toml");
        }

        #[test]
        fn no_flag_makes_the_reader_panic(name in ".{0,12}", text in ".{0,20}") {
            let _ = typed_value(&name, &text);
            for key in keys::KEYS {
                let _ = typed_value(key.name, &text);
            }
        }
    }
}
