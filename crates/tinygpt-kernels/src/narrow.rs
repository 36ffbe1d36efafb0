//! Weights in fewer bits: bf16, which is the upper half of an f32, and int8 with a scale for every
//! [`GROUP`] of them.
//!
//! A value in fewer bits is again an f32, the same wherever it is made: rounding that f32 again
//! changes nothing, and products with it may be computed by any kernel.

use crate::par::{Cpu, SHARE, Shared, rows_of_share};
use crate::simd::{Simd, dispatch};

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

/// `w` rounded, and `values` written: what it was rounded to.
pub fn round_to_bf16(cpu: &Cpu, values: &mut [u16], w: &mut [f32]) {
    assert_eq!(values.len(), w.len());
    let (isa, len, values, w) = (cpu.isa(), w.len(), Shared::of(values), Shared::of(w));
    cpu.run_for(len, |worker| {
        while let Some(part) = worker.turns.take_share(len, SHARE) {
            // SAFETY: this worker alone has this part.
            let (values, w) = unsafe { (values.slice(part.clone()), w.slice(part)) };
            dispatch!(isa, bf16, values: &mut [u16], w: &mut [f32]);
        }
    });
}

#[inline(always)]
fn bf16<S: Simd>(_: S, values: &mut [u16], w: &mut [f32]) {
    for (value, w) in values.iter_mut().zip(w) {
        *value = to_bf16(*w);
        *w = from_bf16(*value);
    }
}

/// `w` (O, I) rounded, and `values` (O, I) and `scales` (O, I / GROUP, rounded up) written.
pub fn round_to_int8(
    cpu: &Cpu,
    values: &mut [i8],
    scales: &mut [f32],
    w: &mut [f32],
    (o, i): (usize, usize),
) {
    let groups = i.div_ceil(GROUP);
    assert_eq!((values.len(), w.len(), scales.len()), (o * i, o * i, o * groups));
    let isa = cpu.isa();
    let (values, scales, w) = (Shared::of(values), Shared::of(scales), Shared::of(w));
    cpu.run_for(o * i, |worker| {
        while let Some(rows) = worker.turns.take_share(o, rows_of_share(i)) {
            for row in rows {
                let place = row * i..(row + 1) * i;
                // SAFETY: this worker alone has this row.
                let (values, w) = unsafe { (values.slice(place.clone()), w.slice(place)) };
                // SAFETY: likewise.
                let scales = unsafe { scales.slice(row * groups..(row + 1) * groups) };
                dispatch!(isa, int8, values: &mut [i8], scales: &mut [f32], w: &mut [f32]);
            }
        }
    });
}

#[inline(always)]
fn int8<S: Simd>(_: S, values: &mut [i8], scales: &mut [f32], w: &mut [f32]) {
    for ((values, w), scale) in values.chunks_mut(GROUP).zip(w.chunks_mut(GROUP)).zip(scales) {
        to_int8(values, scale, w);
        w.iter_mut().zip(values).for_each(|(w, value)| *w = from_int8(*value, *scale));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{on_every_isa, random};

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
    fn rounding_is_the_same_on_every_instruction_set_and_any_number_of_threads() {
        let (o, i) = (301, 3 * GROUP - 7);
        let w = random(5, o * i);
        let bf16: Vec<u16> = w.iter().map(|&w| to_bf16(w)).collect();
        let wide: Vec<f32> = bf16.iter().map(|&value| from_bf16(value)).collect();
        let (mut int8, mut scales, mut scaled) = (vec![0; o * i], vec![0.0; o * 3], w.clone());
        for (row, of) in w.chunks(i).enumerate() {
            for (group, w) in of.chunks(GROUP).enumerate() {
                let at = row * i + group * GROUP..row * i + group * GROUP + w.len();
                let scale = &mut scales[row * 3 + group];
                to_int8(&mut int8[at.clone()], scale, w);
                for at in at {
                    scaled[at] = from_int8(int8[at], *scale);
                }
            }
        }
        on_every_isa(|cpu| {
            let (mut values, mut rounded) = (vec![0; o * i], w.clone());
            round_to_bf16(cpu, &mut values, &mut rounded);
            assert!(values == bf16 && rounded == wide);
            let (mut values, mut of, mut rounded) = (vec![0; o * i], vec![0.0; o * 3], w.clone());
            round_to_int8(cpu, &mut values, &mut of, &mut rounded, (o, i));
            assert!(values == int8 && of == scales && rounded == scaled);
        });
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
