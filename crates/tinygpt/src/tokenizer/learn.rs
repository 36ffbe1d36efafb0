//! A vocabulary of runs of bytes, learned from a text: the pair that stands together most often
//! becomes a token, again and again.
//!
//! **Memory does not grow with the text**: it is counted in pieces, and of those only so many
//! different ones. The counting is exact up to there; which pieces those are depends on the text
//! alone.

use super::bpe::{ALPHABET, Bpe, END_OF_TEXT, bytes_in_order};
use super::pieces::{Part, cut};
use crate::error::{Error, Result};
use ahash::AHashMap;
use compact_str::CompactString;
use tokenizers::models::bpe::{BPE, BpeTrainer};

/// Different pieces that are counted; later ones are left out.
const MOST: usize = 1 << 19;
/// Bytes of the longest that is counted: no word is longer.
const LONGEST: usize = 64;
/// A pair that stands together only once is no pattern.
const LEAST: u64 = 2;

/// Counts the pieces of a text that comes in parts.
pub(crate) struct Learner {
    special: Vec<(String, u32)>,
    held: String,
    counts: AHashMap<CompactString, u64>,
}

impl Learner {
    /// With `special`, [`END_OF_TEXT`] in the text is no piece of it, but a token of its own.
    pub fn new(special: bool) -> Self {
        let special = special.then(|| (END_OF_TEXT.to_owned(), 0)).into_iter().collect();
        Self { special, held: String::new(), counts: AHashMap::new() }
    }

    /// Counts the next part of the text.
    pub fn push(&mut self, text: &str) {
        self.held += text;
        self.count(false);
    }

    fn count(&mut self, end: bool) {
        let Self { special, held, counts } = self;
        let done = cut(held, end, special, &mut |part| {
            let Part::Piece(piece) = part else { return };
            if piece.len() > LONGEST {
                return;
            }
            if let Some(count) = counts.get_mut(piece) {
                *count += 1;
            } else if counts.len() < MOST {
                counts.insert(piece.into(), 1);
            }
        });
        held.drain(..done);
    }

    /// The vocabulary of `size` tokens, or fewer where the text repeats too little for so many.
    ///
    /// # Errors
    /// None that a text can cause: the library's own.
    pub fn learn(mut self, size: usize) -> Result<Bpe> {
        self.count(true);
        let written = |piece: &CompactString| {
            piece.bytes().map(|byte| ALPHABET[usize::from(byte)]).collect::<CompactString>()
        };
        let counts = self.counts.iter().map(|(piece, &n)| (written(piece), n)).collect();
        let special: Vec<String> = self.special.into_iter().map(|(name, _)| name).collect();
        let trainer = BpeTrainer::builder()
            .show_progress(false)
            .min_frequency(LEAST)
            .vocab_size(size - special.len())
            .initial_alphabet(ALPHABET.iter().copied().collect())
            .build();
        let failed = |error: tokenizers::Error| Error::data("learning tokens", error.to_string());
        let mut model = BPE::default();
        trainer.do_train(&counts, &mut model).map_err(failed)?;
        let ids = model.get_vocab();
        let mut tokens: Vec<(String, u32)> = ids.into_iter().collect();
        tokens.sort_by_key(|&(_, id)| id);
        let mut tokens: Vec<String> = tokens.into_iter().map(|(token, _)| token).collect();
        debug_assert_eq!(tokens[..256], bytes_in_order());
        tokens.extend(special.iter().cloned());
        Bpe::from_parts(tokens, merges_of(&model)?, &special)
    }
}

/// The merges of a model in their order.
fn merges_of(model: &BPE) -> Result<Vec<(String, String)>> {
    let json = serde_json::to_value(model).map_err(|error| {
        Error::data("learning tokens", format!("the library's model is no JSON: {error}"))
    })?;
    super::json::merges(&json)
}
