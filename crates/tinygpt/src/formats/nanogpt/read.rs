//! Reads a checkpoint: the model, what was told to its trainer, and where its optimizer is.

use super::archive::Archive;
use super::{META, NO_LOSS, TOKENIZER, meta, optimizers_order};
use crate::checkpoint::stored::{HEAD, Weights};
use crate::config::{Activation, GptConfig};
use crate::error::{Error, Result};
use crate::formats::pickle::{self, Pickle, Value};
use crate::formats::{Opened, TokenizerFrom, Training, assumed_tokenizer, same_head};
use crate::model::Tensors;
use std::collections::BTreeMap;
use std::path::Path;

/// Opens a checkpoint.
pub(in crate::formats) fn open(path: &Path) -> Result<Opened> {
    let mut weights = Weights::new(path);
    weights.open(path)?;
    let archive = Archive::open(path, weights.file(0))?;
    let pickle = &archive.pickle;
    let root = pickle.root();
    let wrong = |problem: String| Error::checkpoint(path, problem);
    let Some(args) = pickle.get(root, "model_args") else {
        return Err(wrong(what_else(pickle).into()).with_hint(
            "a Hugging Face folder is read from its model.safetensors: in Python, \
             GPT2LMHeadModel.from_pretrained(OLD).save_pretrained(NEW) writes one",
        ));
    };
    let Some(model) = pickle.get(root, "model") else {
        return Err(wrong("has model_args but no model".into()));
    };
    for (name, value) in pickle.entries(model) {
        let Value::Text(name) = name else {
            return Err(wrong("has a tensor whose name is no text".into()));
        };
        weights.insert(name, archive.stored(path, name, value)?)?;
    }
    let config = config(pickle, args, &mut weights).map_err(|error| error.in_checkpoint(path))?;
    let settings = pickle.get(root, "config").map(|config| settings(pickle, config));
    let settings = settings.unwrap_or_default();
    let mut notices = Vec::new();
    let tokenizer = tokenizer(path, &config, &settings, &mut notices)?;
    let training = Training {
        iter_num: pickle.get(root, "iter_num").and_then(pickle::size).unwrap_or(0) as u64,
        best_val_loss: best_val_loss(&archive, path, &weights)?,
        moments: moments(&archive, path, &config)?,
        settings,
    };
    Ok(Opened { config, weights, tokenizer, notices, training: Some(training) })
}

/// What an archive of PyTorch's is that is no checkpoint of nanoGPT's.
fn what_else(pickle: &Pickle) -> &'static str {
    let is_tensor = |value: &Value| matches!(value, Value::Tensor(_));
    match pickle.entries(pickle.root()).any(|(_, value)| is_tensor(value)) {
        true => "is weights alone, such as Hugging Face's pytorch_model.bin, not a ckpt.pt",
        false => "is no checkpoint of nanoGPT's: it has no model_args",
    }
}

fn config(pickle: &Pickle, args: &Value, weights: &mut Weights) -> Result<GptConfig> {
    let missing = |key: &str| Error::data("", format!("model_args has no {key}"));
    let size = |key| pickle.get(args, key).and_then(pickle::size).ok_or_else(|| missing(key));
    let bias = match pickle.get(args, "bias") {
        Some(Value::Bool(bias)) => *bias,
        // Those that were saved before there was a choice have biases.
        None => true,
        Some(_) => return Err(Error::data("", "model_args: bias is neither true nor false")),
    };
    let dropout = match pickle.get(args, "dropout") {
        Some(Value::Float(dropout)) => *dropout as f32,
        _ => 0.0,
    };
    let config = GptConfig {
        vocab_size: size("vocab_size")?,
        block_size: size("block_size")?,
        n_layer: size("n_layer")?,
        n_head: size("n_head")?,
        n_embd: size("n_embd")?,
        dropout,
        bias,
        tied: true,
        activation: Activation::Gelu,
    };
    config.check()?;
    let tied = !weights.has(HEAD) || same_head(weights)?;
    Ok(GptConfig { tied, ..config })
}

/// What the training was told, as flags say it.
fn settings(pickle: &Pickle, config: &Value) -> Vec<(String, String)> {
    /// Of a name or a text. A file may refer to one of any length again and again.
    const LONGEST: usize = 1 << 10;
    let shown = |value: &Value| match value {
        Value::Bool(x) => Some(x.to_string()),
        Value::Int(x) => Some(x.to_string()),
        Value::Float(x) => Some(x.to_string()),
        Value::Text(x) if x.len() <= LONGEST => Some(x.clone()),
        _ => None,
    };
    let entry = |(key, value): (&Value, &Value)| match key {
        Value::Text(key) if key.len() <= LONGEST => Some((key.clone(), shown(value)?)),
        _ => None,
    };
    pickle.entries(config).filter_map(entry).collect()
}

/// nanoGPT keeps it as a tensor of no dimensions, and 1e9 where there is none yet.
fn best_val_loss(archive: &Archive, path: &Path, weights: &Weights) -> Result<Option<f32>> {
    let loss = match archive.pickle.get(archive.pickle.root(), "best_val_loss") {
        Some(Value::Float(loss)) => *loss as f32,
        Some(tensor @ Value::Tensor(_)) => {
            let stored = archive.stored(path, "best_val_loss", tensor)?;
            let mut one = Weights::new(&weights.path);
            one.open(path)?;
            one.insert("best_val_loss", stored)?;
            one.check(&[("best_val_loss".into(), &[])])?;
            let mut loss = [0.0];
            one.read("best_val_loss", &mut loss)?;
            loss[0]
        }
        _ => return Ok(None),
    };
    Ok((loss.is_finite() && f64::from(loss) < NO_LOSS).then_some(loss))
}

/// AdamW's two moments, under the names that our own training state gives them; none if it has not
/// made a step.
fn moments(archive: &Archive, path: &Path, config: &GptConfig) -> Result<Option<Weights>> {
    let pickle = &archive.pickle;
    let Some(optimizer) = pickle.get(pickle.root(), "optimizer") else { return Ok(None) };
    let Some(state) = pickle.get(optimizer, "state") else { return Ok(None) };
    let mut by_number = BTreeMap::new();
    for (number, moments) in pickle.entries(state) {
        by_number.insert(pickle::size(number), moments);
    }
    if by_number.is_empty() || config.n_layer > by_number.len() {
        return Ok(None);
    }
    let mut weights = Weights::new(path);
    weights.open(path)?;
    let table = Tensors::of(config);
    for (number, spec) in optimizers_order(&table).into_iter().enumerate() {
        let Some(moments) = by_number.get(&Some(number)) else {
            let name = &spec.name;
            let problem = format!("its optimizer has nothing of parameter {number}, {name}");
            return Err(Error::checkpoint(path, problem)
                .with_hint("start a new run from these weights instead (--init-from)"));
        };
        for moment in ["exp_avg", "exp_avg_sq"] {
            let name = format!("{moment}.{}", spec.name);
            let value = pickle.get(moments, moment).unwrap_or(&Value::None);
            weights.insert(&name, archive.stored(path, &name, value)?)?;
        }
    }
    Ok(Some(weights))
}

/// That of a `tokenizer.json` beside the checkpoint, or the characters of the data set's `meta.pkl`, which
/// lies there too or where nanoGPT's scripts put it: `data/NAME/` next to the checkpoint's folder.
fn tokenizer(
    path: &Path,
    config: &GptConfig,
    settings: &[(String, String)],
    notices: &mut Vec<String>,
) -> Result<TokenizerFrom> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let ours = folder.join(TOKENIZER);
    if ours.is_file() {
        return Ok(TokenizerFrom::File(ours));
    }
    let mut places = vec![folder.join(META)];
    let dataset = settings.iter().find(|(key, _)| key == "dataset").map(|(_, name)| name);
    // A name, and no path that leads elsewhere.
    let plain = |name: &&String| !name.is_empty() && !name.contains(['/', '\\', '.']);
    if let Some(name) = dataset.filter(plain) {
        // As a relative path has no parent beyond itself, `..` is asked of the system.
        places.push(folder.join("..").join("data").join(name).join(META));
    }
    let there = places.iter().find(|place| place.is_file());
    let Some(there) = there else { return Ok(assumed_tokenizer(config, notices)) };
    let tokenizer = meta::read(there)?;
    notices.push(format!("its {} characters are those of {}", config.vocab_size, there.display()));
    Ok(TokenizerFrom::Made(tokenizer))
}
