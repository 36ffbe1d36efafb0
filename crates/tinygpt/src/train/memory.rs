//! How much memory a model takes, so that it can be asked before any of it is taken.

use super::micro_batch;
use crate::config::GptConfig;

/// Bytes; saturating, so that no configuration is too large to be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The weights alone.
    pub weights: u64,
    /// Gradients and both moments of the optimizer.
    pub training: u64,
    /// What a forward pass keeps, and the gradients on their way back.
    pub activations: u64,
}

impl Memory {
    /// Of training with `sequences` sequences in a step.
    pub fn of(model: &GptConfig, sequences: usize) -> Self {
        let GptConfig { vocab_size, block_size, n_layer, n_head, n_embd, tied, .. } = *model;
        let [v, t, l, h, c] = [vocab_size, block_size, n_layer, n_head, n_embd].map(|n| n as u128);
        let head = v * c;
        // Biases and norms are 13 C a block; they never decide.
        let weights = head + t * c + l * (12 * c + 13) * c + if tied { 0 } else { head };
        // The unembedding's gradient has a place of its own.
        let training = 3 * weights + if tied { head } else { 0 };
        let tokens = micro_batch(model, sequences) as u128 * t;
        let activations = tokens * (l * (16 * c + h + 4) + 13 * c + v);
        let bytes = |numbers: u128| u64::try_from(4 * numbers).unwrap_or(u64::MAX);
        Self { weights: bytes(weights), training: bytes(training), activations: bytes(activations) }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.training).saturating_add(self.activations)
    }
}
