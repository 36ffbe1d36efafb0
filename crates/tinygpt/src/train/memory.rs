//! How much memory training takes, so that it can be asked before any of it is taken.

use super::micro_batch;
use crate::config::GptConfig;
use crate::model::{Activations, Spec, Tensors};

/// Bytes, by the table of the parameters and the buffers of the activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The weights alone.
    pub weights: u64,
    /// Their gradients.
    pub gradients: u64,
    /// Both moments of the optimizer.
    pub moments: u64,
    /// What a forward pass keeps, and the gradients on their way back. Saturating: a context may
    /// be longer than any memory.
    pub activations: u64,
}

impl Memory {
    /// Of training a model whose configuration has passed its check, with `sequences` sequences of
    /// T tokens in a step.
    pub fn of(model: &GptConfig, (sequences, t): (usize, usize)) -> Self {
        let bytes = |config: &GptConfig| {
            let numbers: usize = Tensors::of(config).iter().map(Spec::len).sum();
            (size_of::<f32>() * numbers) as u64
        };
        let weights = bytes(model);
        // A tied unembedding's gradient has a place of its own.
        let gradients = bytes(&GptConfig { tied: false, ..model.clone() });
        let at_a_time = micro_batch(&GptConfig { block_size: t, ..model.clone() }, sequences);
        let floats = Activations::floats(model, at_a_time * t, t);
        let activations = floats.saturating_mul(size_of::<f32>() as u64);
        Self { weights, gradients, moments: 2 * weights, activations }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        (self.weights + self.gradients + self.moments).saturating_add(self.activations)
    }
}
