//! Attention that never holds T x T: per head, blocks of query rows against the keys they can see.
//!
//! A block's scores are finished before its softmax, so no rescaling is needed. Keys that none of a
//! group of queries sees are never touched (`blocks.rs`). The log-sum-exp of each row is kept, and the backward recomputes P from
//! it. Work is shared out by (batch, head); within one, every sum runs in order.

mod blocks;

use super::{Dims, dot};
use crate::dropout::{self, Mask, factors_len};
use crate::gemm::{Mat, width};
use crate::par::{Cpu, Shared};
use crate::profile::Op;
use crate::simd::math::exp;
use crate::simd::{Simd, dispatch};
use blocks::{BLOCK, PAD, Panels, blocks, pack, reach, scores, sum_over_keys, sum_over_queries};
use std::ops::Range;

/// `y` (B, T, C) and `lse` (B, H, T) written; `qkv` (B, T, 3C) read. Causal.
pub fn forward(cpu: &Cpu, y: &mut [f32], lse: &mut [f32], qkv: &[f32], dropout: Mask, dims: Dims) {
    super::assert_dims(dims);
    let (b, t, c, h) = dims;
    assert_eq!((y.len(), lse.len(), qkv.len()), (b * t * c, b * h * t, b * t * 3 * c));
    // The causal half of two products.
    let (flops, floats) = (2 * b * t * (t + 1) * c, 4 * b * t * c + b * h * t);
    let _time = cpu.timed(Op::new("attention forward", &[b, t, c, h], flops, floats));
    let isa = cpu.isa();
    let (y, lse) = (Shared::of(y), Shared::of(lse));
    cpu.run(|worker| {
        let turns = worker.turns;
        let room = Room::new(crate::gemm::tile_width(isa), dims);
        let scratch = worker.scratch(room.forward_len());
        while let Some(Range { start: index, .. }) = turns.take(b * h, 1) {
            // SAFETY: each (batch, head) belongs to one worker.
            let lse = unsafe { lse.slice(index * t..(index + 1) * t) };
            let head = Head { qkv, index, dims, dropout };
            dispatch!(
                isa, forward_head, y: Shared<'_, f32>, lse: &mut [f32], scratch: &mut [f32],
                head: Head<'_>,
            );
        }
    });
}

/// `dqkv` (B, T, 3C) written; `dy` (B, T, C), `qkv` (B, T, 3C), `y` (B, T, C), `lse` (B, H, T)
/// read.
///
/// With `delta[i] = dy[i] · y[i]`, which equals `Σ_j p[i, j] dp[i, j]`, a row of ds needs no other:
/// ```text
/// ds[i, j] = p[i, j] (factor[i, j] dy[i] · v[j] - delta[i]) / √D
/// ```
pub fn backward(
    cpu: &Cpu,
    dqkv: &mut [f32],
    dy: &[f32],
    qkv: &[f32],
    y: &[f32],
    lse: &[f32],
    dropout: Mask,
    dims: Dims,
) {
    super::assert_dims(dims);
    let (b, t, c, h) = dims;
    assert_eq!((y.len(), lse.len(), qkv.len()), (b * t * c, b * h * t, b * t * 3 * c));
    assert_eq!((dy.len(), dqkv.len()), (y.len(), qkv.len()));
    // The causal half of five products.
    let (flops, floats) = (5 * b * t * (t + 1) * c, 8 * b * t * c + b * h * t);
    let _time = cpu.timed(Op::new("attention backward", &[b, t, c, h], flops, floats));
    let isa = cpu.isa();
    let dqkv = Shared::of(dqkv);
    cpu.run(|worker| {
        let turns = worker.turns;
        let room = Room::new(crate::gemm::tile_width(isa), dims);
        let scratch = worker.scratch(room.backward_len());
        while let Some(Range { start: index, .. }) = turns.take(b * h, 1) {
            let head = Head { qkv, index, dims, dropout };
            dispatch!(
                isa, backward_head, dqkv: Shared<'_, f32>, scratch: &mut [f32], dy: &[f32],
                y: &[f32], lse: &[f32], head: Head<'_>,
            );
        }
    });
}

/// One (batch, head) to work on.
#[derive(Clone, Copy)]
struct Head<'a> {
    qkv: &'a [f32],
    index: usize,
    dims: Dims,
    dropout: Mask,
}

impl<'a> Head<'a> {
    fn d(&self) -> usize {
        self.dims.2 / self.dims.3
    }

    /// Where position `i` starts in a tensor of `parts * C` columns; `part` 0 queries, 1 keys, 2
    /// values.
    fn at(&self, i: usize, part: usize, parts: usize) -> usize {
        let (_, t, c, h) = self.dims;
        (self.index / h * t + i) * parts * c + part * c + self.index % h * self.d()
    }

    /// Positions from `i` on, as rows of D: queries, keys or values.
    fn rows(&self, i: usize, part: usize) -> Mat<'a> {
        Mat::rows(&self.qkv[self.at(i, part, 3)..], 3 * self.dims.2)
    }
}

/// How much of a worker's scratch each packed operand takes.
#[derive(Clone, Copy)]
struct Room {
    /// panels of D deep over T columns: keys or values, transposed
    across: usize,
    /// panels of T deep over D columns: keys or values
    along: usize,
    /// panels of BLOCK deep over D columns: queries or dy of one block
    block: usize,
    /// one block's scores, in rows of `stride`
    scores: usize,
    stride: usize,
    factors: usize,
}

impl Room {
    fn new(width: usize, (_, t, c, h): Dims) -> Self {
        let (d, stride) = (c / h, t.next_multiple_of(width) + PAD);
        let d_padded = d.next_multiple_of(width);
        let rows = BLOCK.min(t);
        Room {
            across: t.next_multiple_of(width) * d,
            along: d_padded * t,
            block: d_padded * rows,
            scores: rows * stride,
            stride,
            factors: factors_len(t),
        }
    }

    fn forward_len(&self) -> usize {
        self.across + self.along + self.scores + self.factors
    }

    fn backward_len(&self) -> usize {
        2 * self.across + self.along + 2 * self.block + 2 * self.scores + self.factors
    }
}

#[inline(always)]
fn forward_head<S: Simd>(s: S, y: Shared<f32>, lse: &mut [f32], scratch: &mut [f32], head: Head) {
    let (_, t, c, _) = head.dims;
    let (d, room) = (head.d(), Room::new(width::<S>(), head.dims));
    let (keys, rest) = scratch.split_at_mut(room.across);
    let (values, rest) = rest.split_at_mut(room.along);
    let (p, factors) = rest.split_at_mut(room.scores);
    pack(s, keys, head.rows(0, 1).transposed(), d, t); //                        (D, T)
    pack(s, values, head.rows(0, 2), t, d); //                                   (T, D)
    let scale = 1.0 / (d as f32).sqrt();
    let mut inverse = [0.0; BLOCK];
    for block in blocks(t) {
        let i0 = block.start;
        // SAFETY: `p` has BLOCK rows of `stride`, which is T up to a whole panel or more.
        unsafe {
            let p = (p.as_mut_ptr(), room.stride);
            scores(s, p, head.rows(i0, 0), Panels::of(keys, d), &block);
        }
        for i in block.clone() {
            let row = &mut p[(i - i0) * room.stride..][..reach(&block, i)];
            let masked = !head.dropout.is_none();
            if masked {
                dropout::factors(s, factors, &head.dropout, head.index * t + i, i + 1);
            }
            let (max, sum) = exponentials(s, row, masked.then_some(&*factors), i + 1, scale);
            (lse[i], inverse[i - i0]) = (max * scale + sum.ln(), 1.0 / sum);
        }
        let p = Mat::rows(p, room.stride);
        // SAFETY: these rows and columns of y belong to this (batch, head).
        unsafe {
            let to = y.ptr().add(head.at(i0, 0, 1));
            sum_over_keys(s, (to, c), p, Panels::of(values, t), &block, d);
        }
        for i in block.clone() {
            let at = head.at(i, 0, 1);
            // SAFETY: as above.
            let row = unsafe { y.slice(at..at + d) };
            row.iter_mut().for_each(|y| *y *= inverse[i - i0]);
        }
    }
}

/// `e^(scale (row - max))` of the first `n` elements of a row of scores, times their factors if
/// there are any; the others become 0. Returns the largest score and the sum before the factors,
/// by which the softmax is still to be divided.
#[inline(always)]
fn exponentials<S: Simd>(
    s: S,
    row: &mut [f32],
    factors: Option<&[f32]>,
    n: usize,
    scale: f32,
) -> (f32, f32) {
    // One vector more than there are whole ones is computed, its lanes past n minus infinity.
    let end = n.next_multiple_of(S::LANES);
    row[n..end].fill(f32::NEG_INFINITY);
    row[end..].fill(0.0);
    let row = &mut row[..end];
    let mut most = [s.splat(f32::NEG_INFINITY); 4];
    for four in row.chunks(4 * S::LANES) {
        for (most, x) in most.iter_mut().zip(four.chunks_exact(S::LANES)) {
            *most = s.max(*most, s.load(x));
        }
    }
    let [a, b, c, d] = most;
    let max = s.largest(s.max(s.max(a, b), s.max(c, d)));
    let (mut sum, f, m) = (s.splat(0.0), s.splat(scale), s.splat(-max * scale));
    for at in (0..end).step_by(S::LANES) {
        let e = exp(s, s.mul_add(s.load(&row[at..]), f, m));
        sum = s.add(sum, e);
        let e = factors.map_or(e, |factors| s.mul(e, s.load(&factors[at..])));
        s.store(&mut row[at..], e);
    }
    (max, s.sum(sum))
}

#[inline(always)]
fn backward_head<S: Simd>(
    s: S,
    dqkv: Shared<f32>,
    scratch: &mut [f32],
    dy: &[f32],
    y: &[f32],
    lse: &[f32],
    head: Head,
) {
    let (_, t, c, _) = head.dims;
    let (d, room) = (head.d(), Room::new(width::<S>(), head.dims));
    let (keys_across, rest) = scratch.split_at_mut(room.across);
    let (values_across, rest) = rest.split_at_mut(room.across);
    let (keys, rest) = rest.split_at_mut(room.along);
    let (queries, rest) = rest.split_at_mut(room.block);
    let (dys, rest) = rest.split_at_mut(room.block);
    let (p, rest) = rest.split_at_mut(room.scores);
    let (ds, factors) = rest.split_at_mut(room.scores);
    pack(s, keys_across, head.rows(0, 1).transposed(), d, t); //                 (D, T)
    pack(s, values_across, head.rows(0, 2).transposed(), d, t); //               (D, T)
    pack(s, keys, head.rows(0, 1), t, d); //                                     (T, D)
    for part in [1, 2] {
        for j in 0..t {
            let at = head.at(j, part, 3);
            // SAFETY: these rows and columns of dqkv belong to this (batch, head).
            unsafe { dqkv.slice(at..at + d) }.fill(0.0);
        }
    }
    for block in blocks(t) {
        let (i0, rows) = (block.start, block.len());
        let (q, dy_block) = (head.rows(i0, 0), Mat::rows(&dy[head.at(i0, 0, 1)..], c));
        pack(s, queries, q, rows, d);
        pack(s, dys, dy_block, rows, d);
        // SAFETY: `p` and `ds` have BLOCK rows of `stride`, which is T up to a whole panel or more.
        unsafe {
            let (p, ds) = ((p.as_mut_ptr(), room.stride), (ds.as_mut_ptr(), room.stride));
            scores(s, p, q, Panels::of(keys_across, d), &block);
            scores(s, ds, dy_block, Panels::of(values_across, d), &block);
        }
        for i in block.clone() {
            // Nobody has looked at y in this pass yet.
            let ahead = y.as_ptr().wrapping_add(head.at(i + 2, 0, 1));
            (0..d).step_by(16).for_each(|at| s.prefetch(ahead.wrapping_add(at)));
            let (at, seen) = ((i - i0) * room.stride, reach(&block, i));
            let (p, ds) = (&mut p[at..at + seen], &mut ds[at..at + seen]);
            backward_row(s, p, ds, factors, (dy, y, lse), head, i);
        }
        let (p, ds) = (Mat::rows(p, room.stride), Mat::rows(ds, room.stride));
        // SAFETY: these rows and columns of dqkv belong to this (batch, head).
        unsafe {
            let to = |i, part| (dqkv.ptr().add(head.at(i, part, 3)), 3 * c);
            sum_over_keys(s, to(i0, 0), ds, Panels::of(keys, t), &block, d);
            sum_over_queries(s, to(0, 1), ds, Panels::of(queries, rows), &block, d);
            sum_over_queries(s, to(0, 2), p, Panels::of(dys, rows), &block, d);
        }
    }
}

/// Row `i` of `p`: scores in, `factor p` out; of `ds`: `dy · v` in, ds out. Both 0 after key i.
/// `factors` is scratch.
#[inline(always)]
fn backward_row<S: Simd>(
    s: S,
    p: &mut [f32],
    ds: &mut [f32],
    factors: &mut [f32],
    (dy, y, lse): (&[f32], &[f32], &[f32]),
    head: Head,
    i: usize,
) {
    let (d, from, row, n) = (head.d(), head.at(i, 0, 1), head.index * head.dims.1 + i, i + 1);
    let masked = !head.dropout.is_none();
    if masked {
        dropout::factors(s, factors, &head.dropout, row, n);
    }
    let end = n.next_multiple_of(S::LANES);
    p[n..end].fill(f32::NEG_INFINITY);
    ds[n..end].fill(0.0);
    let (f, l) = (s.splat(1.0 / (d as f32).sqrt()), s.splat(-lse[row]));
    let dot = s.splat(dot(s, &dy[from..from + d], &y[from..from + d]));
    for at in (0..end).step_by(S::LANES) {
        let prob = exp(s, s.mul_add(s.load(&p[at..]), f, l));
        let factor = if masked { s.load(&factors[at..]) } else { s.splat(1.0) };
        let dp = s.sub(s.mul(s.load(&ds[at..]), factor), dot);
        s.store(&mut p[at..], s.mul(prob, factor));
        s.store(&mut ds[at..], s.mul(s.mul(prob, f), dp));
    }
    p[end..].fill(0.0);
    ds[end..].fill(0.0);
}
