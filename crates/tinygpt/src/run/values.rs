//! The values that the keys stand for: a model's, a training's, and a run's own.

use crate::config::{GptConfig, TrainConfig};
use crate::data::{Newline, Split};
use crate::tokenizer::TokenizerKind;
use serde::{Deserialize, Serialize};
use toml::Table;

/// The settings of a run that neither shape the model nor train it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// What a token is.
    pub tokenizer: TokenizerKind,
    /// Share of the text that validates, in [0, 1).
    pub val_fraction: f64,
    /// Which share.
    pub split: Split,
    /// What becomes of `\r\n`.
    pub newline: Newline,
    /// Replace bytes that are not UTF-8 instead of refusing them.
    pub lossy: bool,
    /// The name of a special token in the text means that token.
    pub allow_special: bool,
    /// Threads; 0 takes as many as the process may use.
    pub threads: usize,
    /// Tokens that the model writes at an evaluation, into samples.txt; 0 writes none.
    pub sample_tokens: usize,
    /// Write the metrics for TensorBoard too.
    pub tensorboard: bool,
    /// Folder of the run; empty names it after the preset.
    pub out_dir: String,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            tokenizer: TokenizerKind::Char,
            val_fraction: 0.1,
            split: Split::Contiguous,
            newline: Newline::Keep,
            lossy: false,
            allow_special: false,
            threads: 0,
            sample_tokens: 200,
            tensorboard: false,
            out_dir: String::new(),
        }
    }
}

/// What holds until somebody says otherwise; `vocab_size` is 0, for the tokenizer to say.
pub(super) fn defaults() -> (GptConfig, TrainConfig, RunSettings) {
    let model = GptConfig { vocab_size: 0, ..GptConfig::default() };
    (model, TrainConfig::default(), RunSettings::default())
}

/// Every key's value. Through text, not `Value::try_from`, which would make 0.2f32 into
/// 0.20000000298.
pub(super) fn table((model, train, run): (&GptConfig, &TrainConfig, &RunSettings)) -> Table {
    let texts = [toml::to_string(model), toml::to_string(train), toml::to_string(run)];
    let text: String = texts.map(|text| text.expect("flat structs are TOML")).concat();
    text.parse().expect("flat tables joined are a flat table")
}

/// [`defaults`], as a [`table`].
pub(super) fn default_table() -> Table {
    let (model, train, run) = defaults();
    table((&model, &train, &run))
}
