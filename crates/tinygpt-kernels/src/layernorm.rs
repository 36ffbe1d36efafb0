//! LayerNorm over the last dimension: each row to mean 0 and variance 1, then a gain and a bias.
//!
//! Derivation: `docs/math/layernorm.md`. Source: Ba, Kiros, Hinton, "Layer normalization" (2016).

use crate::par::{Cpu, Shared, rows_of_share};
use crate::profile::Op;
use crate::simd::{Simd, dispatch};
use crate::sum::add_rows;

/// What is added to the variance: GPT-2's and PyTorch's 1e-5.
pub const EPS: f32 = 1e-5;

/// ```text
/// y[n, c] = (x[n, c] - mean[n]) * rstd[n] * w[c] + b[c],   rstd = 1 / sqrt(variance + EPS)
/// ```
/// `y` (N, C) and `stat` (N, 2) = (mean, rstd) written; `x` (N, C), `w` (C), `b` (C) read.
pub fn forward(
    cpu: &Cpu,
    y: &mut [f32],
    stat: &mut [f32],
    x: &[f32],
    w: &[f32],
    b: Option<&[f32]>,
    (n, c): (usize, usize),
) {
    assert_eq!((y.len(), stat.len(), x.len(), w.len()), (n * c, 2 * n, n * c, c));
    assert!(b.is_none_or(|b| b.len() == c), "one bias a column");
    let _time =
        cpu.timed(Op::new("layernorm forward", &[n, c], 8 * n * c, 2 * n * c + 2 * n + 2 * c));
    let isa = cpu.isa();
    let (y, stat) = (Shared::of(y), Shared::of(stat));
    cpu.run_for(n * c, |worker| {
        while let Some(rows) = worker.turns.take_share(n, rows_of_share(c)) {
            let x = &x[rows.start * c..rows.end * c];
            // SAFETY: this worker alone has these rows.
            let (y, stat) = unsafe {
                (y.slice(rows.start * c..rows.end * c), stat.slice(2 * rows.start..2 * rows.end))
            };
            dispatch!(
                isa, forward_rows, y: &mut [f32], stat: &mut [f32], x: &[f32], w: &[f32],
                b: Option<&[f32]>,
            );
        }
    });
}

#[inline(always)]
fn forward_rows<S: Simd>(
    s: S,
    y: &mut [f32],
    stat: &mut [f32],
    x: &[f32],
    w: &[f32],
    b: Option<&[f32]>,
) {
    let (lanes, c) = (S::LANES, w.len());
    let whole = c / lanes * lanes;
    for ((y, x), stat) in y.chunks_exact_mut(c).zip(x.chunks_exact(c)).zip(stat.chunks_exact_mut(2))
    {
        let mut sum = s.splat(0.0);
        for at in (0..whole).step_by(lanes) {
            sum = s.add(sum, s.load(&x[at..]));
        }
        let mean = (s.sum(sum) + x[whole..].iter().sum::<f32>()) / c as f32;
        // The variance around the mean just found: subtracting squares would cancel.
        let (mut square, m) = (s.splat(0.0), s.splat(mean));
        for at in (0..whole).step_by(lanes) {
            let d = s.sub(s.load(&x[at..]), m);
            square = s.mul_add(d, d, square);
        }
        let rest = x[whole..].iter().map(|x| (x - mean) * (x - mean)).sum::<f32>();
        let rstd = 1.0 / ((s.sum(square) + rest) / c as f32 + EPS).sqrt();
        (stat[0], stat[1]) = (mean, rstd);
        let r = s.splat(rstd);
        for at in (0..whole).step_by(lanes) {
            let hat = s.mul(s.sub(s.load(&x[at..]), m), r);
            let bias = b.map_or(s.splat(0.0), |b| s.load(&b[at..]));
            s.store(&mut y[at..], s.mul_add(hat, s.load(&w[at..]), bias));
        }
        for at in whole..c {
            y[at] = (x[at] - mean) * rstd * w[at] + b.map_or(0.0, |b| b[at]);
        }
    }
}

/// With `hat = (x - mean) rstd` and `g = dy w`:
/// ```text
/// dx[n, c] += rstd[n] (g[n, c] - mean_c(g) - hat[n, c] mean_c(g hat))
/// dw[c]    += Σ_n dy[n, c] hat[n, c]
/// db[c]    += Σ_n dy[n, c]
/// ```
/// `dx` (N, C), `dw` (C), `db` (C) added to; `dy` (N, C), `x` (N, C), `stat` (N, 2), `w` (C) read.
pub fn backward(
    cpu: &Cpu,
    dx: &mut [f32],
    dw: &mut [f32],
    db: Option<&mut [f32]>,
    dy: &[f32],
    x: &[f32],
    stat: &[f32],
    w: &[f32],
    (n, c): (usize, usize),
) {
    assert_eq!((dx.len(), dy.len(), x.len(), stat.len()), (n * c, n * c, n * c, 2 * n));
    assert_eq!((dw.len(), w.len()), (c, c));
    let _time =
        cpu.timed(Op::new("layernorm backward", &[n, c], 16 * n * c, 4 * n * c + 2 * n + 5 * c));
    let isa = cpu.isa();
    let dx = Shared::of(dx);
    cpu.run(|worker| {
        while let Some(rows) = worker.turns.take_share(n, rows_of_share(c)) {
            let floats = rows.start * c..rows.end * c;
            let (dy, x) = (&dy[floats.clone()], &x[floats.clone()]);
            let stat = &stat[2 * rows.start..2 * rows.end];
            // SAFETY: this worker alone has these rows.
            let dx = unsafe { dx.slice(floats) };
            dispatch!(
                isa, backward_rows, dx: &mut [f32], dy: &[f32], x: &[f32], stat: &[f32],
                w: &[f32],
            );
        }
    });
    let dw = Shared::of(dw);
    cpu.run(|worker| {
        let cols = worker.part(c, 16);
        // SAFETY: this worker alone has these columns.
        let dw = unsafe { dw.slice(cols.clone()) };
        let first = cols.start;
        dispatch!(
            isa, backward_gain, dw: &mut [f32], dy: &[f32], x: &[f32], stat: &[f32],
            first: usize, c: usize,
        );
    });
    if let Some(db) = db {
        add_rows(cpu, db, dy, (n, c));
    }
}

#[inline(always)]
fn backward_rows<S: Simd>(s: S, dx: &mut [f32], dy: &[f32], x: &[f32], stat: &[f32], w: &[f32]) {
    let (lanes, c) = (S::LANES, w.len());
    let whole = c / lanes * lanes;
    let rows = dx.chunks_exact_mut(c).zip(dy.chunks_exact(c)).zip(x.chunks_exact(c));
    for (((dx, dy), x), stat) in rows.zip(stat.chunks_exact(2)) {
        let (mean, rstd) = (stat[0], stat[1]);
        let (m, r) = (s.splat(mean), s.splat(rstd));
        let (mut sum_g, mut sum_gh) = (s.splat(0.0), s.splat(0.0));
        for at in (0..whole).step_by(lanes) {
            let g = s.mul(s.load(&dy[at..]), s.load(&w[at..]));
            let hat = s.mul(s.sub(s.load(&x[at..]), m), r);
            (sum_g, sum_gh) = (s.add(sum_g, g), s.mul_add(g, hat, sum_gh));
        }
        let (mut mean_g, mut mean_gh) = (s.sum(sum_g), s.sum(sum_gh));
        for at in whole..c {
            let (g, hat) = (dy[at] * w[at], (x[at] - mean) * rstd);
            (mean_g, mean_gh) = (mean_g + g, mean_gh + g * hat);
        }
        (mean_g, mean_gh) = (mean_g / c as f32, mean_gh / c as f32);
        let (mg, mgh) = (s.splat(mean_g), s.splat(mean_gh));
        for at in (0..whole).step_by(lanes) {
            let g = s.mul(s.load(&dy[at..]), s.load(&w[at..]));
            let hat = s.mul(s.sub(s.load(&x[at..]), m), r);
            let inner = s.sub(s.sub(g, mg), s.mul(hat, mgh));
            let sum = s.mul_add(r, inner, s.load(&dx[at..]));
            s.store(&mut dx[at..], sum);
        }
        for at in whole..c {
            let (g, hat) = (dy[at] * w[at], (x[at] - mean) * rstd);
            dx[at] += rstd * (g - mean_g - hat * mean_gh);
        }
    }
}

/// `dw` is the part of the gain's gradient that starts at column `first` of `c`.
#[inline(always)]
fn backward_gain<S: Simd>(
    _: S,
    dw: &mut [f32],
    dy: &[f32],
    x: &[f32],
    stat: &[f32],
    first: usize,
    c: usize,
) {
    let rows = dy.chunks_exact(c).zip(x.chunks_exact(c)).zip(stat.chunks_exact(2));
    for ((dy, x), stat) in rows {
        let (mean, rstd) = (stat[0], stat[1]);
        let (dy, x) = (&dy[first..first + dw.len()], &x[first..first + dw.len()]);
        for ((dw, dy), x) in dw.iter_mut().zip(dy).zip(x) {
            *dw += dy * ((x - mean) * rstd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, assert_close, numeric_gradient, on_every_isa, random};

    #[test]
    fn forward_matches_the_reference() {
        on_every_isa(|cpu| {
            for (n, c) in [(1, 1), (3, 7), (5, 8), (6, 17), (700, 39)] {
                let (x, w, b) = (random(1, n * c), random(2, c), random(3, c));
                let (mut y, mut stat) = (vec![f32::NAN; n * c], vec![f32::NAN; 2 * n]);
                for b in [None, Some(&b[..])] {
                    forward(cpu, &mut y, &mut stat, &x, &w, b, (n, c));
                    assert_close(&y, &reference::layernorm(&x, &w, b, (n, c)), 2e-6);
                }
            }
        });
    }

    #[test]
    fn a_row_far_from_zero_keeps_its_variance() {
        on_every_isa(|cpu| {
            let x: Vec<f32> = random(1, 64).iter().map(|x| 1000.0 + x).collect();
            let (mut y, mut stat, one) = (vec![0.0; 64], vec![0.0; 2], vec![1.0; 64]);
            forward(cpu, &mut y, &mut stat, &x, &one, None, (1, 64));
            assert_close(&y, &reference::layernorm(&x, &one, None, (1, 64)), 1e-4);
        });
    }

    #[test]
    fn backward_matches_finite_differences() {
        on_every_isa(|cpu| {
            for (n, c) in [(4, 3), (3, 21), (5, 32)] {
                let (x, w, b, dy) =
                    (random(1, n * c), random(2, c), random(3, c), random(4, n * c));
                let (mut y, mut stat) = (vec![0.0; n * c], vec![0.0; 2 * n]);
                forward(cpu, &mut y, &mut stat, &x, &w, Some(&b), (n, c));
                let (mut dx, mut dw, mut db) = (vec![0.0; n * c], vec![0.0; c], vec![0.0; c]);
                backward(cpu, &mut dx, &mut dw, Some(&mut db), &dy, &x, &stat, &w, (n, c));
                let loss = |x: &[f32], w: &[f32], b: &[f32]| {
                    reference::dot(&reference::layernorm(x, w, Some(b), (n, c)), &dy)
                };
                assert_close(&dx, &numeric_gradient(&x, |x| loss(x, &w, &b)), 2e-4);
                assert_close(&dw, &numeric_gradient(&w, |w| loss(&x, w, &b)), 1e-5);
                assert_close(&db, &numeric_gradient(&b, |b| loss(&x, &w, b)), 1e-5);
            }
        });
    }
}
