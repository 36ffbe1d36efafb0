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

#[cfg(test)]
mod tests {
    use super::super::Tokenizer;
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// BERT's kind: words and, after `##`, their parts.
    fn word_pieces() -> Value {
        json!({
            "version": "1.0",
            "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0,
                "direction": "Right"},
            "padding": null,
            "added_tokens": [{"id": 0, "content": "[SEP]", "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true}],
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": null,
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {"[SEP]": 0, "[UNK]": 1, "the": 2, "cat": 3, "##s": 4, "sep": 5, "[": 6, "]": 7}},
        })
    }

    /// Llama's kind: likely pieces, `▁` for a blank, bytes for what is unknown.
    fn unigrams() -> Value {
        json!({
            "version": "1.0",
            "added_tokens": [],
            "normalizer": null,
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                "split": true},
            "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": [
                ["<unk>", 0.0], ["▁the", -1.0], ["▁cat", -2.0], ["▁", -3.0], ["s", -3.0],
                ["<0xC3>", -9.0], ["<0xA9>", -9.0]]},
        })
    }

    fn read(json: &Value) -> Tokenizer {
        Tokenizer::from_json(&json.to_string()).unwrap()
    }

    #[test]
    fn other_kinds_give_the_librarys_ids_and_text_and_their_file_as_it_was() {
        let tokenizer = read(&word_pieces());
        assert_eq!(
            (tokenizer.name(), tokenizer.vocab_size(), tokenizer.start()),
            ("foreign", 8, 0)
        );
        let ids = tokenizer.encode("The cats the CAT dog", "x").unwrap();
        assert_eq!(ids, [2, 3, 4, 2, 3, 1], "in full, whatever the file says of its length");
        assert_eq!(tokenizer.decode(&ids), "the cats the cat [UNK]");
        assert_eq!(tokenizer.encode("[SEP]", "x").unwrap(), [6, 5, 7]);
        assert_eq!(tokenizer.encode_with_special("the[SEP]", "x").unwrap(), [2, 0]);
        assert_eq!(tokenizer.to_json(), word_pieces().to_string());
        assert_eq!(Tokenizer::from_json(&tokenizer.to_json()).unwrap(), tokenizer);

        let tokenizer = read(&unigrams());
        let ids = tokenizer.encode("the cats é", "x").unwrap();
        assert_eq!(ids, [1, 2, 4, 3, 5, 6]);
        let mut decoder = tokenizer.decoder();
        let pieces: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
        assert_eq!(pieces[4..], ["", "é"], "a character comes whole");
        assert_eq!(tokenizer.decode(&[1, 5]), "▁the\u{fffd}");
        assert_eq!(tokenizer.decode(&[1, 99, u32::MAX]), "▁the\u{fffd}\u{fffd}");
    }

    #[test]
    fn what_has_no_token_and_no_name_for_that_is_an_error() {
        let mut nameless = word_pieces();
        nameless["model"]["vocab"].as_object_mut().unwrap().remove("[UNK]");
        let error = read(&nameless).encode("the dog", "my.txt").unwrap_err();
        assert!(error.to_string().starts_with("my.txt has something"), "{error}");
    }

    #[test]
    fn a_long_text_is_cut_after_the_same_lines_however_it_comes() {
        let tokenizer = read(&word_pieces());
        let text = "the cats the cat\n".repeat(3 * BLOCK / 17) + &"the ".repeat(BLOCK);
        let whole = tokenizer.encode(&text, "x").unwrap();
        assert_eq!(whole.len(), text.split_whitespace().count() + text.matches("cats").count());
        let mut encoder = tokenizer.encoder(false);
        let mut ids = Vec::new();
        for part in text.as_bytes().chunks(777_777) {
            assert!(encoder.push(std::str::from_utf8(part).unwrap(), &mut ids));
        }
        assert!(encoder.finish(&mut ids));
        assert!(ids == whole, "other ids");
    }

    proptest! {
        #[test]
        fn no_file_makes_the_reader_panic(
            at in any::<prop::sample::Index>(), byte: u8, cut: bool, other: bool,
        ) {
            let json = if other { word_pieces() } else { unigrams() };
            let mut bytes = json.to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if cut {
                bytes.remove(at);
            }
            if let Ok(tokenizer) = Tokenizer::from_json(&String::from_utf8_lossy(&bytes))
                && let Ok(ids) = tokenizer.encode("the cats é", "x")
            {
                tokenizer.decode(&ids);
            }
        }

        #[test]
        fn no_value_makes_the_reader_panic(
            pointer in "(/model|/normalizer|/pre_tokenizer|/decoder|/added_tokens/0|/post_processor)(/type|/vocab|/unk_id|/unk_token|/id|/content|/prefix|/replacement|/decoders)?",
            value in prop_oneof![
                Just(Value::Null), Just(json!(-1)), Just(json!(4_000_000_000u32)), Just(json!("")),
                Just(json!([])), Just(json!({})), Just(json!("BPE")), Just(json!("Unigram")),
                Just(json!([["", 0.0]])), Just(json!({"": 5})), Just(json!({"a": 4_000_000_000u32})),
            ],
            other: bool,
        ) {
            let mut json = if other { word_pieces() } else { unigrams() };
            if let Some(place) = json.pointer_mut(&pointer) {
                *place = value;
            }
            if let Ok(tokenizer) = Tokenizer::from_json(&json.to_string())
                && let Ok(ids) = tokenizer.encode_with_special("the cats é", "x")
            {
                tokenizer.decode(&ids);
            }
        }
    }
}
