//! The backward pass from where `head.rs` leaves it. Its mirror is `forward.rs`: the same lines,
//! from last to first.

use super::{Dropout, Gpt};
use tinygpt_kernels::{activation, dropout, embedding, layernorm, linear};

/// Adds to `gpt.grads` what the gradient in `gpt.acts.d.c`, of the last LayerNorm's output (B, T, C),
/// comes to, after the forward pass over the same `idx` (B, T) and `drop`.
#[rustfmt::skip] // one op a paragraph, its result's shape at the end
pub(super) fn trunk(gpt: &mut Gpt, idx: &[u32], drop: Dropout, (b, t): (usize, usize)) {
    let Gpt { config, params, grads, acts: a, cpu, attention, .. } = gpt;
    let (n, c, h) = (b * t, config.n_embd, config.n_head);
    let d = &mut a.d;

    d.x.fill(0.0);
    let (w, g, x) = (params.ln_f(), grads.ln_f_mut(), &a.x[config.n_layer]);
    layernorm::backward(
        cpu, &mut d.x, g.weight, g.bias, &d.c, x, &a.ln_f_stat, w.weight, (n, c),
    ); //                                                                                   (B, T, C)

    for l in (0..config.n_layer).rev() {
        let (w, g) = (params.block(l), grads.block_mut(l));
        let (x, a) = (&a.x[l], &mut a.h[l]);

        // MLP
        dropout::backward_residual(cpu, &mut d.c, &d.x, drop.mlp_branch(l), (n, c)); //     (B, T, C)
        linear::backward_input(
            cpu, &mut d.fc, &d.c, w.mlp.c_proj.weight, (n, 4 * c, c),
        ); //                                                                               (B, T, 4C)
        activation::backward(cpu, &mut d.fc, &mut a.fc, config.activation.into()); //       (B, T, 4C)
        let gelu = &a.fc; // again, as forward had it: only fc was kept                     (B, T, 4C)
        linear::backward_params(
            cpu, g.mlp.c_proj.weight, g.mlp.c_proj.bias, &d.c, gelu, (n, 4 * c, c),
        ); //                                                                               (C, 4C)
        linear::backward(
            cpu, &mut d.c, g.mlp.c_fc.weight, g.mlp.c_fc.bias,
            &d.fc, &a.ln_2, w.mlp.c_fc.weight, (n, c, 4 * c),
        ); //                                                                               (B, T, C)
        layernorm::backward(
            cpu, &mut d.x, g.ln_2.weight, g.ln_2.bias,
            &d.c, &a.mid, &a.ln_2_stat, w.ln_2.weight, (n, c),
        ); //                                                                               (B, T, C)

        // attention
        dropout::backward_residual(cpu, &mut d.c, &d.x, drop.attention_branch(l), (n, c)); // (B, T, C)
        linear::backward(
            cpu, &mut d.y, g.attn.c_proj.weight, g.attn.c_proj.bias,
            &d.c, &a.y, w.attn.c_proj.weight, (n, c, c),
        ); //                                                                               (B, T, C)
        attention.backward(
            cpu, &mut d.qkv, &d.y, &a.qkv, &a.y, &a.seen, drop.attention(l, h), (b, t, c, h),
        ); //                                                                               (B, T, 3C)
        linear::backward(
            cpu, &mut d.c, g.attn.c_attn.weight, g.attn.c_attn.bias,
            &d.qkv, &a.ln_1, w.attn.c_attn.weight, (n, c, 3 * c),
        ); //                                                                               (B, T, C)
        layernorm::backward(
            cpu, &mut d.x, g.ln_1.weight, g.ln_1.bias,
            &d.c, x, &a.ln_1_stat, w.ln_1.weight, (n, c),
        ); //                                                                               (B, T, C)
    }

    let (dwte, dwpe) = grads.embeddings_mut();
    dropout::apply(cpu, &mut d.x, drop.embedding(), (n, c)); //                             (B, T, C)
    embedding::backward(cpu, dwte, dwpe, &d.x, idx, (b, t, c)); //                          (V, C)
}
