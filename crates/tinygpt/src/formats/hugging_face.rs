//! Hugging Face's GPT-2 folder, as `transformers` saves and loads it.
//!
//! ```text
//!   config.json                     model_type gpt2 and the model's shape
//!   model.safetensors               the table's names, with or without `transformer.`; weights of
//!                                   linear layers as (in, out), the transpose of ours
//!   model.safetensors.index.json    which of several files has a tensor, where there are several
//!   tokenizer.json                  as ours
//! ```

use super::export::Row;
use super::{Export, Kept, Opened, TokenizerFrom};
use crate::checkpoint::stored::{HEAD, Weights};
use crate::checkpoint::tensor_file;
use crate::config::{Activation, GptConfig};
use crate::error::{Error, Result};
use crate::files;
use crate::tokenizer::TOKENIZER_FILE as TOKENIZER;
use crate::tokenizer::{END_OF_TEXT, Tokenizer};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::path::{Component, Path};

pub(super) const CONFIG: &str = "config.json";
pub(super) const MODEL: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";
pub(super) const PICKLED: &str = "pytorch_model.bin";

/// Bytes of the longest JSON that is read here: an index of a hundred thousand tensors.
const LONGEST: u64 = 1 << 24;

/// The keys of `config.json` that say what the model computes; a missing one has the value that
/// `transformers` gives it.
#[derive(Deserialize)]
#[serde(default)]
struct Config {
    vocab_size: usize,
    n_positions: usize,
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
    n_inner: Option<usize>,
    activation_function: String,
    resid_pdrop: f32,
    layer_norm_epsilon: f64,
    tie_word_embeddings: bool,
    scale_attn_weights: bool,
    scale_attn_by_inverse_layer_idx: bool,
    add_cross_attention: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: "gelu_new".into(),
            resid_pdrop: 0.1,
            layer_norm_epsilon: 1e-5,
            tie_word_embeddings: true,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            add_cross_attention: false,
        }
    }
}

/// Its activation functions, and ours for each; the first of one kind is what we write.
const ACTIVATIONS: [(&str, Activation); 6] = [
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu", Activation::Gelu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
];

impl Config {
    fn ours(self) -> Result<GptConfig> {
        let only = |key: &str, found: String, expected: &str| {
            Error::data("", format!("{key} is {found}; TinyGPT computes {expected}"))
        };
        let name = &self.activation_function;
        let Some((_, activation)) = ACTIVATIONS.iter().find(|(known, _)| known == name) else {
            let names = ACTIVATIONS.map(|(name, _)| name).join(", ");
            return Err(only("activation_function", format!("{name:?}"), &names));
        };
        if self.n_inner.is_some_and(|inner| Some(inner) != self.n_embd.checked_mul(4)) {
            let found = self.n_inner.unwrap_or_default().to_string();
            return Err(only("n_inner", found, "an MLP of 4 n_embd"));
        }
        if (self.layer_norm_epsilon - 1e-5).abs() > 1e-9 {
            return Err(only("layer_norm_epsilon", self.layer_norm_epsilon.to_string(), "1e-5"));
        }
        for (key, found, expected) in [
            ("scale_attn_weights", self.scale_attn_weights, true),
            ("scale_attn_by_inverse_layer_idx", self.scale_attn_by_inverse_layer_idx, false),
            ("add_cross_attention", self.add_cross_attention, false),
        ] {
            if found != expected {
                return Err(only(key, found.to_string(), &expected.to_string()));
            }
        }
        let config = GptConfig {
            vocab_size: self.vocab_size,
            block_size: self.n_positions,
            n_layer: self.n_layer,
            n_head: self.n_head,
            n_embd: self.n_embd,
            dropout: self.resid_pdrop,
            bias: true,
            tied: self.tie_word_embeddings,
            activation: *activation,
        };
        config.check()?;
        Ok(config)
    }
}

/// Opens the model in `folder`; `file` is one that its weights are in, where the user named that.
pub(super) fn open(folder: &Path, file: Option<&Path>) -> Result<Opened> {
    let config = read_config(&folder.join(CONFIG))?;
    let mut weights = match file {
        Some(file) => tensor_file::TensorFile::open(file)?.weights,
        None => open_weights(folder)?,
    };
    weights.transpose(is_linear);
    let mut notices = Vec::new();
    let json = folder.join(TOKENIZER);
    let tokenizer = match json.exists() {
        true => TokenizerFrom::File(json),
        false => super::assumed_tokenizer(&config, &mut notices),
    };
    Ok(Opened { config, weights, tokenizer, notices, training: None })
}

fn open_weights(folder: &Path) -> Result<Weights> {
    let whole = folder.join(MODEL);
    if whole.exists() {
        return Ok(tensor_file::TensorFile::open(&whole)?.weights);
    }
    let index = folder.join(INDEX);
    if index.exists() {
        return open_shards(folder, &index);
    }
    let error = Error::checkpoint(folder, format!("has neither {MODEL} nor {INDEX}"));
    Err(match folder.join(PICKLED).exists() {
        true => error.with_hint(format!(
            "{PICKLED} is PyTorch's older format; in Python, \
             GPT2LMHeadModel.from_pretrained({folder:?}).save_pretrained(NEW) writes {MODEL}"
        )),
        false => error.with_hint("the weights were not copied or downloaded with it"),
    })
}

/// A model in several files, each with some of the tensors.
fn open_shards(folder: &Path, index: &Path) -> Result<Weights> {
    let wrong = |problem: String| Error::checkpoint(index, problem);
    let json = read_json(index)?;
    let Some(map) = json["weight_map"].as_object() else {
        return Err(wrong("has no weight_map".into()));
    };
    let mut places = BTreeMap::new();
    for (tensor, file) in map {
        let file = file.as_str().unwrap_or_default();
        let mut parts = Path::new(file).components();
        // A name, and no path that leads out of the folder.
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(wrong(format!("has {tensor} in {file:?}, which is no file's name")));
        }
        places.insert(tensor.as_str(), file);
    }
    let mut weights = Weights::new(folder);
    for file in places.values().copied().collect::<BTreeSet<_>>() {
        let path = folder.join(file);
        if !path.exists() {
            let problem = format!("is missing: {INDEX} has {} tensors there", {
                places.values().filter(|place| **place == file).count()
            });
            return Err(Error::checkpoint(path, problem)
                .with_hint("every file of the model must be in its folder"));
        }
        tensor_file::add(&mut weights, &path)?;
    }
    Ok(weights)
}

/// Whether a weight is one that Hugging Face keeps as (in, out).
pub(super) fn is_linear(name: &str) -> bool {
    const LINEAR: [&str; 3] = [".c_attn.weight", ".c_proj.weight", ".c_fc.weight"];
    name != HEAD && LINEAR.iter().any(|end| name.ends_with(end))
}

/// The model's shape.
pub(super) fn read_config(path: &Path) -> Result<GptConfig> {
    let json = read_json(path)?;
    let config: Config = serde_json::from_value(json)
        .map_err(|error| Error::checkpoint(path, format!("is no GPT-2's: {error}")))?;
    config.ours().map_err(|error| error.in_checkpoint(path))
}

fn read_json(path: &Path) -> Result<Value> {
    if !path.exists() {
        return Err(Error::checkpoint(path, "there is no such file")
            .with_hint("a Hugging Face model needs its config.json"));
    }
    let text = files::read_text(path, LONGEST).map_err(|error| error.in_checkpoint(path))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::checkpoint(path, format!("is not valid: {error}")))
}

/// The `model_type` that a `config.json` names, if there is one to be read.
pub(super) fn model_type(path: &Path) -> Option<String> {
    let text = files::read_text(path, LONGEST).ok()?;
    let json: Value = serde_json::from_str(&text).ok()?;
    json["model_type"].as_str().map(Into::into)
}

/// All that an export's folder holds; anything else in it is the user's.
pub(super) const FILES: [&str; 5] =
    [MODEL, CONFIG, "generation_config.json", TOKENIZER, "tokenizer_config.json"];

/// How many new tokens `pipeline("text-generation")` of `transformers` asks for.
const PIPELINES: usize = 256;

/// Writes the model into the folder `new`.
pub(super) fn write(export: &Export, new: &Path) -> Result<()> {
    let rows = export.rows(true);
    let turned = |row: &Row| is_linear(&row.name);
    let shapes = rows.iter().map(|row| {
        let mut shape = row.shape.clone();
        if turned(row) {
            shape.reverse();
        }
        (row.name.clone(), shape)
    });
    let model = new.join(MODEL);
    tensor_file::header(&[("format", "pt".into())], export.kept.number(), shapes)
        .and_then(|header| {
            files::write_synced(&model, |file| {
                file.write_all(&header)?;
                let mut file = BufWriter::new(file);
                for row in &rows {
                    match turned(row) {
                        true => export.kept.write_turned(&mut file, &row.values, row.shape[1])?,
                        false => export.kept.write(&mut file, &row.values)?,
                    }
                }
                file.flush()
            })
        })
        .map_err(Error::io("write", &model))?;
    let (begin, end) = ends(export.tokenizer);
    let write = |name: &str, text: String| write_text(&new.join(name), &text);
    write(CONFIG, format!("{:#}\n", config_json(export, begin, end)))?;
    let mut generation = json!({ "bos_token_id": begin, "eos_token_id": end, "do_sample": true });
    // A pipeline asks for 256 tokens unless told otherwise: more than there are positions.
    if export.config.block_size <= PIPELINES {
        generation["max_new_tokens"] = (export.config.block_size - 1).max(1).into();
    }
    write("generation_config.json", format!("{generation:#}\n"))?;
    if let Some(tokenizer) = export.tokenizer {
        write(TOKENIZER, tokenizer.to_json())?;
        let config = tokenizer_config(tokenizer, export.config.block_size);
        write("tokenizer_config.json", format!("{config:#}\n"))?;
    }
    Ok(())
}

/// The tokens that a text begins and ends with, where there are such.
fn ends(tokenizer: Option<&Tokenizer>) -> (Option<u32>, Option<u32>) {
    let end = tokenizer.and_then(|tokenizer| {
        tokenizer.special().iter().find(|(name, _)| name == END_OF_TEXT).map(|(_, id)| *id)
    });
    (tokenizer.map(Tokenizer::start), end)
}

fn config_json(export: &Export, begin: Option<u32>, end: Option<u32>) -> Value {
    let GptConfig { vocab_size, block_size, n_layer, n_head, n_embd, dropout, tied, .. } =
        *export.config;
    let ours = export.config.activation;
    let (activation, _) =
        ACTIVATIONS.iter().find(|(_, kind)| *kind == ours).expect("every kind is in the list");
    let dtype = match export.kept {
        Kept::F16 => "float16",
        Kept::Bf16 => "bfloat16",
        _ => "float32",
    };
    // In decimal, so that 0.1 in 32 bits is 0.1 in 64.
    let dropout: f64 = dropout.to_string().parse().unwrap_or(0.0);
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocab_size,
        "n_positions": block_size,
        "n_ctx": block_size, // llama.cpp's converter reads this one
        "n_embd": n_embd,
        "n_layer": n_layer,
        "n_head": n_head,
        "n_inner": null,
        "activation_function": activation,
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        "attn_pdrop": dropout,
        "initializer_range": 0.02,
        "tie_word_embeddings": tied,
        "bos_token_id": begin,
        "eos_token_id": end,
        "dtype": dtype,
        "use_cache": true,
    })
}

fn tokenizer_config(tokenizer: &Tokenizer, block_size: usize) -> Value {
    let mut config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": false,
        "model_max_length": block_size,
    });
    if tokenizer.special().iter().any(|(name, _)| name == END_OF_TEXT) {
        config["bos_token"] = END_OF_TEXT.into();
        config["eos_token"] = END_OF_TEXT.into();
    }
    config
}

/// Writes a text and waits until it is on the disk.
pub(super) fn write_text(path: &Path, text: &str) -> Result<()> {
    files::write_synced(path, |file| file.write_all(text.as_bytes()))
        .map_err(Error::io("write", path))
}
