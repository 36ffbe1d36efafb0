//! Tokens of a text that comes in parts.

use super::Tokenizer;
use super::bpe::Seen;
use super::foreign::Refusal;
use super::pieces::boundary;
use crate::error::Error;

/// Bytes of a long text that are encoded at a time.
const PART: usize = 1 << 20;

/// Turns the parts of a text into ids. Joined, they are what [`Tokenizer::encode`] gives for the
/// whole, wherever it was cut.
#[derive(Clone, Debug)]
pub struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    special: bool,
    /// The end of the text so far, whose tokens depend on what comes.
    held: String,
    seen: Seen,
    refused: Option<Refusal>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, special: bool) -> Self {
        Self { tokenizer, special, held: String::new(), seen: Seen::default(), refused: None }
    }

    /// The ids of a whole text, and whether every character had one.
    pub(super) fn all(&mut self, text: &str) -> (Vec<u32>, bool) {
        let (mut ids, mut all) = (Vec::new(), true);
        let mut rest = text;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(boundary(rest, PART));
            all &= self.push(part, &mut ids);
            rest = after;
        }
        all &= self.finish(&mut ids);
        (ids, all)
    }

    /// Takes the next part of the text and appends the ids that are now certain; `false` if
    /// something without an id was skipped, and for a tokenizer of the library's also if it cannot
    /// cut the text.
    pub fn push(&mut self, text: &str, ids: &mut Vec<u32>) -> bool {
        match self.tokenizer {
            Tokenizer::Char(chars) => {
                let mut all = true;
                ids.extend(text.chars().filter_map(|c| {
                    let id = chars.id(c);
                    all &= id.is_some();
                    id
                }));
                all
            }
            Tokenizer::Byte => {
                ids.extend(text.bytes().map(u32::from));
                true
            }
            Tokenizer::Bpe(bpe) => {
                self.held += text;
                let done = bpe.encode(&self.held, false, self.special, &mut self.seen, ids);
                self.held.drain(..done);
                true
            }
            Tokenizer::Foreign(foreign) => {
                self.held += text;
                let done = foreign.encode(&self.held, false, self.special, ids);
                self.refused = self.refused.or(done.err());
                self.held.drain(..done.unwrap_or(self.held.len()));
                done.is_ok()
            }
        }
    }

    /// [`push`](Self::push) of what need not be UTF-8: only bytes can stand for that.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8], ids: &mut Vec<u32>) -> bool {
        match (self.tokenizer, std::str::from_utf8(bytes)) {
            (_, Ok(text)) => self.push(text, ids),
            (Tokenizer::Byte, Err(_)) => {
                ids.extend(bytes.iter().map(|&byte| u32::from(byte)));
                true
            }
            (_, Err(_)) => false,
        }
    }

    /// Appends the ids of what was held back: the text ends here, and another may begin. `false` as
    /// for [`push`](Self::push).
    pub fn finish(&mut self, ids: &mut Vec<u32>) -> bool {
        let held = std::mem::take(&mut self.held);
        match self.tokenizer {
            Tokenizer::Char(_) | Tokenizer::Byte => true,
            Tokenizer::Bpe(bpe) => {
                bpe.encode(&held, true, self.special, &mut self.seen, ids);
                true
            }
            Tokenizer::Foreign(foreign) => {
                let done = foreign.encode(&held, true, self.special, ids);
                self.refused = self.refused.or(done.err());
                done.is_ok()
            }
        }
    }

    /// What the first `false` meant, of a text called `source_name` whose characters were known
    /// before.
    pub(crate) fn refusal(&self, source_name: &str) -> Error {
        match self.refused {
            Some(refusal) => refusal.error(source_name),
            None => {
                Error::data(source_name, "changed while it was being read").with_hint("try again")
            }
        }
    }
}
