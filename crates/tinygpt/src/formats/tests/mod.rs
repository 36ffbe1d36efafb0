//! Models of other programs: as those write them, changed, cut, and made to do harm.

mod archive;
mod damage;
mod exports;
mod layouts;

use super::*;
use crate::checkpoint::{Progress, StateRef};
use crate::config::{Activation, TrainConfig};
use crate::data::DataOptions;
use crate::model::Tensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

/// A model whose every size is another, with biases and an activation of `format`'s own.
fn tiny(format: Format) -> GptConfig {
    let activation = match format {
        Format::HuggingFace | Format::Gguf => Activation::GeluTanh,
        _ => Activation::Gelu,
    };
    GptConfig {
        vocab_size: 7,
        block_size: 5,
        n_layer: 2,
        n_head: 3,
        n_embd: 6,
        activation,
        ..Default::default()
    }
}

fn params(config: &GptConfig, seed: u64) -> Params {
    let mut params = Params::init(Arc::new(Tensors::of(config)), seed);
    // Biases and gains start alike; here every number is its own.
    for (i, x) in params.data_mut().iter_mut().enumerate() {
        *x += (i % 97) as f32 * 1e-3;
    }
    params
}

/// AdamW's mean of squares, as [`params`] makes it.
fn squares(config: &GptConfig, seed: u64) -> Params {
    let mut squares = params(config, seed);
    squares.data_mut().iter_mut().for_each(|x| *x = x.abs());
    squares
}

/// The tensors of a model, without the gaps between them.
fn tensors(params: &Params) -> Vec<(String, Vec<u32>)> {
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect();
    params.iter().map(|(spec, values)| (spec.name.clone(), bits(values))).collect()
}

/// What opening and reading `path` fails with.
fn message(path: &Path) -> String {
    let error = Model::open(path).and_then(|model| {
        let params = model.read()?;
        model.tokenizer()?;
        if model.has_state() {
            model.goes_on(&params)?;
        }
        Ok(())
    });
    let error = error.unwrap_err();
    format!("{error} | {}", error.hint().unwrap_or("no hint"))
}

type Files = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// A model's tensors as Hugging Face keeps them.
fn theirs(params: &Params) -> Files {
    let file = |(spec, values): (&crate::model::Spec, &[f32])| {
        let (mut shape, mut values) = (spec.shape.clone(), values.to_vec());
        if hugging_face::is_linear(&spec.name) {
            let (outputs, inputs) = (shape[0], shape[1]);
            let turned = (0..inputs).flat_map(|i| (0..outputs).map(move |o| o * inputs + i));
            values = turned.map(|at| values[at]).collect();
            shape.reverse();
        }
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        (spec.name.clone(), (Dtype::F32, shape, bytes))
    };
    params.iter().map(file).collect()
}

fn write_safetensors(path: &Path, files: &Files, metadata: Option<(&str, String)>) {
    let views = files.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let metadata = metadata.map(|(key, value)| [(key.to_owned(), value)].into());
    fs::write(path, safetensors::serialize(views, metadata).unwrap()).unwrap();
}

/// The `config.json` that transformers writes for such a model.
fn config_json(config: &GptConfig) -> serde_json::Value {
    serde_json::json!({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size, "n_positions": config.block_size,
        "n_ctx": config.block_size, "n_embd": config.n_embd, "n_layer": config.n_layer,
        "n_head": config.n_head, "n_inner": null, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1, "tie_word_embeddings": config.tied,
    })
}

/// A Hugging Face folder of the model of that seed, in a folder that goes away with the first
/// value.
fn hf_folder(config: &GptConfig, seed: u64) -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("model");
    fs::create_dir(&folder).unwrap();
    write_safetensors(&folder.join("model.safetensors"), &theirs(&params(config, seed)), None);
    fs::write(folder.join("config.json"), config_json(config).to_string()).unwrap();
    (parent, folder)
}
