//! A text made ready for training: its tokens, split, with the tokenizer they belong to.

use super::corpus::{Corpus, Ends, Input};
use super::prepared::Prepared;
use super::reader::Newline;
use super::split::{Cutter, Split};
use super::token_writer::TokenWriter;
use super::tokens::Tokens;
use crate::error::{Error, Result};
use crate::files::{put, sibling};
use crate::tokenizer::{Census, TOKENIZER_FILE, Tokenizer, TokenizerKind};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How a text becomes a [`Dataset`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataOptions {
    /// What a token is. Unused when `vocabulary` is given.
    pub tokenizer: TokenizerKind,
    /// A tokenizer to use as it is, when a model already has one.
    #[serde(skip)]
    pub vocabulary: Option<Tokenizer>,
    /// The share of the characters that validates, in [0, 1); 0 trains on everything.
    pub val_fraction: f64,
    /// Which characters validate.
    pub split: Split,
    /// What to do with the line ends of Windows.
    pub newline: Newline,
    /// Replace what is not UTF-8 by U+FFFD instead of failing.
    pub lossy: bool,
    /// The name of a special token in the text means that token.
    pub allow_special: bool,
    /// Whence the blocks of a shuffled split come.
    pub seed: u64,
}

impl Default for DataOptions {
    fn default() -> Self {
        Self {
            tokenizer: TokenizerKind::Char,
            vocabulary: None,
            val_fraction: 0.1,
            split: Split::Contiguous,
            newline: Newline::Keep,
            lossy: false,
            allow_special: false,
            seed: 1337,
        }
    }
}

impl DataOptions {
    /// Says the first thing that cannot work.
    pub fn check(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.val_fraction) {
            return Err(Error::config("val_fraction", self.val_fraction, "must be in [0, 1)")
                .with_hint("0.1 validates on the last tenth; 0 trains without validation"));
        }
        Ok(())
    }
}

/// The tokens of a text, in a training and a validation split.
#[derive(Debug)]
pub struct Dataset {
    /// What the model learns from.
    pub train: Tokens,
    /// What it is judged by; `None` when everything trains.
    pub val: Option<Tokens>,
    /// How many bytes of UTF-8 `train` stands for: losses per byte compare across tokenizers.
    pub train_bytes: u64,
    /// The same of `val`.
    pub val_bytes: u64,
    /// What the tokens mean.
    pub tokenizer: Tokenizer,
    /// What the text is called.
    pub source: String,
    /// How it became tokens; the defaults where that is not known.
    pub options: DataOptions,
    /// What the user should know of the text, in whole sentences.
    pub notices: Vec<String>,
}

impl Dataset {
    /// Reads a text and makes its tokens: in the folder `dir` (created if missing), as `train.bin`,
    /// `val.bin` and `tokenizer.json`, or in memory. `progress(done, total)` counts bytes; every
    /// byte is read twice.
    ///
    /// # Errors
    /// A text that cannot be read, is empty, is not UTF-8 (unless bytes are the tokens) or has
    /// characters that a given vocabulary lacks; a `val_fraction` outside [0, 1); a folder that
    /// cannot be written.
    pub fn build(
        input: &Input,
        options: &DataOptions,
        dir: Option<&Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        options.check()?;
        if let Some(dir) = dir {
            fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        }
        let mut half = 0;
        let prepared = Prepared::read(input, options, dir, &mut |done, total| {
            half = total;
            progress(done, 2 * total);
        })?;
        let Prepared { corpus, census, tokenizer, notices } = prepared;

        let writer = |name: &str| TokenWriter::new(dir.map(|dir| dir.join(name)), &tokenizer);
        let mut writers = Writers {
            train: writer("train.bin")?,
            val: (options.val_fraction > 0.0).then(|| writer("val.bin")).transpose()?,
        };
        writers.write(&corpus, options, &census, &tokenizer, &mut |done| {
            progress(half + done, 2 * half);
        })?;
        let Writers { train, val } = writers;
        if let Some(dir) = dir {
            // A folder without tokenizer.json is not a data set: should this be interrupted, no
            // half of an old one is left to be taken for the new one.
            for name in [TOKENIZER_FILE, "val.bin"] {
                remove(&dir.join(name))?;
            }
        }
        let (train, train_bytes) = train.finish()?;
        let (val, val_bytes) = val.map(TokenWriter::finish).transpose()?.unzip();
        if let Some(dir) = dir {
            let path = dir.join(TOKENIZER_FILE);
            let mut file = sibling(&path)?;
            file.write_all(tokenizer.to_json().as_bytes()).map_err(Error::io("write", &path))?;
            put(file, &path)?;
        }
        let (source, val_bytes) = (corpus.name(), val_bytes.unwrap_or(0));
        let options = DataOptions { vocabulary: None, ..options.clone() };
        Ok(Self { train, val, train_bytes, val_bytes, tokenizer, source, options, notices })
    }

    /// Opens a folder that [`Dataset::build`] made. The tokens stay in their files.
    ///
    /// # Errors
    /// A folder without data, or with files that are damaged or do not belong together.
    pub fn open(dir: &Path) -> Result<Self> {
        let source = dir.display().to_string();
        let missing = |name: &str| {
            Error::data(&source, format!("has no {name}: not a folder of prepared tokens"))
                .with_hint("prepare it from the text again, or name the text itself")
        };
        let read = |name: &str| dir.join(name);
        let path = read(TOKENIZER_FILE);
        if !path.exists() {
            return Err(missing(TOKENIZER_FILE));
        }
        let tokenizer = Tokenizer::read(&path)?;
        let tokens = |name: &str| -> Result<Option<(Tokens, u64)>> {
            let path = read(name);
            path.exists().then(|| Tokens::open(&path, &tokenizer)).transpose()
        };
        let (train, train_bytes) = tokens("train.bin")?.ok_or_else(|| missing("train.bin"))?;
        let (val, val_bytes) = tokens("val.bin")?.unzip();
        let val_bytes = val_bytes.unwrap_or(0);
        let (options, notices) = (DataOptions::default(), Vec::new());
        Ok(Self { train, val, train_bytes, val_bytes, tokenizer, source, options, notices })
    }

    /// A loss on the validation split, in nats a token, as bits per byte of the text: the same
    /// measure whatever a token is. None without validation.
    pub fn val_bits_per_byte(&self, loss: f32) -> Option<f32> {
        let val = self.val.as_ref().filter(|_| self.val_bytes > 0)?;
        let tokens_per_byte = val.len() as f64 / self.val_bytes as f64;
        Some((f64::from(loss) / std::f64::consts::LN_2 * tokens_per_byte) as f32)
    }

    /// Whether every split has a window of `block_size` tokens and the target after the last.
    ///
    /// # Errors
    /// A split that is too small, with the largest `block_size` that would work.
    pub fn check(&self, block_size: usize) -> Result<()> {
        let splits = [("training", Some(&self.train)), ("validation", self.val.as_ref())];
        let sizes = splits.iter().filter_map(|(name, split)| Some((*name, (*split)?.len())));
        let (name, tokens) =
            sizes.min_by_key(|&(_, tokens)| tokens).expect("there is a train split");
        if tokens > block_size {
            return Ok(());
        }
        let works = match tokens {
            0 | 1 => "no block_size works".to_owned(),
            _ => format!("the largest block_size that works is {}", tokens - 1),
        };
        let problem = format!(
            "the {name} split has {tokens} token{}, but block_size = {block_size} needs {}; \
             {works}",
            if tokens == 1 { "" } else { "s" },
            block_size.saturating_add(1)
        );
        let hint = match name {
            "validation" if tokens < 2 => {
                "use a longer text, a larger val_fraction, or val_fraction = 0 to train without \
                 validation"
            }
            _ if tokens < 2 => "use a longer text",
            "validation" => {
                "use a smaller block_size, a larger val_fraction, or val_fraction = 0 to train \
                 without validation"
            }
            _ => "use a smaller block_size, a smaller val_fraction, or more text",
        };
        Err(Error::data(&self.source, problem).with_hint(hint))
    }
}

struct Writers {
    train: TokenWriter,
    val: Option<TokenWriter>,
}

impl Writers {
    fn of(&mut self, validates: bool) -> &mut TokenWriter {
        match &mut self.val {
            Some(val) if validates => val,
            _ => &mut self.train,
        }
    }

    /// The second reading: every piece of the text to the tokens of its split.
    fn write(
        &mut self,
        corpus: &Corpus,
        options: &DataOptions,
        census: &Census,
        tokenizer: &Tokenizer,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let name = corpus.name();
        let borders = match self.val {
            None => Vec::new(),
            Some(_) => options.split.borders(census.total(), options.val_fraction, options.seed),
        };
        let (mut cutter, mut ids) = (Cutter::new(borders), Vec::new());
        let mut encoder = tokenizer.encoder(options.allow_special);
        let (mut part_validates, mut ends) = (false, Ends::new(tokenizer));
        let mut write = |source, piece: &[u8]| {
            if let Some(end) = ends.before(source) {
                self.of(part_validates).finish_part(&mut encoder, &mut ids, &name)?;
                self.of(part_validates).push(&[end], 0)?;
            }
            cutter.cut(piece, |validates, part| {
                if validates != part_validates {
                    // No token lies on both sides of a border.
                    self.of(part_validates).finish_part(&mut encoder, &mut ids, &name)?;
                    part_validates = validates;
                }
                ids.clear();
                match encoder.push_bytes(part, &mut ids) {
                    true => self.of(validates).push(&ids, part.len()),
                    false => Err(encoder.refusal(&name)),
                }
            })
        };
        corpus.read(&mut write, progress)?;
        if cutter.at != census.total() {
            // No text was refused: another came than was counted.
            return Err(encoder.refusal(&name));
        }
        self.of(part_validates).finish_part(&mut encoder, &mut ids, &name)
    }
}

/// Removes a file, if it is there.
pub(super) fn remove(path: &PathBuf) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
