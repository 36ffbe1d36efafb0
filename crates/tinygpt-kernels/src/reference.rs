//! Every op once more, in scalar f64 and as naive as possible: the oracle of the tests.
//!
//! Nothing here is fast and everything is obvious. Shapes and names are those of the fast twin;
//! inputs are f32, results f64.

use crate::activation::Kind;
use crate::adamw::Hyper;
use crate::cross_entropy::IGNORE;
use crate::rng::Stream;
#[cfg(test)]
use crate::{Cpu, Isa};

/// A number that becomes f64: the oracle takes both the fast kernels' f32 and its own f64.
pub trait Real: Copy {
    /// The same value in f64.
    fn real(self) -> f64;
}

impl Real for f32 {
    fn real(self) -> f64 {
        self as f64
    }
}

impl Real for f64 {
    fn real(self) -> f64 {
        self
    }
}

/// `y (N, O)` of [`crate::linear::forward`].
pub fn linear<R: Real>(
    x: &[R],
    w: &[R],
    b: Option<&[R]>,
    (n, i, o): (usize, usize, usize),
) -> Vec<f64> {
    let mut y = vec![0.0; n * o];
    for row in 0..n {
        for out in 0..o {
            let mut sum = b.map_or(0.0, |b| b[out].real());
            for at in 0..i {
                sum += x[row * i + at].real() * w[out * i + at].real();
            }
            y[row * o + out] = sum;
        }
    }
    y
}

/// `y (N, C)` of [`crate::layernorm::forward`].
pub fn layernorm<R: Real>(x: &[R], w: &[R], b: Option<&[R]>, (n, c): (usize, usize)) -> Vec<f64> {
    let mut y = vec![0.0; n * c];
    for row in 0..n {
        let x: Vec<f64> = x[row * c..(row + 1) * c].iter().map(|x| x.real()).collect();
        let mean = x.iter().sum::<f64>() / c as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / c as f64;
        let std = (variance + crate::layernorm::EPS as f64).sqrt();
        for col in 0..c {
            let bias = b.map_or(0.0, |b| b[col].real());
            y[row * c + col] = (x[col] - mean) / std * w[col].real() + bias;
        }
    }
    y
}

/// `(y (B, T, C), p (B, H, T, T))` of [`crate::attention`]: what each position takes from which.
/// Where `allowed(i, j)` is false, position i cannot see position j.
pub fn attention<R: Real>(
    qkv: &[R],
    allowed: impl Fn(usize, usize) -> bool,
    (b, t, c, h): (usize, usize, usize, usize),
) -> (Vec<f64>, Vec<f64>) {
    let d = c / h;
    let (mut y, mut p) = (vec![0.0; b * t * c], vec![0.0; b * h * t * t]);
    let at = |batch: usize, pos: usize, part: usize, head: usize, i: usize| {
        qkv[(batch * t + pos) * 3 * c + part * c + head * d + i].real()
    };
    for (batch, head) in (0..b * h).map(|x| (x / h, x % h)) {
        for i in 0..t {
            let row = &mut p[((batch * h + head) * t + i) * t..][..t];
            for j in (0..t).filter(|&j| allowed(i, j)) {
                let score: f64 =
                    (0..d).map(|x| at(batch, i, 0, head, x) * at(batch, j, 1, head, x)).sum();
                row[j] = (score / (d as f64).sqrt()).exp();
            }
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|p| *p /= sum);
            for x in 0..d {
                y[(batch * t + i) * c + head * d + x] =
                    (0..t).map(|j| row[j] * at(batch, j, 2, head, x)).sum();
            }
        }
    }
    (y, p)
}

/// Of [`crate::activation::forward`].
pub fn activation<R: Real>(x: &[R], kind: Kind) -> Vec<f64> {
    use std::f64::consts::{FRAC_1_SQRT_2, PI};
    x.iter()
        .map(|x| x.real())
        .map(|x| match kind {
            Kind::Gelu => x * 0.5 * erfc(-x * FRAC_1_SQRT_2),
            Kind::GeluTanh => {
                x * 0.5 * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
            Kind::Silu => x / (1.0 + (-x).exp()),
        })
        .collect()
}

/// `1 - erf(x)` to about 1e-14: the Taylor series near zero, Lentz's continued fraction beyond.
pub fn erfc(x: f64) -> f64 {
    let z = x.abs();
    let tail = if z < 2.5 {
        let (mut term, mut sum) = (z, z);
        for n in 1..100 {
            term *= -z * z / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        1.0 - sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let mut fraction = z;
        for k in (1..100).rev() {
            fraction = z + k as f64 / 2.0 / fraction;
        }
        (-z * z).exp() / std::f64::consts::PI.sqrt() / fraction
    };
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// The losses (N) of [`crate::cross_entropy::forward`].
pub fn cross_entropy<R: Real>(logits: &[R], targets: &[i32], (n, v): (usize, usize)) -> Vec<f64> {
    (0..n)
        .map(|row| {
            let logits: Vec<f64> =
                logits[row * v..(row + 1) * v].iter().map(|x| x.real()).collect();
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let lse = max + logits.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            if targets[row] == IGNORE { 0.0 } else { lse - logits[targets[row] as usize] }
        })
        .collect()
}

/// [`crate::adamw::step`].
pub fn adamw(w: &mut [f64], m: &mut [f64], v: &mut [f64], dw: &[f32], h: Hyper) {
    let [lr, beta1, beta2, eps, decay] =
        [h.lr, h.beta1, h.beta2, h.eps, h.weight_decay].map(f64::from);
    for i in 0..w.len() {
        let g = dw[i] as f64 * h.grad_scale as f64;
        m[i] = beta1 * m[i] + (1.0 - beta1) * g;
        v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
        let (mean, square) = (m[i] / h.correction1 as f64, v[i] / h.correction2 as f64);
        w[i] -= lr * decay * w[i] + lr * mean / (square.sqrt() + eps);
    }
}

/// `n` draws from N(0, 1), always the same for one `seed`: test data.
pub fn random(seed: u64, n: usize) -> Vec<f32> {
    let mut stream = Stream::new(seed, 0, 0);
    (0..n).map(|_| stream.normal() as f32).collect()
}

/// `Σ a b`
pub fn dot(a: &[f64], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * *b as f64).sum()
}

/// The gradient of `f` at `x` by central differences.
pub fn numeric_gradient(x: &[f32], f: impl Fn(&[f32]) -> f64) -> Vec<f64> {
    let mut at = x.to_vec();
    (0..x.len())
        .map(|i| {
            let h = 1e-3 * x[i].abs().max(1.0);
            at[i] = x[i] + h;
            let (above, up) = (f(&at), at[i] as f64);
            at[i] = x[i] - h;
            let (below, down) = (f(&at), at[i] as f64);
            at[i] = x[i];
            (above - below) / (up - down)
        })
        .collect()
}

/// Panics unless every |found - exact| is within `tolerance` of the largest |exact|.
pub fn assert_close(found: &[f32], exact: &[f64], tolerance: f64) {
    assert_eq!(found.len(), exact.len());
    let size = exact.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    for (i, (found, exact)) in found.iter().zip(exact).enumerate() {
        let error = (*found as f64 - exact).abs() / size;
        assert!(error <= tolerance, "[{i}]: {found} for {exact}, {error:.1e} over {tolerance:.1e}");
    }
}

/// Runs a test with every instruction set that this processor has, and says which it lacks.
#[cfg(test)]
pub(crate) fn on_every_isa(test: impl Fn(&Cpu)) {
    for name in Isa::NAMES {
        match Isa::named(name) {
            Some(isa) => test(&Cpu::new(2, isa)),
            None => eprintln!("skipped: this processor has no {name}"),
        }
    }
}
