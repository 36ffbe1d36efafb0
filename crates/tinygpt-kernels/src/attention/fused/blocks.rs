//! The products of attention, over blocks of queries: each leaves out what causality does.

use crate::gemm::{Left, Mat, Packed, Start, Tile, column_of_tiles, pack_panels, width};
use crate::simd::Simd;
use std::ops::Range;

/// Query rows in a block.
pub(super) const BLOCK: usize = 72;
/// Queries of a block that are multiplied together. What none of a group sees is left out.
pub(super) const GROUP: usize = 24;
/// Floats between rows of scores, lest their starts fall on few lines of the cache.
pub(super) const PAD: usize = 16;

/// The blocks of queries of T positions.
pub(super) fn blocks(t: usize) -> impl Iterator<Item = Range<usize>> {
    (0..t).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(t))
}

/// How many keys the last query of `i`'s group sees, up to a whole vector.
pub(super) fn reach(block: &Range<usize>, i: usize) -> usize {
    let last = block.start + (i - block.start) / GROUP * GROUP + GROUP;
    last.min(block.end).next_multiple_of(PAD)
}

/// Packs a (depth, cols) matrix to panels, one after the other.
#[inline(always)]
pub(super) fn pack<S: Simd>(s: S, out: &mut [f32], b: Mat, depth: usize, cols: usize) {
    let panels = cols.next_multiple_of(width::<S>()) * depth;
    pack_panels(s, &mut out[..panels], b, 0..cols, depth);
}

/// Panels of a packed operand, from row `from` of their `depth` on.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    data: &'a [f32],
    depth: usize,
    from: usize,
}

impl<'a> Panels<'a> {
    pub(super) fn of(data: &'a [f32], depth: usize) -> Self {
        Panels { data, depth, from: 0 }
    }
}

/// `C (rows, cols) = start + A (rows, depth) B`.
///
/// # Safety
/// `c` is valid for `rows` rows of `cols` at `stride`, and nobody else uses them.
#[inline(always)]
unsafe fn multiply<S: Simd>(
    s: S,
    (c, stride): (*mut f32, usize),
    a: Mat,
    b: Panels,
    (rows, depth, cols): (usize, usize, usize),
    start: Start,
) {
    let width = width::<S>();
    for panel in 0..cols.div_ceil(width) {
        let first = panel * width;
        let b = &b.data[first * b.depth + b.from * width..][..width * depth];
        // SAFETY: the caller's promise, for these columns.
        unsafe {
            let (c, cols) = (c.add(first), width.min(cols - first));
            let out = Tile { packed: Packed::F32, c, stride, rows, cols };
            column_of_tiles(s, out, Left::InPlace(a), b, start);
        }
    }
}

/// The scores of queries `block`: `C[i, j] = a[i] · b[j]` for the keys that a group's last query
/// sees, up to a whole panel. What lies behind is left as it was.
///
/// # Safety
/// `c` is valid for the block's rows of as many columns, and nobody else uses them.
#[inline(always)]
pub(super) unsafe fn scores<S: Simd>(
    s: S,
    (c, stride): (*mut f32, usize),
    a: Mat,
    b: Panels,
    block: &Range<usize>,
) {
    let width = width::<S>();
    for first in (0..block.end).step_by(width) {
        // No query before `first` sees a key of this panel.
        let skip = first.saturating_sub(block.start) / GROUP * GROUP;
        let panel = Panels { data: &b.data[first * b.depth..], ..b };
        // SAFETY: the caller's promise, for these rows and columns.
        unsafe {
            let c = c.add(skip * stride + first);
            let size = (block.len() - skip, b.depth, width);
            multiply(s, (c, stride), a.skip_rows(skip), panel, size, Start::Zero);
        }
    }
}

/// `C[i] = Σ_j p[i, j] b[j]` over the keys j that query i of the block sees.
///
/// # Safety
/// `c` is valid for the block's rows of `d` columns, and nobody else uses them.
#[inline(always)]
pub(super) unsafe fn sum_over_keys<S: Simd>(
    s: S,
    (c, stride): (*mut f32, usize),
    p: Mat,
    b: Panels,
    block: &Range<usize>,
    d: usize,
) {
    for row in (0..block.len()).step_by(GROUP) {
        let rows = GROUP.min(block.len() - row);
        // SAFETY: the caller's promise, for these rows.
        unsafe {
            let c = (c.add(row * stride), stride);
            let size = (rows, block.start + row + rows, d);
            multiply(s, c, p.skip_rows(row), b, size, Start::Zero);
        }
    }
}

/// `C[j] += Σ_i p[i, j] b[i]` over the queries i of the block that see key j.
///
/// # Safety
/// `c` is valid for a row of `d` columns for every key up to the block's end, and nobody else uses
/// them.
#[inline(always)]
pub(super) unsafe fn sum_over_queries<S: Simd>(
    s: S,
    (c, stride): (*mut f32, usize),
    p: Mat,
    b: Panels,
    block: &Range<usize>,
    d: usize,
) {
    let (before, rows) = (block.start, block.len());
    // SAFETY: the caller's promise, for the keys before the block, which all its queries see, ...
    unsafe {
        multiply(s, (c, stride), p.transposed(), b, (before, rows, d), Start::Add);
    }
    for from in (0..rows).step_by(GROUP) {
        let p = p.skip_rows(from).transposed().skip_rows(before + from);
        let size = (GROUP.min(rows - from), rows - from, d);
        // SAFETY: ... and for a group of those in it.
        unsafe {
            let c = (c.add((before + from) * stride), stride);
            multiply(s, c, p, Panels { from, ..b }, size, Start::Add);
        }
    }
}
