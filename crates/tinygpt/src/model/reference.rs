//! The whole model once more, in f64 and as naive as possible: what the tests and `tinygpt check`
//! compare the fast one with.

use super::{Params, Tensors};
use crate::config::GptConfig;
use tinygpt_kernels::reference as op;

/// Every parameter in f64, by the same table.
pub fn widen(params: &Params) -> Tensors<Vec<f64>> {
    params.table().map(|spec| params.get(spec).iter().map(|&x| x as f64).collect())
}

/// Logits (B, T, V) for `idx` (B, T). Position i sees j where `allowed(i, j)`.
pub fn logits(
    config: &GptConfig,
    w: &Tensors<Vec<f64>>,
    idx: &[u32],
    allowed: impl Fn(usize, usize) -> bool + Copy,
    (b, t): (usize, usize),
) -> Vec<f64> {
    let (n, c, h) = (b * t, config.n_embd, config.n_head);
    let add = |x: &mut [f64], y: Vec<f64>| x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    let row = |table: &[f64], at: usize| table[at * c..(at + 1) * c].to_vec();

    let mut x = vec![0.0; n * c];
    for (i, x) in x.chunks_exact_mut(c).enumerate() {
        add(x, row(&w.wte, idx[i] as usize));
        add(x, row(&w.wpe, i % t));
    }
    for w in &w.h {
        let ln_1 = op::layernorm(&x, &w.ln_1.weight, w.ln_1.bias.as_deref(), (n, c));
        let qkv =
            op::linear(&ln_1, &w.attn.c_attn.weight, w.attn.c_attn.bias.as_deref(), (n, c, 3 * c));
        let (y, _) = op::attention(&qkv, allowed, (b, t, c, h));
        add(
            &mut x,
            op::linear(&y, &w.attn.c_proj.weight, w.attn.c_proj.bias.as_deref(), (n, c, c)),
        );
        let ln_2 = op::layernorm(&x, &w.ln_2.weight, w.ln_2.bias.as_deref(), (n, c));
        let fc = op::linear(&ln_2, &w.mlp.c_fc.weight, w.mlp.c_fc.bias.as_deref(), (n, c, 4 * c));
        let gelu = op::activation(&fc, config.activation.into());
        add(
            &mut x,
            op::linear(&gelu, &w.mlp.c_proj.weight, w.mlp.c_proj.bias.as_deref(), (n, 4 * c, c)),
        );
    }
    let ln_f = op::layernorm(&x, &w.ln_f.weight, w.ln_f.bias.as_deref(), (n, c));
    let head = w.lm_head.as_ref().unwrap_or(&w.wte);
    op::linear(&ln_f, head, None, (n, c, config.vocab_size))
}

/// The mean causal loss over the targets that are not -1.
pub fn loss(
    config: &GptConfig,
    w: &Tensors<Vec<f64>>,
    idx: &[u32],
    targets: &[i32],
    dims: (usize, usize),
) -> f64 {
    let logits = logits(config, w, idx, |i, j| j <= i, dims);
    let losses = op::cross_entropy(&logits, targets, (targets.len(), config.vocab_size));
    let valid = targets.iter().filter(|&&target| target != -1).count();
    losses.iter().sum::<f64>() / valid as f64
}
