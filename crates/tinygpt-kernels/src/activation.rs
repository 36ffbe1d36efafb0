//! The MLP's non-linearity: exact GELU, GELU by tanh, SiLU.
//!
//! Derivation: `docs/math/gelu.md`. Sources: Hendrycks and Gimpel, "Gaussian error linear units"
//! (2016); Elfwing et al. (2018) for SiLU.

use crate::par::{Cpu, SHARE, Shared};
use crate::profile::Op;
use crate::simd::math::{gaussian, sigmoid};
use crate::simd::{Simd, dispatch};

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `x Φ(x)`, Φ the Gaussian integral: within 3e-7 |x|.
    Gelu,
    /// `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`
    GeluTanh,
    /// `x σ(x)`
    Silu,
}

/// `√(2/π)` and the cubic's weight in [`Kind::GeluTanh`].
const TANH: (f32, f32) = (0.797_884_6, 0.044_715);
/// Operations of arithmetic that [`Kind::Gelu`] takes for a number, about.
const FLOPS: usize = 50;

/// `y[i] = f(x[i])`. `y` written; `x` read.
pub fn forward(cpu: &Cpu, y: &mut [f32], x: &[f32], kind: Kind) {
    assert_eq!(y.len(), x.len());
    let _time = cpu.timed(Op::new("activation forward", &[x.len()], FLOPS * x.len(), 2 * x.len()));
    let isa = cpu.isa();
    let (n, y) = (x.len(), Shared::of(y));
    cpu.run_for(n, |worker| {
        while let Some(part) = worker.turns.take_share(n, SHARE) {
            let x = &x[part.clone()];
            // SAFETY: this worker alone has this part.
            let y = unsafe { y.slice(part) };
            dispatch!(isa, forward_part, y: &mut [f32], x: &[f32], kind: Kind);
        }
    });
}

#[inline(always)]
fn forward_part<S: Simd>(s: S, y: &mut [f32], x: &[f32], kind: Kind) {
    let whole = x.len() / S::LANES * S::LANES;
    for at in (0..whole).step_by(S::LANES) {
        let x = s.load(&x[at..]);
        s.store(&mut y[at..], value_and_slope(s, x, kind).0);
    }
    s.store_part(&mut y[whole..], value_and_slope(s, s.load_part(&x[whole..]), kind).0);
}

/// The same in place.
#[inline(always)]
pub(crate) fn in_place<S: Simd>(s: S, y: &mut [f32], kind: Kind) {
    let whole = y.len() / S::LANES * S::LANES;
    let (vectors, rest) = y.split_at_mut(whole);
    for y in vectors.chunks_exact_mut(S::LANES) {
        s.store(y, value_and_slope(s, s.load(y), kind).0);
    }
    s.store_part(rest, value_and_slope(s, s.load_part(rest), kind).0);
}

/// In place, dy becoming dx: `dx[i] = dy[i] f'(x[i])`, and x becomes f(x).
///
/// The slope needs the same exponential, so f(x) costs nothing here and need not be kept for the
/// gradient of the weight that it goes through. `dx` holds dy and is written; `x` read and written.
pub fn backward(cpu: &Cpu, dx: &mut [f32], x: &mut [f32], kind: Kind) {
    assert_eq!(dx.len(), x.len());
    let _time = cpu.timed(Op::new("activation backward", &[x.len()], FLOPS * x.len(), 4 * x.len()));
    let isa = cpu.isa();
    let (n, dx, x) = (x.len(), Shared::of(dx), Shared::of(x));
    cpu.run_for(n, |worker| {
        while let Some(part) = worker.turns.take_share(n, SHARE) {
            // SAFETY: this worker alone has this part of both.
            let (dx, x) = unsafe { (dx.slice(part.clone()), x.slice(part)) };
            dispatch!(isa, backward_part, dx: &mut [f32], x: &mut [f32], kind: Kind);
        }
    });
}

#[inline(always)]
fn backward_part<S: Simd>(s: S, dx: &mut [f32], x: &mut [f32], kind: Kind) {
    let whole = x.len() / S::LANES * S::LANES;
    for at in (0..whole).step_by(S::LANES) {
        let (value, slope) = value_and_slope(s, s.load(&x[at..]), kind);
        let product = s.mul(s.load(&dx[at..]), slope);
        s.store(&mut dx[at..], product);
        s.store(&mut x[at..], value);
    }
    let (value, slope) = value_and_slope(s, s.load_part(&x[whole..]), kind);
    let product = s.mul(s.load_part(&dx[whole..]), slope);
    s.store_part(&mut dx[whole..], product);
    s.store_part(&mut x[whole..], value);
}

/// `(f(x), f'(x))`; what the caller leaves unused is not computed.
#[inline(always)]
fn value_and_slope<S: Simd>(s: S, x: S::F, kind: Kind) -> (S::F, S::F) {
    let one = s.splat(1.0);
    match kind {
        Kind::Gelu => {
            let (integral, density) = gaussian(s, x);
            (s.mul(x, integral), s.mul_add(x, density, integral))
        }
        Kind::GeluTanh => {
            // (1 + tanh u) / 2 = σ(2u)
            let square = s.mul(x, x);
            let twice = s.splat(2.0 * TANH.0);
            let gate = sigmoid(s, s.mul(s.mul(twice, x), s.mul_add(s.splat(TANH.1), square, one)));
            let du = s.mul(twice, s.mul_add(s.splat(3.0 * TANH.1), square, one));
            (s.mul(x, gate), s.mul_add(s.mul(x, du), s.mul(gate, s.sub(one, gate)), gate))
        }
        Kind::Silu => {
            let gate = sigmoid(s, x);
            (s.mul(x, gate), s.mul_add(x, s.mul(gate, s.sub(one, gate)), gate))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, assert_close, numeric_gradient, on_every_isa, random};

    const KINDS: [Kind; 3] = [Kind::Gelu, Kind::GeluTanh, Kind::Silu];

    #[test]
    fn forward_matches_the_reference_far_into_both_tails() {
        on_every_isa(|cpu| {
            for kind in KINDS {
                for n in [1, 7, 8, 9, 5000] {
                    let x: Vec<f32> = random(1, n).iter().map(|x| 4.0 * x).collect();
                    let mut y = vec![f32::NAN; n];
                    forward(cpu, &mut y, &x, kind);
                    for ((y, exact), x) in y.iter().zip(reference::activation(&x, kind)).zip(&x) {
                        let error = (*y as f64 - exact).abs();
                        assert!(error <= 5e-7 * x.abs() as f64, "{kind:?}({x}) = {y}, not {exact}");
                    }
                }
            }
        });
    }

    #[test]
    fn backward_matches_finite_differences_and_leaves_the_activation() {
        on_every_isa(|cpu| {
            for kind in KINDS {
                let (x, dy) = (random(1, 61), random(2, 61));
                let (mut dx, mut y) = (dy.clone(), x.clone());
                backward(cpu, &mut dx, &mut y, kind);
                assert_close(&y, &reference::activation(&x, kind), 1e-6);
                let loss = |x: &[f32]| reference::dot(&reference::activation(x, kind), &dy);
                assert_close(&dx, &numeric_gradient(&x, loss), 1e-5);
            }
        });
    }

    #[test]
    fn exact_and_tanh_gelu_differ_as_they_should() {
        let x: Vec<f32> = (-400..400).map(|i| i as f32 * 0.01).collect();
        let (mut exact, mut tanh) = (vec![0.0; 800], vec![0.0; 800]);
        let cpu = Cpu::new(1, crate::Isa::best());
        forward(&cpu, &mut exact, &x, Kind::Gelu);
        forward(&cpu, &mut tanh, &x, Kind::GeluTanh);
        let most = exact.iter().zip(&tanh).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(most > 3e-4 && most < 5e-4, "{most}");
    }
}
