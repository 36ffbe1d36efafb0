//! What a forward pass leaves for the backward, and the gradients on their way down.
//!
//! Every buffer is as large as the largest (B, T) it has seen and only its length changes, so a
//! training step allocates nothing after the first.

use super::attention::Attention;
use crate::config::GptConfig;
use tinygpt_kernels::Buffer;

/// Most floats of logits at a time: rows enough that reading the unembedding costs little. (Few in
/// tests, which then have several pieces.)
const LOGITS: usize = if cfg!(test) { 1 << 8 } else { 1 << 24 };

/// How many rows of logits exist at a time at most, of N.
pub fn logits_rows(n: usize, v: usize) -> usize {
    (LOGITS / v).clamp(1, n)
}

/// What of a forward pass stays when it is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// What a backward needs of every block.
    All,
    /// The last block's alone: each takes the memory of the one before.
    Last,
}

/// All activations of one micro-batch of B x T tokens.
#[derive(Default)]
pub struct Activations {
    /// L + 1 times (B, T, C): the residual stream before each block, and after the last. The first
    /// two in turn, where only the [`Last`](Keep::Last) is kept.
    pub x: Vec<Buffer>,
    /// One for each block; the first for all, where only the last is kept.
    pub h: Vec<BlockActivations>,
    /// (B, T, C): the output of a block's two branches before they join the stream.
    pub branch: Buffer,
    /// (B, T, 4C): after a block's non-linearity, whichever it is.
    pub gelu: Buffer,
    /// (B, T, C)
    pub ln_f: Buffer,
    /// (B, T, 2)
    pub ln_f_stat: Buffer,
    /// (N, V) of the N rows that `head.rs` is at; it turns them into their own gradient.
    pub logits: Buffer,
    /// (B, T)
    pub losses: Buffer,
    /// (B, T): log-sum-exp of the logits.
    pub logits_lse: Buffer,
    /// The gradients, empty until a backward is due.
    pub d: Gradients,
}

/// What one block keeps.
#[derive(Default)]
pub struct BlockActivations {
    /// (B, T, C)
    pub ln_1: Buffer,
    /// (B, T, 2): mean and reciprocal standard deviation.
    pub ln_1_stat: Buffer,
    /// (B, T, 3C)
    pub qkv: Buffer,
    /// (B, H, T) log-sum-exp, or (B, H, T, T) probabilities of the naive attention.
    pub seen: Buffer,
    /// (B, T, C): heads side by side.
    pub y: Buffer,
    /// (B, T, C): the stream between attention and MLP.
    pub mid: Buffer,
    /// (B, T, C)
    pub ln_2: Buffer,
    /// (B, T, 2)
    pub ln_2_stat: Buffer,
    /// (B, T, 4C): before the non-linearity; the backward leaves what comes after it.
    pub fc: Buffer,
}

/// Gradients of activations: few, because each is used up before the next is made.
#[derive(Default)]
pub struct Gradients {
    /// (B, T, C): of the residual stream, added to from the last block to the first.
    pub x: Buffer,
    /// (B, T, C): of a branch's output, or of a LayerNorm's.
    pub c: Buffer,
    /// (B, T, C): of the heads' output.
    pub y: Buffer,
    /// (B, T, 3C)
    pub qkv: Buffer,
    /// (B, T, 4C)
    pub fc: Buffer,
}

impl Activations {
    /// Gives every buffer but the logits the length it needs for (B, T).
    pub fn shape(
        &mut self,
        config: &GptConfig,
        attention: Attention,
        keep: Keep,
        (b, t): (usize, usize),
    ) {
        let mut resize = |buffer: &mut Buffer, width| buffer.resize(b * t * width);
        self.each(config, attention, keep, t, &mut resize);
    }

    /// What block `l` works with: the stream before it and after it, the output of its branches, what
    /// its non-linearity makes, and its own.
    pub fn block(
        &mut self,
        l: usize,
        keep: Keep,
    ) -> (&Buffer, &mut Buffer, &mut Buffer, &mut Buffer, &mut BlockActivations) {
        let Self { x, h, branch, gelu, .. } = self;
        match keep {
            Keep::All => {
                let (x, next) = x.split_at_mut(l + 1);
                (&x[l], &mut next[0], branch, gelu, &mut h[l])
            }
            Keep::Last => {
                let (even, odd) = x.split_at_mut(1);
                let (even, odd) = (&mut even[0], &mut odd[0]);
                let (x, next) = if l.is_multiple_of(2) { (even, odd) } else { (odd, even) };
                (x, next, branch, gelu, &mut h[0])
            }
        }
    }

    /// The stream after the last of `layers` blocks (B, T, C), and what the last LayerNorm makes of it
    /// (B, T, C), (B, T, 2).
    pub fn end(&mut self, layers: usize, keep: Keep) -> (&Buffer, &mut Buffer, &mut Buffer) {
        let last = if keep == Keep::All { layers } else { layers % 2 };
        (&self.x[last], &mut self.ln_f, &mut self.ln_f_stat)
    }

    /// Gives the gradients their lengths too.
    pub fn shape_gradients(&mut self, config: &GptConfig, n: usize) {
        self.d.each(config, &mut |buffer, width| buffer.resize(n * width));
    }

    /// How many floats a training step holds for N tokens in sequences of T: all of these, and the
    /// gradients. Saturating: a context may be longer than any memory.
    pub fn floats(config: &GptConfig, n: usize, t: usize) -> u64 {
        let (mut all, mut of_a_token) = (Self::default(), 0u64);
        let mut add = |_: &mut Buffer, width: usize| of_a_token += width as u64;
        all.each(config, Attention::default(), Keep::All, t, &mut add);
        all.d.each(config, &mut add);
        let logits = (logits_rows(n, config.vocab_size) * config.vocab_size) as u64;
        (n as u64).saturating_mul(of_a_token).saturating_add(logits)
    }

    /// Calls `visit` with every buffer in use but the logits, and how many floats it has for each token.
    fn each(
        &mut self,
        config: &GptConfig,
        attention: Attention,
        keep: Keep,
        t: usize,
        visit: &mut impl FnMut(&mut Buffer, usize),
    ) {
        let (c, kept) = (config.n_embd, if keep == Keep::All { config.n_layer } else { 1 });
        // What a pass that kept all had for the other blocks stays for the next of its kind.
        if self.h.len() < kept {
            self.x.resize_with(kept + 1, Buffer::default);
            self.h.resize_with(kept, BlockActivations::default);
        }
        self.x[..kept + 1].iter_mut().for_each(|x| visit(x, c));
        for h in &mut self.h[..kept] {
            visit(&mut h.qkv, 3 * c);
            visit(&mut h.seen, attention.keeps(t, config.n_head));
            for buffer in [&mut h.ln_1, &mut h.y, &mut h.mid, &mut h.ln_2] {
                visit(buffer, c);
            }
            for buffer in [&mut h.ln_1_stat, &mut h.ln_2_stat] {
                visit(buffer, 2);
            }
            visit(&mut h.fc, 4 * c);
        }
        visit(&mut self.gelu, 4 * c);
        for buffer in [&mut self.branch, &mut self.ln_f] {
            visit(buffer, c);
        }
        visit(&mut self.ln_f_stat, 2);
        for buffer in [&mut self.losses, &mut self.logits_lse] {
            visit(buffer, 1);
        }
    }
}

impl Gradients {
    /// As [`Activations::each`].
    fn each(&mut self, config: &GptConfig, visit: &mut impl FnMut(&mut Buffer, usize)) {
        let c = config.n_embd;
        for buffer in [&mut self.x, &mut self.c, &mut self.y] {
            visit(buffer, c);
        }
        visit(&mut self.qkv, 3 * c);
        visit(&mut self.fc, 4 * c);
    }
}
