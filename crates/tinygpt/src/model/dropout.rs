//! The four places where a model drops, and the mask of each.

use tinygpt_kernels::dropout::Mask;

/// Dropout of one optimizer step on one part of its batch.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    p: f32,
    seed: u64,
    step: u64,
    /// The first row of this part among the B x T rows of the step's whole batch.
    first_row: usize,
}

impl Dropout {
    /// Nothing is dropped: evaluation and sampling.
    pub const NONE: Dropout = Dropout { p: 0.0, seed: 0, step: 0, first_row: 0 };

    /// Masks of optimizer step `step`, for the part of its batch that starts at row `first_row`.
    pub fn new(p: f32, seed: u64, step: u64, first_row: usize) -> Self {
        Self { p, seed, step, first_row }
    }

    fn site(&self, site: usize) -> Mask {
        Mask::new(self.p, self.seed, self.step, super::DROPOUT_STREAM + site as u32)
    }

    /// (B, T, C): the sum of the embeddings.
    pub(super) fn embedding(&self) -> Mask {
        self.site(0).from_row(self.first_row)
    }

    /// (B, H, T, T): the attention probabilities of block `l`.
    pub(super) fn attention(&self, l: usize, n_head: usize) -> Mask {
        self.site(3 * l + 1).from_row(self.first_row * n_head)
    }

    /// (B, T, C): the attention branch of block `l`.
    pub(super) fn attention_branch(&self, l: usize) -> Mask {
        self.site(3 * l + 2).from_row(self.first_row)
    }

    /// (B, T, C): the MLP branch of block `l`.
    pub(super) fn mlp_branch(&self, l: usize) -> Mask {
        self.site(3 * l + 3).from_row(self.first_row)
    }
}
