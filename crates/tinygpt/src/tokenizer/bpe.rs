//! Byte-level byte pair encoding, as GPT-2 has it: a token is a run of bytes, merged from two
//! others, and the merges have an order.
//!
//! The merging itself is that of Hugging Face's library, so ids are the same as everywhere else:
//! it takes n log n steps for a piece of n bytes, and no recursion. What stands here is what turns a
//! text into such pieces fast, and ids into bytes.
//!
//! **Any text can be encoded, and decodes to itself**: all 256 bytes are tokens.
//!
//! Files write bytes as printable characters, GPT-2's alphabet: a visible Latin-1 character stands
//! for its own code, the 68 others are U+0100 and up, in order.

use super::pieces::{Part, cut};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

/// GPT-2's only special token: it stands between two documents.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// The character for each byte.
pub(crate) static ALPHABET: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut others = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(byte),
        _ => others.next().expect("there are 68 others"),
    })
});

static BYTES: LazyLock<HashMap<char, u8>> =
    LazyLock::new(|| (0..=255).map(|byte| (ALPHABET[usize::from(byte)], byte)).collect());

/// One merge a line, in order, after a line of a comment.
static GPT_2_MERGES: &str = include_str!(concat!(env!("OUT_DIR"), "/gpt2_merges.txt"));

static GPT_2: LazyLock<Arc<Bpe>> = LazyLock::new(|| {
    let merges = GPT_2_MERGES.lines().skip(1).filter_map(|line| line.split_once(' '));
    let merges: Vec<_> = merges.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    let mut tokens = bytes_in_order();
    tokens.extend(merges.iter().map(|(a, b)| format!("{a}{b}")));
    tokens.push(END_OF_TEXT.into());
    let special = [END_OF_TEXT.to_owned()];
    Arc::new(Bpe::from_parts(tokens, merges, &special).expect("build.rs checked the file"))
});

/// The 256 tokens of one byte in the order of their characters, as vocabularies begin.
pub(super) fn bytes_in_order() -> Vec<String> {
    let mut bytes = ALPHABET.to_vec();
    bytes.sort_unstable();
    bytes.into_iter().map(String::from).collect()
}

/// A vocabulary of runs of bytes, and the merges that make them.
pub struct Bpe {
    /// By id, as files write them: in GPT-2's alphabet, special ones by their name.
    tokens: Vec<String>,
    /// What each token stands for.
    bytes: Vec<Vec<u8>>,
    merges: Vec<(String, String)>,
    special: Vec<(String, u32)>,
    model: BPE,
}

impl Bpe {
    /// GPT-2's own 50,257 tokens.
    pub fn gpt2() -> Arc<Self> {
        GPT_2.clone()
    }

    /// Whether it is that one.
    pub(super) fn is_gpt2(&self) -> bool {
        // The length first: most need no look at every merge.
        self.tokens.len() == 50_257 && *self == *Self::gpt2()
    }

    /// The vocabulary of these parts, as `tokenizer.json` and GGUF files have them: `tokens` in the
    /// order of their ids and `merges` in their order, both in GPT-2's alphabet; `special` names
    /// those tokens that are not made of bytes.
    ///
    /// # Errors
    /// [`Error::Data`]: a token twice or in another alphabet, a byte without a token, a merge of
    /// or to something that is no token.
    pub fn from_parts(
        tokens: Vec<String>,
        merges: Vec<(String, String)>,
        special: &[String],
    ) -> Result<Self> {
        let wrong = |problem: String| Error::data("the vocabulary", problem);
        let ids: HashMap<&str, u32> = tokens.iter().map(String::as_str).zip(0..).collect();
        if ids.len() < tokens.len() {
            let mut seen = HashSet::new();
            let twice = tokens.iter().find(|token| !seen.insert(token.as_str()));
            return Err(wrong(format!("has {twice:?} twice")));
        }
        if let Some(byte) = (0..256).find(|&byte| !ids.contains_key(&*ALPHABET[byte].to_string())) {
            return Err(wrong(format!("has no token for the byte {byte}")));
        }
        let special = special.iter().map(|name| match ids.get(name.as_str()) {
            _ if name.is_empty() => Err(wrong("has a special token without a name".into())),
            Some(&id) => Ok((name.clone(), id)),
            None => Err(wrong(format!("has no special token {name:?}"))),
        });
        let mut special = special.collect::<Result<Vec<_>>>()?;
        special.sort_by_key(|&(_, id)| id);
        special.dedup();
        let bytes =
            tokens.iter().map(|token| match special.iter().any(|(name, _)| name == token) {
                true => Ok(token.clone().into_bytes()),
                false => unwritten(token).filter(|bytes| !bytes.is_empty()).ok_or_else(|| {
                    wrong(format!("has the token {token:?}, which is not of bytes"))
                }),
            });
        let bytes = bytes.collect::<Result<_>>()?;
        for (a, b) in &merges {
            let known = |token: &str| ids.contains_key(token);
            if !(known(a) && known(b) && known(&format!("{a}{b}"))) {
                return Err(wrong(format!("has the merge {a:?} {b:?}, not all of them tokens")));
            }
        }
        let vocab: ahash::AHashMap<String, u32> =
            ids.into_iter().map(|(token, id)| (token.to_owned(), id)).collect();
        // A cache of its own is kept by `Seen`, which knows no other's lock.
        let model = BPE::builder().vocab_and_merges(vocab, merges.clone()).cache_capacity(0);
        let model = model.build().map_err(|error| wrong(error.to_string()))?;
        Ok(Self { tokens, bytes, merges, special, model })
    }

    /// The tokens in the order of their ids, as files write them.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// The merges in their order, as files write their parts.
    pub fn merges(&self) -> &[(String, String)] {
        &self.merges
    }

    /// The names and ids of the tokens that no bytes merge to, by their ids.
    pub fn special(&self) -> &[(String, u32)] {
        &self.special
    }

    /// What the token stands for; a special one for its name.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize).map(Vec::as_slice)
    }

    /// The id of the token that is this one byte.
    pub(super) fn id_of_byte(&self, byte: u8) -> u32 {
        let written = ALPHABET[usize::from(byte)].to_string();
        self.model.token_to_id(&written).expect("every byte is a token")
    }

    /// Appends the ids of what is certain of `text`, all of it if it ends there, and returns how
    /// many bytes that was. Names of special tokens are ordinary text unless `special`.
    pub(super) fn encode(
        &self,
        text: &str,
        end: bool,
        special: bool,
        seen: &mut Seen,
        ids: &mut Vec<u32>,
    ) -> usize {
        let names = if special { &self.special[..] } else { &[] };
        cut(text, end, names, &mut |part| match part {
            Part::Special(id) => ids.push(id),
            Part::Piece(piece) => self.encode_piece(piece, seen, ids),
        })
    }

    fn encode_piece(&self, piece: &str, seen: &mut Seen, ids: &mut Vec<u32>) {
        if let Some(known) = seen.0.get(piece) {
            return ids.extend(known);
        }
        let written: String = piece.bytes().map(|byte| ALPHABET[usize::from(byte)]).collect();
        let tokens = self.model.tokenize(&written).expect("every byte is a token");
        let start = ids.len();
        ids.extend(tokens.iter().map(|token| token.id));
        if piece.len() <= Seen::LONGEST && seen.0.len() < Seen::MOST {
            seen.0.insert(piece.into(), ids[start..].into());
        }
    }
}

impl PartialEq for Bpe {
    fn eq(&self, other: &Self) -> bool {
        (&self.tokens, &self.merges, &self.special)
            == (&other.tokens, &other.merges, &other.special)
    }
}

impl std::fmt::Debug for Bpe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tokens, merges) = (self.tokens.len(), self.merges.len());
        write!(f, "Bpe({tokens} tokens, {merges} merges, special {:?})", self.special)
    }
}

/// The ids of pieces that were met before: a text repeats its words, and looking one up is faster
/// than merging it.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(ahash::AHashMap<Box<str>, Box<[u32]>>);

impl Seen {
    /// Pieces kept, some twenty megabytes of them.
    const MOST: usize = 1 << 17;
    /// Bytes of the longest that is kept.
    const LONGEST: usize = 48;
}

/// The bytes that a token in GPT-2's alphabet stands for.
fn unwritten(token: &str) -> Option<Vec<u8>> {
    token.chars().map(|c| BYTES.get(&c).copied()).collect()
}
