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
pub(super) fn loss_and_gradient(gpt: &mut Gpt, targets: &[i32], scale: f32) -> f64 {
    gpt.acts.shape_gradients(&gpt.config, targets.len());
    let mut sum = 0.0;
    for rows in pieces(targets.len(), gpt.config.vocab_size) {
        logits(gpt, rows.clone());
        sum += loss_of_logits(gpt, targets, rows.clone());
        loss_backward(gpt, targets, scale, rows.clone());
        logits_backward(gpt, rows);
    }
    sum
}

/// Turns the logits of some rows into the gradient of `scale` times the sum of their losses.
fn loss_backward(gpt: &mut Gpt, targets: &[i32], scale: f32, rows: Range<usize>) {
    let (Activations { logits_lse, logits, .. }, n) = (&mut gpt.acts, rows.len());
    let (lse, targets) = (&logits_lse[rows.clone()], &targets[rows]);
    let dims = (n, gpt.config.vocab_size);
    cross_entropy::backward(&gpt.cpu, logits, lse, targets, scale, dims); //                (N, V)
}

/// [`logits`] backwards, from their gradient in their place.
#[rustfmt::skip] // its results' shapes at the end
fn logits_backward(gpt: &mut Gpt, rows: Range<usize>) {
    let Gpt { config, params, grads, acts: a, cpu, .. } = gpt;
    let (n, c, v) = (rows.len(), config.n_embd, config.vocab_size);
    let part = rows.start * c..rows.end * c;
    linear::backward(
        cpu, &mut a.d.c[part.clone()], grads.unembedding_mut(), None,
        &a.logits, &a.ln_f[part], params.unembedding(), (n, c, v),
    ); //                                                                                   (N, C)
}

/// The logits (B, T, V) of the whole batch into the caller's memory.
#[rustfmt::skip] // its result's shape at the end
pub(super) fn all_logits(gpt: &mut Gpt, logits: &mut [f32], n: usize) {
    let Gpt { config, params, acts: a, cpu, .. } = gpt;
    let (c, v) = (config.n_embd, config.vocab_size);
    linear::forward(cpu, logits, &a.ln_f, params.unembedding(), None, (n, c, v)); //        (B, T, V)
}

/// The logits (B, V) after the last of each of B sequences of T into the caller's memory.
#[rustfmt::skip] // its results' shapes at the end
pub(super) fn last_logits(gpt: &mut Gpt, logits: &mut [f32], (b, t): (usize, usize)) {
    let Gpt { config, params, acts: a, cpu, .. } = gpt;
    let (c, v) = (config.n_embd, config.vocab_size);
    // The branch is used up by now, and has the room.
    let rows = a.ln_f.chunks_exact(c).skip(t - 1).step_by(t);
    a.branch.chunks_exact_mut(c).zip(rows).for_each(|(to, row)| to.copy_from_slice(row)); // (B, C)
    linear::forward(
        cpu, logits, &a.branch[..b * c], params.unembedding(), None, (b, c, v),
    ); //                                                                                   (B, V)
}

/// The sum of the losses of logits (B, T, V) that the caller has.
pub(super) fn loss_of(gpt: &mut Gpt, logits: &[f32], targets: &[i32]) -> f64 {
    let (Activations { losses, logits_lse, .. }, n) = (&mut gpt.acts, targets.len());
    let dims = (n, gpt.config.vocab_size);
    cross_entropy::forward(&gpt.cpu, losses, logits_lse, logits, targets, dims); //         (B, T)
    losses.iter().map(|&loss| loss as f64).sum()
}

/// As [`loss_and_gradient`], for logits (B, T, V) that the caller has: leaves the gradient of
/// `scale` times the sum of the losses at `targets` plus that of whatever has the gradient `dlogits`
/// (B, T, V).
pub(super) fn gradient(
    gpt: &mut Gpt,
    logits: &[f32],
    loss: Option<(&[i32], f32)>,
    dlogits: Option<&[f32]>,
) {
    let v = gpt.config.vocab_size;
    let n = logits.len() / v;
    gpt.acts.shape_gradients(&gpt.config, n);
    for rows in pieces(n, v) {
        let part = rows.start * v..rows.end * v;
        gpt.acts.logits.resize(part.len());
        match loss {
            Some((targets, scale)) => {
                gpt.acts.logits.copy_from_slice(&logits[part.clone()]);
                loss_backward(gpt, targets, scale, rows.clone());
            }
            None => gpt.acts.logits.fill(0.0),
        }
        if let Some(more) = dlogits {
            gpt.acts.logits.iter_mut().zip(&more[part]).for_each(|(sum, x)| *sum += x);
        }
        logits_backward(gpt, rows);
    }
}
