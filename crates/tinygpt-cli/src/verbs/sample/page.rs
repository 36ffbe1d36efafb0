//! A text on its way to standard output: made of tokens, ended before a stop.

use std::ops::ControlFlow;
use tinygpt::tokenizer::Decoder;

/// One text as it grows.
pub struct Page<'a> {
    decoder: Decoder<'a>,
    stops: Stops<'a>,
    /// What is certain and nobody has taken yet.
    text: String,
    stopped: bool,
}

impl<'a> Page<'a> {
    /// A page that begins with `prompt`, in which nothing is looked for.
    pub fn new(prompt: &str, decoder: Decoder<'a>, stops: &'a [String]) -> Self {
        let stops = Stops { stops, held: String::new() };
        Self { decoder, stops, text: prompt.into(), stopped: false }
    }

    /// Adds a token; `Break` once a stop came.
    pub fn add(&mut self, id: u32) -> ControlFlow<()> {
        let piece = self.decoder.push(id);
        self.push(&piece);
        if self.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Ends the text and its line.
    pub fn end(&mut self) {
        if !self.stopped {
            let rest = self.decoder.finish();
            self.push(&rest);
        }
        self.text += &std::mem::take(&mut self.stops.held);
        self.text.push('\n');
    }

    /// What is new and certain.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Bytes of it.
    pub fn waiting(&self) -> usize {
        self.text.len()
    }

    fn push(&mut self, piece: &str) {
        let (certain, stopped) = self.stops.push(piece);
        self.text += &certain;
        self.stopped = stopped;
    }
}

/// Finds the first stop in a text that comes in pieces, and holds back what may be its beginning.
struct Stops<'a> {
    stops: &'a [String],
    held: String,
}

impl Stops<'_> {
    /// Takes the next piece. Gives the text that is now certain, and whether a stop ends it.
    fn push(&mut self, piece: &str) -> (String, bool) {
        self.held += piece;
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop)).min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let begins_a_stop =
            |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let at = self.held.char_indices().map(|(at, _)| at).find(begins_a_stop);
        let rest = self.held.split_off(at.unwrap_or(self.held.len()));
        (std::mem::replace(&mut self.held, rest), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `text` in pieces of `size` characters, up to the first of `stops`.
    fn until(text: &str, stops: &[&str], size: usize) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.into()).collect();
        let mut stops = Stops { stops: &stops, held: String::new() };
        let (mut shown, chars) = (String::new(), text.chars().collect::<Vec<_>>());
        for piece in chars.chunks(size) {
            let (certain, stopped) = stops.push(&piece.iter().collect::<String>());
            shown += &certain;
            if stopped {
                assert_eq!(stops.held, "");
                return (shown, true);
            }
        }
        (shown + &stops.held, false)
    }

    #[test]
    fn a_text_ends_before_its_first_stop_however_it_is_cut() {
        for size in 1..12 {
            for (text, stops, expected) in [
                ("ROMEO:\nAy.\n\nJULIET", &["\n\n"][..], ("ROMEO:\nAy.", true)),
                ("aaab", &["aab"], ("a", true)),
                ("ababac", &["abac"], ("ab", true)),
                ("你好😊 ok", &["😊"], ("你好", true)),
                ("no such thing\n", &["\n\n"], ("no such thing\n", false)),
                ("stop", &["stop"], ("", true)),
                ("anything", &[], ("anything", false)),
            ] {
                assert_eq!(until(text, stops, size), (expected.0.into(), expected.1), "{text}");
            }
        }
        assert_eq!(until("one two", &["two", "ne"], 1), ("o".into(), true));
    }

    #[test]
    fn only_what_may_begin_a_stop_is_held_back() {
        let words = ["END".to_string()];
        let mut stops = Stops { stops: &words, held: String::new() };
        for (piece, shown) in [("THE", "TH"), ("N", ""), ("X", "ENX"), ("E", ""), ("E", "E")] {
            assert_eq!(stops.push(piece), (shown.into(), false));
        }
    }
}
