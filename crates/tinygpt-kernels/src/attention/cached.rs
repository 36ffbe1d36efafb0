//! Attention of one new position over keys and values kept from before, for one text or several.
//!
//! They are kept as they are read: those of a head one after the other, (slot, H, room, D). A slot
//! is the place of one text; `room` says for how many positions there is place.

use crate::buffer::{Buffer, Number};
use crate::kept::Kept;
use crate::narrow::to_bf16;
use crate::par::{Cpu, Shared};
use crate::profile::Op;
use crate::simd::math::exp;
use crate::simd::{MOST_LANES, Simd, dispatch};
use std::ops::Range;

/// The keys and values of one block, (slots, H, room, D) each.
#[derive(Debug)]
pub enum KvCache {
    /// As they were computed.
    F32([Buffer; 2]),
    /// Rounded to bf16, which are half as many bytes to read.
    Bf16([Buffer<u16>; 2]),
}

impl KvCache {
    /// Place for `len` keys and as many values.
    pub fn f32(len: usize) -> Self {
        Self::F32([0, 1].map(|_| Buffer::zeros(len)))
    }

    /// The same, for rounded ones.
    pub fn bf16(len: usize) -> Self {
        Self::Bf16([0, 1].map(|_| Buffer::zeros(len)))
    }

    /// Has the first T positions of slot `from` in slot `to` as well.
    pub fn copy(&mut self, (from, to): (usize, usize), room: usize, dims: (usize, usize, usize)) {
        match self {
            Self::F32(both) => copy_slot(both, (from, to), room, dims),
            Self::Bf16(both) => copy_slot(both, (from, to), room, dims),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F32([keys, _]) => keys.len(),
            Self::Bf16([keys, _]) => keys.len(),
        }
    }
}

fn copy_slot<T: Number>(
    both: &mut [Buffer<T>; 2],
    (from, to): (usize, usize),
    room: usize,
    (t, c, h): (usize, usize, usize),
) {
    assert!(t <= room, "{t} positions, room for {room}");
    let d = c / h;
    for kept in both {
        for head in 0..h {
            let start = |slot: usize| (slot * h + head) * room * d;
            kept.copy_within(start(from)..start(from) + t * d, start(to));
        }
    }
}

/// Where the keys and values of some texts are, all of them at the same position.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// N: the slot of each text.
    pub slots: &'a [usize],
    /// Positions a slot has place for.
    pub room: usize,
}

/// Puts the second and third part of `qkv` (N, 3C) where position `at` of each text is kept.
/// `kv` written there.
pub fn keep(kv: &mut KvCache, qkv: &[f32], place: Place, at: usize, dims: (usize, usize)) {
    match kv {
        KvCache::F32(both) => keep_as(both, qkv, |x| x, place, at, dims),
        KvCache::Bf16(both) => keep_as(both, qkv, to_bf16, place, at, dims),
    }
}

fn keep_as<T: Number>(
    both: &mut [Buffer<T>; 2],
    qkv: &[f32],
    kept: impl Fn(f32) -> T,
    Place { slots, room }: Place,
    at: usize,
    (c, h): (usize, usize),
) {
    assert_eq!(qkv.len(), slots.len() * 3 * c, "q, k and v of each text");
    assert!(at < room, "position {at} of {room}");
    let d = c / h;
    for (qkv, slot) in qkv.chunks_exact(3 * c).zip(slots) {
        for (to, from) in both.iter_mut().zip(qkv[c..].chunks_exact(c)) {
            for (head, from) in from.chunks_exact(d).enumerate() {
                let to = &mut to[((slot * h + head) * room + at) * d..][..d];
                to.iter_mut().zip(from).for_each(|(to, &from)| *to = kept(from));
            }
        }
    }
}

/// `y` (N, C) written; the first part of `qkv` (N, 3C) and `kv` read. The new position of each text
/// sees its first T, its own among them.
///
/// What comes out for a text does not depend on those beside it.
pub fn forward(
    cpu: &Cpu,
    y: &mut [f32],
    qkv: &[f32],
    kv: &KvCache,
    Place { slots, room }: Place,
    (t, c, h): (usize, usize, usize),
) {
    let n = slots.len();
    super::assert_dims((n, t, c, h));
    assert_eq!((y.len(), qkv.len()), (n * c, n * 3 * c));
    assert!(t <= room, "{t} positions, room for {room}");
    assert!(slots.iter().all(|slot| (slot + 1) * c * room <= kv.len()), "slots of the cache");
    let words = match kv {
        KvCache::F32(_) => 2 * t * c,
        KvCache::Bf16(_) => t * c,
    };
    let _time =
        cpu.timed(Op::new("attention cached", &[n, c, h], 4 * n * t * c, n * (words + 2 * c)));
    let (isa, d) = (cpu.isa(), c / h);
    let y = Shared::of(y);
    cpu.run_for(n * t * c, |worker| {
        let turns = worker.turns;
        let p = worker.scratch(room.next_multiple_of(MOST_LANES));
        while let Some(head) = turns.take(n * h, 1) {
            let (text, head) = (head.start / h, head.start % h);
            let at = text * c + head * d;
            // SAFETY: each head belongs to one worker.
            let y = unsafe { y.slice(at..at + d) };
            let q = &qkv[text * 3 * c + head * d..][..d];
            let from = (slots[text] * h + head) * room * d;
            let (p, range) = (&mut *p, from..from + t * d);
            dispatch!(
                isa, one_head, y: &mut [f32], p: &mut [f32], q: &[f32], kv: &KvCache,
                range: Range<usize>,
            );
        }
    });
}

/// Where the keys and values of a head are `range`.
#[inline(always)]
fn one_head<S: Simd>(
    s: S,
    y: &mut [f32],
    p: &mut [f32],
    q: &[f32],
    kv: &KvCache,
    range: Range<usize>,
) {
    match kv {
        KvCache::F32([keys, values]) => attend(s, y, p, q, &keys[range.clone()], &values[range]),
        KvCache::Bf16([keys, values]) => attend(s, y, p, q, &keys[range.clone()], &values[range]),
    }
}

#[inline(always)]
fn attend<S: Simd, K: Kept>(s: S, y: &mut [f32], p: &mut [f32], q: &[f32], keys: K, values: K) {
    let d = q.len();
    let t = keys.len() / d;
    let scale = 1.0 / (d as f32).sqrt();
    let four = t / 4 * 4;
    for (j, p) in (0..four).step_by(4).zip(p.chunks_exact_mut(4)) {
        scores::<S, K, 4>(s, p, scale, q, keys, j);
    }
    for j in four..t {
        scores::<S, K, 1>(s, &mut p[j..=j], scale, q, keys, j);
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
        weighted_sum::<S, K, 8>(s, &mut y[at..], &p[..t], inverse, values, (at, d));
        at += 8 * S::LANES;
    }
    while at + 4 * S::LANES <= d {
        weighted_sum::<S, K, 4>(s, &mut y[at..], &p[..t], inverse, values, (at, d));
        at += 4 * S::LANES;
    }
    while at + S::LANES <= d {
        weighted_sum::<S, K, 1>(s, &mut y[at..], &p[..t], inverse, values, (at, d));
        at += S::LANES;
    }
    for (at, y) in y.iter_mut().enumerate().skip(at) {
        let terms = p[..t].iter().enumerate().map(|(j, p)| p * inverse * values.one(j * d + at, 0));
        *y = terms.sum();
    }
}

/// Lines of 64 bytes between what is read and what is asked for.
const AHEAD: usize = 32;

/// `p[i] = scale (q · key j + i)` for `N` keys side by side: a chain of multiply-adds for each,
/// whose bits do not depend on the others.
#[inline(always)]
fn scores<S: Simd, K: Kept, const N: usize>(
    s: S,
    p: &mut [f32],
    scale: f32,
    q: &[f32],
    keys: K,
    j: usize,
) {
    let d = q.len();
    assert!((j + N) * d <= keys.len());
    for line in 0..(N * d).div_ceil(K::LINE) {
        s.prefetch(keys.place(j * d + (AHEAD + line) * K::LINE));
    }
    let (whole, one) = (d / S::LANES * S::LANES, s.splat(1.0));
    let mut sums = [s.splat(0.0); N];
    for at in (0..whole).step_by(S::LANES) {
        let q = s.load(&q[at..]);
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a whole vector of key j + i, of whose length the assertion speaks.
            let key = unsafe { keys.load(s, (j + i) * d + at, one) };
            *sum = s.mul_add(q, key, *sum);
        }
    }
    if whole < d {
        let q = s.load_part(&q[whole..]);
        for (i, sum) in sums.iter_mut().enumerate() {
            let mut rest = [0.0; MOST_LANES];
            for (rest, at) in rest.iter_mut().zip(whole..d) {
                *rest = keys.one((j + i) * d + at, 0);
            }
            *sum = s.mul_add(q, s.load_part(&rest[..d - whole]), *sum);
        }
    }
    for (p, sum) in p.iter_mut().zip(sums) {
        *p = scale * s.sum(sum);
    }
}

/// `y = Σ_j p[j] inverse values[j, at..]` for `N` vectors.
#[inline(always)]
fn weighted_sum<S: Simd, K: Kept, const N: usize>(
    s: S,
    y: &mut [f32],
    p: &[f32],
    inverse: f32,
    values: K,
    (at, d): (usize, usize),
) {
    assert!(at + N * S::LANES <= d && p.len() * d <= values.len());
    let (mut sums, one) = ([s.splat(0.0); N], s.splat(1.0));
    for (j, p) in p.iter().enumerate() {
        for line in 0..(N * S::LANES).div_ceil(K::LINE) {
            s.prefetch(values.place(j * d + at + (AHEAD + line) * K::LINE));
        }
        let p = s.splat(p * inverse);
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a vector of value j, as asserted.
            let value = unsafe { values.load(s, j * d + at + i * S::LANES, one) };
            *sum = s.mul_add(p, value, *sum);
        }
    }
    for (sum, y) in sums.iter().zip(y.chunks_exact_mut(S::LANES)) {
        s.store(y, *sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::narrow::from_bf16;
    use crate::reference::{self, assert_close, on_every_isa, random};

    /// What nobody may read holds no number.
    fn filled<T: Number>(len: usize, with: T) -> Buffer<T> {
        let mut buffer = Buffer::zeros(len);
        buffer.fill(with);
        buffer
    }

    #[test]
    fn the_last_position_of_full_attention_comes_out_for_each_text_and_as_alone() {
        on_every_isa(|cpu| {
            for (t, c, h) in
                [(1, 4, 2), (5, 39, 3), (64, 128, 2), (300, 96, 4), (9, 50, 1), (3, 136, 1)]
            {
                // Three texts in five slots, neither in order.
                let (slots, room) = ([4, 0, 3], t + 2);
                let texts = [1, 2, 3].map(|seed| random(seed, t * 3 * c));
                let mut kv = KvCache::F32([0, 1].map(|_| filled(5 * c * room, f32::NAN)));
                for at in 0..t {
                    let rows = texts.iter().flat_map(|text| &text[at * 3 * c..(at + 1) * 3 * c]);
                    let qkv: Vec<f32> = rows.copied().collect();
                    let place = Place { slots: &slots, room };
                    keep(&mut kv, &qkv, place, at, (c, h));
                }
                let last = |text: &Vec<f32>| text[(t - 1) * 3 * c..].to_vec();
                let (mut y, dims) = (vec![f32::NAN; 3 * c], (t, c, h));
                let place = Place { slots: &slots, room };
                let qkv: Vec<f32> = texts.iter().flat_map(last).collect();
                forward(cpu, &mut y, &qkv, &kv, place, dims);
                for (i, text) in texts.iter().enumerate() {
                    let (exact, _) = reference::attention(text, |i, j| j <= i, (1, t, c, h));
                    let y = &y[i * c..(i + 1) * c];
                    assert_close(y, &exact[(t - 1) * c..], 1e-6);
                    let (one, mut alone) = (Cpu::new(1, cpu.isa()), vec![f32::NAN; c]);
                    let place = Place { slots: &slots[i..=i], room };
                    forward(&one, &mut alone, &last(text), &kv, place, dims);
                    assert_eq!(y, alone);
                }
            }
        });
    }

    #[test]
    fn rounded_keys_and_values_give_the_bits_that_their_f32_values_give() {
        on_every_isa(|cpu| {
            for (t, c, h) in
                [(1, 4, 2), (5, 39, 3), (64, 128, 2), (300, 96, 4), (9, 50, 1), (3, 136, 1)]
            {
                let (slots, room) = ([2, 0], t + 2);
                let place = Place { slots: &slots, room };
                let mut rounded = KvCache::Bf16([0, 1].map(|_| filled(3 * room * c, 0x7fc0)));
                let mut same = KvCache::F32([0, 1].map(|_| filled(3 * room * c, f32::NAN)));
                let qkv = random(1, 2 * t * 3 * c);
                for (at, qkv) in qkv.chunks_exact(2 * 3 * c).enumerate() {
                    keep(&mut rounded, qkv, place, at, (c, h));
                    let qkv: Vec<f32> = qkv.iter().map(|&x| from_bf16(to_bf16(x))).collect();
                    keep(&mut same, &qkv, place, at, (c, h));
                }
                let (mut y, mut expected) = (vec![f32::NAN; 2 * c], vec![f32::NAN; 2 * c]);
                let last = &qkv[(t - 1) * 2 * 3 * c..];
                forward(cpu, &mut y, last, &rounded, place, (t, c, h));
                forward(cpu, &mut expected, last, &same, place, (t, c, h));
                assert_eq!(y, expected);
                // And of one text where the other was.
                rounded.copy((0, 2), room, (t, c, h));
                forward(cpu, &mut y, last, &rounded, place, (t, c, h));
                let one = Place { slots: &[0], room };
                forward(cpu, &mut expected[..c], &last[..3 * c], &same, one, (t, c, h));
                assert_eq!(y[..c], expected[..c]);
            }
        });
    }
}
