//! GPT-2's cut of a text into pieces, over whose borders no tokens are merged: a word, a number or
//! a run of signs, with the one blank before it; the end of a contraction; blanks.
//!
//! **A text that comes in parts is cut as in one**: where a piece ends depends on at most two
//! characters after it, so all but the last two pieces of a part are certain.

use regex::Regex;
use std::sync::LazyLock;

/// GPT-2's expression, but for its `\s+(?!\S)`: blanks before a word leave their last one to it.
/// [`end_of_piece`] does that, so that no look-ahead is needed, whose search is not linear.
static PIECE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"^(?:'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+)";
    Regex::new(pattern).expect("is valid")
});

/// Bytes of the longest piece; a longer one is cut. Merging takes some hundred times the memory.
const LONGEST: usize = 1 << 20;

/// A part of a text that becomes tokens on its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part<'t> {
    Piece(&'t str),
    /// The id of a special token whose name stood there.
    Special(u32),
}

/// Gives the parts of `text` that are certain, all of them if it ends there, to `take`. `special`
/// names the tokens to be found. Returns the bytes given; what is left belongs before what comes.
pub(super) fn cut<'t>(
    text: &'t str,
    end: bool,
    special: &[(String, u32)],
    take: &mut dyn FnMut(Part<'t>),
) -> usize {
    // Where a name may begin that goes on in what comes.
    let open = if end { text.len() } else { open_name(text, special) };
    let mut at = 0;
    while let Some((start, name, id)) = next_name(text, at, open, special) {
        cut_plain(&text[at..start], true, take);
        take(Part::Special(id));
        at = start + name.len();
    }
    if at > open {
        return at;
    }
    at + cut_plain(&text[at..open], end, take)
}

/// The first name from `at` on that begins before `open`; of two that begin there, the longer.
fn next_name<'s>(
    text: &str,
    at: usize,
    open: usize,
    special: &'s [(String, u32)],
) -> Option<(usize, &'s str, u32)> {
    let found = special.iter().filter_map(|(name, id)| {
        let start = at + text[at..].find(name.as_str())?;
        Some((start, name.as_str(), *id))
    });
    let first = found.min_by_key(|(start, name, _)| (*start, std::cmp::Reverse(name.len())));
    first.filter(|(start, ..)| *start < open)
}

/// Where the first ending of `text` stands that is a beginning of a longer name; its length if
/// none is.
fn open_name(text: &str, special: &[(String, u32)]) -> usize {
    let longest = special.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let is_open = |&at: &usize| {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        special.iter().any(|(name, _)| {
            rest.len() < name.len() && name.as_bytes().starts_with(rest) && !rest.is_empty()
        })
    };
    let tail = text.len().saturating_sub(longest)..text.len();
    tail.into_iter().find(is_open).unwrap_or(text.len())
}

fn cut_plain<'t>(text: &'t str, end: bool, take: &mut dyn FnMut(Part<'t>)) -> usize {
    // Where the last pieces but two and but one end.
    let (mut certain, mut last, mut at) = (0, 0, 0);
    while at < text.len() {
        let next = end_of_piece(text, at, LONGEST);
        if end {
            take(Part::Piece(&text[at..next]));
        } else if certain < last {
            take(Part::Piece(&text[certain..last]));
        }
        (certain, last, at) = (last, at, next);
    }
    if end { text.len() } else { certain }
}

/// Where the piece ends that begins at `start`.
fn end_of_piece(text: &str, start: usize, longest: usize) -> usize {
    let seen = boundary(text, start.saturating_add(longest).saturating_add(4));
    // Where a match begins is known, which spares the search half its work.
    let found = PIECE.find(&text[start..seen]).expect("every character is of some piece");
    let mut end = start + found.end();
    let mut chars = found.as_str().chars();
    if let Some(blank) = chars.next_back().filter(|c| c.is_whitespace())
        && chars.next().is_some()
        && end < text.len()
    {
        end -= blank.len_utf8();
    }
    if end - start > longest { boundary(text, start + longest) } else { end }
}

/// The last place between two characters that is not after `at`.
pub(super) fn boundary(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// GPT-2's expression itself.
    static GPT_2: LazyLock<fancy_regex::Regex> = LazyLock::new(|| {
        let pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
        fancy_regex::Regex::new(pattern).unwrap()
    });

    /// Texts of all that makes borders.
    pub(in crate::tokenizer) fn texts() -> impl Strategy<Value = String> {
        let words = "(<\\|endoftext\\|>|<\\|end|\\|>|'|'s|'ll|'re|'ve|l|v| |  |\n|\t|\u{a0}|\u{3000}\
                     |a|Ab|7|42|é|e\u{301}|你好|😊|ï|!|\\.\\.|[a-z' \n]|\\PC){0,40}";
        prop_oneof![words, ".{0,40}"]
    }

    fn pieces(text: &str) -> Vec<&str> {
        let mut pieces = Vec::new();
        let whole = cut(text, true, &[], &mut |part| match part {
            Part::Piece(piece) => pieces.push(piece),
            Part::Special(_) => unreachable!("none was named"),
        });
        assert_eq!(whole, text.len());
        pieces
    }

    #[test]
    fn blanks_leave_their_last_one_to_the_word_after_them() {
        assert_eq!(pieces("hello   world"), ["hello", "  ", " world"]);
        assert_eq!(
            pieces("it'sall don't DON'T"),
            ["it", "'s", "all", " don", "'t", " DON", "'", "T"]
        );
        assert_eq!(pieces("a \n\nb \u{a0}c  "), ["a", " \n", "\n", "b", " ", "\u{a0}", "c", "  "]);
    }

    #[test]
    fn the_longer_of_two_special_names_is_found_wherever_the_text_is_cut() {
        let special = [("<a>".to_owned(), 1), ("<a>b".to_owned(), 2)];
        for (text, expected) in [("x<a>b", vec![2]), ("<a>c<a>", vec![1, 1]), ("<a", vec![])] {
            for size in 1..6 {
                let (mut held, mut ids) = (String::new(), Vec::new());
                let mut rest = text;
                while !rest.is_empty() {
                    let (part, after) = rest.split_at(size.min(rest.len()));
                    (rest, held) = (after, held + part);
                    let done = cut(&held, rest.is_empty(), &special, &mut |part| match part {
                        Part::Special(id) => ids.push(id),
                        Part::Piece(piece) => assert!(piece != "<a>"),
                    });
                    held.drain(..done);
                }
                assert_eq!(ids, expected, "{text} in parts of {size}");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_are_those_of_gpt_2s_expression(text in texts()) {
            let expected: Vec<_> = GPT_2.find_iter(&text).map(|m| m.unwrap().as_str()).collect();
            prop_assert_eq!(pieces(&text), expected);
        }

        #[test]
        fn a_long_piece_is_cut_between_characters(text in texts(), longest in 4usize..9) {
            let mut at = 0;
            while at < text.len() {
                let end = end_of_piece(&text, at, longest);
                prop_assert!(at < end && end - at <= longest && text.is_char_boundary(end));
                at = end;
            }
        }
    }
}
