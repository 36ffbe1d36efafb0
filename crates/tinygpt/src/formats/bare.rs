//! A safetensors file with no `config.json` beside it: its tensors tell what model they are.
//!
//! All but the number of heads and the activation, which change no shape: those stand in the
//! metadata of a file that `tinygpt export` wrote, and are assumed of any other, with a notice.

use super::{Export, Opened, TokenizerFrom, hugging_face};
use crate::checkpoint::stored::{HEAD, Weights};
use crate::checkpoint::tensor_file::{self, TensorFile};
use crate::config::{Activation, GptConfig};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The metadata key under which a model's configuration stands.
pub(super) const CONFIG: &str = "config";
/// The one under which its tokenizer's `tokenizer.json` does.
const TOKENIZER: &str = "tokenizer";
/// The width of GPT-2's heads, of every size.
const HEAD_SIZE: usize = 64;

/// Opens the file.
pub(super) fn open(path: &Path) -> Result<Opened> {
    let TensorFile { mut weights, metadata } = TensorFile::open(path)?;
    // (3C, C) here and (C, 3C) at Hugging Face: it is never square.
    let theirs = weights
        .get("transformer.h.0.attn.c_attn.weight")
        .is_some_and(|stored| stored.shape.len() == 2 && stored.shape[0] < stored.shape[1]);
    if theirs {
        weights.transpose(hugging_face::is_linear);
    }
    let mut notices = Vec::new();
    let written = metadata.get(CONFIG).map(|json| serde_json::from_str::<GptConfig>(json));
    let config = match written {
        Some(Ok(config)) => config,
        Some(Err(error)) => {
            let problem = format!("`{CONFIG}` in its metadata: {error}");
            return Err(Error::checkpoint(path, problem));
        }
        None => {
            let n_head = metadata.get("n_head").and_then(|text| text.parse().ok());
            from_shapes(path, &weights, theirs, n_head, &mut notices)?
        }
    };
    config.check().map_err(|error| error.in_checkpoint(path))?;
    let tokenizer = match metadata.get(TOKENIZER).map(|json| Tokenizer::from_json(json)) {
        Some(read) => TokenizerFrom::Made(read.map_err(|error| error.in_checkpoint(path))?),
        None => super::assumed_tokenizer(&config, &mut notices),
    };
    Ok(Opened { config, weights, tokenizer, notices, training: None })
}

fn from_shapes(
    path: &Path,
    weights: &Weights,
    theirs: bool,
    n_head: Option<usize>,
    notices: &mut Vec<String>,
) -> Result<GptConfig> {
    let matrix = |name: &str| {
        let shape = weights.get(name).map(|stored| &stored.shape[..]);
        let Some(&[rows, columns]) = shape else {
            let problem = match shape {
                Some(_) => format!("has {name}, but not as a matrix"),
                None => format!("is no GPT-2: it has no {name}"),
            };
            return Err(Error::checkpoint(path, problem)
                .with_hint("TinyGPT reads models of GPT-2's architecture, by nanoGPT's names"));
        };
        Ok((rows, columns))
    };
    let (vocab_size, n_embd) = matrix("transformer.wte.weight")?;
    let (block_size, _) = matrix("transformer.wpe.weight")?;
    let block = |name: &str| name.strip_prefix("transformer.h.")?.split('.').next()?.parse().ok();
    let n_layer =
        weights.names().filter_map(block).max().map_or(0, |last: usize| last.saturating_add(1));
    let n_head = match n_head {
        Some(n_head) => n_head,
        None if n_embd.is_multiple_of(HEAD_SIZE) && n_embd > 0 => {
            let n_head = n_embd / HEAD_SIZE;
            notices.push(format!("n_head = {n_head} is assumed: heads of {HEAD_SIZE}, as GPT-2's"));
            n_head
        }
        None => {
            let problem = format!(
                "does not say its n_head, and n_embd = {n_embd} is no multiple of {HEAD_SIZE}"
            );
            return Err(Error::checkpoint(path, problem)
                .with_hint("put the model's config.json beside the file"));
        }
    };
    let activation = if theirs { Activation::GeluTanh } else { Activation::Gelu };
    notices.push(match theirs {
        true => "activation = gelu_tanh is assumed, as in the published GPT-2".into(),
        false => "activation = gelu is assumed, as in nanoGPT".into(),
    });
    Ok(GptConfig {
        vocab_size,
        block_size,
        n_layer,
        n_head,
        n_embd,
        dropout: 0.0,
        bias: weights.has("transformer.ln_f.bias"),
        tied: !weights.has(HEAD) || super::same_head(weights)?,
        activation,
    })
}

/// Writes the model, with its configuration and its tokenizer in the metadata.
pub(super) fn write(export: &Export, file: &mut File) -> io::Result<()> {
    let rows = export.rows(false);
    let config = serde_json::to_string(export.config).expect("numbers, booleans and names");
    let shapes = rows.iter().map(|row| (row.name.clone(), row.shape.clone()));
    let mut metadata = vec![(CONFIG, config)];
    metadata.extend(export.tokenizer.map(|tokenizer| (TOKENIZER, tokenizer.to_json())));
    file.write_all(&tensor_file::header(&metadata, export.kept.number(), shapes)?)?;
    let mut file = BufWriter::new(file);
    rows.iter().try_for_each(|row| export.kept.write(&mut file, &row.values))?;
    file.flush()
}
