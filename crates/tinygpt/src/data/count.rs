//! The tokens of a text, counted and perhaps written to one file.

use super::corpus::{Ends, Input};
use super::dataset::DataOptions;
use super::prepared::Prepared;
use super::token_writer::TokenWriter;
use crate::error::Result;
use crate::tokenizer::Tokenizer;
use std::path::Path;

/// What a text comes to in tokens.
#[derive(Debug)]
pub struct Count {
    /// What they mean.
    pub tokenizer: Tokenizer,
    /// What the text is called.
    pub source: String,
    /// Bytes of UTF-8 that they stand for.
    pub bytes: u64,
    /// How often each id occurs.
    pub times: Vec<u64>,
    /// What the user should know of the text, in whole sentences.
    pub notices: Vec<String>,
}

impl Count {
    /// Tokens in all.
    pub fn tokens(&self) -> u64 {
        self.times.iter().sum()
    }

    /// Different ones.
    pub fn distinct(&self) -> usize {
        self.times.iter().filter(|&&n| n > 0).count()
    }

    /// Reads a text, twice and in pieces, so that memory does not grow with it. `out` is the token
    /// file to write, which appears whole or not at all. `progress(done, total)` counts bytes.
    ///
    /// # Errors
    /// As for [`Dataset::build`](super::Dataset::build).
    pub fn of(
        input: &Input,
        options: &DataOptions,
        out: Option<&Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let mut half = 0;
        let prepared = Prepared::read(input, options, None, &mut |done, total| {
            half = total;
            progress(done, 2 * total);
        })?;
        let Prepared { corpus, tokenizer, notices, .. } = prepared;
        let mut writer =
            out.map(|path| TokenWriter::new(Some(path.into()), &tokenizer)).transpose()?;
        let (mut bytes, mut times) = (0, vec![0; tokenizer.vocab_size()]);
        let mut encoder = tokenizer.encoder(options.allow_special);
        let (mut ids, name) = (Vec::new(), corpus.name());
        // Ids and how many bytes came with them.
        let mut take = |ids: &mut Vec<u32>, new: usize| {
            bytes += new as u64;
            ids.iter().for_each(|&id| times[id as usize] += 1);
            let written = writer.as_mut().map_or(Ok(()), |writer| writer.push(ids, new));
            ids.clear();
            written
        };
        let mut ends = Ends::new(&tokenizer);
        let mut encode = |source, piece: &[u8]| {
            if let Some(end) = ends.before(source) {
                if !encoder.finish(&mut ids) {
                    return Err(encoder.refusal(&name));
                }
                ids.push(end);
            }
            match encoder.push_bytes(piece, &mut ids) {
                true => take(&mut ids, piece.len()),
                false => Err(encoder.refusal(&name)),
            }
        };
        corpus.read(&mut encode, &mut |done| progress(half + done, 2 * half))?;
        if !encoder.finish(&mut ids) {
            return Err(encoder.refusal(&name));
        }
        take(&mut ids, 0)?;
        writer.map(TokenWriter::finish).transpose()?;
        Ok(Self { tokenizer, source: name, bytes, times, notices })
    }
}
