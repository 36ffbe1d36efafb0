//! The format of a token file, and writing one.
//!
//! Little-endian: a header of [`HEADER`] bytes, then the ids, two bytes each when the vocabulary
//! has at most 65,536 tokens and four otherwise.
//!
//! ```text
//! 0  magic "TGPTTOKS"        16  vocabulary size, u64     40  tokenizer fingerprint, u64
//! 8  format version, u32     24  tokens, u64
//! 12 bytes of an id, u32     32  bytes of the text, u64
//! ```
//!
//! A file appears whole or not at all: it is written beside its place, synced and renamed.

use super::tokens::{Store, Tokens};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

pub(super) const MAGIC: [u8; 8] = *b"TGPTTOKS";
pub(super) const VERSION: u32 = 1;
/// Bytes before the first id.
pub(super) const HEADER: usize = 48;

/// Tokens that are being written, to memory or to a file.
pub(super) struct TokenWriter {
    out: Out,
    header: Header,
    /// The last ids as bytes, kept to use its memory again.
    bytes: Vec<u8>,
}

enum Out {
    Memory(Vec<u8>),
    File { file: BufWriter<NamedTempFile>, path: PathBuf },
}

impl TokenWriter {
    /// Writes to `path`, or to memory when there is none.
    pub fn new(path: Option<PathBuf>, tokenizer: &Tokenizer) -> Result<Self> {
        let out = match path {
            None => Out::Memory(Vec::new()),
            Some(path) => {
                let mut file = BufWriter::new(sibling(&path)?);
                file.write_all(&[0; HEADER]).map_err(Error::io("write", &path))?;
                Out::File { file, path }
            }
        };
        Ok(Self { out, header: Header::of(tokenizer), bytes: Vec::new() })
    }

    /// Appends the ids that stand for the next `text_bytes` bytes of the text.
    pub fn push(&mut self, ids: &[u32], text_bytes: usize) -> Result<()> {
        self.bytes.clear();
        append_ids(&mut self.bytes, ids, self.header.width as usize);
        self.header.tokens += ids.len() as u64;
        self.header.text_bytes += text_bytes as u64;
        match &mut self.out {
            Out::Memory(all) => all.extend_from_slice(&self.bytes),
            Out::File { file, path } => {
                file.write_all(&self.bytes).map_err(Error::io("write", path))?;
            }
        }
        Ok(())
    }

    /// The finished tokens, the file in its place, and how many bytes of text they stand for.
    pub fn finish(self) -> Result<(Tokens, u64)> {
        let Header { width, tokens, text_bytes, .. } = self.header;
        let store = match self.out {
            Out::Memory(bytes) => Store::Memory(bytes),
            Out::File { file, path } => {
                let whole = |file: BufWriter<NamedTempFile>| {
                    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                    file.rewind()?;
                    file.write_all(&self.header.to_bytes())?;
                    Ok(file)
                };
                let file = whole(file).map_err(Error::io("write", &path))?;
                Store::File { file: put(file, &path)?, path }
            }
        };
        Ok((Tokens { store, width: width as usize, len: tokens as usize }, text_bytes))
    }
}

/// A temporary file beside `path`, removed unless it is [`put`] there.
pub(super) fn sibling(path: &Path) -> Result<NamedTempFile> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // A temporary file is private by default; this one is to become an ordinary file.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.prefix(".tmp-").tempfile_in(folder).map_err(Error::io("write", path))
}

/// Moves a written file to its place, whole.
pub(super) fn put(file: NamedTempFile, path: &Path) -> Result<File> {
    file.as_file()
        .sync_all()
        .and_then(|()| file.persist(path).map_err(|error| error.error))
        .map_err(Error::io("write", path))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Header {
    pub version: u32,
    pub width: u32,
    pub vocab_size: u64,
    pub tokens: u64,
    pub text_bytes: u64,
    pub fingerprint: u64,
}

impl Header {
    /// The header of an empty file.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        Self {
            version: VERSION,
            width: width_for(tokenizer.vocab_size()) as u32,
            vocab_size: tokenizer.vocab_size() as u64,
            tokens: 0,
            text_bytes: 0,
            fingerprint: tokenizer.fingerprint(),
        }
    }

    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.width.to_le_bytes());
        let words = [self.vocab_size, self.tokens, self.text_bytes, self.fingerprint];
        for (place, word) in bytes[16..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8; HEADER]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let [version, width] = [word(8) as u32, (word(8) >> 32) as u32];
        let [vocab_size, tokens, text_bytes, fingerprint] =
            [word(16), word(24), word(32), word(40)];
        Self { version, width, vocab_size, tokens, text_bytes, fingerprint }
    }

    pub fn tokenizer(&self) -> String {
        format!(
            "a vocabulary of {} with {}-byte ids (fingerprint {:016x})",
            self.vocab_size, self.width, self.fingerprint
        )
    }
}

pub(super) fn width_for(vocab_size: usize) -> usize {
    if vocab_size <= 1 << 16 { 2 } else { 4 }
}

pub(super) fn append_ids(bytes: &mut Vec<u8>, ids: &[u32], width: usize) {
    match width {
        2 => bytes.extend(ids.iter().flat_map(|&id| (id as u16).to_le_bytes())),
        _ => bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes())),
    }
}

pub(super) fn decode_ids(bytes: &[u8], ids: &mut [u32], width: usize) {
    for (id, bytes) in ids.iter_mut().zip(bytes.chunks_exact(width)) {
        *id = match *bytes {
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => unreachable!("an id has two or four bytes, not {width}"),
        };
    }
}
