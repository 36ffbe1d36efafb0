//! From the last LayerNorm's output to the loss, and back: the pages `forward.rs` and `backward.rs`
//! meet here.
//!
//! The logits are the largest thing in a model with a large vocabulary, and nothing but the loss
//! needs them. So a few rows go all the way to the loss and back before the next.

use super::Gpt;
use super::activations::{Activations, logits_rows};
use std::ops::Range;
use tinygpt_kernels::{cross_entropy, linear};

/// `n` rows in pieces of almost one size.
fn pieces(n: usize, v: usize) -> impl Iterator<Item = Range<usize>> {
    let rows = n.div_ceil(n.div_ceil(logits_rows(n, v)));
    (0..n).step_by(rows).map(move |start| start..(start + rows).min(n))
}

/// The logits (N, V) of some rows of the batch, after [`trunk`](super::forward::trunk).
#[rustfmt::skip] // its result's shape at the end
pub(super) fn logits(gpt: &mut Gpt, rows: Range<usize>) {
    let Gpt { config, params, acts: a, cpu, .. } = gpt;
    let (n, c, v) = (rows.len(), config.n_embd, config.vocab_size);
    a.logits.resize(n * v);
    let ln_f = &a.ln_f[rows.start * c..rows.end * c];
    linear::forward(cpu, &mut a.logits, ln_f, params.unembedding(), None, (n, c, v)); //    (N, V)
}

/// The sum (not the mean) of the losses of the rows that [`logits`] was called for, at their
/// `targets` (N), -1 counting nothing.
pub(super) fn loss_of_logits(gpt: &mut Gpt, targets: &[i32], rows: Range<usize>) -> f64 {
    let (Activations { losses, logits_lse, logits, .. }, n) = (&mut gpt.acts, rows.len());
    let (losses, lse) = (&mut losses[rows.clone()], &mut logits_lse[rows.clone()]);
    let dims = (n, gpt.config.vocab_size);
    cross_entropy::forward(&gpt.cpu, losses, lse, logits, &targets[rows], dims); //         (N)
    // Multiples of 2^-24 add up exactly to 2^29, that is over more than ten million tokens at once,
    // so that the sum does not depend on how a batch is cut.
    const FINE: f64 = (1u64 << 24) as f64;
    losses.iter().map(|&loss| (loss as f64 * FINE).round() / FINE).sum()
}

/// The sum of the losses at `targets` (B, T).
pub(super) fn loss(gpt: &mut Gpt, targets: &[i32]) -> f64 {
    let mut sum = 0.0;
    for rows in pieces(targets.len(), gpt.config.vocab_size) {
        logits(gpt, rows.clone());
        sum += loss_of_logits(gpt, targets, rows);
    }
    sum
}

/// The same; leaves the gradient of `scale` times it in `gpt.acts.d.c` (B, T, C), for
/// [`trunk`](super::backward::trunk), and adds that of the unembedding to `gpt.grads`.
#[rustfmt::skip] // its results' shapes at the end
pub(super) fn loss_and_gradient(gpt: &mut Gpt, targets: &[i32], scale: f32) -> f64 {
    let (c, v) = (gpt.config.n_embd, gpt.config.vocab_size);
    gpt.acts.shape_gradients(&gpt.config, targets.len());
    let mut sum = 0.0;
    for rows in pieces(targets.len(), v) {
        logits(gpt, rows.clone());
        sum += loss_of_logits(gpt, targets, rows.clone());

        let Gpt { params, grads, acts: a, cpu, .. } = gpt;
        let (n, part) = (rows.len(), rows.start * c..rows.end * c);
        cross_entropy::backward(
            cpu, &mut a.logits, &a.logits_lse[rows.clone()], &targets[rows], scale, (n, v),
        ); //                                                                               (N, V)
        linear::backward(
            cpu, &mut a.d.c[part.clone()], grads.unembedding_mut(), None,
            &a.logits, &a.ln_f[part], params.unembedding(), (n, c, v),
        ); //                                                                               (N, C)
    }
    sum
}
