//! Softmax and negative log-likelihood together, as they can only be computed safely.
//!
//! Derivation: `docs/math/cross-entropy.md`.

use crate::par::{Cpu, Shared, rows_of_share};
use crate::profile::Op;
use crate::simd::math::exp;
use crate::simd::{Simd, dispatch};

/// Targets with this value count for nothing, as in PyTorch's `ignore_index=-1`.
pub const IGNORE: i32 = -1;

/// ```text
/// lse[n]    = ln Σ_v exp(logits[n, v])
/// losses[n] = lse[n] - logits[n, targets[n]],  0 where the target is -1
/// ```
/// `losses` (N) and `lse` (N) written; `logits` (N, V), `targets` (N) read. Panics when a target is
/// neither -1 nor in 0..V.
pub fn forward(
    cpu: &Cpu,
    losses: &mut [f32],
    lse: &mut [f32],
    logits: &[f32],
    targets: &[i32],
    (n, v): (usize, usize),
) {
    assert_eq!((losses.len(), lse.len(), logits.len(), targets.len()), (n, n, n * v, n));
    let _time = cpu.timed(Op::new("loss forward", &[n, v], 30 * n * v, n * v + 3 * n));
    let isa = cpu.isa();
    let (losses, lse) = (Shared::of(losses), Shared::of(lse));
    cpu.run(|worker| {
        while let Some(rows) = worker.turns.take_share(n, rows_of_share(v)) {
            let (logits, targets) = (&logits[rows.start * v..rows.end * v], &targets[rows.clone()]);
            // SAFETY: this worker alone has these rows.
            let (losses, lse) = unsafe { (losses.slice(rows.clone()), lse.slice(rows)) };
            dispatch!(isa, lse_rows, lse: &mut [f32], logits: &[f32], v: usize);
            for (i, loss) in losses.iter_mut().enumerate() {
                *loss = match targets[i] {
                    IGNORE => 0.0,
                    target => lse[i] - logits[i * v..(i + 1) * v][target as usize],
                };
            }
        }
    });
}

#[inline(always)]
fn lse_rows<S: Simd>(s: S, lse: &mut [f32], logits: &[f32], v: usize) {
    let whole = v / S::LANES * S::LANES;
    for (lse, logits) in lse.iter_mut().zip(logits.chunks_exact(v)) {
        let mut most = s.splat(f32::NEG_INFINITY);
        for at in (0..whole).step_by(S::LANES) {
            most = s.max(most, s.load(&logits[at..]));
        }
        let max = logits[whole..].iter().copied().fold(s.largest(most), f32::max);
        // `exp` takes nothing above its range because the largest exponent is 0.
        let (mut sum, m) = (s.splat(0.0), s.splat(max));
        for at in (0..whole).step_by(S::LANES) {
            sum = s.add(sum, exp(s, s.sub(s.load(&logits[at..]), m)));
        }
        let mut total = s.sum(sum);
        for x in &logits[whole..] {
            total += (x - max).exp();
        }
        *lse = max + total.ln();
    }
}

/// In place, `logits` becoming their own gradient:
/// ```text
/// dlogits[n, v] = scale (exp(logits[n, v] - lse[n]) - [v = targets[n]]),  0 where the target is -1
/// ```
/// `scale` is one over the number of valid targets of the whole batch. `dlogits` (N, V) holds the
/// logits and is written; `lse` (N), `targets` (N) read.
pub fn backward(
    cpu: &Cpu,
    dlogits: &mut [f32],
    lse: &[f32],
    targets: &[i32],
    scale: f32,
    (n, v): (usize, usize),
) {
    assert_eq!((dlogits.len(), lse.len(), targets.len()), (n * v, n, n));
    let _time = cpu.timed(Op::new("loss backward", &[n, v], 28 * n * v, 2 * n * v + 2 * n));
    let isa = cpu.isa();
    let dlogits = Shared::of(dlogits);
    cpu.run(|worker| {
        while let Some(rows) = worker.turns.take_share(n, rows_of_share(v)) {
            // SAFETY: this worker alone has these rows.
            let d = unsafe { dlogits.slice(rows.start * v..rows.end * v) };
            let (lse, targets) = (&lse[rows.clone()], &targets[rows]);
            dispatch!(
                isa, backward_rows, d: &mut [f32], lse: &[f32], targets: &[i32], scale: f32,
                v: usize,
            );
        }
    });
}

#[inline(always)]
fn backward_rows<S: Simd>(s: S, d: &mut [f32], lse: &[f32], targets: &[i32], scale: f32, v: usize) {
    let whole = v / S::LANES * S::LANES;
    for ((d, lse), target) in d.chunks_exact_mut(v).zip(lse).zip(targets) {
        if *target == IGNORE {
            d.fill(0.0);
            continue;
        }
        let (l, f) = (s.splat(*lse), s.splat(scale));
        for at in (0..whole).step_by(S::LANES) {
            let p = exp(s, s.sub(s.load(&d[at..]), l));
            s.store(&mut d[at..], s.mul(p, f));
        }
        let rest = exp(s, s.sub(s.load_part(&d[whole..]), l));
        s.store_part(&mut d[whole..], s.mul(rest, f));
        d[*target as usize] -= scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, assert_close, numeric_gradient, on_every_isa, random};

    #[test]
    fn forward_and_backward_match_the_reference_and_finite_differences() {
        on_every_isa(|cpu| {
            for (n, v) in [(1, 1), (3, 7), (4, 65), (2, 1000)] {
                let logits = random(1, n * v);
                let targets: Vec<i32> =
                    (0..n).map(|i| if i == 1 { IGNORE } else { (i * 5 % v) as i32 }).collect();
                let (mut losses, mut lse) = (vec![f32::NAN; n], vec![f32::NAN; n]);
                forward(cpu, &mut losses, &mut lse, &logits, &targets, (n, v));
                assert_close(&losses, &reference::cross_entropy(&logits, &targets, (n, v)), 1e-6);
                let mut d = logits.clone();
                backward(cpu, &mut d, &lse, &targets, 0.25, (n, v));
                let loss = |x: &[f32]| {
                    0.25 * reference::cross_entropy(x, &targets, (n, v)).iter().sum::<f64>()
                };
                assert_close(&d, &numeric_gradient(&logits, loss), 1e-5);
            }
        });
    }

    #[test]
    fn huge_logits_give_finite_losses_and_a_nan_logit_a_nan_loss() {
        on_every_isa(|cpu| {
            let mut logits = vec![-1e30; 20];
            (logits[3], logits[19]) = (1e30, 1e30);
            let (mut losses, mut lse) = (vec![0.0; 2], vec![0.0; 2]);
            forward(cpu, &mut losses, &mut lse, &logits, &[3, 9], (2, 10));
            assert_eq!(losses, [0.0, 0.0]);
            logits[1] = f32::NAN;
            forward(cpu, &mut losses, &mut lse, &logits, &[3, 9], (2, 10));
            assert!(losses[0].is_nan() && losses[1] == 0.0, "{losses:?}");
        });
    }
}
