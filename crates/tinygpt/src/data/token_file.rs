//! The format of a token file.
//!
//! Little-endian: a header of [`HEADER`] bytes, then the ids, two bytes each when the vocabulary
//! has at most 65,536 tokens and four otherwise.
//!
//! ```text
//! 0  magic "TGPTTOKS"        16  vocabulary size, u64     40  tokenizer fingerprint, u64
//! 8  format version, u32     24  tokens, u64
//! 12 bytes of an id, u32     32  bytes of the text, u64
//! ```

use crate::tokenizer::Tokenizer;

pub(super) const MAGIC: [u8; 8] = *b"TGPTTOKS";
pub(super) const VERSION: u32 = 1;
/// Bytes before the first id.
pub(super) const HEADER: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Header {
    pub version: u32,
    pub width: u32,
    pub vocab_size: u64,
    pub tokens: u64,
    pub text_bytes: u64,
    pub fingerprint: u64,
}

impl Header {
    /// The header of an empty file.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        Self {
            version: VERSION,
            width: width_for(tokenizer.vocab_size()) as u32,
            vocab_size: tokenizer.vocab_size() as u64,
            tokens: 0,
            text_bytes: 0,
            fingerprint: tokenizer.fingerprint(),
        }
    }

    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.width.to_le_bytes());
        let words = [self.vocab_size, self.tokens, self.text_bytes, self.fingerprint];
        for (place, word) in bytes[16..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8; HEADER]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let [version, width] = [word(8) as u32, (word(8) >> 32) as u32];
        let [vocab_size, tokens, text_bytes, fingerprint] =
            [word(16), word(24), word(32), word(40)];
        Self { version, width, vocab_size, tokens, text_bytes, fingerprint }
    }

    pub fn tokenizer(&self) -> String {
        format!(
            "a vocabulary of {} with {}-byte ids (fingerprint {:016x})",
            self.vocab_size, self.width, self.fingerprint
        )
    }
}

pub(super) fn width_for(vocab_size: usize) -> usize {
    if vocab_size <= 1 << 16 { 2 } else { 4 }
}

pub(super) fn append_ids(bytes: &mut Vec<u8>, ids: &[u32], width: usize) {
    match width {
        2 => bytes.extend(ids.iter().flat_map(|&id| (id as u16).to_le_bytes())),
        _ => bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes())),
    }
}

pub(super) fn decode_ids(bytes: &[u8], ids: &mut [u32], width: usize) {
    for (id, bytes) in ids.iter_mut().zip(bytes.chunks_exact(width)) {
        *id = match *bytes {
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => unreachable!("an id has two or four bytes, not {width}"),
        };
    }
}
