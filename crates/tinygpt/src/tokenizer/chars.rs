//! The characters of a vocabulary, and the count of a text that a vocabulary is made from.

use std::collections::{BTreeMap, BTreeSet};

/// Marks a code point that has no id.
const ABSENT: u32 = u32::MAX;

/// Characters and their ids `0..list().len()`: a bijection.
#[derive(Clone, PartialEq)]
pub struct Chars {
    list: Vec<char>,
    /// The id at each code point up to the highest of the vocabulary: encoding is one look-up.
    ids: Vec<u32>,
}

impl Chars {
    /// Each of `chars` once, in the order of their code points.
    pub(crate) fn sorted(chars: impl IntoIterator<Item = char>) -> Self {
        let set: BTreeSet<char> = chars.into_iter().collect();
        Self::in_order(set.into_iter().collect())
    }

    /// `list[id]` is the character of `id`; no character twice.
    pub(crate) fn in_order(list: Vec<char>) -> Self {
        let mut ids = vec![ABSENT; list.iter().max().map_or(0, |&c| c as usize + 1)];
        for (id, &c) in (0..).zip(&list) {
            assert_eq!(ids[c as usize], ABSENT, "{c:?} is twice in a vocabulary");
            ids[c as usize] = id;
        }
        Self { list, ids }
    }

    /// The characters in the order of their ids.
    pub fn list(&self) -> &[char] {
        &self.list
    }

    /// The id of `c`, if it is in the vocabulary.
    pub fn id(&self, c: char) -> Option<u32> {
        self.ids.get(c as usize).copied().filter(|&id| id != ABSENT)
    }
}

impl std::fmt::Debug for Chars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Chars").field(&self.list.iter().collect::<String>()).finish()
    }
}

/// A place in a text, as an editor counts: lines and columns from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Which of several texts, from 0.
    pub source: usize,
    /// From 1.
    pub line: u64,
    /// From 1.
    pub column: u64,
}

/// Which characters a text has and where each was first seen, counted piece by piece.
#[derive(Debug)]
pub(crate) struct Census {
    first_seen: BTreeMap<char, Place>,
    /// By code point, so that a character seen before costs one look-up.
    seen: Vec<bool>,
    at: Place,
    total: u64,
}

impl Default for Census {
    fn default() -> Self {
        Self {
            first_seen: BTreeMap::new(),
            seen: vec![false; char::MAX as usize + 1],
            at: Place { source: 0, line: 1, column: 1 },
            total: 0,
        }
    }
}

impl Census {
    /// Counts the next piece of the text number `source`; lines start anew with each text.
    pub fn push(&mut self, source: usize, text: &str) {
        if source != self.at.source {
            self.at = Place { source, line: 1, column: 1 };
        }
        for c in text.chars() {
            if !self.seen[c as usize] {
                self.seen[c as usize] = true;
                self.first_seen.insert(c, self.at);
            }
            self.at.column += 1;
            if c == '\n' {
                (self.at.line, self.at.column) = (self.at.line + 1, 1);
            }
            self.total += 1;
        }
    }

    /// The distinct characters in ascending order, each with the place where it first stood.
    pub fn chars(&self) -> impl Iterator<Item = (char, Place)> {
        self.first_seen.iter().map(|(&c, &place)| (c, place))
    }

    /// Characters in all.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_in_pieces_knows_where_each_character_first_stood() {
        let mut census = Census::default();
        for (source, piece) in [(0, "ab\nc"), (0, "aé\n"), (1, "xa")] {
            census.push(source, piece);
        }
        let place = |wanted| {
            let (_, place) = census.chars().find(|&(c, _)| c == wanted).unwrap();
            (place.source, place.line, place.column)
        };
        assert_eq!(census.total(), 9);
        assert_eq!(census.chars().count(), 6);
        assert_eq!(place('é'), (0, 2, 3));
        assert_eq!(place('c'), (0, 2, 1));
        assert_eq!(place('x'), (1, 1, 1));
    }

    #[test]
    fn the_highest_code_point_is_a_character_like_any_other() {
        let chars = Chars::sorted(['\u{10ffff}', '\0']);
        assert_eq!((chars.id('\0'), chars.id(char::MAX), chars.id('a')), (Some(0), Some(1), None));
    }
}
