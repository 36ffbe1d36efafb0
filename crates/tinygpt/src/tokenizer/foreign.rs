//! Tokenizers of every other kind, as Hugging Face's library has them: WordPiece, Unigram, other
//! cuts into pieces.
//!
//! The library looks at a text as a whole, so a long one is cut into blocks that end with a line,
//! at the same places however it comes. Such a tokenizer may lose what it has no token for, and
//! join words with other blanks than there were: that is its own affair.

use super::pieces::boundary;
use crate::error::{Error, Result};
use std::ops::Deref;

/// Bytes of a block, and of the longest where no line ends.
const BLOCK: usize = 1 << 20;

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
}

impl Foreign {
    /// Reads a `tokenizer.json`. What it says of cutting and filling up texts is left aside.
    ///
    /// # Errors
    /// What the library cannot read, in its words.
    pub(super) fn read(json: &str) -> Result<Self> {
        let wrong = |problem: String| Error::data("tokenizer.json", problem);
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
        Ok(Self { json: json.into(), plain, full, size, special })
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
    /// how many bytes they were; none if the library has no token for something in it.
    pub(super) fn encode(
        &self,
        text: &str,
        end: bool,
        special: bool,
        ids: &mut Vec<u32>,
    ) -> Option<usize> {
        let library = if special { &self.full } else { &self.plain };
        let mut at = 0;
        loop {
            let rest = &text[at..];
            let block = match block_of(rest) {
                Some(block) => block,
                None if end && !rest.is_empty() => rest.len(),
                None => return Some(at),
            };
            ids.extend(library.encode_fast(&rest[..block], false).ok()?.get_ids());
            at += block;
        }
    }
}

/// Bytes of the block that `text` begins with, if it is whole.
fn block_of(text: &str) -> Option<usize> {
    let line = |end: &[u8]| end.iter().position(|&byte| byte == b'\n');
    let long = text.as_bytes().get(BLOCK - 1..)?;
    match line(&long[..long.len().min(BLOCK)]) {
        Some(at) => Some(BLOCK + at),
        None if long.len() > BLOCK => Some(boundary(text, 2 * BLOCK)),
        None => None,
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
