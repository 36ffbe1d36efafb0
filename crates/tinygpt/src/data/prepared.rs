//! The first reading of a text: how long it is, and which tokens it has.

use super::corpus::{Corpus, Input};
use super::dataset::DataOptions;
use super::reader::Damage;
use crate::error::{Error, Result};
use crate::tokenizer::{Census, END_OF_TEXT, Learner, Tokenizer, TokenizerKind};
use std::path::Path;
use std::sync::Arc;

/// Vocabularies above this, or above this share of the tokens, are seldom meant.
const LARGE_VOCABULARY: usize = 10_000;
const LARGE_SHARE: f64 = 0.05;

/// A text that was read once, ready to be read again for its tokens.
pub(super) struct Prepared {
    pub corpus: Corpus,
    pub census: Census,
    pub tokenizer: Tokenizer,
    /// What the user should know of the text, in whole sentences.
    pub notices: Vec<String>,
}

impl Prepared {
    /// Reads the text; `dir` and the errors as for [`Dataset::build`](super::Dataset::build).
    /// `progress(done, total)` counts bytes.
    pub fn read(
        input: &Input,
        options: &DataOptions,
        dir: Option<&Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let known = match &options.vocabulary {
            Some(tokenizer) => Some(tokenizer.clone()),
            None => options.tokenizer.ready()?,
        };
        let damage = match known {
            _ if options.lossy => Damage::Replace,
            Some(Tokenizer::Byte) => Damage::Keep,
            _ => Damage::Refuse,
        };
        let corpus = Corpus::open(input, options.newline, damage, dir)?;
        let total = corpus.bytes();
        let mut census = Census::default();
        let mut learner = match options.tokenizer {
            TokenizerKind::Bpe(size) if known.is_none() => {
                Some((Learner::new(options.allow_special), size))
            }
            _ => None,
        };
        let mut count = |source, piece: &[u8]| {
            // Like the split, for which what is no character is one.
            let piece = String::from_utf8_lossy(piece);
            census.push(source, &piece);
            if let Some((learner, _)) = &mut learner {
                learner.push(&piece);
            }
            Ok(())
        };
        let mut notices = corpus.read(&mut count, &mut |done| progress(done, total))?;
        if census.total() == 0 {
            return Err(Error::data(corpus.name(), "is empty: there is nothing to learn from"));
        }
        let tokenizer = match (known, learner) {
            (Some(tokenizer), _) => known_to(tokenizer, &census, &corpus)?,
            (None, Some((learner, size))) => learned(learner, size, &corpus, &mut notices)?,
            (None, None) => characters(&census, &corpus, &mut notices),
        };
        let texts = corpus.names().len();
        if texts > 1 && tokenizer.end_of_text().is_some() {
            let between = format!("{END_OF_TEXT} stands between its {texts} files");
            notices.push(format!("{}: {between}", corpus.name()));
        }
        if options.allow_special && tokenizer.special().is_empty() {
            notices.push(format!(
                "{}: allow_special changes nothing: {} tokens have no special ones",
                corpus.name(),
                tokenizer.name()
            ));
        }
        Ok(Self { corpus, census, tokenizer, notices })
    }
}

/// A tokenizer that was there before the text and must know every character of it.
fn known_to(tokenizer: Tokenizer, census: &Census, corpus: &Corpus) -> Result<Tokenizer> {
    match tokenizer.unknown(census, &corpus.names()) {
        Some(error) => Err(error),
        None => Ok(tokenizer),
    }
}

/// The tokenizer of the text's characters.
fn characters(census: &Census, corpus: &Corpus, notices: &mut Vec<String>) -> Tokenizer {
    let tokenizer = Tokenizer::from_chars(census.chars().map(|(c, _)| c));
    let size = tokenizer.vocab_size();
    if size > LARGE_VOCABULARY || size as f64 > LARGE_SHARE * census.total() as f64 {
        notices.push(format!(
            "{}: {size} different characters in a text of {}: each is seen seldom; byte tokens \
             need a vocabulary of 256",
            corpus.name(),
            census.total()
        ));
    }
    tokenizer
}

/// The tokenizer of the runs of bytes that the text repeats most.
fn learned(
    learner: Learner,
    size: usize,
    corpus: &Corpus,
    notices: &mut Vec<String>,
) -> Result<Tokenizer> {
    let bpe = learner.learn(size)?;
    let found = bpe.tokens().len();
    if found < size {
        notices.push(format!(
            "{}: too short for {size} tokens: no more than {found} stand for what it repeats",
            corpus.name()
        ));
    }
    Ok(Tokenizer::Bpe(Arc::new(bpe)))
}
