//! Which attention a model was built with. Both compute the same; the naive one can be looked into
//! and broken.

use tinygpt_kernels::Cpu;
use tinygpt_kernels::attention::{Dims, fused, naive};
use tinygpt_kernels::dropout::Mask;

/// Which attention a model uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attention {
    /// Blocks that never hold T x T: for training.
    #[default]
    Fused,
    /// T x T scores, kept: for looking at them.
    Naive,
    /// The naive one with the mask taken away: every position sees the future. For watching a model
    /// cheat.
    NaiveUnmasked,
}

impl Attention {
    /// Floats kept for the backward for each token: of (B, H, T) or (B, H, T, T).
    pub(super) fn keeps(self, t: usize, h: usize) -> usize {
        if self == Attention::Fused { h } else { h * t }
    }

    fn sees(self) -> impl Fn(usize, usize) -> bool {
        move |i, j| j <= i || self == Attention::NaiveUnmasked
    }

    /// `y` (B, T, C), `seen` (see [`keeps`](Self::keeps)) written; `qkv` (B, T, 3C) read.
    pub(super) fn forward(
        self,
        cpu: &Cpu,
        y: &mut [f32],
        seen: &mut [f32],
        qkv: &[f32],
        dropout: Mask,
        dims: Dims,
    ) {
        match self {
            Attention::Fused => fused::forward(cpu, y, seen, qkv, dropout, dims),
            _ => naive::forward(y, seen, qkv, self.sees(), dropout, dims),
        }
    }

    /// `dqkv` (B, T, 3C) written; the others read.
    pub(super) fn backward(
        self,
        cpu: &Cpu,
        dqkv: &mut [f32],
        dy: &[f32],
        qkv: &[f32],
        y: &[f32],
        seen: &[f32],
        dropout: Mask,
        dims: Dims,
    ) {
        match self {
            Attention::Fused => fused::backward(cpu, dqkv, dy, qkv, y, seen, dropout, dims),
            _ => naive::backward(dqkv, dy, qkv, seen, dropout, dims),
        }
    }
}
