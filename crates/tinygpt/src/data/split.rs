//! Which characters of a text are kept for validation.

use super::SPLIT_STREAM;
use crate::error::Result;
use serde::{Deserialize, Serialize};
use tinygpt_kernels::rng::Stream;

/// How a text is divided into training and validation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// nanoGPT's: the end of the text validates. Losses can be compared with other programs'; but
    /// where a text changes its subject, validation is unlike training.
    #[default]
    Contiguous,
    /// One block at a random place in each tenth of the text validates: alike in subject, at the
    /// price of twenty seams.
    Shuffled,
}

/// Blocks of a shuffled split.
const BLOCKS: u64 = 10;

impl Split {
    /// The borders between training and validation in a text of `chars` characters, ascending:
    /// training up to the first, validation up to the second, training up to the third, ...
    pub(super) fn borders(self, chars: u64, val_fraction: f64, seed: u64) -> Vec<u64> {
        match self {
            Split::Contiguous => vec![(chars as f64 * (1.0 - val_fraction)) as u64],
            Split::Shuffled => {
                let mut stream = Stream::new(seed, SPLIT_STREAM, 0);
                let tenth = |i| (chars as u128 * i as u128 / BLOCKS as u128) as u64;
                let block = |i| {
                    let (start, len) = (tenth(i), tenth(i + 1) - tenth(i));
                    let val = (len as f64 * val_fraction).round() as u64;
                    let start = start + stream.below(len - val + 1);
                    [start, start + val]
                };
                (0..BLOCKS).flat_map(block).collect()
            }
        }
    }
}

/// Cuts a text that comes in pieces at its borders.
pub(super) struct Cutter {
    borders: Vec<u64>,
    passed: usize,
    /// Characters cut so far.
    pub at: u64,
}

impl Cutter {
    pub fn new(borders: Vec<u64>) -> Self {
        Self { borders, passed: 0, at: 0 }
    }

    /// Calls `take(for_validation, part)` for each part of the next piece of the text.
    pub fn cut(
        &mut self,
        mut text: &[u8],
        mut take: impl FnMut(bool, &[u8]) -> Result<()>,
    ) -> Result<()> {
        while !text.is_empty() {
            while self.borders.get(self.passed) == Some(&self.at) {
                self.passed += 1;
            }
            let room = self.borders.get(self.passed).map_or(u64::MAX, |border| border - self.at);
            let chars = lengths(text).count() as u64;
            let end = match chars <= room {
                true => text.len(),
                false => lengths(text).take(room as usize).sum(),
            };
            let (part, rest) = text.split_at(end);
            take(self.passed % 2 == 1, part)?;
            (text, self.at) = (rest, self.at + chars.min(room));
        }
        Ok(())
    }
}

/// The length in bytes of each character. What is not UTF-8 counts as one.
fn lengths(text: &[u8]) -> impl Iterator<Item = usize> {
    text.utf8_chunks().flat_map(|chunk| {
        let damage = Some(chunk.invalid().len()).filter(|&n| n > 0);
        chunk.valid().chars().map(char::len_utf8).chain(damage)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_shuffled_split_takes_its_share_from_every_tenth_of_the_text() {
        let borders = Split::Shuffled.borders(1000, 0.1, 7);
        for (i, block) in (0..).zip(borders.chunks(2)) {
            assert_eq!(block[1] - block[0], 10);
            assert!(i * 100 <= block[0] && block[1] <= (i + 1) * 100, "{borders:?}");
        }
        assert_eq!(borders, Split::Shuffled.borders(1000, 0.1, 7));
        assert_ne!(borders, Split::Shuffled.borders(1000, 0.1, 8));
    }

    proptest! {
        #[test]
        fn the_parts_are_the_text_whatever_the_pieces(
            text in "[aé😊]{0,60}", piece in 1usize..9, fraction in 0.0..1.0f64, shuffled: bool,
        ) {
            let chars: Vec<char> = text.chars().collect();
            let split = if shuffled { Split::Shuffled } else { Split::Contiguous };
            let cut = |pieces: &mut dyn Iterator<Item = String>| {
                let borders = split.borders(chars.len() as u64, fraction, 1);
                let mut cutter = Cutter::new(borders);
                let (mut parts, mut joined) = ([String::new(), String::new()], String::new());
                for piece in pieces {
                    cutter.cut(piece.as_bytes(), |val, part| {
                        let part = std::str::from_utf8(part).unwrap();
                        assert!(!part.is_empty());
                        parts[val as usize] += part;
                        joined += part;
                        Ok(())
                    }).unwrap();
                }
                assert_eq!((cutter.at, &joined), (chars.len() as u64, &text));
                parts
            };
            let whole = cut(&mut std::iter::once(text.clone()));
            let mut pieces = chars.chunks(piece).map(|piece| piece.iter().collect());
            prop_assert_eq!(&cut(&mut pieces), &whole);
            if !shuffled {
                let train = (chars.len() as f64 * (1.0 - fraction)) as usize;
                prop_assert_eq!(whole[0].chars().count(), train);
            }
        }
    }
}
