//! Tokenizers of every other kind, as Hugging Face's library has them: WordPiece, Unigram, other
//! cuts into pieces.
//!
//! **A text that comes in parts has the ids of the whole.** The library looks at a text as a whole,
//! and may look over the end of a line: so a long one is cut into blocks only where what the library
//! makes of a text before it asks its model, normalized pieces, is the same with and without the cut
//! ([`Foreign::is_safe`]). A stretch of more than [`LONGEST`] bytes without such a place is refused: in
//! a file without blanks, or any text of that length for a tokenizer that makes no pieces (Llama 2's,
//! Gemma's).
//!
//! Such a tokenizer may lose what it has no token for, and join words with other blanks than there
//! were: that is its own affair.

use super::pieces::boundary;
use crate::error::{Error, Result};
use std::ops::Deref;
use tokenizers::normalizer::NormalizedString;
use tokenizers::{Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

/// Bytes of a block at least; tests have many.
const BLOCK: usize = if cfg!(test) { 1 << 12 } else { 1 << 20 };
/// Bytes of the longest stretch that is encoded as a whole, 4 MiB: the library takes some 230 times
/// the memory for words of a few letters.
const LONGEST: usize = 4 * BLOCK;
/// Bytes on each side of a cut that are looked at.
const AROUND: usize = 64;

/// Kinds of places between two words where the library may know no difference.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// After a line break that stands alone, before a letter or digit.
    AfterLine,
    /// Before a blank that stands alone between letters.
    BeforeBlank,
}

/// Why there are no tokens for a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Refusal {
    /// The library has none for something in it, and none for what is unknown.
    NoToken,
    /// [`LONGEST`] bytes of it cannot be cut.
    NoPlace,
}

impl Refusal {
    pub fn error(self, source_name: &str) -> Error {
        match self {
            Refusal::NoToken => {
                Error::data(source_name, "has something that the tokenizer has no token for")
                    .with_hint(
                        "its tokenizer.json names no token for what is unknown: take another \
                         tokenizer",
                    )
            }
            Refusal::NoPlace => Error::data(
                source_name,
                format!(
                    "has over {LONGEST} bytes without a place where its tokenizer can cut it; \
                     expected at most so many, which are encoded as a whole"
                ),
            )
            .with_hint(
                "take a shorter text, one with blanks and lines if the tokenizer knows words, or \
                 another tokenizer: gpt2, byte and bpe:SIZE take any",
            ),
        }
    }
}

/// A tokenizer of the library's.
pub struct Foreign {
    /// Its file, as it was read.
    json: String,
    /// Takes the names of special tokens for text.
    plain: tokenizers::Tokenizer,
    /// Takes them for the tokens.
    full: tokenizers::Tokenizer,
    size: usize,
    special: Vec<(String, u32)>,
    /// Where its texts may be cut, as far as one knows without them.
    places: Vec<Place>,
}

impl Foreign {
    /// Reads a `tokenizer.json`. What it says of cutting and filling up texts is left aside.
    ///
    /// # Errors
    /// What the library cannot read, in its words.
    pub(super) fn read(json: &str) -> Result<Self> {
        let wrong = |problem: String| Error::data(super::TOKENIZER_FILE, problem);
        let mut full: tokenizers::Tokenizer =
            json.parse().map_err(|error| wrong(format!("is none that can be read: {error}")))?;
        full.with_truncation(None).map_err(|error| wrong(format!("has {error}")))?;
        full.with_padding(None);
        let highest = full.get_vocab(true).into_values().max();
        let size = highest.ok_or_else(|| wrong("has an empty vocabulary".into()))? as usize + 1;
        if size > super::TokenizerKind::LARGEST {
            let most = super::TokenizerKind::LARGEST;
            return Err(wrong(format!("has the id {}; expected less than {most}", size - 1)));
        }
        let added = full.get_added_tokens_decoder().into_iter();
        let special = added.filter(|(_, token)| token.special);
        let mut special: Vec<_> = special.map(|(id, token)| (token.content, id)).collect();
        special.sort_by_key(|&(_, id)| id);
        let mut plain = full.clone();
        plain.set_encode_special_tokens(true);
        let mut foreign = Self { json: json.into(), plain, full, size, special, places: vec![] };
        let samples =
            [("A cat\nsat here", 6, Place::AfterLine), ("A cat sat", 5, Place::BeforeBlank)];
        let whole = foreign.has_names_with_blanks();
        let safe = samples.into_iter().filter(|&(text, at, _)| !whole && foreign.is_safe(text, at));
        foreign.places = safe.map(|(.., place)| place).collect();
        Ok(foreign)
    }

    /// Whether a token is looked for by a name that a cut between words may part, or with the blanks
    /// beside it.
    fn has_names_with_blanks(&self) -> bool {
        let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        self.full.get_added_tokens_decoder().into_values().any(|token| {
            let name = token.content.trim();
            let word = letter(name.chars().next()) || letter(name.chars().next_back());
            name.contains(char::is_whitespace) || (token.lstrip || token.rstrip) && word
        })
    }

    /// Whether `text` cut at byte `at` is in the same normalized pieces as in one.
    fn is_safe(&self, text: &str, at: usize) -> bool {
        let start = boundary(text, at.saturating_sub(AROUND));
        let end = boundary(text, at.saturating_add(AROUND));
        let parts = [&text[start..at], &text[at..end], &text[start..end]].map(|t| self.pieces(t));
        let [Some(before), Some(after), Some(whole)] = parts else { return false };
        !before.is_empty() && !after.is_empty() && [before, after].concat() == whole
    }

    /// What the model is asked about, one after another.
    fn pieces(&self, text: &str) -> Option<Vec<String>> {
        let mut text = NormalizedString::from(text);
        if let Some(normalizer) = self.plain.get_normalizer() {
            normalizer.normalize(&mut text).ok()?;
        }
        let mut text = PreTokenizedString::from(text);
        if let Some(cutter) = self.plain.get_pre_tokenizer() {
            cutter.pre_tokenize(&mut text).ok()?;
        }
        let pieces = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
        Some(pieces.into_iter().map(|(piece, ..)| piece.to_owned()).collect())
    }

    /// The file it was read from.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    pub(super) fn vocab_size(&self) -> usize {
        self.size
    }

    pub(super) fn special(&self) -> &[(String, u32)] {
        &self.special
    }

    /// The id of the token with that name.
    pub(super) fn id_of(&self, name: &str) -> Option<u32> {
        self.full.token_to_id(name)
    }

    /// Appends the ids of the blocks that are whole, of all of `text` if it ends there, and returns
    /// how many bytes they were.
    pub(super) fn encode(
        &self,
        text: &str,
        end: bool,
        special: bool,
        ids: &mut Vec<u32>,
    ) -> std::result::Result<usize, Refusal> {
        let library = if special { &self.full } else { &self.plain };
        let mut at = 0;
        loop {
            let rest = &text[at..];
            let block = match self.block_of(rest) {
                Some(block) => block,
                None if rest.len() >= LONGEST + AROUND => return Err(Refusal::NoPlace),
                None if end && !rest.is_empty() => rest.len(),
                None => return Ok(at),
            };
            let encoded = library.encode_fast(&rest[..block], false);
            ids.extend(encoded.map_err(|_| Refusal::NoToken)?.get_ids());
            at += block;
        }
    }

    /// Bytes of the block that `text` begins with, if it is whole: the text alone says how many.
    fn block_of(&self, text: &str) -> Option<usize> {
        let end = text.len().saturating_sub(AROUND).min(LONGEST);
        let is_place = |&at: &usize| match place(text, at) {
            Some(place) => self.places.contains(&place) && self.is_safe(text, at),
            None => false,
        };
        let first = (BLOCK..end).find(is_place);
        // A short block rather than none.
        let is_long = || text.len() >= LONGEST + AROUND;
        first.or_else(|| is_long().then(|| (1..BLOCK).rev().find(is_place))?)
    }
}

/// What kind of place byte `at` of `text` is, if it is one.
fn place(text: &str, at: usize) -> Option<Place> {
    let bytes = text.as_bytes();
    let (line, blank) = (bytes[at - 1] == b'\n', bytes[at] == b' ');
    if !line && !blank {
        return None;
    }
    let (before, after) = text.split_at(at);
    let (mut before, mut after) = (before.chars().rev(), after.chars());
    match line {
        true => {
            let alone = before.nth(1).is_some_and(|c| !c.is_whitespace());
            (alone && after.next()?.is_alphanumeric()).then_some(Place::AfterLine)
        }
        false => {
            let alone = before.next()?.is_alphabetic();
            (alone && after.nth(1)?.is_alphabetic()).then_some(Place::BeforeBlank)
        }
    }
}

/// What is left to say of the ids that came: the library's own window over them.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    ids: Vec<u32>,
    prefix: String,
    prefix_index: usize,
}

impl Window {
    /// Ids that may wait for the rest of a character.
    const LONGEST: usize = 64;

    /// The text that is certain with one more id.
    pub fn push(&mut self, foreign: &Foreign, id: u32) -> String {
        let Self { ids, prefix, prefix_index } = self;
        let library = foreign.full.deref();
        let step =
            tokenizers::step_decode_stream(library, vec![id], false, ids, prefix, prefix_index);
        match step {
            Ok(Some(text)) => text,
            Ok(None) if self.ids.len() < Self::LONGEST => String::new(),
            _ => self.finish(foreign),
        }
    }

    /// The text of what waited.
    pub fn finish(&mut self, foreign: &Foreign) -> String {
        let Self { ids, prefix, .. } = std::mem::take(self);
        let text = foreign.full.decode(&ids, false).unwrap_or_default();
        text.strip_prefix(&*prefix).map(Into::into).unwrap_or(text)
    }
}

impl PartialEq for Foreign {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Foreign({} tokens, special {:?})", self.size, self.special)
    }
}

#[cfg(test)]
mod tests;
