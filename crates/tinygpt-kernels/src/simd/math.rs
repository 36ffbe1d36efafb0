//! Elementary functions on vectors.

use super::Simd;

/// `e^x`, within 2 units in the last place; 0 below -87.3, the same as at 88.3 above that.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2` (Cody and Waite: ln 2 in two parts, so that `r` is
/// exact), then the Taylor polynomial of degree 7, whose remainder there is below 1e-8.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // In this range 2^n stays a normal number. The operand that may be NaN comes second.
    let clamped = s.min(s.splat(88.3), s.max(s.splat(-87.3), x));
    let n = s.round(s.mul(clamped, s.splat(std::f32::consts::LOG2_E)));
    let r = s.mul_add(n, s.splat(-LN2_LOW), s.mul_add(n, s.splat(-LN2_HIGH), clamped));
    let mut p = s.splat(1.0 / 5040.0);
    p = s.mul_add(p, r, s.splat(1.0 / 720.0));
    p = s.mul_add(p, r, s.splat(1.0 / 120.0));
    p = s.mul_add(p, r, s.splat(1.0 / 24.0));
    p = s.mul_add(p, r, s.splat(1.0 / 6.0));
    p = s.mul_add(p, r, s.splat(0.5));
    p = s.mul_add(p, r, s.splat(1.0));
    p = s.mul_add(p, r, s.splat(1.0));
    let result = s.mul(p, s.exp2_int(n));
    // Below the range an exact zero. `min` takes its second operand for a NaN, whose sign says
    // nothing.
    s.select_negative(s.min(s.add(x, s.splat(87.3)), s.splat(0.0)), s.splat(0.0), result)
}

/// `σ(x) = 1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// `(Φ(x), φ(x))`: the Gaussian's integral and density, within 3e-7.
///
/// Abramowitz and Stegun 7.1.26: `erfc(z) = t (a1 + t (a2 + ...)) e^(-z²)`, `t = 1 / (1 + p z)`,
/// at `z = |x| / √2`; then `Φ(-|x|) = erfc(z) / 2`, so the left tail suffers no cancellation.
#[inline(always)]
pub(crate) fn gaussian<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let half = s.splat(0.5);
    let one = s.splat(1.0);
    let bell = exp(s, s.mul(s.mul(x, x), s.splat(-0.5)));
    let z = s.mul(s.abs(x), s.splat(std::f32::consts::FRAC_1_SQRT_2));
    let t = s.div(one, s.mul_add(z, s.splat(0.327_591_1), one));
    let mut p = s.splat(1.061_405_4);
    p = s.mul_add(p, t, s.splat(-1.453_152_1));
    p = s.mul_add(p, t, s.splat(1.421_413_8));
    p = s.mul_add(p, t, s.splat(-0.284_496_72));
    p = s.mul_add(p, t, s.splat(0.254_829_6));
    let tail = s.mul(s.mul(half, s.mul(p, t)), bell);
    let integral = s.select_negative(x, tail, s.sub(one, tail));
    const ONE_OVER_SQRT_2PI: f32 = 0.398_942_3;
    (integral, s.mul(bell, s.splat(ONE_OVER_SQRT_2PI)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, dispatch};

    #[inline(always)]
    fn map_kernel<S: Simd>(s: S, out: &mut [f32], x: &[f32], what: usize) {
        for (out, x) in out.chunks_exact_mut(S::LANES).zip(x.chunks_exact(S::LANES)) {
            let x = s.load(x);
            let y = match what {
                0 => exp(s, x),
                1 => sigmoid(s, x),
                2 => gaussian(s, x).0,
                _ => gaussian(s, x).1,
            };
            s.store(out, y);
        }
    }

    fn map(isa: Isa, x: &[f32], what: usize) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        let out = &mut y[..];
        dispatch!(isa, map_kernel, out: &mut [f32], x: &[f32], what: usize);
        y
    }

    /// erf by its Taylor series in f64, good to 1e-12 for |x| < 5.
    fn erf(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn functions_stay_within_their_documented_errors() {
        let x: Vec<f32> = (0..16_000).map(|i| (i as f32 - 8000.0) * 1e-2).collect();
        for isa in Isa::available() {
            let (e, s) = (map(isa, &x, 0), map(isa, &x, 1));
            for (i, &x) in x.iter().enumerate() {
                let exact = (x as f64).exp();
                assert!(
                    (e[i] as f64 / exact - 1.0).abs() < 2.4e-7,
                    "exp({x}) = {} on {isa:?}",
                    e[i]
                );
                let exact = 1.0 / (1.0 + (-x as f64).exp());
                assert!((s[i] as f64 - exact).abs() < 2e-7, "sigmoid({x}) = {}", s[i]);
            }
            let x: Vec<f32> = (0..8000).map(|i| (i as f32 - 4000.0) * 1e-3).collect();
            let (integral, density) = (map(isa, &x, 2), map(isa, &x, 3));
            for (i, &x) in x.iter().enumerate() {
                let exact = 0.5 * (1.0 + erf(x as f64 / 2f64.sqrt()));
                assert!((integral[i] as f64 - exact).abs() < 3e-7, "Φ({x}) = {}", integral[i]);
                let exact = (-0.5 * (x as f64).powi(2)).exp() / (2.0 * std::f64::consts::PI).sqrt();
                assert!((density[i] as f64 - exact).abs() < 1e-7, "φ({x}) = {}", density[i]);
            }
        }
    }

    #[test]
    fn exp_of_very_negative_scores_is_exactly_zero_and_nan_stays_nan() {
        let x = [-1e30, f32::NEG_INFINITY, -100.0, f32::NAN, 0.0, 1.0, 200.0, 80.0].repeat(2);
        for isa in Isa::available() {
            let y = map(isa, &x, 0);
            assert_eq!(y[..3], [0.0; 3], "{isa:?}");
            assert!(y[3].is_nan() && y[4] == 1.0 && y[6] > 1e38, "{isa:?} {y:?}");
        }
    }
}
