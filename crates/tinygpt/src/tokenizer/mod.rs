//! Text <-> tokens: a token is a character of the training text, or a byte.
//!
//! A tokenizer is a bijection between its symbols and the ids `0..vocab_size`. Encoding is exact: a
//! character without an id is an error that says where it stands, unless the caller asks to skip
//! it. Decoding never fails: an unknown id, or bytes that are not UTF-8, become U+FFFD. A
//! [`Decoder`] fed id by id gives the same text as [`Tokenizer::decode`] given all at once.
//!
//! On disk a tokenizer is a `tokenizer.json` that Hugging Face's `tokenizers` loads;
//! `json.rs` has the layout.

mod chars;
mod decoder;
mod json;

pub use chars::Chars;
pub(crate) use chars::{Census, Place};
pub use decoder::Decoder;
pub(crate) use decoder::is_cut_short;

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Bytes of the longest `tokenizer.json` that is read: twice what all of Unicode takes.
pub(crate) const LONGEST_FILE: u64 = 1 << 26;

/// What a token stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerKind {
    /// A character (Unicode scalar value) that occurs in the training text.
    #[default]
    Char,
    /// A byte of the text's UTF-8: any text, 256 tokens.
    Byte,
}

/// Translates text to token ids and back.
#[derive(Clone, Debug, PartialEq)]
pub enum Tokenizer {
    /// One token per character of a vocabulary.
    Char(Chars),
    /// One token per UTF-8 byte; the id is the byte.
    Byte,
}

impl Tokenizer {
    /// The tokenizer of `kind` whose vocabulary is everything in `text`.
    pub fn from_text(kind: TokenizerKind, text: &str) -> Self {
        match kind {
            TokenizerKind::Char => Tokenizer::from_chars(text.chars()),
            TokenizerKind::Byte => Tokenizer::Byte,
        }
    }

    /// The character tokenizer for these characters: sorted, each once, as nanoGPT does it.
    pub fn from_chars(chars: impl IntoIterator<Item = char>) -> Self {
        Tokenizer::Char(Chars::sorted(chars))
    }

    /// What a token stands for.
    pub fn kind(&self) -> TokenizerKind {
        match self {
            Tokenizer::Char(_) => TokenizerKind::Char,
            Tokenizer::Byte => TokenizerKind::Byte,
        }
    }

    /// V: ids are `0..vocab_size()`.
    pub fn vocab_size(&self) -> usize {
        match self {
            Tokenizer::Char(chars) => chars.list().len(),
            Tokenizer::Byte => 256,
        }
    }

    /// The token an empty prompt starts from: a line break, else the first token.
    pub fn start(&self) -> u32 {
        match self {
            Tokenizer::Char(chars) => chars.id('\n').unwrap_or(0),
            Tokenizer::Byte => u32::from(b'\n'),
        }
    }

    /// The tokens of `text`. `source_name` is what an error calls the text: a file, "the prompt".
    ///
    /// # Errors
    /// Characters without an id: all of them by name, the first few with line and column.
    pub fn encode(&self, text: &str, source_name: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len());
        if self.encode_into(text, &mut ids) {
            return Ok(ids);
        }
        let mut census = Census::default();
        census.push(0, text);
        Err(self.unknown(&census, &[source_name]).expect("a character had no id"))
    }

    /// The tokens of those characters of `text` that have one.
    pub fn encode_known(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len());
        self.encode_into(text, &mut ids);
        ids
    }

    /// Appends the tokens of `text` to `ids`; `false` if characters without an id were skipped.
    pub(crate) fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> bool {
        match self {
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
        }
    }

    /// [`encode_into`](Self::encode_into) of what need not be UTF-8: only bytes can stand for that.
    pub(crate) fn encode_bytes_into(&self, bytes: &[u8], ids: &mut Vec<u32>) -> bool {
        match (self, std::str::from_utf8(bytes)) {
            (_, Ok(text)) => self.encode_into(text, ids),
            (Tokenizer::Byte, Err(_)) => {
                ids.extend(bytes.iter().map(|&byte| u32::from(byte)));
                true
            }
            (Tokenizer::Char(_), Err(_)) => false,
        }
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
    /// and in every version. (FNV-1a over the symbols in the order of their ids.)
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
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn characters_are_sorted_and_counted_once() {
        let tokenizer = Tokenizer::from_text(TokenizerKind::Char, "hello\n😊é");
        assert_eq!(tokenizer.vocab_size(), 7);
        assert_eq!(tokenizer.encode("\nehloé😊", "x").unwrap(), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(tokenizer.start(), 0);
        assert_eq!(Tokenizer::from_chars("ba".chars()).start(), 0);
        assert_eq!(Tokenizer::Byte.start(), 10);
    }

    #[test]
    fn unknown_characters_are_listed_with_their_place_or_skipped_on_request() {
        let tokenizer = Tokenizer::from_chars("abc \n".chars());
        let error = tokenizer.encode("ab\ncdé d\u{301}", "the prompt").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the prompt: 3 characters not in the vocabulary of 5: 'd' at line 2, column 2; \
             'é' at line 2, column 3; '\\u{301}' at line 2, column 6"
        );
        assert!(error.hint().is_some());
        assert_eq!(tokenizer.encode_known("adéb"), [2, 3]);

        let many = tokenizer.encode("0123456789", "x").unwrap_err().to_string();
        assert!(many.ends_with("; and 5 more: 5 6 7 8 9"), "{many}");
    }

    #[test]
    fn an_id_outside_the_vocabulary_decodes_to_the_replacement_character() {
        assert_eq!(Tokenizer::from_chars("ab".chars()).decode(&[0, 2, u32::MAX, 1]), "a��b");
        assert_eq!(Tokenizer::Byte.decode(&[0x61, 256, 0xe2, 0x82, u32::MAX, 0x62]), "a���b");
    }

    #[test]
    fn fingerprints_tell_vocabularies_apart_and_never_change() {
        let of = |text: &str| Tokenizer::from_chars(text.chars()).fingerprint();
        assert_eq!(of("ab"), of("ba"));
        assert_ne!(of("ab"), of("abc"));
        assert_ne!(of(""), Tokenizer::Byte.fingerprint());
        assert_eq!(of("ab"), 0xd802_1d72_de19_3516);
    }

    proptest! {
        #[test]
        fn every_text_survives_encoding_and_decoding(text: String) {
            for kind in [TokenizerKind::Char, TokenizerKind::Byte] {
                let tokenizer = Tokenizer::from_text(kind, &text);
                let ids = tokenizer.encode(&text, "x").unwrap();
                prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
                prop_assert_eq!(tokenizer.decode(&ids), text.as_str());
            }
        }
    }
}
