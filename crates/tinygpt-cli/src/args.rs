//! What the verbs' command lines have in common.

use crate::failure::Failure;
use crate::out::tell;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tinygpt::formats::tokenizer_at;
use tinygpt::run::keys::{self, Group, IDLE, KEYS, Key};
use tinygpt::run::{Layers, Settings, read::PRESETS};
use tinygpt::tokenizer::{Bpe, TokenizerKind};
use tinygpt::{Dtype, Isa, Precision};

/// The words typed, with `_` made `-` in the names of long flags, and `--flag true` made
/// `--flag=true`, and nanoGPT's words for how a training starts.
pub fn normalised(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut flags_ended = false;
    let normal = |word: OsString| {
        flags_ended |= word == "--";
        match word.to_str() {
            Some(text) if !flags_ended && text.starts_with("--") => {
                let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
                (name.replace('_', "-") + value).into()
            }
            _ => word,
        }
    };
    let mut joined: Vec<OsString> = Vec::new();
    for word in words.map(normal) {
        let truth = ["true", "false", "True", "False"].iter().any(|value| word == *value);
        match joined.last_mut() {
            Some(flag) if truth && is_switch(flag) => {
                flag.push("=");
                flag.push(word);
            }
            _ => joined.push(word),
        }
    }
    started(joined)
}

/// `--init-from=scratch` is what no flag means here, `--init-from=resume --out-dir=RUN` is
/// `--resume=RUN`; unless a model is called so. `sample --init-from=MODEL` is `sample MODEL`.
fn started(mut words: Vec<OsString>) -> Vec<OsString> {
    let Some((place, from)) = value_of(&words, "--init-from") else { return words };
    let is_called_so = Path::new(&from).exists();
    if words.get(1).is_some_and(|verb| verb == "sample") {
        words.drain(place);
        if from != "resume" || is_called_so {
            words.insert(2, from);
        }
    } else if is_called_so {
        return words;
    } else if from == "scratch" {
        words.drain(place);
    } else if from == "resume" {
        words.splice(place, ["--resume".into()]);
        if let Some((place, run)) = value_of(&words, "--out-dir") {
            words.drain(place);
            let flag = words.iter_mut().find(|word| *word == "--resume");
            flag.into_iter().for_each(|flag| {
                flag.push("=");
                flag.push(&run);
            });
        }
    }
    words
}

/// What is said as `flag=value` or as `flag value`, and in which words.
fn value_of(words: &[OsString], flag: &str) -> Option<(Range<usize>, OsString)> {
    let flags = words.iter().enumerate().take_while(|(_, word)| *word != "--");
    flags.into_iter().find_map(|(at, word)| {
        let rest = word.to_str()?.strip_prefix(flag)?;
        match rest.strip_prefix('=') {
            Some(value) => Some((at..at + 1, value.into())),
            None if rest.is_empty() => Some((at..at + 2, words.get(at + 1)?.clone())),
            None => None,
        }
    })
}

/// Whether `word` is the flag of a setting that is true or false.
fn is_switch(word: &OsString) -> bool {
    let Some(name) = word.to_str().and_then(|word| word.strip_prefix("--")) else { return false };
    let (name, defaults) = (name.replace('-', "_"), Settings::default().shown());
    IDLE.contains(&(&name, true))
        || defaults.get(name.as_str()).is_some_and(|default| is_truth(default))
}

fn is_truth(value: &str) -> bool {
    matches!(value, "true" | "false")
}

/// A flag that needs no value where it is true or false: only `--flag=value`, which [`normalised`]
/// makes of `--flag true`, because a word after it is a TEXT.
fn switch(arg: Arg) -> Arg {
    arg.value_name("true|false").num_args(0..=1).require_equals(true).default_missing_value("true")
}

/// nanoGPT's flags that change nothing here, so that its command lines work.
pub fn idle() -> impl Iterator<Item = Arg> {
    IDLE.into_iter().map(|(name, truth)| {
        let arg = Arg::new(name).long(name.replace('_', "-")).hide(true);
        if truth { switch(arg) } else { arg }
    })
}

/// Those that were typed.
fn typed_idle(matches: &ArgMatches) -> impl Iterator<Item = (String, String)> {
    IDLE.into_iter().filter_map(|(name, _)| typed(matches, name))
}

/// Says that those that were typed mean nothing, for a verb without settings.
pub fn tell_idle(matches: &ArgMatches) -> Result<(), Failure> {
    let idle: Vec<_> = typed_idle(matches).collect();
    idle.iter().try_for_each(|(name, text)| keys::check_idle(name, text))?;
    if !idle.is_empty() {
        let names: Vec<_> = idle.into_iter().map(|(name, _)| name).collect();
        tell(&format!("note: {}", keys::idle_notice(&names)));
    }
    Ok(())
}

/// The flag `name` and its text, if the verb takes it and it was typed.
fn typed(matches: &ArgMatches, name: &str) -> Option<(String, String)> {
    let value = matches.try_get_one::<String>(name).ok().flatten()?;
    Some((name.to_string(), value.clone()))
}

/// One flag for every setting that is `wanted`, under its heading.
pub fn with_settings(command: Command, wanted: fn(&Key) -> bool) -> Command {
    let defaults = Settings::default().shown();
    let quick = Settings::resolve(&Layers::default()).unwrap_or_default().shown();
    Group::ALL.iter().fold(command, |command, group| {
        let keys = KEYS.iter().filter(|key| key.group == *group && wanted(key));
        command
            .next_help_heading(group.title())
            .args(keys.map(|key| setting(key, &defaults[key.name], &quick[key.name])))
    })
}

fn setting(key: &'static Key, default: &str, quick: &str) -> Arg {
    let help = match (default, quick) {
        ("\"\"", _) => key.help.to_string(),
        _ if default == quick => format!("{} [default: {default}]", key.help),
        _ => format!("{} [default: {default}; quick: {quick}]", key.help),
    };
    let arg = Arg::new(key.name)
        .long(key.name.replace('_', "-"))
        .help(help.replace('"', ""))
        .allow_negative_numbers(true);
    let arg = match key.name {
        "seed" => arg.short('s'),
        "threads" => arg.short('t'),
        _ => arg,
    };
    if key.name == "dtype" {
        dtype(arg)
    } else if !key.choices.is_empty() {
        arg.value_name(key.choices.join("|"))
            .value_parser(PossibleValuesParser::new(key.choices))
            .hide_possible_values(true)
    } else if !key.forms.is_empty() {
        arg.value_name(key.forms)
    } else if is_truth(default) {
        switch(arg)
    } else {
        arg.value_name(if default.starts_with('"') { "PATH" } else { "N" })
    }
}

/// The settings that were typed, of those that the verb takes, and what means nothing.
pub fn typed_settings(matches: &ArgMatches) -> Vec<(String, String)> {
    let settings = KEYS.iter().filter_map(|key| typed(matches, key.name));
    settings.chain(typed_idle(matches)).collect()
}

/// `--preset` and `--config`.
pub fn recipe() -> [Arg; 2] {
    let names: Vec<_> = PRESETS.iter().map(|(name, _)| *name).collect();
    [
        Arg::new("preset")
            .long("preset")
            .value_name("NAME")
            .value_parser(PossibleValuesParser::new(names))
            .help("The recipe to start from [default: quick]"),
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(
                "A TOML file of settings, or a .py of nanoGPT's, laid over the preset and under \
                 the flags",
            ),
    ]
}

/// The trained model a verb works on, and nanoGPT's other spelling of it.
pub fn trained() -> [Arg; 2] {
    [
        Arg::new("run")
            .value_name("RUN")
            .value_parser(value_parser!(PathBuf))
            .help("A run, or a model: see `tinygpt export --help` [default: the newest run]"),
        Arg::new("out-dir")
            .long("out-dir")
            .value_name("RUN")
            .value_parser(value_parser!(PathBuf))
            .conflicts_with("run")
            .help("The same, as nanoGPT spells it"),
    ]
}

/// What was typed for [`trained`]; none is the newest run.
pub fn trained_path(matches: &ArgMatches) -> Option<&PathBuf> {
    matches.get_one("run").or_else(|| matches.get_one("out-dir"))
}

/// The value of a number that has a default.
pub fn number_of<T: Copy + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> T {
    *matches.get_one(name).expect("has a default")
}

/// The flag of one setting, for a verb that takes that one only.
pub fn setting_called(name: &str) -> Arg {
    let key = KEYS.iter().find(|key| key.name == name).expect("a key of the table");
    Arg::new(key.name).long(key.name.replace('_', "-")).value_name(key.forms).help(key.help)
}

/// What a setting's flag says of itself, for a verb that takes that one only.
fn help_of(name: &str) -> &'static str {
    KEYS.iter().find(|key| key.name == name).expect("a key of the table").help
}

/// `--threads` for the verbs that do not take every setting.
pub fn threads() -> Arg {
    Arg::new("threads")
        .long("threads")
        .short('t')
        .value_name("N")
        .value_parser(value_parser!(usize))
        .default_value("0")
        .help(help_of("threads"))
}

/// The settings of a model that has no text yet, and whose vocabulary it got where it had none.
pub fn settled(layers: &Layers) -> Result<(Settings, Option<String>), Failure> {
    let mut settings = Settings::resolve(layers).map_err(|e| Failure::from(e).into_usage())?;
    if settings.model.vocab_size != 0 {
        return Ok((settings, None));
    }
    let (tokens, of) = match &settings.run.tokenizer {
        TokenizerKind::Char => (65, "Tiny Shakespeare's characters".into()),
        TokenizerKind::Byte => (256, "bytes".into()),
        TokenizerKind::Gpt2 => (Bpe::gpt2().tokens().len(), "GPT-2's tokens".into()),
        TokenizerKind::Bpe(size) => (*size, format!("bpe:{size}")),
        TokenizerKind::File(path) => (tokenizer_at(path)?.vocab_size(), path.display().to_string()),
    };
    settings.settle_vocab_size(tokens)?;
    Ok((settings, Some(of)))
}

/// A flag for a [`Dtype`], by our names or nanoGPT's.
fn dtype(arg: Arg) -> Arg {
    let value = |name| {
        let theirs = Dtype::NANOGPT.iter().filter(move |(_, ours)| *ours == name);
        PossibleValue::new(name).aliases(theirs.map(|(theirs, _)| *theirs))
    };
    arg.value_name(Dtype::NAMES.join("|"))
        .value_parser(PossibleValuesParser::new(Dtype::NAMES.map(value)))
        .hide_possible_values(true)
}

/// What was typed for it, or its default.
pub fn dtype_of(matches: &ArgMatches) -> Dtype {
    let name = matches.get_one::<String>("dtype").expect("has a default");
    Dtype::named(name).expect("one of the names")
}

/// What the model's matrices are kept in: `--dtype`, with `default`, and `--quantize`.
pub fn precision(default: &'static str) -> [Arg; 2] {
    [
        dtype(Arg::new("dtype").long("dtype"))
            .default_value(default)
            .help("What to keep the weights in; auto is bf16 where the processor multiplies it"),
        Arg::new("quantize")
            .long("quantize")
            .value_name("int8")
            .value_parser(PossibleValuesParser::new([Precision::Int8.name()]))
            .hide_possible_values(true)
            .conflicts_with("dtype")
            .help("Keep the weights in 8 bits, with a scale for every 64; instead of --dtype"),
    ]
}

/// What was typed for [`precision`].
pub fn precision_of(matches: &ArgMatches, isa: Isa) -> Precision {
    if matches.contains_id("quantize") {
        return Precision::Int8;
    }
    Precision::of(dtype_of(matches), isa)
}
