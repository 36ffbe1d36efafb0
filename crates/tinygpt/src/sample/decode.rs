//! One token at a time: keys and values of earlier positions are kept, so a new position costs one
//! row instead of the whole context. Several texts go together, so that each weight is read once
//! for all; what a text becomes does not depend on the others.
//!
//! Positions are absolute (`wpe`), so once the context is full every position moves by one with
//! each new token and nothing kept is valid: from there on each token is a whole forward pass over
//! the last block_size tokens, exactly as without a cache.

use crate::config::GptConfig;
use crate::model::{Activations, Dropout, Gpt, Keep, Precision, forward};
use tinygpt_kernels::attention::cached::{self, KvCache, Place};
use tinygpt_kernels::decode::{self, End};
use tinygpt_kernels::{embedding, layernorm};

/// Tokens of a whole forward pass over several texts: more at once are no faster, and take memory.
/// (Few in tests, which then have several passes.)
const TOGETHER: usize = if cfg!(test) { 16 } else { 1024 };

/// Up to so many tokens that are not in the cache are read one by one: a whole forward pass packs
/// every weight, which takes as long. (Fewer in tests, whose contexts are shorter.)
const SHORT: usize = if cfg!(test) { 2 } else { 8 };

/// Bytes of the keys and values of so many texts of up to `longest` tokens, beside matrices that are
/// kept in `precision`.
pub fn cache_bytes(config: &GptConfig, precision: Precision, texts: usize, longest: usize) -> u64 {
    let room = longest.min(config.block_size) as u64;
    let of_one = match precision {
        Precision::F32 => size_of::<f32>(),
        Precision::Bf16 | Precision::Int8 => size_of::<u16>(),
    };
    let of_a_token = (2 * of_one * config.n_layer * config.n_embd) as u64;
    of_a_token.saturating_mul(room).saturating_mul(texts as u64)
}

/// The keys and values of some texts, and the activations of the position that is computed.
pub(crate) struct Cache {
    /// Positions kept of each text.
    len: usize,
    /// Positions there is place for.
    room: usize,
    /// One for each block: (texts, H, room, D).
    kv: Vec<KvCache>,
    /// With B = N, the texts still written, and T = 1.
    acts: Activations,
}

impl Cache {
    /// For so many texts of up to `longest` tokens.
    pub(crate) fn new(gpt: &Gpt, texts: usize, longest: usize) -> Self {
        Self::beside(gpt.precision(), gpt, texts, longest)
    }

    /// The same as it is beside matrices in `precision`.
    pub(super) fn beside(precision: Precision, gpt: &Gpt, texts: usize, longest: usize) -> Self {
        let (config, room) = (gpt.config(), longest.min(gpt.config().block_size));
        let len = texts * room * config.n_embd;
        let zeros = match precision {
            Precision::F32 => KvCache::f32,
            Precision::Bf16 | Precision::Int8 => KvCache::bf16,
        };
        let kv = (0..config.n_layer).map(|_| zeros(len)).collect();
        Self { len: 0, room, kv, acts: Activations::default() }
    }

    /// The logits (N, V) after each of the `open` ones of `texts`. All of these are as long; what is in
    /// the cache are their first tokens, or it does not matter any more.
    pub(crate) fn logits(&mut self, gpt: &mut Gpt, open: &[usize], texts: &[Vec<u32>]) -> &[f32] {
        let (n, c, v) = (open.len(), gpt.config().n_embd, gpt.config().vocab_size);
        let len = texts[open[0]].len();
        assert!(open.iter().all(|&text| texts[text].len() == len), "texts of different lengths");
        self.acts.shape(gpt.config(), gpt.attention, Keep::Last, (n, 1));
        self.acts.logits.resize(n * v);
        let fits = len <= gpt.config().block_size;
        if fits && len > self.len && len - self.len <= SHORT {
            self.steps(gpt, open, texts, len);
        } else {
            self.prefill(gpt, open, texts);
        }
        let (a, w) = (&mut self.acts, gpt.matrices.unembedding(&gpt.params));
        decode::forward(&gpt.cpu, &mut a.logits, &a.ln_f, w, None, End::Plain, (n, c, v));
        &a.logits
    }

    /// The tokens up to `len` that are not in the cache. A beginning that is the same for all texts
    /// is read once, and kept for each. Leaves the last rows of `ln_f`.
    fn steps(&mut self, gpt: &Gpt, open: &[usize], texts: &[Vec<u32>], len: usize) {
        let alike = self.len == 0 && open.iter().all(|&text| texts[text] == texts[open[0]]);
        let read = if alike { &open[..1] } else { open };
        let shape = |acts: &mut Activations, n| {
            acts.shape(gpt.config(), gpt.attention, Keep::Last, (n, 1));
        };
        shape(&mut self.acts, read.len());
        while self.len < len {
            let tokens: Vec<u32> = read.iter().map(|&text| texts[text][self.len]).collect();
            self.step(gpt, read, &tokens);
        }
        if read.len() < open.len() {
            let (c, h) = (gpt.config().n_embd, gpt.config().n_head);
            for kv in &mut self.kv {
                for &text in &open[1..] {
                    kv.copy((open[0], text), self.room, (len, c, h));
                }
            }
            let row = self.acts.ln_f.to_vec();
            shape(&mut self.acts, open.len());
            self.acts.ln_f.chunks_exact_mut(c).for_each(|to| to.copy_from_slice(&row));
        }
    }

    /// Whole forward passes, whose keys and values are kept. Leaves the last rows of `ln_f`.
    fn prefill(&mut self, gpt: &mut Gpt, open: &[usize], texts: &[Vec<u32>]) {
        let (full, c) = (gpt.config().block_size, gpt.config().n_embd);
        let t = texts[open[0]].len().min(full);
        let window = |text: usize| &texts[text][texts[text].len() - t..];
        // The prompt is the same for all.
        let alike = open.iter().all(|&text| window(text) == window(open[0]));
        let different = if alike { &open[..1] } else { open };
        let mut rows = self.acts.ln_f.chunks_exact_mut(c);
        for some in different.chunks((TOGETHER / t).max(1)) {
            let idx: Vec<u32> = some.iter().flat_map(|&text| window(text)).copied().collect();
            forward::trunk(gpt, &idx, Dropout::NONE, Keep::All, (some.len(), t));
            for (i, &text) in if alike { open } else { some }.iter().enumerate() {
                let at = if alike { 0 } else { i };
                let last = &gpt.acts.ln_f[((at + 1) * t - 1) * c..(at + 1) * t * c];
                rows.next().expect("a row for each text").copy_from_slice(last);
                // Nothing of a full context is valid for the next token.
                if t < full {
                    keep(&mut self.kv, gpt, (at, t), (text, self.room));
                }
            }
        }
        self.len = t;
    }

    /// The third mirror page: `model/forward.rs` for one position of N texts, which attends to those
    /// kept.
    #[rustfmt::skip] // one op a paragraph, its result's shape at the end
    fn step(&mut self, gpt: &Gpt, open: &[usize], tokens: &[u32]) {
        let (config, params, cpu, a) = (gpt.config(), &gpt.params, &gpt.cpu, &mut self.acts);
        let (n, at, t, c, h) = (open.len(), self.len, self.len + 1, config.n_embd, config.n_head);
        let place = Place { slots: open, room: self.room };
        self.len = t;

        embedding::forward(
            cpu, &mut a.x[0], tokens, params.wte(), params.wpe(), at, (n, 1, c),
        ); //                                                                                (N, C)

        for l in 0..config.n_layer {
            let (w, m) = (params.block(l), gpt.matrices.block(l, params));
            let (x, next, _, gelu, a) = a.block(l, Keep::Last);
            let kv = &mut self.kv[l];

            // attention: x + c_proj(attend(c_attn(ln_1(x))))
            layernorm::forward(
                cpu, &mut a.ln_1, &mut a.ln_1_stat, x, w.ln_1.weight, w.ln_1.bias, (n, c),
            ); //                                                                            (N, C)
            decode::forward(
                cpu, &mut a.qkv, &a.ln_1, m.attn.c_attn.weight, w.attn.c_attn.bias, End::Plain,
                (n, c, 3 * c),
            ); //                                                                            (N, 3C)
            cached::keep(kv, &a.qkv, place, at, (c, h)); //                                  (N, H, T, D)
            cached::forward(cpu, &mut a.y, &a.qkv, kv, place, (t, c, h)); //                 (N, C)
            decode::forward(
                cpu, &mut a.mid, &a.y, m.attn.c_proj.weight, w.attn.c_proj.bias, End::Add(x),
                (n, c, c),
            ); //                                                                            (N, C)

            // MLP: mid + c_proj(gelu(c_fc(ln_2(mid))))
            layernorm::forward(
                cpu, &mut a.ln_2, &mut a.ln_2_stat, &a.mid, w.ln_2.weight, w.ln_2.bias, (n, c),
            ); //                                                                            (N, C)
            decode::forward(
                cpu, gelu, &a.ln_2, m.mlp.c_fc.weight, w.mlp.c_fc.bias,
                End::Activation(config.activation.into()), (n, c, 4 * c),
            ); //                                                                            (N, 4C)
            decode::forward(
                cpu, next, gelu, m.mlp.c_proj.weight, w.mlp.c_proj.bias, End::Add(&a.mid),
                (n, 4 * c, c),
            ); //                                                                            (N, C)
        }

        let (w, (x, ln_f, stat)) = (params.ln_f(), a.end(config.n_layer, Keep::Last));
        layernorm::forward(cpu, ln_f, stat, x, w.weight, w.bias, (n, c)); //                 (N, C)
    }
}

/// Keeps what the `at`-th sequence of T of the last forward pass left, in the slot of its text.
fn keep(kv: &mut [KvCache], gpt: &Gpt, (at, t): (usize, usize), (slot, room): (usize, usize)) {
    let (c, h) = (gpt.config().n_embd, gpt.config().n_head);
    for (block, kv) in gpt.acts.h.iter().zip(kv) {
        let rows = block.qkv[at * t * 3 * c..(at + 1) * t * 3 * c].chunks_exact(3 * c);
        for (position, qkv) in rows.enumerate() {
            let place = Place { slots: &[slot], room };
            cached::keep(kv, qkv, place, position, (c, h));
        }
    }
}
