//! Text from tokens that come one at a time.
//!
//! A character's bytes may come in several tokens: an incomplete end is held back until it is
//! complete, or until it is certain that it never will be. Only then does it become U+FFFD.

use super::Tokenizer;
use super::foreign::Window;

/// Turns ids into text as they come. The pieces joined are what [`Tokenizer::decode`] gives.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Bytes that begin a character but do not end it: at most three between calls.
    held: Vec<u8>,
    /// The same of a tokenizer of the library's.
    window: Window,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, held: Vec::new(), window: Window::default() }
    }

    /// Takes one id; gives the text that is now certain, often one character, sometimes nothing.
    pub fn push(&mut self, id: u32) -> String {
        match self.tokenizer {
            Tokenizer::Char(chars) => {
                let c = chars.list().get(id as usize).copied();
                c.unwrap_or(char::REPLACEMENT_CHARACTER).into()
            }
            Tokenizer::Byte => self.push_bytes(u8::try_from(id).ok().as_slice()),
            Tokenizer::Bpe(bpe) => self.push_bytes(bpe.bytes(id).unwrap_or_default()),
            Tokenizer::Foreign(foreign) if (id as usize) < foreign.vocab_size() => {
                self.window.push(foreign, id)
            }
            Tokenizer::Foreign(_) => self.finish() + "\u{fffd}",
        }
    }

    /// The text of what was held back: U+FFFD if a character was cut short, else nothing.
    pub fn finish(&mut self) -> String {
        match self.tokenizer {
            Tokenizer::Foreign(foreign) => self.window.finish(foreign),
            _ => String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned(),
        }
    }

    /// None is an unknown id.
    fn push_bytes(&mut self, bytes: &[u8]) -> String {
        if bytes.is_empty() {
            return self.finish() + "\u{fffd}";
        }
        self.held.extend(bytes);
        self.certain_text()
    }

    fn certain_text(&mut self) -> String {
        let held_back = match self.held.utf8_chunks().last() {
            Some(end) if is_cut_short(end.invalid()) => end.invalid().len(),
            _ => 0,
        };
        let rest = self.held.split_off(self.held.len() - held_back);
        let text = self.finish();
        self.held = rest;
        text
    }
}

/// Whether bytes that are not UTF-8 could be the beginning of a character.
pub(crate) fn is_cut_short(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_character_comes_whole_when_its_last_byte_comes() {
        let tokenizer = Tokenizer::Byte;
        let text = "😊 “q” 你好";
        let mut decoder = tokenizer.decoder();
        for c in text.chars() {
            let mut utf8 = [0; 4];
            let bytes = c.encode_utf8(&mut utf8).as_bytes();
            let (last, first) = bytes.split_last().unwrap();
            for &byte in first {
                assert_eq!(decoder.push(byte.into()), "");
            }
            assert_eq!(decoder.push((*last).into()), c.to_string());
        }
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn a_text_that_ends_in_the_middle_of_a_character_ends_in_one_replacement() {
        let mut decoder = Tokenizer::Byte.decoder();
        assert_eq!(decoder.push(226) + &decoder.push(129), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.finish(), "");
    }

    proptest! {
        #[test]
        fn streamed_text_is_batch_text_for_any_bytes(bytes: Vec<u8>, cut in 0usize..9) {
            // Random bytes are seldom nearly right: also try a text with a piece cut out.
            let text = "aé😊好\u{10ffff}".as_bytes();
            let damaged = [&text[..cut], &bytes[..], &text[cut..]].concat();
            for bytes in [bytes, damaged] {
                let ids: Vec<u32> = bytes.iter().map(|&byte| byte.into()).collect();
                let mut decoder = Tokenizer::Byte.decoder();
                let mut streamed = String::new();
                for &id in &ids {
                    streamed += &decoder.push(id);
                    prop_assert!(decoder.held.len() <= 3);
                }
                streamed += &decoder.finish();
                prop_assert_eq!(&streamed, &String::from_utf8_lossy(&bytes));
                prop_assert_eq!(streamed, Tokenizer::Byte.decode(&ids));
            }
        }

        #[test]
        fn streamed_text_is_batch_text_for_any_ids(ids in prop::collection::vec(0u32..300, 0..50)) {
            for tokenizer in [Tokenizer::Byte, Tokenizer::from_chars("abé😊".chars())] {
                let mut decoder = tokenizer.decoder();
                let mut streamed: String = ids.iter().map(|&id| decoder.push(id)).collect();
                streamed += &decoder.finish();
                prop_assert_eq!(streamed, tokenizer.decode(&ids));
            }
        }
    }
}
