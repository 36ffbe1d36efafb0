//! Attention that never holds T x T: per head, blocks of query rows against the keys they can see.
//!
//! A block's scores are finished before its softmax, so no rescaling is needed. Keys after the
//! block's last query are never touched (3/8 of the square at T = 4 blocks); only the block on
//! the diagonal is masked. The log-sum-exp of each row is kept, and the backward recomputes P from
//! it. Work is shared out by (batch, head); within one, every sum runs in order.

use super::{Dims, dot};
use crate::dropout::{self, Mask, factors_len};
use crate::gemm::{Left, Mat, Start, Tile, column_of_tiles, pack_panels, width};
use crate::par::{Cpu, Shared};
use crate::simd::math::exp;
use crate::simd::{Simd, dispatch};
use std::ops::Range;

/// Query rows in a block.
const BLOCK: usize = 64;

/// `y` (B, T, C) and `lse` (B, H, T) written; `qkv` (B, T, 3C) read. Causal.
pub fn forward(cpu: &Cpu, y: &mut [f32], lse: &mut [f32], qkv: &[f32], dropout: Mask, dims: Dims) {
    super::assert_dims(dims);
    let (b, t, c, h) = dims;
    assert_eq!((y.len(), lse.len(), qkv.len()), (b * t * c, b * h * t, b * t * 3 * c));
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
        let (d, stride) = (c / h, t.next_multiple_of(width));
        let d_padded = d.next_multiple_of(width);
        let rows = BLOCK.min(t);
        Room {
            across: stride * d,
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

/// Packs a (depth, cols) matrix to panels, one after the other.
#[inline(always)]
fn pack<S: Simd>(s: S, out: &mut [f32], b: Mat, depth: usize, cols: usize) {
    let panels = cols.next_multiple_of(width::<S>()) * depth;
    pack_panels(s, &mut out[..panels], b, 0..cols, depth);
}

/// `C (rows, cols) = start + A (rows, depth) B`, B in panels made for a depth of `packed_depth`.
///
/// # Safety
/// `c` is valid for `rows` rows of `cols` at `stride`, and nobody else uses them.
#[inline(always)]
unsafe fn multiply<S: Simd>(
    s: S,
    (c, stride): (*mut f32, usize),
    a: Mat,
    panels: &[f32],
    (rows, depth, cols): (usize, usize, usize),
    packed_depth: usize,
    start: Start,
) {
    let width = width::<S>();
    for panel in 0..cols.div_ceil(width) {
        let first = panel * width;
        let b = &panels[first * packed_depth..][..width * depth];
        // SAFETY: the caller's promise, for these columns.
        unsafe {
            let out = Tile { c: c.add(first), stride, rows, cols: width.min(cols - first) };
            column_of_tiles(s, out, Left::InPlace(a), b, start);
        }
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
    for i0 in (0..t).step_by(BLOCK) {
        let i1 = (i0 + BLOCK).min(t);
        let q = head.rows(i0, 0);
        let seen = i1.next_multiple_of(width::<S>());
        // SAFETY: `p` has BLOCK rows of `stride` >= `seen`; y's rows of this head are this
        // worker's.
        unsafe {
            multiply(s, (p.as_mut_ptr(), room.stride), q, keys, (i1 - i0, d, seen), d, Start::Zero);
        }
        for i in i0..i1 {
            let row = &mut p[(i - i0) * room.stride..][..seen];
            lse[i] = softmax(s, row, i + 1, scale);
            if !head.dropout.is_none() {
                dropout::factors(s, factors, &head.dropout, head.index * t + i, i + 1);
                scale_row(s, &mut row[..i + 1], factors);
            }
        }
        let p = Mat::rows(p, room.stride);
        // SAFETY: these rows and columns of y belong to this (batch, head).
        unsafe {
            let to = y.ptr().add(head.at(i0, 0, 1));
            multiply(s, (to, c), p, values, (i1 - i0, i1, d), t, Start::Zero);
        }
    }
}

/// Softmax of `scale * row` over its first `n` elements; the others become 0. Returns the
/// log-sum-exp.
#[inline(always)]
fn softmax<S: Simd>(s: S, row: &mut [f32], n: usize, scale: f32) -> f32 {
    let whole = n / S::LANES * S::LANES;
    let mut most = s.splat(f32::NEG_INFINITY);
    for at in (0..whole).step_by(S::LANES) {
        most = s.max(most, s.load(&row[at..]));
    }
    let mut max = s.largest(most);
    for x in &row[whole..n] {
        max = if *x > max { *x } else { max };
    }
    // One vector past `whole` is computed too, its lanes past n set to minus infinity first.
    let end = n.next_multiple_of(S::LANES);
    row[n..end].fill(f32::NEG_INFINITY);
    let (mut sum, f, m) = (s.splat(0.0), s.splat(scale), s.splat(-max * scale));
    for at in (0..end).step_by(S::LANES) {
        let e = exp(s, s.mul_add(s.load(&row[at..]), f, m));
        s.store(&mut row[at..], e);
        sum = s.add(sum, e);
    }
    let total = s.sum(sum);
    let inverse = s.splat(1.0 / total);
    for at in (0..end).step_by(S::LANES) {
        let p = s.mul(s.load(&row[at..]), inverse);
        s.store(&mut row[at..], p);
    }
    row[end..].fill(0.0);
    max * scale + total.ln()
}

#[inline(always)]
fn scale_row<S: Simd>(_: S, row: &mut [f32], factors: &[f32]) {
    for (x, factor) in row.iter_mut().zip(factors) {
        *x *= factor;
    }
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
    for i0 in (0..t).step_by(BLOCK) {
        let i1 = (i0 + BLOCK).min(t);
        let (rows, seen) = (i1 - i0, i1.next_multiple_of(width::<S>()));
        let (q, dy_block) = (head.rows(i0, 0), Mat::rows(&dy[head.at(i0, 0, 1)..], c));
        pack(s, queries, q, rows, d);
        pack(s, dys, dy_block, rows, d);
        // SAFETY: `p` and `ds` have BLOCK rows of `stride` >= `seen`.
        unsafe {
            let (p, ds) = ((p.as_mut_ptr(), room.stride), (ds.as_mut_ptr(), room.stride));
            multiply(s, p, q, keys_across, (rows, d, seen), d, Start::Zero);
            multiply(s, ds, dy_block, values_across, (rows, d, seen), d, Start::Zero);
        }
        for i in i0..i1 {
            let at = (i - i0) * room.stride;
            let (p, ds) = (&mut p[at..at + seen], &mut ds[at..at + seen]);
            backward_row(s, p, ds, factors, (dy, y, lse), head, i);
        }
        let (p, ds) = (Mat::rows(p, room.stride), Mat::rows(ds, room.stride));
        // SAFETY: these rows and columns of dqkv belong to this (batch, head).
        unsafe {
            let to = |i, part| (dqkv.ptr().add(head.at(i, part, 3)), 3 * c);
            multiply(s, to(i0, 0), ds, keys, (rows, i1, d), t, Start::Zero);
            multiply(s, to(0, 1), ds.transposed(), queries, (i1, rows, d), rows, Start::Add);
            multiply(s, to(0, 2), p.transposed(), dys, (i1, rows, d), rows, Start::Add);
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
