//! Weights in fewer bits: bf16, which is the upper half of an f32, and int8 with a scale for every
//! [`GROUP`] of them.
//!
//! A value in fewer bits is again an f32, the same wherever it is made: rounding that f32 again
//! changes nothing, and products with it may be computed by any kernel.

/// What the factors of a product are rounded to; its sums are f32 whatever they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Factors {
    /// Nothing: they are multiplied as they are.
    #[default]
    F32,
    /// The nearest bf16.
    Bf16,
}

/// Inputs of a row that share one scale of int8. The last group of a row may be shorter.
pub const GROUP: usize = 64;

/// The nearest bf16, to even on a tie; a NaN stays one.
#[inline(always)]
pub fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// Exactly the value of a bf16.
#[inline(always)]
pub fn from_bf16(x: u16) -> f32 {
    f32::from_bits((x as u32) << 16)
}

/// `values` and their `scale` written: `w[i] ≈ values[i] * scale`, within half a scale (of normal
/// numbers), with the largest at 127. What is not finite makes the scale so.
#[inline(always)]
pub fn to_int8(values: &mut [i8], scale: &mut f32, w: &[f32]) {
    assert_eq!(values.len(), w.len());
    // Without their signs, numbers are in the order of their bits, and what is none comes last.
    let most = w.iter().map(|w| w.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
    *scale = f32::from_bits(most) / 127.0;
    for (value, w) in values.iter_mut().zip(w) {
        // So far from 0 a float's last bits count ones: the sum is rounded to one, ties to even.
        let quotient = (w / *scale).clamp(-127.0, 127.0);
        *value = (quotient + 1.5 * (1 << 23) as f32).to_bits() as i8;
    }
}

/// The value of an int8 of a group with that scale.
#[inline(always)]
pub fn from_int8(value: i8, scale: f32) -> f32 {
    value as f32 * scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::random;

    #[test]
    fn bf16_is_the_nearest_with_ties_to_even() {
        for (x, rounded) in [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (-1.0 - 1.01 / 256.0, -1.0 - 2.0 / 256.0),
            (-0.0, -0.0),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
            (1e-45, 0.0),
        ] {
            assert_eq!(from_bf16(to_bf16(x)).to_bits(), f32::to_bits(rounded), "{x}");
        }
        // Whose payload is all in the half that goes.
        assert!(from_bf16(to_bf16(f32::from_bits(0x7F80_0001))).is_nan());
        for x in random(1, 1000) {
            let error = (from_bf16(to_bf16(x)) / x - 1.0).abs();
            assert!(error <= 1.0 / 256.0, "{x}: {error}");
        }
    }

    #[test]
    fn int8_is_within_half_a_scale_and_never_hides_what_is_not_finite() {
        let mut values = [0; GROUP];
        let mut scale = f32::NAN;
        for seed in 0..20 {
            let w = random(seed, GROUP - seed as usize);
            to_int8(&mut values[..w.len()], &mut scale, &w);
            for (&w, &value) in w.iter().zip(&values) {
                let error = (from_int8(value, scale) - w).abs();
                assert!(error <= 0.5001 * scale, "{w}: {error} of {scale}");
            }
            assert_eq!(values[..w.len()].iter().map(|x| x.unsigned_abs()).max(), Some(127));
        }
        to_int8(&mut values[..2], &mut scale, &[0.0, -0.0]);
        assert_eq!((values[..2].to_vec(), scale), (vec![0, 0], 0.0));
        // Where a scale has few bits itself.
        for most in 1..400 {
            to_int8(&mut values[..1], &mut scale, &[f32::from_bits(most)]);
            assert!(values[0] >= 0, "{most}: {}", values[0]);
        }
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in 0..3 {
                let mut w = [1.0, 2.0, 3.0];
                w[at] = broken;
                to_int8(&mut values[..3], &mut scale, &w);
                assert!(!from_int8(values[at], scale).is_finite(), "{broken} at {at}");
            }
        }
    }
}
