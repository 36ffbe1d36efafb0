//! Reads a checkpoint: the model and what was told to its trainer; where its optimizer is, only when a
//! training goes on, so that weights are of use whatever is beside them.

use super::archive::Archive;
use super::{META, NO_LOSS, TOKENIZER, meta, optimizers_order};
use crate::checkpoint::stored::{HEAD, Weights};
use crate::config::{Activation, GptConfig};
use crate::error::{Error, Result};
use crate::formats::pickle::{self, Pickle, Value};
use crate::formats::{Beside, Opened, TokenizerFrom, Training, assumed_tokenizer, same_head};
use crate::model::{Spec, Tensors};
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
        iter_num: iter_num(pickle).ok(),
        has_state: !states(pickle).is_empty(),
        settings,
    };
    Ok(Opened { config, weights, tokenizer, notices, training: Some(training) })
}

/// What a training goes on from, beside the weights, whose table is `table`.
///
/// # Errors
/// [`Error::Checkpoint`] if the steps are not counted, or the optimizer is not AdamW's of all of the
/// table. That its tensors have the table's shapes is not checked.
pub(in crate::formats) fn goes_on(path: &Path, table: &Tensors<Spec>) -> Result<Beside> {
    let mut weights = Weights::new(path);
    weights.open(path)?;
    let archive = Archive::open(path, weights.file(0))?;
    let step = iter_num(&archive.pickle).map_err(|found| {
        let problem = format!("has {found} for iter_num; expected how many steps were made");
        Error::checkpoint(path, problem)
    })?;
    let best_val_loss = best_val_loss(&archive, path)?;
    moments(&archive, path, table, &mut weights)?;
    Ok(Beside { step, best_val_loss, moments: weights })
}

/// How many steps were made; or what there is in place of their number.
fn iter_num(pickle: &Pickle) -> std::result::Result<u64, String> {
    match pickle.get(pickle.root(), "iter_num") {
        Some(Value::Int(steps)) => u64::try_from(*steps).map_err(|_| steps.to_string()),
        Some(Value::Float(x)) => Err(format!("{x:?}")),
        Some(other) => Err(pickle::kind(other).into()),
        None => Err("nothing".into()),
    }
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
fn best_val_loss(archive: &Archive, path: &Path) -> Result<Option<f32>> {
    let loss = match archive.pickle.get(archive.pickle.root(), "best_val_loss") {
        Some(Value::Float(loss)) => *loss as f32,
        Some(tensor @ Value::Tensor(_)) => {
            let stored = archive.stored(path, "best_val_loss", tensor)?;
            let mut one = Weights::new(path);
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

/// What the optimizer keeps of each parameter, by number; empty if it has not made a step.
fn states(pickle: &Pickle) -> BTreeMap<Option<usize>, &Value> {
    let optimizer = pickle.get(pickle.root(), "optimizer");
    let states = optimizer.and_then(|optimizer| pickle.get(optimizer, "state"));
    let entries = states.into_iter().flat_map(|states| pickle.entries(states));
    entries.map(|(number, state)| (pickle::size(number), state)).collect()
}

/// Adds AdamW's two moments to `weights`, under the names that our own training state gives them.
fn moments(
    archive: &Archive,
    path: &Path,
    table: &Tensors<Spec>,
    weights: &mut Weights,
) -> Result<()> {
    let states = states(&archive.pickle);
    for (number, spec) in optimizers_order(table).into_iter().enumerate() {
        let state = states.get(&Some(number)).copied().unwrap_or(&Value::None);
        for moment in ["exp_avg", "exp_avg_sq"] {
            let Some(value) = archive.pickle.get(state, moment) else {
                let name = &spec.name;
                let problem = format!(
                    "its optimizer has no {moment} of parameter {number}, {name}: it is not AdamW's, or \
                     not of this model"
                );
                return Err(Error::checkpoint(path, problem));
            };
            let name = format!("{moment}.{}", spec.name);
            weights.insert(&name, archive.stored(path, &name, value)?)?;
        }
    }
    Ok(())
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
