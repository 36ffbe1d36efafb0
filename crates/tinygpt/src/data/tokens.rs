//! The tokens of a split, in memory or in a file.
//!
//! Every id is checked against the vocabulary once, here; whoever reads tokens may rely on it.

use super::token_file::{HEADER, Header, MAGIC, VERSION, append_ids, decode_ids, width_for};
use crate::error::{Error, Result};
use crate::files;
use crate::tokenizer::Tokenizer;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Token ids below a vocabulary size, read by position.
#[derive(Debug)]
pub struct Tokens {
    pub(super) store: Store,
    /// Bytes of an id.
    pub(super) width: usize,
    pub(super) len: usize,
}

#[derive(Debug)]
pub(super) enum Store {
    Memory(Vec<u8>),
    File { file: File, path: PathBuf },
}

impl Tokens {
    /// Tokens in memory.
    ///
    /// # Errors
    /// An id that is not below `vocab_size`.
    pub fn from_ids(ids: &[u32], vocab_size: usize) -> Result<Self> {
        check_ids(ids, 0, vocab_size, "the tokens")?;
        let width = width_for(vocab_size);
        let mut bytes = Vec::with_capacity(ids.len() * width);
        append_ids(&mut bytes, ids, width);
        Ok(Self { store: Store::Memory(bytes), width, len: ids.len() })
    }

    /// The tokens of a file that `tokenizer` wrote, and how many bytes of text they stand for.
    /// The ids stay in the file.
    ///
    /// # Errors
    /// A file that is missing, of another format or version, cut short, of another tokenizer, or
    /// that has an id outside the vocabulary.
    pub fn open(path: &Path, tokenizer: &Tokenizer) -> Result<(Self, u64)> {
        let wrong = |problem: String| Error::data(path.display().to_string(), problem);
        let (mut header, failed) = (Vec::with_capacity(HEADER), |e| Error::io("read", path)(e));
        let file = files::open(path)?;
        let size = file.metadata().map_err(failed)?.len();
        (&file).take(HEADER as u64).read_to_end(&mut header).map_err(failed)?;
        if !header.starts_with(&MAGIC) {
            return Err(wrong("is not a TinyGPT token file: it has no such header".into())
                .with_hint(
                    "bare ids from elsewhere are read with their folder: tinygpt train FOLDER",
                ));
        }
        let Ok(header) = <[u8; HEADER]>::try_from(header) else {
            return Err(wrong(format!(
                "is cut short: expected at least {HEADER} bytes, have {size}"
            )));
        };
        let header = Header::from_bytes(&header);
        if header.version != VERSION {
            return Err(wrong(format!(
                "has format version {}; expected {VERSION}",
                header.version
            )));
        }
        let expected = Header {
            tokens: header.tokens,
            text_bytes: header.text_bytes,
            ..Header::of(tokenizer)
        };
        if header != expected {
            return Err(wrong(format!(
                "belongs to another tokenizer: found {}, expected {}",
                header.tokenizer(),
                expected.tokenizer()
            ))
            .with_hint("build the token files again from the text with this tokenizer"));
        }
        let expected_size = HEADER as u128 + header.tokens as u128 * header.width as u128;
        let len = usize::try_from(header.tokens).ok().filter(|_| expected_size == size as u128);
        let Some(len) = len else {
            return Err(wrong(format!("expected {expected_size} bytes, have {size}"))
                .with_hint("the file was cut short or changed: build it again from the text"));
        };
        let store = Store::File { file, path: path.into() };
        let tokens = Self { store, width: header.width as usize, len };
        tokens.check(tokenizer.vocab_size())?;
        Ok((tokens, header.text_bytes))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tokens from `start` on, as many as fit: `out` (n) written.
    ///
    /// # Errors
    /// A file that cannot be read.
    ///
    /// # Panics
    /// If they would lie outside the tokens.
    pub fn read(&self, start: usize, out: &mut [u32]) -> Result<()> {
        assert!(
            start <= self.len && out.len() <= self.len - start,
            "tokens {start}..+{} of {}",
            out.len(),
            self.len
        );
        let at = start * self.width;
        match &self.store {
            Store::Memory(bytes) => {
                decode_ids(&bytes[at..at + out.len() * self.width], out, self.width);
            }
            Store::File { file, path } => {
                // On the stack: a training step allocates nothing.
                let mut bytes = [0; 4096];
                let mut at = (HEADER + at) as u64;
                for out in out.chunks_mut(bytes.len() / self.width) {
                    let bytes = &mut bytes[..out.len() * self.width];
                    read_exact_at(file, bytes, at).map_err(Error::io("read", path))?;
                    decode_ids(bytes, out, self.width);
                    at += bytes.len() as u64;
                }
            }
        }
        Ok(())
    }

    fn check(&self, vocab_size: usize) -> Result<()> {
        let name = match &self.store {
            Store::File { path, .. } => path.display().to_string(),
            Store::Memory(_) => "the tokens".into(),
        };
        let mut ids = vec![0; self.len.min(1 << 16)];
        for start in (0..self.len).step_by(1 << 16) {
            let n = ids.len().min(self.len - start);
            self.read(start, &mut ids[..n])?;
            check_ids(&ids[..n], start, vocab_size, &name)?;
        }
        Ok(())
    }
}

pub(super) fn check_ids(ids: &[u32], start: usize, vocab_size: usize, name: &str) -> Result<()> {
    match ids.iter().position(|&id| id as usize >= vocab_size) {
        None => Ok(()),
        Some(at) => Err(Error::data(
            name,
            format!("token id {} at offset {} >= vocab_size {vocab_size}", ids[at], start + at),
        )),
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => (bytes, at) = (&mut bytes[n..], at + n as u64),
        }
    }
    Ok(())
}
