//! What is done to whole arenas, by all workers: zeroing, copying, rounding. In memory that nobody has
//! written to yet, that is when the system finds pages for it, which takes longer than writing.

use crate::narrow::{GROUP, from_bf16, from_int8, to_bf16, to_int8};
use crate::par::{Cpu, SHARE, Shared, rows_of_share};
use crate::profile::Op;
use crate::simd::{Simd, dispatch};

/// `to` written with zeros.
pub fn zero(cpu: &Cpu, to: &mut [f32]) {
    let _time = cpu.timed(Op::new("zero", &[], 0, to.len()));
    let (len, to) = (to.len(), Shared::of(to));
    cpu.run_for(len, |worker| {
        while let Some(part) = worker.turns.take_share(len, SHARE) {
            // SAFETY: this worker alone has this part.
            unsafe { to.slice(part) }.fill(0.0);
        }
    });
}

/// `to` written with what is in `from`.
pub fn copy(cpu: &Cpu, to: &mut [f32], from: &[f32]) {
    assert_eq!(to.len(), from.len());
    let _time = cpu.timed(Op::new("copy", &[], 0, 2 * to.len()));
    let to = Shared::of(to);
    cpu.run_for(from.len(), |worker| {
        while let Some(part) = worker.turns.take_share(from.len(), SHARE) {
            // SAFETY: this worker alone has this part.
            unsafe { to.slice(part.clone()) }.copy_from_slice(&from[part]);
        }
    });
}

/// `w` rounded, and `values` written: what it was rounded to.
pub fn round_to_bf16(cpu: &Cpu, values: &mut [u16], w: &mut [f32]) {
    assert_eq!(values.len(), w.len());
    let _time = cpu.timed(Op::new("weights to bf16", &[], w.len(), 2 * w.len() + w.len() / 2));
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
    let _time = cpu.timed(Op::new("weights to int8", &[], 3 * w.len(), 2 * w.len() + w.len() / 4));
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
    use crate::Isa;
    use crate::reference::random;

    fn on_any_number_of_threads(test: impl Fn(&Cpu)) {
        for isa in Isa::available() {
            for threads in [1, 2, 3, 7] {
                test(&Cpu::new(threads, isa));
            }
        }
    }

    #[test]
    fn all_is_copied_and_all_is_zeroed() {
        on_any_number_of_threads(|cpu| {
            for len in [0, 1, 1000, 100_003] {
                let (from, mut to) = (random(1, len), vec![f32::NAN; len]);
                copy(cpu, &mut to, &from);
                assert_eq!(to, from);
                zero(cpu, &mut to);
                assert!(to.iter().all(|x| x.to_bits() == 0));
            }
        });
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
        on_any_number_of_threads(|cpu| {
            let (mut values, mut rounded) = (vec![0; o * i], w.clone());
            round_to_bf16(cpu, &mut values, &mut rounded);
            assert!(values == bf16 && rounded == wide);
            let (mut values, mut of, mut rounded) = (vec![0; o * i], vec![0.0; o * 3], w.clone());
            round_to_int8(cpu, &mut values, &mut of, &mut rounded, (o, i));
            assert!(values == int8 && of == scales && rounded == scaled);
        });
    }
}
