//! Reads a model: its shape, its tokenizer, and by our names where its tensors lie.

use super::header::{Header, Keys, Value};
use super::{TOKEN_TYPES, our_name, token};
use crate::checkpoint::stored::{HEAD, Weights};
use crate::config::{Activation, GptConfig};
use crate::error::{Error, Result};
use crate::formats::{Opened, TokenizerFrom, assumed_tokenizer, same_head};
use crate::tokenizer::{ALPHABET, Bpe, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// Opens the model.
pub(in crate::formats) fn open(path: &Path) -> Result<Opened> {
    let mut weights = Weights::new(path);
    let (_, size) = weights.open(path)?;
    let (keys, tensors) =
        Header::new(weights.file(0), size).read().map_err(|fault| fault.of(path, size))?;
    let wrong = |problem: String| Error::checkpoint(path, problem);
    match keys.get("general.architecture") {
        Some(Value::Text(name)) if name == "gpt2" => {}
        Some(Value::Text(name)) => {
            let name: String = name.escape_debug().take(40).collect();
            return Err(wrong(format!("is a model of architecture {name}"))
                .with_hint("TinyGPT reads GGUF files of architecture gpt2"));
        }
        _ => return Err(wrong("is a GGUF file that does not say its architecture".into())),
    }
    for (name, stored) in tensors {
        weights.insert(&our_name(&name), stored)?;
    }
    let config = config(&keys, &weights).map_err(|error| error.in_checkpoint(path))?;
    let mut notices = vec!["activation = gelu_tanh, as llama.cpp computes every GPT-2".to_owned()];
    let tokenizer = tokenizer(&keys, &config, path, &mut notices)?;
    Ok(Opened { config, weights, tokenizer, notices, training: None })
}

fn config(keys: &Keys, weights: &Weights) -> Result<GptConfig> {
    let wrong = |key: &str, what: &str| Error::data("", format!("gpt2.{key} {what}"));
    let count = |key: &str| match keys.get(&format!("gpt2.{key}")) {
        Some(&Value::Int(n)) => usize::try_from(n).map_err(|_| wrong(key, "is too large")),
        Some(_) => Err(wrong(key, "is no whole number")),
        None => Err(wrong(key, "is missing")),
    };
    if let Some(Value::Float(epsilon)) = keys.get("gpt2.attention.layer_norm_epsilon")
        && (epsilon - 1e-5).abs() > 1e-9
    {
        let found = format!("is {epsilon}; TinyGPT computes 1e-5");
        return Err(wrong("attention.layer_norm_epsilon", &found));
    }
    let n_embd = count("embedding_length")?;
    if keys.contains_key("gpt2.feed_forward_length")
        && Some(count("feed_forward_length")?) != n_embd.checked_mul(4)
    {
        return Err(wrong("feed_forward_length", "is not 4 x gpt2.embedding_length"));
    }
    let vocab_size = weights.get("transformer.wte.weight").and_then(|stored| stored.shape.first());
    let config = GptConfig {
        vocab_size: *vocab_size.ok_or_else(|| Error::data("", "has no token_embd.weight"))?,
        block_size: count("context_length")?,
        n_layer: count("block_count")?,
        n_head: count("attention.head_count")?,
        n_embd,
        dropout: 0.0,
        bias: weights.has("transformer.ln_f.bias"),
        tied: !weights.has(HEAD) || same_head(weights)?,
        activation: Activation::GeluTanh,
    };
    config.check()?;
    Ok(config)
}

/// The tokenizer of its tokens and merges.
fn tokenizer(
    keys: &Keys,
    config: &GptConfig,
    path: &Path,
    notices: &mut Vec<String>,
) -> Result<TokenizerFrom> {
    let texts = |key: &str| match keys.get(&format!("tokenizer.ggml.{key}")) {
        Some(Value::Texts(texts)) => Some(texts),
        _ => None,
    };
    let (Some(tokens), Some(merges)) = (texts("tokens"), texts("merges")) else {
        return Ok(assumed_tokenizer(config, notices));
    };
    let named = |key: &str, known: &[&str]| match keys.get(&format!("tokenizer.ggml.{key}")) {
        Some(Value::Text(name)) => known.contains(&name.as_str()),
        _ => true,
    };
    if !(named("model", &["gpt2"]) && named("pre", &["gpt-2", "default"])) {
        notices.push("its tokenizer is none of GPT-2's, and is left out".into());
        return Ok(TokenizerFrom::None);
    }
    let kinds = match keys.get(TOKEN_TYPES) {
        Some(Value::Ints(kinds)) => &kinds[..],
        _ => &[],
    };
    // Tokens that fill up a vocabulary have no meaning, and stand at its end.
    let unused = kinds.iter().rev().take_while(|&&kind| kind == token::UNUSED).count();
    let tokens = &tokens[..tokens.len().saturating_sub(unused)];
    let bytes = ALPHABET.iter().map(char::to_string);
    if merges.is_empty() && tokens.iter().cloned().eq(bytes) {
        return Ok(TokenizerFrom::Made(Tokenizer::Byte));
    }
    let special = tokens.iter().zip(kinds).filter(|(_, kind)| **kind == token::CONTROL);
    let special: Vec<_> = special.map(|(name, _)| name.clone()).collect();
    let merges = merges.iter().map(|merge| match merge.split_once(' ') {
        Some((a, b)) => Ok((a.to_owned(), b.to_owned())),
        None => Err(Error::data("", format!("has the merge {merge:?}, which is not of two"))),
    });
    let bpe = merges
        .collect::<Result<_>>()
        .and_then(|merges| Bpe::from_parts(tokens.to_vec(), merges, &special))
        .map_err(|error| error.in_checkpoint(path))?;
    Ok(TokenizerFrom::Made(Tokenizer::Bpe(Arc::new(bpe))))
}
