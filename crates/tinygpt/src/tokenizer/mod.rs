//! Text <-> tokens: a token is a character of the training text, a byte, or a run of bytes.
//!
//! Encoding is exact: a character without an id is an error that says where it stands, unless the
//! caller asks to skip it. Decoding never fails: an unknown id, or bytes that are not UTF-8, become
//! U+FFFD. A [`Decoder`] fed id by id gives the same text as [`Tokenizer::decode`] given all at
//! once, an [`Encoder`] fed part by part the same ids as [`Tokenizer::encode`].
//!
//! On disk a tokenizer is a `tokenizer.json` that Hugging Face's `tokenizers` loads;
//! `json.rs` has the layout.

mod chars;
mod pieces;
mod bpe;
mod learn;
mod foreign;
mod encoder;
mod decoder;
mod json;
mod kind;

pub(crate) use bpe::ALPHABET;
pub use bpe::{Bpe, END_OF_TEXT};
pub use chars::Chars;
pub(crate) use chars::{Census, Place};
pub use decoder::Decoder;
pub(crate) use decoder::is_cut_short;
pub use encoder::Encoder;
pub use foreign::Foreign;
pub use kind::TokenizerKind;
pub(crate) use learn::Learner;

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use std::sync::Arc;

/// How a tokenizer's file is called, ours and everybody's.
pub(crate) const TOKENIZER_FILE: &str = "tokenizer.json";

/// Bytes of the longest `tokenizer.json` that is read: twice what all of Unicode takes.
pub(crate) const LONGEST_FILE: u64 = 1 << 26;

/// Translates text to token ids and back.
#[derive(Clone, Debug, PartialEq)]
pub enum Tokenizer {
    /// One token per character of a vocabulary.
    Char(Chars),
    /// One token per UTF-8 byte; the id is the byte.
    Byte,
    /// One token per run of bytes of a vocabulary.
    Bpe(Arc<Bpe>),
    /// Any other that Hugging Face's library reads.
    Foreign(Arc<Foreign>),
}

impl Tokenizer {
    /// The tokenizer of `kind`, learned from `text` where it is learned.
    ///
    /// # Errors
    /// A file that is missing, or that is no tokenizer.
    pub fn from_text(kind: &TokenizerKind, text: &str) -> Result<Self> {
        if let TokenizerKind::Bpe(size) = kind {
            let mut learner = Learner::new(false);
            learner.push(text);
            return Ok(Tokenizer::Bpe(Arc::new(learner.learn(*size)?)));
        }
        Ok(kind.ready()?.unwrap_or_else(|| Tokenizer::from_chars(text.chars())))
    }

    /// The character tokenizer for these characters: sorted, each once, as nanoGPT does it.
    pub fn from_chars(chars: impl IntoIterator<Item = char>) -> Self {
        Tokenizer::Char(Chars::sorted(chars))
    }

    /// Its kind in a word.
    pub fn name(&self) -> &'static str {
        match self {
            Tokenizer::Char(_) => "char",
            Tokenizer::Byte => "byte",
            Tokenizer::Bpe(bpe) if bpe.is_gpt2() => "gpt2",
            Tokenizer::Bpe(_) => "bpe",
            Tokenizer::Foreign(_) => "foreign",
        }
    }

    /// V: ids are `0..vocab_size()`.
    pub fn vocab_size(&self) -> usize {
        match self {
            Tokenizer::Char(chars) => chars.list().len(),
            Tokenizer::Byte => 256,
            Tokenizer::Bpe(bpe) => bpe.tokens().len(),
            Tokenizer::Foreign(foreign) => foreign.vocab_size(),
        }
    }

    /// The token an empty prompt starts from: the end of a text before it, where there is such a
    /// token, a line break, else the first token.
    pub fn start(&self) -> u32 {
        if let Some(end) = self.end_of_text() {
            return end;
        }
        match self {
            Tokenizer::Char(chars) => chars.id('\n').unwrap_or(0),
            Tokenizer::Byte => u32::from(b'\n'),
            Tokenizer::Bpe(bpe) => bpe.id_of_byte(b'\n'),
            Tokenizer::Foreign(foreign) => match foreign.special() {
                [(_, first), ..] => *first,
                [] => foreign.id_of("\n").unwrap_or(0),
            },
        }
    }

    /// The id of [`END_OF_TEXT`], which stands between two texts, where there is such a token.
    pub fn end_of_text(&self) -> Option<u32> {
        self.special().iter().find(|(name, _)| name == END_OF_TEXT).map(|&(_, id)| id)
    }

    /// The names and ids of the tokens that stand for no text of their own, as
    /// [`END_OF_TEXT`] does.
    pub fn special(&self) -> &[(String, u32)] {
        match self {
            Tokenizer::Bpe(bpe) => bpe.special(),
            Tokenizer::Foreign(foreign) => foreign.special(),
            Tokenizer::Char(_) | Tokenizer::Byte => &[],
        }
    }

    /// The tokens of `text`. `source_name` is what an error calls the text: a file, "the prompt".
    /// Names of special tokens are ordinary text.
    ///
    /// # Errors
    /// Characters without an id: all of them by name, the first few with line and column. What a
    /// tokenizer of the library's cannot take.
    pub fn encode(&self, text: &str, source_name: &str) -> Result<Vec<u32>> {
        self.all_or_none(text, source_name, self.encoder(false))
    }

    /// [`encode`](Self::encode), where the name of a special token means that token, as in
    /// prompts.
    ///
    /// # Errors
    /// As there.
    pub fn encode_with_special(&self, text: &str, source_name: &str) -> Result<Vec<u32>> {
        self.all_or_none(text, source_name, self.encoder(true))
    }

    fn all_or_none(&self, text: &str, source_name: &str, encoder: Encoder) -> Result<Vec<u32>> {
        let mut encoder = encoder;
        let (ids, all) = encoder.all(text);
        if all {
            return Ok(ids);
        }
        let mut census = Census::default();
        census.push(0, text);
        let unknown = self.unknown(&census, &[source_name]);
        Err(unknown.unwrap_or_else(|| encoder.refusal(source_name)))
    }

    /// The tokens of those characters of `text` that have one, special ones as in
    /// [`encode_with_special`](Self::encode_with_special); of a tokenizer of the library's those of
    /// the blocks that it takes.
    pub fn encode_known(&self, text: &str) -> Vec<u32> {
        self.encoder(true).all(text).0
    }

    /// An encoder for a text that comes in parts, where names of special tokens mean those tokens
    /// if `special`.
    pub fn encoder(&self, special: bool) -> Encoder<'_> {
        Encoder::new(self, special)
    }

    /// The error for those characters of a counted text that have no id, if there are any.
    /// `sources` are the names of the texts the census counted, by their index.
    pub(crate) fn unknown(&self, census: &Census, sources: &[&str]) -> Option<Error> {
        const SHOWN: usize = 5;
        let Tokenizer::Char(chars) = self else { return None };
        let mut unknown: Vec<(char, Place)> =
            census.chars().filter(|&(c, _)| chars.id(c).is_none()).collect();
        unknown.sort_by_key(|&(_, place)| place);
        let (_, first) = unknown.first()?;
        let source = sources[first.source];

        let mut places: Vec<String> = Vec::new();
        for (c, Place { source, line, column }) in unknown.iter().take(SHOWN) {
            let file = match *source == first.source {
                true => String::new(),
                false => format!(" of {}", sources[*source]),
            };
            places.push(format!("{c:?} at line {line}, column {column}{file}"));
        }
        let mut list = places.join("; ");
        if let Some(rest) = unknown.get(SHOWN..).filter(|rest| !rest.is_empty()) {
            let names: Vec<String> =
                rest.iter().take(100).map(|(c, _)| c.escape_debug().to_string()).collect();
            let dots = if rest.len() > names.len() { " ..." } else { "" };
            list += &format!("; and {} more: {}{dots}", rest.len(), names.join(" "));
        }
        Some(
            Error::data(
                source,
                format!(
                    "{} character{} not in the vocabulary of {}: {list}",
                    unknown.len(),
                    if unknown.len() == 1 { "" } else { "s" },
                    self.vocab_size()
                ),
            )
            .with_hint(
                "a character model knows only the characters it was trained on: leave these out, \
                 or train with byte tokens, which know every text",
            ),
        )
    }

    /// The text of `ids`; an id outside the vocabulary, or bytes that are not UTF-8, become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = self.decoder();
        let mut text: String = ids.iter().map(|&id| decoder.push(id)).collect();
        text += &decoder.finish();
        text
    }

    /// What the token stands for, which need not be whole characters; none if there is no such id.
    pub fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        match self {
            Tokenizer::Char(chars) => Some(chars.list().get(id as usize)?.to_string().into()),
            Tokenizer::Byte => Some(vec![u8::try_from(id).ok()?]),
            Tokenizer::Bpe(bpe) => Some(bpe.bytes(id)?.to_vec()),
            Tokenizer::Foreign(foreign) => {
                ((id as usize) < foreign.vocab_size()).then(|| self.decode(&[id]).into())
            }
        }
    }

    /// A decoder for ids that come one at a time.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(self)
    }

    /// The tokenizer as a Hugging Face `tokenizer.json`.
    pub fn to_json(&self) -> String {
        json::write(self)
    }

    /// Reads what [`Tokenizer::to_json`] wrote, or the same layout from elsewhere.
    ///
    /// # Errors
    /// Anything else; the message says what was found.
    pub fn from_json(text: &str) -> Result<Self> {
        json::read(text)
    }

    /// A number that says which vocabulary this is: equal for equal tokenizers, on every machine
    /// and in every version. (FNV-1a over all it is made of.)
    pub fn fingerprint(&self) -> u64 {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |word: u32| {
            for byte in word.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        match self {
            Tokenizer::Char(chars) => {
                add(0);
                chars.list().iter().for_each(|&c| add(u32::from(c)));
            }
            Tokenizer::Byte => add(1),
            Tokenizer::Bpe(bpe) => {
                add(2);
                let merges = bpe.merges().iter().flat_map(|(a, b)| [a, b]);
                for text in bpe.tokens().iter().chain(merges) {
                    text.chars().for_each(|c| add(u32::from(c)));
                    // No character has this number: "a", "bc" is not "ab", "c".
                    add(u32::MAX);
                }
                bpe.special().iter().for_each(|&(_, id)| add(id));
            }
            Tokenizer::Foreign(foreign) => {
                add(3);
                foreign.json().chars().for_each(|c| add(u32::from(c)));
            }
        }
        hash
    }
}
