//! nanoGPT's `meta.pkl`: the characters of a data set, read and written.

use crate::error::{Error, Result};
use crate::files;
use crate::formats::pickle::{self, Pickle, Pickler, Value};
use crate::tokenizer::{Chars, Tokenizer};
use std::io::Read;
use std::path::Path;

/// The tokenizer of a `meta.pkl`: a dict whose `itos` says the character of every number.
///
/// # Errors
/// [`Error::Checkpoint`] if it is no such pickle.
pub(in crate::formats) fn read(path: &Path) -> Result<Tokenizer> {
    let wrong = |problem: String| Error::checkpoint(path, problem);
    let mut bytes = Vec::new();
    let file = files::open(path).map_err(|error| error.in_checkpoint(path))?;
    file.take(pickle::LONGEST + 1).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    let pickle = Pickle::read(&bytes).map_err(|problem| wrong(format!("its pickle {problem}")))?;
    let Some(itos) = pickle.get(pickle.root(), "itos") else {
        return Err(wrong("has no `itos`, which says what the tokens mean".into()));
    };
    let entries: Vec<_> = pickle.entries(itos).collect();
    let mut chars = vec![None; entries.len()];
    for (number, text) in entries {
        let one = match text {
            Value::Text(text) => text.chars().next().filter(|c| text.len() == c.len_utf8()),
            _ => None,
        };
        match pickle::size(number).and_then(|number| chars.get_mut(number)) {
            Some(place @ None) if one.is_some() => *place = one,
            _ => return Err(wrong("its `itos` is no list of characters".into())),
        }
    }
    let chars: Vec<char> = chars.into_iter().flatten().collect();
    let mut once = chars.clone();
    once.sort_unstable();
    once.dedup();
    if chars.is_empty() || once.len() < chars.len() {
        return Err(wrong("its `itos` has a character twice, or none".into()));
    }
    Ok(Tokenizer::Char(Chars::in_order(chars)))
}

/// The pickle of those characters.
pub(super) fn pickled(chars: &Chars) -> Vec<u8> {
    let (numbers, mut one) = (0..chars.list().len() as u64, [0; 4]);
    let mut pickle = Pickler::new();
    pickle.dict(|p| {
        p.text("vocab_size");
        p.int(numbers.end);
        p.text("itos");
        p.dict(|p| {
            for (number, c) in numbers.clone().zip(chars.list()) {
                p.int(number);
                p.text(c.encode_utf8(&mut one));
            }
        });
        p.text("stoi");
        p.dict(|p| {
            for (number, c) in numbers.zip(chars.list()) {
                p.text(c.encode_utf8(&mut one));
                p.int(number);
            }
        });
    });
    pickle.finish()
}
