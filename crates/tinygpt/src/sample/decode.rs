//! One token at a time: keys and values of earlier positions are kept, so a new position costs one
//! row instead of the whole context.
//!
//! Positions are absolute (`wpe`), so once the context is full every position moves by one with
//! each new token and nothing kept is valid: from there on each token is a whole forward pass over
//! the last block_size tokens, exactly as without a cache.

use crate::model::{Dropout, Gpt, forward};
use tinygpt_kernels::{Buffer, activation, attention::cached, embedding, layernorm, linear};

/// The keys and values of one sequence, and the rows of the position that is being computed.
pub(crate) struct Cache {
    /// Positions kept.
    len: usize,
    /// One for each block: (block_size, C).
    keys: Vec<Buffer>,
    values: Vec<Buffer>,
    row: Rows,
}

/// Activations of one position.
struct Rows {
    x: Buffer,
    c: Buffer,
    branch: Buffer,
    qkv: Buffer,
    fc: Buffer,
    gelu: Buffer,
    stat: [f32; 2],
    logits: Buffer,
}

impl Cache {
    pub(crate) fn new(gpt: &Gpt) -> Self {
        let config = gpt.config();
        let (c, t) = (config.n_embd, config.block_size);
        let kept = || (0..config.n_layer).map(|_| Buffer::zeros(t * c)).collect();
        let row = Rows {
            x: Buffer::zeros(c),
            c: Buffer::zeros(c),
            branch: Buffer::zeros(c),
            qkv: Buffer::zeros(3 * c),
            fc: Buffer::zeros(4 * c),
            gelu: Buffer::zeros(4 * c),
            stat: [0.0; 2],
            logits: Buffer::zeros(config.vocab_size),
        };
        Self { len: 0, keys: kept(), values: kept(), row }
    }

    /// The logits (V) after `tokens`, of which all but the last are already in the cache, or none.
    pub(crate) fn logits(&mut self, gpt: &mut Gpt, tokens: &[u32]) -> &[f32] {
        let t = gpt.config().block_size;
        if self.len + 1 == tokens.len() && tokens.len() <= t && self.len > 0 {
            self.step(gpt, tokens[self.len]);
        } else {
            self.prefill(gpt, &tokens[tokens.len().saturating_sub(t)..]);
        }
        let Gpt { params, cpu, .. } = gpt;
        let (c, v) = (self.row.c.len(), self.row.logits.len());
        linear::forward_few(
            cpu,
            &mut self.row.logits,
            &self.row.c,
            params.unembedding(),
            None,
            (1, c, v),
        );
        &self.row.logits
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
        self.row.c.copy_from_slice(&gpt.acts.ln_f[(t - 1) * c..]);
        self.len = t;
    }

    /// `model/forward.rs` for one position. Leaves its row of `ln_f`.
    #[rustfmt::skip] // one op a line, its result's shape at the end
    fn step(&mut self, gpt: &mut Gpt, token: u32) {
        let (c, h, at) = (gpt.config().n_embd, gpt.config().n_head, self.len);
        let (kind, layers) = (gpt.config().activation.into(), gpt.config().n_layer);
        let (params, cpu, r) = (&gpt.params, &gpt.cpu, &mut self.row);

        embedding::forward(cpu, &mut r.x, &[token], params.wte(), params.wpe(), at, (1, 1, c)); //        (C)
        for l in 0..layers {
            let w = params.block(l);
            let (keys, values) = (&mut self.keys[l][..(at + 1) * c], &mut self.values[l][..(at + 1) * c]);

            layernorm::forward(cpu, &mut r.c, &mut r.stat, &r.x, w.ln_1.weight, w.ln_1.bias, (1, c)); //   (C)
            linear::forward_few(cpu, &mut r.qkv, &r.c, w.attn.c_attn.weight, w.attn.c_attn.bias, (1, c, 3 * c)); // (3C)
            keys[at * c..].copy_from_slice(&r.qkv[c..2 * c]); //                                           (T, C)
            values[at * c..].copy_from_slice(&r.qkv[2 * c..]); //                                          (T, C)
            cached::forward(cpu, &mut r.c, &r.qkv[..c], keys, values, (at + 1, c, h)); //                  (C)
            linear::forward_few(cpu, &mut r.branch, &r.c, w.attn.c_proj.weight, w.attn.c_proj.bias, (1, c, c)); // (C)
            add(&mut r.x, &r.branch); //                                                                   (C)

            layernorm::forward(cpu, &mut r.c, &mut r.stat, &r.x, w.ln_2.weight, w.ln_2.bias, (1, c)); //   (C)
            linear::forward_few(cpu, &mut r.fc, &r.c, w.mlp.c_fc.weight, w.mlp.c_fc.bias, (1, c, 4 * c)); // (4C)
            activation::forward(cpu, &mut r.gelu, &r.fc, kind); //                                         (4C)
            linear::forward_few(cpu, &mut r.branch, &r.gelu, w.mlp.c_proj.weight, w.mlp.c_proj.bias, (1, 4 * c, c)); // (C)
            add(&mut r.x, &r.branch); //                                                                   (C)
        }
        let w = params.ln_f();
        layernorm::forward(cpu, &mut r.c, &mut r.stat, &r.x, w.weight, w.bias, (1, c)); //                 (C)
        self.len += 1;
    }
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
