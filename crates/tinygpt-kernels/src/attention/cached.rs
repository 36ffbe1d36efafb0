//! Attention of one new position over keys and values kept from before, for one text or several.
//!
//! They are kept as they are read: those of a head one after the other, (slot, H, room, D). A slot
//! is the place of one text; `room` says for how many positions there is place.

use crate::par::{Cpu, Shared};
use crate::profile::Op;
use crate::simd::math::exp;
use crate::simd::{Simd, dispatch};

/// Where the keys and values of some texts are, all of them at the same position.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// N: the slot of each text.
    pub slots: &'a [usize],
    /// Positions a slot has place for.
    pub room: usize,
}

/// Puts the second and third part of `qkv` (N, 3C) where position `at` of each text is kept.
/// `keys` and `values` written there.
pub fn keep(
    keys: &mut [f32],
    values: &mut [f32],
    qkv: &[f32],
    Place { slots, room }: Place,
    at: usize,
    (c, h): (usize, usize),
) {
    assert_eq!(qkv.len(), slots.len() * 3 * c, "q, k and v of each text");
    assert!(at < room, "position {at} of {room}");
    let d = c / h;
    for (qkv, slot) in qkv.chunks_exact(3 * c).zip(slots) {
        for (to, from) in [(&mut *keys, &qkv[c..2 * c]), (&mut *values, &qkv[2 * c..])] {
            for (head, from) in from.chunks_exact(d).enumerate() {
                to[((slot * h + head) * room + at) * d..][..d].copy_from_slice(from);
            }
        }
    }
}

/// `y` (N, C) written; the first part of `qkv` (N, 3C), `keys` and `values` (slots, H, room, D)
/// read. The new position of each text sees its first T, its own among them.
///
/// What comes out for a text does not depend on those beside it.
pub fn forward(
    cpu: &Cpu,
    y: &mut [f32],
    qkv: &[f32],
    keys: &[f32],
    values: &[f32],
    Place { slots, room }: Place,
    (t, c, h): (usize, usize, usize),
) {
    let n = slots.len();
    super::assert_dims((n, t, c, h));
    assert_eq!((y.len(), qkv.len(), keys.len()), (n * c, n * 3 * c, values.len()));
    assert!(t <= room, "{t} positions, room for {room}");
    let floats = n * (2 * t * c + 2 * c);
    let _time = cpu.timed(Op::new("attention cached", &[n, c, h], 4 * n * t * c, floats));
    let (isa, d) = (cpu.isa(), c / h);
    let y = Shared::of(y);
    cpu.run_for(n * t * c, |worker| {
        let turns = worker.turns;
        let p = worker.scratch(room.next_multiple_of(16));
        while let Some(head) = turns.take(n * h, 1) {
            let (text, head) = (head.start / h, head.start % h);
            let at = text * c + head * d;
            // SAFETY: each head belongs to one worker.
            let y = unsafe { y.slice(at..at + d) };
            let q = &qkv[text * 3 * c + head * d..][..d];
            let kept = (slots[text] * h + head) * room * d;
            let (keys, values) = (&keys[kept..][..t * d], &values[kept..][..t * d]);
            let p = &mut *p;
            dispatch!(
                isa, one_head, y: &mut [f32], p: &mut [f32], q: &[f32], keys: &[f32],
                values: &[f32], t: usize,
            );
        }
    });
}

#[inline(always)]
fn one_head<S: Simd>(
    s: S,
    y: &mut [f32],
    p: &mut [f32],
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    t: usize,
) {
    let d = q.len();
    let scale = 1.0 / (d as f32).sqrt();
    let four = t / 4 * 4;
    for (p, keys) in p[..four].chunks_exact_mut(4).zip(keys.chunks_exact(4 * d)) {
        scores::<S, 4>(s, p, scale, q, keys);
    }
    for (p, key) in p[four..t].chunks_exact_mut(1).zip(keys[four * d..].chunks_exact(d)) {
        scores::<S, 1>(s, p, scale, q, key);
    }
    let max = p[..t].iter().fold(f32::NEG_INFINITY, |max, &p| if p > max { p } else { max });
    let end = t.next_multiple_of(S::LANES);
    p[t..end].fill(f32::NEG_INFINITY);
    let mut sum = s.splat(0.0);
    for x in p[..end].chunks_exact_mut(S::LANES) {
        let e = exp(s, s.sub(s.load(x), s.splat(max)));
        s.store(x, e);
        sum = s.add(sum, e);
    }
    let inverse = 1.0 / s.sum(sum);
    let mut at = 0;
    while at + 8 * S::LANES <= d {
        weighted_sum::<S, 8>(s, &mut y[at..], &p[..t], inverse, values, (at, d));
        at += 8 * S::LANES;
    }
    while at + 4 * S::LANES <= d {
        weighted_sum::<S, 4>(s, &mut y[at..], &p[..t], inverse, values, (at, d));
        at += 4 * S::LANES;
    }
    while at + S::LANES <= d {
        weighted_sum::<S, 1>(s, &mut y[at..], &p[..t], inverse, values, (at, d));
        at += S::LANES;
    }
    for (at, y) in y.iter_mut().enumerate().skip(at) {
        *y = p[..t].iter().enumerate().fold(0.0, |y, (j, p)| y + p * inverse * values[j * d + at]);
    }
}

/// `p[j] = scale (q · keys[j, ..])` for `N` keys side by side: a chain of multiply-adds for each,
/// whose bits do not depend on the others.
#[inline(always)]
fn scores<S: Simd, const N: usize>(s: S, p: &mut [f32], scale: f32, q: &[f32], keys: &[f32]) {
    let d = q.len();
    let (whole, keys) = (d / S::LANES * S::LANES, &keys[..N * d]);
    let mut sums = [s.splat(0.0); N];
    for at in (0..whole).step_by(S::LANES) {
        let q = s.load(&q[at..]);
        for (j, sum) in sums.iter_mut().enumerate() {
            *sum = s.mul_add(q, s.load(&keys[j * d + at..]), *sum);
        }
    }
    if whole < d {
        let q = s.load_part(&q[whole..]);
        for (j, sum) in sums.iter_mut().enumerate() {
            *sum = s.mul_add(q, s.load_part(&keys[j * d + whole..(j + 1) * d]), *sum);
        }
    }
    for (p, sum) in p.iter_mut().zip(sums) {
        *p = scale * s.sum(sum);
    }
}

/// `y = Σ_j p[j] inverse values[j, at..]` for `N` vectors.
#[inline(always)]
fn weighted_sum<S: Simd, const N: usize>(
    s: S,
    y: &mut [f32],
    p: &[f32],
    inverse: f32,
    values: &[f32],
    (at, d): (usize, usize),
) {
    let mut sums = [s.splat(0.0); N];
    for (p, value) in p.iter().zip(values.chunks_exact(d)) {
        let (p, value) = (s.splat(p * inverse), &value[at..at + N * S::LANES]);
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = s.mul_add(p, s.load(&value[i * S::LANES..]), *sum);
        }
    }
    for (sum, y) in sums.iter().zip(y.chunks_exact_mut(S::LANES)) {
        s.store(y, *sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, assert_close, on_every_isa, random};

    #[test]
    fn the_last_position_of_full_attention_comes_out_for_each_text_and_as_alone() {
        on_every_isa(|cpu| {
            for (t, c, h) in [(1, 4, 2), (5, 39, 3), (64, 128, 2), (300, 96, 4), (9, 50, 1)] {
                // Three texts in five slots, neither in order.
                let (slots, room) = ([4, 0, 3], t + 2);
                let texts = [1, 2, 3].map(|seed| random(seed, t * 3 * c));
                let mut keys = vec![f32::NAN; 5 * c * room];
                let mut values = keys.clone();
                for at in 0..t {
                    let rows = texts.iter().flat_map(|text| &text[at * 3 * c..(at + 1) * 3 * c]);
                    let qkv: Vec<f32> = rows.copied().collect();
                    let place = Place { slots: &slots, room };
                    keep(&mut keys, &mut values, &qkv, place, at, (c, h));
                }
                let last = |text: &Vec<f32>| text[(t - 1) * 3 * c..].to_vec();
                let (mut y, dims) = (vec![f32::NAN; 3 * c], (t, c, h));
                let place = Place { slots: &slots, room };
                let qkv: Vec<f32> = texts.iter().flat_map(last).collect();
                forward(cpu, &mut y, &qkv, &keys, &values, place, dims);
                for (i, text) in texts.iter().enumerate() {
                    let (exact, _) = reference::attention(text, |i, j| j <= i, (1, t, c, h));
                    let y = &y[i * c..(i + 1) * c];
                    assert_close(y, &exact[(t - 1) * c..], 1e-6);
                    let (one, mut alone) = (Cpu::new(1, cpu.isa()), vec![f32::NAN; c]);
                    let place = Place { slots: &slots[i..=i], room };
                    forward(&one, &mut alone, &last(text), &keys, &values, place, dims);
                    assert_eq!(y, alone);
                }
            }
        });
    }
}
