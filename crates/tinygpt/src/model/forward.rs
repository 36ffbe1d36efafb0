//! The forward pass up to the logits, which are `head.rs`. Its mirror is `backward.rs`: the same
//! lines, from last to first.

use super::{Dropout, Gpt, Keep};
use tinygpt_kernels::{activation, dropout, embedding, layernorm, linear};

/// Fills `gpt.acts` up to the last LayerNorm, from `idx` (B, T); all of it, if a backward or what
/// writes texts is to `keep` all.
#[rustfmt::skip] // one op a paragraph, its result's shape at the end
pub(crate) fn trunk(gpt: &mut Gpt, idx: &[u32], drop: Dropout, keep: Keep, (b, t): (usize, usize)) {
    let Gpt { config, params, acts: a, cpu, attention, .. } = gpt;
    let (n, c, h) = (b * t, config.n_embd, config.n_head);
    a.shape(config, *attention, keep, (b, t));

    embedding::forward(cpu, &mut a.x[0], idx, params.wte(), params.wpe(), 0, (b, t, c)); // (B, T, C)
    dropout::apply(cpu, &mut a.x[0], drop.embedding(), (n, c)); //                          (B, T, C)

    for l in 0..config.n_layer {
        let w = params.block(l);
        let (x, next, branch, gelu, a) = a.block(l, keep);

        // attention: x + c_proj(attend(c_attn(ln_1(x))))
        layernorm::forward(
            cpu, &mut a.ln_1, &mut a.ln_1_stat, x, w.ln_1.weight, w.ln_1.bias, (n, c),
        ); //                                                                               (B, T, C)
        linear::forward(
            cpu, &mut a.qkv, &a.ln_1, w.attn.c_attn.weight, w.attn.c_attn.bias, (n, c, 3 * c),
        ); //                                                                               (B, T, 3C)
        attention.forward(
            cpu, &mut a.y, &mut a.seen, &a.qkv, drop.attention(l, h), (b, t, c, h),
        ); //                                                                               (B, T, C)
        linear::forward(
            cpu, branch, &a.y, w.attn.c_proj.weight, w.attn.c_proj.bias, (n, c, c),
        ); //                                                                               (B, T, C)
        dropout::forward_residual(
            cpu, &mut a.mid, x, branch, drop.attention_branch(l), (n, c),
        ); //                                                                               (B, T, C)

        // MLP: mid + c_proj(gelu(c_fc(ln_2(mid))))
        layernorm::forward(
            cpu, &mut a.ln_2, &mut a.ln_2_stat, &a.mid, w.ln_2.weight, w.ln_2.bias, (n, c),
        ); //                                                                               (B, T, C)
        linear::forward(
            cpu, &mut a.fc, &a.ln_2, w.mlp.c_fc.weight, w.mlp.c_fc.bias, (n, c, 4 * c),
        ); //                                                                               (B, T, 4C)
        activation::forward(cpu, gelu, &a.fc, config.activation.into()); //                 (B, T, 4C)
        linear::forward(
            cpu, branch, gelu, w.mlp.c_proj.weight, w.mlp.c_proj.bias, (n, 4 * c, c),
        ); //                                                                               (B, T, C)
        dropout::forward_residual(
            cpu, next, &a.mid, branch, drop.mlp_branch(l), (n, c),
        ); //                                                                               (B, T, C)
    }

    let (w, (x, ln_f, stat)) = (params.ln_f(), a.end(config.n_layer, keep));
    layernorm::forward(cpu, ln_f, stat, x, w.weight, w.bias, (n, c)); //                    (B, T, C)
}
