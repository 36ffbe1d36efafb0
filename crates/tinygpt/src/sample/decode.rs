//! One token at a time: keys and values of earlier positions are kept, so a new position costs one
//! row instead of the whole context.
//!
//! Positions are absolute (`wpe`), so once the context is full every position moves by one with
//! each new token and nothing kept is valid: from there on each token is a whole forward pass over
//! the last block_size tokens, exactly as without a cache.

use crate::model::{Activations, Dropout, Gpt, forward};
use tinygpt_kernels::{Buffer, activation, attention::cached, embedding, layernorm, linear};

/// The keys and values of one sequence, and the activations of the position that is computed.
pub(crate) struct Cache {
    /// Positions kept.
    len: usize,
    /// One for each block: (block_size, C).
    keys: Vec<Buffer>,
    values: Vec<Buffer>,
    /// With B = T = 1.
    acts: Activations,
}

impl Cache {
    pub(crate) fn new(gpt: &Gpt) -> Self {
        let config = gpt.config();
        let (c, t) = (config.n_embd, config.block_size);
        let kept = || (0..config.n_layer).map(|_| Buffer::zeros(t * c)).collect();
        let mut acts = Activations::default();
        acts.shape(config, gpt.attention, (1, 1));
        acts.logits.resize(config.vocab_size);
        Self { len: 0, keys: kept(), values: kept(), acts }
    }

    /// The logits (V) after `tokens`, of which all but the last are already in the cache, or none.
    pub(crate) fn logits(&mut self, gpt: &mut Gpt, tokens: &[u32]) -> &[f32] {
        let t = gpt.config().block_size;
        if self.len + 1 == tokens.len() && tokens.len() <= t && self.len > 0 {
            self.step(gpt, tokens[self.len]);
        } else {
            self.prefill(gpt, &tokens[tokens.len().saturating_sub(t)..]);
        }
        let (a, c, v) = (&mut self.acts, gpt.config().n_embd, gpt.config().vocab_size);
        let w = gpt.params.unembedding();
        linear::forward_one(&gpt.cpu, &mut a.logits, &a.ln_f, w, None, (c, v));
        &a.logits
    }

    /// A whole forward pass, whose keys and values are kept. Leaves the last row of `ln_f`.
    fn prefill(&mut self, gpt: &mut Gpt, tokens: &[u32]) {
        let (t, c) = (tokens.len(), gpt.config().n_embd);
        forward::trunk(gpt, tokens, Dropout::NONE, (1, t));
        for (l, block) in gpt.acts.h.iter().enumerate() {
            for (i, qkv) in block.qkv.chunks_exact(3 * c).enumerate() {
                self.keys[l][i * c..(i + 1) * c].copy_from_slice(&qkv[c..2 * c]);
                self.values[l][i * c..(i + 1) * c].copy_from_slice(&qkv[2 * c..]);
            }
        }
        self.acts.ln_f.copy_from_slice(&gpt.acts.ln_f[(t - 1) * c..]);
        self.len = t;
    }

    /// The third mirror page: `model/forward.rs` for one position, which attends to those kept.
    #[rustfmt::skip] // one op a paragraph, its result's shape at the end
    fn step(&mut self, gpt: &Gpt, token: u32) {
        let (config, params, cpu, a) = (gpt.config(), &gpt.params, &gpt.cpu, &mut self.acts);
        let (at, t, c, h) = (self.len, self.len + 1, config.n_embd, config.n_head);
        self.len = t;

        embedding::forward(
            cpu, &mut a.x[0], &[token], params.wte(), params.wpe(), at, (1, 1, c),
        ); //                                                                                (C)

        for l in 0..config.n_layer {
            let w = params.block(l);
            let (x, next) = a.x.split_at_mut(l + 1);
            let (x, next, branch, gelu) = (&x[l], &mut next[0], &mut a.branch, &mut a.gelu);
            let a = &mut a.h[l];
            let (keys, values) = (&mut self.keys[l][..t * c], &mut self.values[l][..t * c]);

            // attention: x + c_proj(attend(c_attn(ln_1(x))))
            layernorm::forward(
                cpu, &mut a.ln_1, &mut a.ln_1_stat, x, w.ln_1.weight, w.ln_1.bias, (1, c),
            ); //                                                                            (C)
            linear::forward_one(
                cpu, &mut a.qkv, &a.ln_1, w.attn.c_attn.weight, w.attn.c_attn.bias, (c, 3 * c),
            ); //                                                                            (3C)
            keys[at * c..].copy_from_slice(&a.qkv[c..2 * c]); //                             (T, C)
            values[at * c..].copy_from_slice(&a.qkv[2 * c..]); //                            (T, C)
            cached::forward(cpu, &mut a.y, &a.qkv[..c], keys, values, (t, c, h)); //         (C)
            linear::forward_one(
                cpu, branch, &a.y, w.attn.c_proj.weight, w.attn.c_proj.bias, (c, c),
            ); //                                                                            (C)
            sum(&mut a.mid, x, branch); //                                                   (C)

            // MLP: mid + c_proj(gelu(c_fc(ln_2(mid))))
            layernorm::forward(
                cpu, &mut a.ln_2, &mut a.ln_2_stat, &a.mid, w.ln_2.weight, w.ln_2.bias, (1, c),
            ); //                                                                            (C)
            linear::forward_one(
                cpu, &mut a.fc, &a.ln_2, w.mlp.c_fc.weight, w.mlp.c_fc.bias, (c, 4 * c),
            ); //                                                                            (4C)
            activation::forward(cpu, gelu, &a.fc, config.activation.into()); //              (4C)
            linear::forward_one(
                cpu, branch, gelu, w.mlp.c_proj.weight, w.mlp.c_proj.bias, (4 * c, c),
            ); //                                                                            (C)
            sum(next, &a.mid, branch); //                                                    (C)
        }

        let (w, x) = (params.ln_f(), &a.x[config.n_layer]);
        layernorm::forward(
            cpu, &mut a.ln_f, &mut a.ln_f_stat, x, w.weight, w.bias, (1, c),
        ); //                                                                                (C)
    }
}

fn sum(out: &mut [f32], x: &[f32], y: &[f32]) {
    out.iter_mut().zip(x).zip(y).for_each(|((out, x), y)| *out = x + y);
}
