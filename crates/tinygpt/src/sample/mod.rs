//! Writing text: tokens in, logits, one token chosen, and again.

mod decode;
mod sampler;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::model::Gpt;
pub(crate) use decode::Cache;
pub use decode::cache_bytes;
pub use sampler::{Sampler, Sampling};
use std::ops::ControlFlow;

/// The random stream of sampling (see `model::INIT_STREAM`).
const SAMPLE_STREAM: u32 = 10;

impl Gpt {
    /// `idx` and up to `max_new_tokens` more, each chosen from the logits after the last block_size
    /// tokens before it.
    ///
    /// ```
    /// use tinygpt::{Gpt, GptConfig, Sampling};
    /// let config = GptConfig { vocab_size: 11, block_size: 8, n_layer: 1, n_head: 2, n_embd: 16,
    /// ..GptConfig::default() };
    /// let text = Gpt::new(config, 1337)?.generate(&[1, 2], 20, &Sampling::greedy())?;
    /// assert_eq!((text.len(), &text[..2]), (22, &[1, 2][..]));
    /// # Ok::<(), tinygpt::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`generate_with`](Self::generate_with).
    pub fn generate(
        &mut self,
        idx: &[u32],
        max_new_tokens: usize,
        sampling: &Sampling,
    ) -> Result<Vec<u32>> {
        let mut sampler = Sampler::new(sampling, 0)?;
        self.generate_with(idx, max_new_tokens, &mut sampler, |_| ControlFlow::Continue(()))
    }

    /// The same with a sampler of your own, and `on_token` called with each new token as it comes;
    /// `Break` ends the text after that token.
    ///
    /// # Errors
    /// An empty `idx`, an id outside the vocabulary, settings that cannot work, logits that are
    /// not finite.
    pub fn generate_with(
        &mut self,
        idx: &[u32],
        max_new_tokens: usize,
        sampler: &mut Sampler,
        mut on_token: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>> {
        let alone = std::slice::from_mut(sampler);
        let texts = self.generate_many(idx, max_new_tokens, alone, |_, token| on_token(token));
        Ok(texts?.remove(0))
    }

    /// One text for each sampler, all written together: for a few it takes little longer than for
    /// one, and each is what it would be alone. `on_token` is called with the number of the text
    /// and its new token; `Break` ends that text.
    ///
    /// # Errors
    /// As for [`generate_with`](Self::generate_with).
    pub fn generate_many(
        &mut self,
        idx: &[u32],
        max_new_tokens: usize,
        samplers: &mut [Sampler],
        on_token: impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<u32>>> {
        self.continue_texts(vec![idx.to_vec(); samplers.len()], max_new_tokens, samplers, on_token)
    }

    /// The same from a text for each sampler, all as long.
    ///
    /// # Errors
    /// As for [`generate_with`](Self::generate_with); texts of different lengths.
    pub fn continue_texts(
        &mut self,
        mut texts: Vec<Vec<u32>>,
        max_new_tokens: usize,
        samplers: &mut [Sampler],
        mut on_token: impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<u32>>> {
        assert_eq!(texts.len(), samplers.len(), "a sampler for each text");
        let len = texts.first().map_or(0, Vec::len);
        for text in &texts {
            if text.is_empty() {
                return Err(Error::data("idx", "has no token to go on from"));
            }
            if text.len() != len {
                let problem =
                    format!("texts of {len} and {} tokens, expected all as long", text.len());
                return Err(Error::data("idx", problem));
            }
            self.check_ids(text)?;
        }
        self.forget_forward();
        let (n, v) = (samplers.len(), self.config().vocab_size);
        let mut cache = Cache::new(self, n, len.saturating_add(max_new_tokens));
        let mut open: Vec<usize> = (0..n).collect();
        for _ in 0..max_new_tokens {
            if open.is_empty() {
                break;
            }
            let logits = cache.logits(self, &open, &texts);
            let mut still = Vec::with_capacity(open.len());
            for (&text, logits) in open.iter().zip(logits.chunks_exact(v)) {
                let token = samplers[text].pick(logits)?;
                texts[text].push(token);
                if on_token(text, token).is_continue() {
                    still.push(text);
                }
            }
            open = still;
        }
        Ok(texts)
    }
}
