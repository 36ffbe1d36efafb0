//! What a run is told: defaults, then a preset, then a config file, then the command line, each
//! laid over the last.
//!
//! The keys are one flat set ([`super::keys`]). Every resolved value remembers where it came from,
//! and [`Settings::to_toml`] writes both down, so that a run's `config.toml` explains the run.

use super::keys::{self, Group, KEYS, Key};
use super::layers::{Origin, Stack};
use super::python_config;
use super::read::{ConfigFile, FINETUNE, Setting, is_python, preset_text, show, typed_value};
use super::values::{RunSettings, default_table, defaults, table};
use crate::config::{GptConfig, TrainConfig};
use crate::data::TINY_SHAKESPEARE;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf, absolute};
use tinygpt_kernels::Isa;
use toml::{Table, Value};

/// The preset of a run that names none.
pub const DEFAULT_PRESET: &str = "quick";

/// What the user gave: the layers above the defaults, lowest first.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// A preset's name; above the one that `file` may name.
    pub preset: Option<String>,
    /// The preset where neither names one; [`DEFAULT_PRESET`] if this does not either.
    pub usual_preset: Option<&'static str>,
    /// Keys and values that come with the model of another program's at that path, above the
    /// preset; those that are no settings here are left out.
    pub brought: Option<(PathBuf, Vec<(String, String)>)>,
    /// A TOML file of flat keys, or one of nanoGPT's, whose name ends in `.py`.
    pub file: Option<PathBuf>,
    /// The texts to train on; above those that `file` may name.
    pub text: Vec<PathBuf>,
    /// A data set of nanoGPT's, `data/NAME` below the current folder, in place of the text and
    /// tokens that `file` may name. Not together with `text`.
    pub dataset: Option<String>,
    /// Keys and values as typed; those of nanoGPT's that mean nothing here may be among them.
    pub command_line: Vec<(String, String)>,
    /// Whether these are a call's arguments, and no command line's.
    pub are_arguments: bool,
    /// Whether the weights come from elsewhere, as a file of nanoGPT's may demand.
    pub has_weights: bool,
}

/// Every setting of a run, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The preset beneath it all.
    pub preset: String,
    /// The texts to train on, as [`Input::Paths`](crate::Input::Paths) has them; none is the
    /// built-in one.
    pub text: Vec<PathBuf>,
    /// The model. `vocab_size` is 0 until [`Settings::settle_vocab_size`].
    pub model: GptConfig,
    /// How to train it.
    pub train: TrainConfig,
    /// Everything else.
    pub run: RunSettings,
    /// Where each key's value came from.
    pub origins: BTreeMap<&'static str, Origin>,
    /// What the user should know of the file, in whole sentences without a stop.
    pub notices: Vec<String>,
}

impl Settings {
    /// Lays the layers over the defaults.
    ///
    /// # Errors
    /// A file that cannot be read or is not flat TOML; an unknown key, preset or choice; a value
    /// of the wrong type; values that cannot work together.
    pub fn resolve(layers: &Layers) -> Result<Self> {
        let path = layers.file.as_deref();
        let dataset = layers.dataset.as_deref();
        let file = path.map(|path| ConfigFile::read(path, dataset)).transpose()?;
        let file = file.unwrap_or_default();
        // A config of nanoGPT's takes the data set in place of its own.
        let beside = dataset.filter(|_| !path.is_some_and(is_python));
        let beside = beside.map(|name| python_config::dataset(name, Path::new(""))).transpose()?;
        let preset = layers
            .preset
            .as_deref()
            .or(file.preset.as_deref())
            .or(layers.usual_preset)
            .unwrap_or(DEFAULT_PRESET)
            .to_owned();
        let mut stack = Stack::of(&default_table());
        let rows = ConfigFile::parse(preset_text(&preset)?, &format!("preset {preset}"))?.settings;
        stack.lay(rows, Origin::Preset(preset.clone()));
        if let Some((path, brought)) = &layers.brought {
            let rows = brought.iter().filter_map(|(key, text)| typed_value(key, text).ok());
            stack.lay(rows.collect(), Origin::File(path.clone()));
        }
        if let Some(path) = path {
            stack.lay_file(&file, Origin::File(path.into()));
        }
        check_found(&file, layers)?;
        let (rows, mut notices) = typed(layers, file.idle)?;
        notices.extend(file.notices);
        let mut text = if layers.text.is_empty() { file.text } else { layers.text.clone() };
        if let Some(beside) = beside {
            stack.lay(beside.settings, Origin::Follows("dataset"));
            notices.extend(beside.notices);
            text = beside.text;
        }
        stack.lay(rows, if layers.are_arguments { Origin::Argument } else { Origin::CommandLine });
        stack.shorten_warmup();
        let settings = Self {
            preset,
            text,
            model: stack.part(),
            train: stack.part(),
            run: stack.part(),
            origins: stack.origins(),
            notices,
        };
        settings.train.check()?;
        // The tokenizer may still have to say how many tokens there are.
        let vocab_size = settings.model.vocab_size.max(1);
        GptConfig { vocab_size, ..settings.model.clone() }.check()?;
        Ok(settings)
    }

    /// Whether a run under these settings may start from new weights.
    ///
    /// # Errors
    /// They are the recipe for weights that are there already, far too gentle for new ones.
    pub fn check_from_scratch(&self) -> Result<()> {
        if self.preset != FINETUNE {
            return Ok(());
        }
        Err(Error::config("preset", FINETUNE, "is for weights that are there already").with_hint(
            "`tinygpt train TEXT --init-from MODEL` names them; preset quick is for new ones",
        ))
    }

    /// Takes the tokenizer's size for `vocab_size` when that is 0, or was another tokenizer's.
    ///
    /// # Errors
    /// A `vocab_size` too small for the tokenizer.
    pub fn settle_vocab_size(&mut self, tokenizer: usize) -> Result<()> {
        match self.model.vocab_size {
            size if size == 0 || self.origins["vocab_size"] == Origin::Tokenizer => {
                self.model.vocab_size = tokenizer;
                self.origins.insert("vocab_size", Origin::Tokenizer);
                Ok(())
            }
            size if size < tokenizer => Err(Error::config(
                "vocab_size",
                size,
                format!("the text has {tokenizer} different tokens"),
            )
            .with_hint("vocab_size = 0 takes as many as the text has")),
            _ => Ok(()),
        }
    }

    /// Takes for a `dtype` of auto what suits the instruction set `isa`: a run keeps it wherever it
    /// goes on.
    pub fn settle_dtype(&mut self, isa: Isa) {
        if self.train.dtype == Dtype::Auto {
            self.train.dtype = Dtype::Auto.resolve(isa);
            self.origins.insert("dtype", Origin::Processor);
        }
    }

    /// Every key with its value and, as a comment, its origin. Read back, it gives the same values.
    pub fn to_toml(&self) -> String {
        let values = self.values();
        let mut text = String::from("# Every setting of this run, and where it came from.\n");
        text += &format!("preset = {}\n", Value::from(self.preset.as_str()));
        let paths = self.text.iter().map(|path| {
            // A file says the same wherever it is read from; standard input has no place.
            let fixed = if path == Path::new("-") { Ok(path.clone()) } else { absolute(path) };
            Value::from(&*fixed.as_ref().unwrap_or(path).to_string_lossy())
        });
        text += &match self.text.is_empty() {
            true => format!("# text: {TINY_SHAKESPEARE}, the built-in one\n"),
            false => format!("text = {}\n", Value::Array(paths.collect())),
        };
        for group in Group::ALL {
            text += &format!("\n# {}\n", group.title());
            for key in KEYS.iter().filter(|key| key.group == group) {
                let setting = format!("{} = {}", key.name, show(&values[key.name]));
                // A comment ends with its line, and a path may hold anything.
                let origin = self.origins[key.name].to_string().replace(char::is_control, "?");
                text += &format!("{setting:<36} # {origin}\n");
            }
        }
        text
    }

    /// Every key's value, as text.
    pub fn shown(&self) -> BTreeMap<&'static str, String> {
        let values = self.values();
        KEYS.iter().map(|key| (key.name, show(&values[key.name]))).collect()
    }

    fn values(&self) -> Table {
        table((&self.model, &self.train, &self.run))
    }
}

impl Default for Settings {
    /// The defaults alone, without the default preset.
    fn default() -> Self {
        let (model, train, run) = defaults();
        let origins = KEYS.iter().map(|key| (key.name, Origin::Default)).collect();
        Self {
            preset: String::new(),
            text: Vec::new(),
            model,
            train,
            run,
            origins,
            notices: Vec::new(),
        }
    }
}

/// The settings on the command line, and what to say of the keys there and in a config of nanoGPT's
/// (`idle`) that mean nothing.
fn typed(layers: &Layers, mut idle: Vec<String>) -> Result<(Vec<Setting>, Vec<String>)> {
    let mut rows = Vec::new();
    for (key, text) in &layers.command_line {
        if !keys::is_idle(key) {
            rows.push(typed_value(key, text)?);
            continue;
        }
        keys::check_idle(key, text)?;
        if !idle.contains(key) {
            idle.push(key.clone());
        }
    }
    let notice = (!idle.is_empty()).then(|| keys::idle_notice(&idle));
    Ok((rows, notice.into_iter().collect()))
}

/// Whether what a file of nanoGPT's needs beside itself is there.
fn check_found(file: &ConfigFile, layers: &Layers) -> Result<()> {
    let path = layers.file.as_deref().unwrap_or(Path::new("")).display();
    if let Some(weights) = file.init_from.as_ref().filter(|_| !layers.has_weights) {
        let problem = format!("starts from the published weights of {weights} (init_from)");
        return Err(Error::data(path.to_string(), problem).with_hint(format!(
            "say where they are: tinygpt train {path} --init-from FOLDER; \
             `hf download openai-community/{weights} --local-dir {weights}` brings them"
        )));
    }
    let missing = file.missing.as_ref().filter(|_| layers.text.is_empty());
    missing.map_or(Ok(()), |folder| {
        let folder = folder.display();
        Err(Error::data(path.to_string(), format!("has its text in {folder}, which is not here"))
            .with_hint(format!(
                "name the text, tinygpt train {path} my.txt, or prepare it: \
                 tinygpt prepare my.txt --out {folder}"
            )))
    })
}

/// A setting that two runs, or two halves of one, do not share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub key: &'static Key,
    /// Its value before.
    pub old: String,
    /// Its value now.
    pub new: String,
}

/// Every setting that differs, in the table's order.
pub fn diff(old: &Settings, new: &Settings) -> Vec<Change> {
    let (mut old, mut new) = (old.shown(), new.shown());
    let mut take = |key: &'static Key| {
        let values = (old.remove(key.name)?, new.remove(key.name)?);
        (values.0 != values.1).then_some(Change { key, old: values.0, new: values.1 })
    };
    KEYS.iter().filter_map(&mut take).collect()
}

#[cfg(test)]
mod tests;
