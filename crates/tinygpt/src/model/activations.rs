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

/// All activations of one micro-batch of B x T tokens.
#[derive(Default)]
pub struct Activations {
    /// L + 1 times (B, T, C): the residual stream before each block, and after the last.
    pub x: Vec<Buffer>,
    /// One for each block.
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
    pub fn shape(&mut self, config: &GptConfig, attention: Attention, (b, t): (usize, usize)) {
        self.each(config, attention, t, &mut |buffer, width| buffer.resize(b * t * width));
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
        all.each(config, Attention::default(), t, &mut add);
        all.d.each(config, &mut add);
        let logits = (logits_rows(n, config.vocab_size) * config.vocab_size) as u64;
        (n as u64).saturating_mul(of_a_token).saturating_add(logits)
    }

    /// Calls `visit` with every buffer but the logits, and how many floats it has for each token.
    fn each(
        &mut self,
        config: &GptConfig,
        attention: Attention,
        t: usize,
        visit: &mut impl FnMut(&mut Buffer, usize),
    ) {
        let (c, layers) = (config.n_embd, config.n_layer);
        self.x.resize_with(layers + 1, Buffer::default);
        self.h.resize_with(layers, BlockActivations::default);
        self.x.iter_mut().for_each(|x| visit(x, c));
        for h in &mut self.h {
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
