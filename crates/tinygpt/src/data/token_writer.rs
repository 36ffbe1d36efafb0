//! Writing tokens, to memory or to a file.
//!
//! A file appears whole or not at all: it is written beside its place, synced and renamed.

use super::token_file::{HEADER, Header, append_ids};
use super::tokens::{Store, Tokens};
use crate::error::{Error, Result};
use crate::files::{put, sibling};
use crate::tokenizer::{Encoder, Tokenizer};
use std::io::{self, BufWriter, Seek, Write};
use std::path::PathBuf;
use tempfile::NamedTempFile;

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

    /// Appends what the encoder held back of a text that ends here; `name` is what it is called.
    pub fn finish_part(
        &mut self,
        encoder: &mut Encoder,
        ids: &mut Vec<u32>,
        name: &str,
    ) -> Result<()> {
        ids.clear();
        if !encoder.finish(ids) {
            return Err(encoder.refusal(name));
        }
        self.push(ids, 0)
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
