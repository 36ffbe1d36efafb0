//! Models of other programs: what a user named is recognised by what is in it, never by its name.
//!
//! A reader, one a format, says what the model is and where its tensors lie; it reads no weight.
//! Whether they are those of the table, and reading them, is `checkpoint/stored.rs`, for all alike.
//! Beside each reader stands the writer of its format.
//!
//! | format | by | the model | the tokenizer |
//! |---|---|---|---|
//! | `tinygpt` | `config.json` | `model.safetensors` | `tokenizer.json` |
//! | `hf` | `config.json` of a gpt2 | `model.safetensors`, in one file or several | `tokenizer.json` |
//! | `safetensors` | its header | shapes and metadata tell | in its metadata, if we wrote it |
//! | `nanogpt` | a zip archive with a pickle | `ckpt.pt`, the optimizer too | `tokenizer.json`, `meta.pkl` |
//! | `gguf` | its first bytes | one file | in it |
//!
//! **Readers trust nothing**: no length allocates before it is compared with the file's size, no
//! path leads out of a folder, and nothing that a file says is run.

mod kept;
mod export;
mod hugging_face;
mod bare;
mod pickle;
mod nanogpt;
mod gguf;

#[cfg(test)]
mod tests;

use crate::checkpoint::stored::{HEAD, Weights, rows};
use crate::checkpoint::{self, Checkpoint, foreign, swap};
use crate::config::GptConfig;
use crate::data::DataOptions;
use crate::error::{Error, Result};
use crate::files;
use crate::model::Params;
use crate::tokenizer::TOKENIZER_FILE;
use crate::tokenizer::{self, Bpe, Tokenizer, TokenizerKind};
pub use export::Export;
pub use kept::Kept;
pub use nanogpt::{Prepared, adopt, prepare, prepared_tokenizer};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Whose way of keeping a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Our own checkpoint.
    TinyGpt,
    /// Hugging Face's folder of a GPT-2.
    HuggingFace,
    /// A safetensors file alone.
    Safetensors,
    /// nanoGPT's `ckpt.pt`.
    NanoGpt,
    /// llama.cpp's file.
    Gguf,
}

impl Format {
    /// Whose the model at `path` is.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is a file of no model's.
    pub fn of(path: &Path) -> Result<Self> {
        recognise(path).map(|(format, _)| format)
    }

    /// What it is, in words.
    pub fn title(self) -> &'static str {
        match self {
            Self::TinyGpt => "a checkpoint of TinyGPT's",
            Self::HuggingFace => "a Hugging Face folder",
            Self::Safetensors => "a safetensors file alone",
            Self::NanoGpt => "a checkpoint of nanoGPT's",
            Self::Gguf => "a GGUF file",
        }
    }
}

/// A model that was found and looked at; its weights are read by [`Model::read`].
#[derive(Debug)]
pub struct Model {
    /// Whose way of keeping it.
    pub format: Format,
    /// The checkpoint's folder, or the file.
    pub path: PathBuf,
    /// Its shape.
    pub config: GptConfig,
    /// What was assumed of it, in whole sentences without a stop.
    pub notices: Vec<String>,
    foreign: Option<Foreign>,
}

#[derive(Debug)]
struct Foreign {
    weights: Weights,
    tokenizer: TokenizerFrom,
    training: Option<Training>,
}

/// What a reader says of a model.
struct Opened {
    config: GptConfig,
    weights: Weights,
    tokenizer: TokenizerFrom,
    notices: Vec<String>,
    training: Option<Training>,
}

/// Where a model's tokenizer is.
#[derive(Debug)]
enum TokenizerFrom {
    None,
    File(PathBuf),
    Made(Tokenizer),
}

/// What is known of a training of nanoGPT's before it goes on.
#[derive(Debug)]
struct Training {
    /// None if the file has no such number.
    iter_num: Option<u64>,
    /// Whether there is something of an optimizer's, readable or not.
    has_state: bool,
    settings: Vec<(String, String)>,
}

/// What is beside the weights where a training of nanoGPT's goes on.
struct Beside {
    step: u64,
    best_val_loss: Option<f32>,
    moments: Weights,
}

/// What a training of another program's goes on from, beside the model.
#[derive(Debug)]
pub struct GoesOn {
    /// Optimizer steps done.
    pub step: u64,
    /// The best validation loss so far, in nats.
    pub best_val_loss: Option<f32>,
    /// AdamW's mean of gradients.
    pub exp_avg: Params,
    /// AdamW's mean of squared gradients.
    pub exp_avg_sq: Params,
}

/// Whether there is a model at `path`, as far as names tell: its opening will say what is wrong.
pub fn exists(path: &Path) -> bool {
    let has = |name: &str| path.join(name).is_file();
    path.is_file()
        || checkpoint::exists(path)
        || is_theirs(path)
        || [hugging_face::INDEX, hugging_face::PICKLED, nanogpt::CHECKPOINT].into_iter().any(has)
}

/// Whether a folder says that it is Hugging Face's, of a GPT-2.
fn is_theirs(folder: &Path) -> bool {
    let config = folder.join(hugging_face::CONFIG);
    hugging_face::model_type(&config).is_some_and(|kind| kind == "gpt2")
}

/// What is at `path`, and in which file or folder exactly.
fn recognise(path: &Path) -> Result<(Format, PathBuf)> {
    use hugging_face::{CONFIG, INDEX, PICKLED};
    if !path.is_file() {
        let folder = swap::current(path);
        let has = |name: &str| folder.join(name).is_file();
        let format = match () {
            () if is_theirs(&folder) || has(INDEX) || has(PICKLED) => Format::HuggingFace,
            () if !checkpoint::exists(path) && has(nanogpt::CHECKPOINT) => {
                return Ok((Format::NanoGpt, folder.join(nanogpt::CHECKPOINT)));
            }
            // If it is none, loading says what it is.
            () => Format::TinyGpt,
        };
        return Ok((format, path.to_owned()));
    }
    let mut first = Vec::new();
    let file = files::open(path).map_err(|error| error.in_checkpoint(path))?;
    file.take(foreign::ENOUGH).read_to_end(&mut first).map_err(Error::io("read", path))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let format = match &first[..] {
        [b'G', b'G', b'U', b'F', ..] => Format::Gguf,
        [b'P', b'K', ..] => Format::NanoGpt,
        [_, _, _, _, _, _, _, _, b'{', ..] if is_theirs(folder) => Format::HuggingFace,
        [_, _, _, _, _, _, _, _, b'{', ..] if folder.join(CONFIG).exists() => Format::TinyGpt,
        [_, _, _, _, _, _, _, _, b'{', ..] => Format::Safetensors,
        _ => return Err(foreign::error(path, &first)),
    };
    Ok((format, path.to_owned()))
}

impl Model {
    /// Finds out what is at `path`, and what it says of itself.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] says what it is instead of a model, or what is wrong with it;
    /// [`Error::Io`] which file the system does not let us read.
    pub fn open(path: &Path) -> Result<Self> {
        let (format, path) = recognise(path)?;
        let folder = if path.is_file() { path.parent().unwrap_or(Path::new("")) } else { &path };
        let Opened { config, weights, tokenizer, notices, training } = match format {
            Format::TinyGpt => {
                let config = checkpoint::read_config(&path)?;
                return Ok(Self { format, path, config, notices: vec![], foreign: None });
            }
            Format::HuggingFace => hugging_face::open(folder, path.is_file().then_some(&path))?,
            Format::Safetensors => bare::open(&path)?,
            Format::NanoGpt => nanogpt::open(&path)?,
            Format::Gguf => gguf::open(&path)?,
        };
        let foreign = Some(Foreign { weights, tokenizer, training });
        Ok(Self { format, path, config, notices, foreign })
    }

    /// Bytes of its weights once they are read.
    pub fn bytes(&self) -> u64 {
        const F32: u64 = size_of::<f32>() as u64;
        match &self.foreign {
            Some(foreign) => F32.saturating_mul(foreign.weights.elements()),
            None => checkpoint::model_bytes(&self.path),
        }
    }

    /// Reads its weights.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] names tensors that are missing, unexpected or of another shape, or the
    /// part of an archive whose checksum is another.
    pub fn read(&self) -> Result<Params> {
        match &self.foreign {
            Some(foreign) => {
                if self.format == Format::NanoGpt {
                    nanogpt::check_sums(&self.path)?;
                }
                foreign.weights.params(&self.config)
            }
            None => Ok(Checkpoint::load(&self.path)?.params),
        }
    }

    /// Its tokenizer; none if it has none.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it has one that cannot be read or used.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>> {
        match self.foreign.as_ref().map(|foreign| &foreign.tokenizer) {
            None => checkpoint::read_tokenizer(&self.path),
            Some(TokenizerFrom::None) => Ok(None),
            Some(TokenizerFrom::Made(tokenizer)) => Ok(Some(tokenizer.clone())),
            Some(TokenizerFrom::File(path)) => files::read_text(path, tokenizer::LONGEST_FILE)
                .and_then(|json| Tokenizer::from_json(&json).map(Some))
                .map_err(|error| error.in_checkpoint(path)),
        }
    }

    /// The file that [`tokenizer_at`] reads its tokenizer from: one beside it, or the model itself.
    pub fn tokenizer_file(&self) -> PathBuf {
        match self.foreign.as_ref().map(|foreign| &foreign.tokenizer) {
            Some(TokenizerFrom::File(path)) => path.clone(),
            None if self.path.is_file() => self.path.with_file_name(TOKENIZER_FILE),
            None => self.path.join(TOKENIZER_FILE),
            Some(_) => self.path.clone(),
        }
    }

    /// What nanoGPT's trainer was told, as flags say it: key and value; nothing of other formats.
    pub fn settings(&self) -> &[(String, String)] {
        self.training().map_or(&[], |training| &training.settings)
    }

    /// Steps of nanoGPT's trainer that made it; none of other formats, or if it does not say.
    pub fn iterations(&self) -> Option<u64> {
        self.training()?.iter_num
    }

    /// Whether there is a state of nanoGPT's optimizer for [`goes_on`](Self::goes_on), which will say
    /// if it is one to go on from.
    pub fn has_state(&self) -> bool {
        self.training().is_some_and(|training| training.has_state)
    }

    /// What a training of nanoGPT's goes on from; `params` are those that were read.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it has weights only, another optimizer than AdamW or one of another
    /// model, or does not say how many steps it made; [`Error::NotFinite`].
    pub fn goes_on(&self, params: &Params) -> Result<GoesOn> {
        let read = || {
            if !self.has_state() {
                let problem = "has weights only: no state of an optimizer, so it cannot be resumed";
                return Err(Error::checkpoint(&self.path, problem));
            }
            let table = params.table();
            let Beside { step, best_val_loss, moments } = nanogpt::goes_on(&self.path, table)?;
            moments.check(&[rows(table, "exp_avg."), rows(table, "exp_avg_sq.")].concat())?;
            let moment = |prefix| moments.read_all(table.clone(), prefix);
            let (exp_avg, exp_avg_sq) = (moment("exp_avg.")?, moment("exp_avg_sq.")?);
            checkpoint::check_moments(&exp_avg, &exp_avg_sq, &self.path)?;
            Ok(GoesOn { step, best_val_loss, exp_avg, exp_avg_sq })
        };
        read().map_err(|error: Error| {
            error.and_hint("start a new run from these weights instead (--init-from)")
        })
    }

    fn training(&self) -> Option<&Training> {
        self.foreign.as_ref()?.training.as_ref()
    }
}

/// The tokenizer of a `tokenizer.json`, of a folder that has one, or of a model.
///
/// # Errors
/// A file that is missing, or that has none.
pub fn tokenizer_at(path: &Path) -> Result<Tokenizer> {
    match tokenizer_inside(&TokenizerKind::File(path.into()))? {
        Some(tokenizer) => Ok(tokenizer),
        None => Tokenizer::read(path),
    }
}

/// `options` with the tokenizer of the model that they may name.
///
/// # Errors
/// A model that cannot be read, or has none.
pub fn with_vocabulary(options: DataOptions) -> Result<DataOptions> {
    let inside = tokenizer_inside(&options.tokenizer)?;
    Ok(DataOptions { vocabulary: options.vocabulary.or(inside), ..options })
}

/// The tokenizer of the model that `kind` names, if it names one, and no folder with a
/// `tokenizer.json`.
fn tokenizer_inside(kind: &TokenizerKind) -> Result<Option<Tokenizer>> {
    let TokenizerKind::File(path) = kind else { return Ok(None) };
    let is_read_so = path.join("tokenizer.json").is_file() || !exists(path);
    // What is no model is a tokenizer.json, or an error that its reader tells.
    if is_read_so || Format::of(path).is_err() {
        return Ok(None);
    }
    match Model::open(path)?.tokenizer()? {
        None => Err(Error::checkpoint(path, "is a model without a tokenizer")),
        tokenizer => Ok(tokenizer),
    }
}

/// Whether a stored unembedding is the token embedding.
fn same_head(weights: &Weights) -> Result<bool> {
    let wte = "transformer.wte.weight";
    Ok(weights.has(wte) && weights.same(HEAD, wte)?)
}

/// GPT-2's vocabulary, and as nanoGPT pads it to a multiple of 64.
const GPT2_SIZES: [usize; 2] = [50257, 50304];

/// The tokenizer of a model that came without one: GPT-2's, if it has as many tokens.
fn assumed_tokenizer(config: &GptConfig, notices: &mut Vec<String>) -> TokenizerFrom {
    if !GPT2_SIZES.contains(&config.vocab_size) {
        return TokenizerFrom::None;
    }
    notices.push(format!("its {} tokens are taken to be GPT-2's", config.vocab_size));
    TokenizerFrom::Made(Tokenizer::Bpe(Bpe::gpt2()))
}
