//! A folder of tokens that somebody else prepared: `train.bin` and perhaps `val.bin`, as nanoGPT
//! writes them or as we do.
//!
//! nanoGPT's files are bare ids, two bytes each, little-endian; nothing in them says whose. So they
//! are copied, each id checked, into files that do.

use super::dataset::{DataOptions, Dataset, remove};
use super::token_file::{MAGIC, decode_ids};
use super::token_writer::TokenWriter;
use super::tokens::{Tokens, check_ids};
use crate::error::{Error, Result};
use crate::files;
use crate::tokenizer::{TOKENIZER_FILE, Tokenizer};
use std::io::{Read, Seek};
use std::path::Path;

/// Bytes of an id in nanoGPT's files.
const WIDTH: usize = 2;
/// Ids copied at a time.
const PART: usize = 1 << 16;

impl Dataset {
    /// Whether `path` is a folder of tokens, not of texts.
    pub fn is_prepared(path: &Path) -> bool {
        path.join("train.bin").is_file()
    }

    /// Copies the prepared tokens of the folder `from` to the folder `to`. They are those of the
    /// `tokenizer.json` in `from` or, where there is none, of the tokenizer in `options`.
    ///
    /// # Errors
    /// Tokens of a vocabulary that is not known, an id outside it, a folder without `val.bin`
    /// although `val_fraction` is not 0, files that cannot be read or written.
    pub fn adopt(
        from: &Path,
        options: &DataOptions,
        to: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        options.check()?;
        let name = from.display().to_string();
        let tokenizer = tokenizer_of(from, options)?;
        if options.val_fraction > 0.0 && !from.join("val.bin").is_file() {
            return Err(Error::data(name, "has no val.bin to validate on")
                .with_hint("val_fraction = 0 trains without validation"));
        }
        std::fs::create_dir_all(to).map_err(Error::io("create", to))?;
        for old in [TOKENIZER_FILE, "val.bin"] {
            remove(&to.join(old))?;
        }
        let splits = if options.val_fraction > 0.0 { 2 } else { 1 };
        for (i, file) in ["train.bin", "val.bin"].into_iter().take(splits).enumerate() {
            let writer = TokenWriter::new(Some(to.join(file)), &tokenizer)?;
            copy(&from.join(file), &tokenizer, writer, &mut |done, total| {
                progress(i as u64 * total + done, splits as u64 * total);
            })?;
        }
        files::write_whole(&to.join(TOKENIZER_FILE), tokenizer.to_json())?;
        let options = DataOptions { vocabulary: None, ..options.clone() };
        Ok(Self { source: name, options, ..Self::open(to)? })
    }
}

fn tokenizer_of(folder: &Path, options: &DataOptions) -> Result<Tokenizer> {
    let file = folder.join(TOKENIZER_FILE);
    let own = file.is_file().then(|| Tokenizer::read(&file)).transpose()?;
    if let (Some(own), Some(models)) = (&own, &options.vocabulary)
        && own != models
    {
        return Err(Error::data(file.display().to_string(), "belongs to another tokenizer")
            .with_hint("these tokens are not those of the model's weights"));
    }
    let known = match own.or(options.vocabulary.clone()) {
        Some(tokenizer) => Some(tokenizer),
        None => options.tokenizer.ready()?,
    };
    known.ok_or_else(|| {
        let problem = "has tokens, but no tokenizer.json that says what they mean";
        Error::data(folder.display().to_string(), problem).with_hint(
            "--tokenizer gpt2 if they are GPT-2's; characters need the meta.pkl that was made with them",
        )
    })
}

/// Copies the ids of one file, bare or ours.
fn copy(
    path: &Path,
    tokenizer: &Tokenizer,
    mut writer: TokenWriter,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let lengths: Vec<usize> = (0..tokenizer.vocab_size() as u32)
        .map(|id| tokenizer.bytes(id).map_or(0, |bytes| bytes.len()))
        .collect();
    let mut write = |ids: &[u32]| {
        let bytes = ids.iter().map(|&id| lengths[id as usize]).sum();
        writer.push(ids, bytes)
    };
    let failed = |error| Error::io("read", path)(error);
    let name = path.display().to_string();
    let mut file = files::open(path)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut magic = Vec::new();
    (&file).take(MAGIC.len() as u64).read_to_end(&mut magic).map_err(failed)?;
    let mut ids = vec![0; PART];
    if magic == MAGIC {
        let (tokens, _) = Tokens::open(path, tokenizer)?;
        for start in (0..tokens.len()).step_by(PART) {
            let ids = &mut ids[..PART.min(tokens.len() - start)];
            tokens.read(start, ids)?;
            write(ids)?;
            progress((start + ids.len()) as u64, tokens.len() as u64);
        }
    } else {
        if size % WIDTH as u64 != 0 {
            return Err(Error::data(name, format!("has {size} bytes; ids of two bytes are even"))
                .with_hint("it was cut short, or is no file of nanoGPT's"));
        }
        file.rewind().map_err(failed)?;
        let (mut bytes, mut done) = (Vec::with_capacity(PART * WIDTH), 0);
        loop {
            bytes.clear();
            (&file).take((PART * WIDTH) as u64).read_to_end(&mut bytes).map_err(failed)?;
            if bytes.is_empty() {
                break;
            }
            let ids = &mut ids[..bytes.len() / WIDTH];
            decode_ids(&bytes, ids, WIDTH);
            check_ids(ids, done, tokenizer.vocab_size(), &name)?;
            write(ids)?;
            done += ids.len();
            progress((done * WIDTH) as u64, size);
        }
    }
    writer.finish().map(|_| ())
}
