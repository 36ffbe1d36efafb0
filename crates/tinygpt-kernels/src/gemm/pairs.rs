//! Operands rounded to bf16, two elements of k to a word: what `pack.rs` does for f32. Where the
//! processor does not multiply such words, operands are packed as f32 and rounded there.
//!
//! A word holds elements `2 w` and `2 w + 1` of k, and zero where k has no more; a tile adds the
//! first before the second. So an element of a product is one chain over k in order here too.

use super::Mat;
use super::pack::AHEAD;
use super::tile::{strip_len, tile_rows, width};
use crate::simd::Simd;
use std::ops::Range;

/// The vector from `x[at]` on, zero after the end of `x`.
#[inline(always)]
fn load<S: Simd>(s: S, x: &[f32], at: usize) -> S::F {
    let rest = &x[at.min(x.len())..];
    if rest.len() >= S::LANES { s.load(rest) } else { s.load_part(rest) }
}

/// Packs columns `cols` of B to panels, as [`pack_panels`](super::pack_panels).
#[inline(always)]
pub(super) fn pack_panels<S: Simd>(
    s: S,
    out: &mut [f32],
    b: Mat,
    cols: Range<usize>,
    depth: usize,
) {
    let (width, words) = (width::<S>(), depth.div_ceil(2));
    let padded = cols.len().next_multiple_of(width);
    assert_eq!(out.len(), padded * words);
    b.assert_holds(depth, cols.end);
    if b.col != 1 {
        return pack_columns(s, out, b, cols, depth);
    }
    for word in 0..words {
        let row = |k: usize| if k < depth { &b.data[k * b.row..][cols.clone()] } else { &[] };
        let (first, second) = (row(2 * word), row(2 * word + 1));
        let ahead = first.as_ptr().wrapping_add(2 * AHEAD * b.row);
        for at in (0..padded).step_by(S::LANES) {
            if at % 16 == 0 {
                s.prefetch(ahead.wrapping_add(at));
                s.prefetch(ahead.wrapping_add(b.row + at));
            }
            let to = at / width * width * words + word * width + at % width;
            s.store(&mut out[to..], s.pair(load(s, first, at), load(s, second, at)));
        }
    }
}

/// The same where the elements of a column lie together: square by square.
#[inline(always)]
fn pack_columns<S: Simd>(s: S, out: &mut [f32], b: Mat, cols: Range<usize>, depth: usize) {
    assert_eq!(b.row, 1, "the rows or the columns of B lie together");
    let (width, words, lanes) = (width::<S>(), depth.div_ceil(2), S::LANES);
    let (mut square, mut turned) = ([0.0; 16 * 16], [0.0; 16 * 16]);
    assert!(lanes <= 16);
    for j in (0..cols.len().next_multiple_of(width)).step_by(lanes) {
        let count = lanes.min(cols.len().saturating_sub(j));
        square[count * lanes..].fill(0.0);
        let to = j / width * width * words + j % width;
        for word in (0..words).step_by(lanes) {
            for col in 0..count {
                let column = &b.data[(cols.start + j + col) * b.col..][..depth];
                s.prefetch(column.as_ptr().wrapping_add(lanes * b.col + 2 * word));
                let (a, b) = (load(s, column, 2 * word), load(s, column, 2 * word + lanes));
                s.store(&mut square[col * lanes..], s.pair_neighbours(a, b));
            }
            // SAFETY: both squares have as many rows and columns as a vector has lanes.
            unsafe { s.transpose(turned.as_mut_ptr(), lanes, square.as_ptr(), lanes) };
            for (i, row) in turned.chunks_exact(lanes).take(lanes.min(words - word)).enumerate() {
                out[to + (word + i) * width..][..lanes].copy_from_slice(row);
            }
        }
    }
}

/// Packs rows `rows` of A, whose elements of one column lie together, to strips, as
/// [`pack_strips`](super::pack::pack_strips).
#[inline(always)]
pub(super) fn pack_strips<S: Simd>(
    s: S,
    out: &mut [f32],
    a: Mat,
    rows: Range<usize>,
    depth: usize,
) {
    assert_eq!(a.row, 1, "the columns of A lie together");
    a.assert_holds(rows.end, depth);
    let (step, words) = (tile_rows::<S>(), depth.div_ceil(2));
    let strip = strip_len::<S>(words);
    for word in 0..words {
        let column = |k: usize| if k < depth { &a.data[k * a.col..][rows.clone()] } else { &[] };
        let (first, second) = (column(2 * word), column(2 * word + 1));
        let ahead = first.as_ptr().wrapping_add(2 * AHEAD * a.col);
        for at in (0..rows.len()).step_by(16) {
            s.prefetch(ahead.wrapping_add(at));
            s.prefetch(ahead.wrapping_add(a.col + at));
        }
        for (i, at) in (0..rows.len()).step_by(step).enumerate() {
            // What it has too many, the next word overwrites.
            let to = i * strip + word * step;
            s.store(&mut out[to..], s.pair(load(s, first, at), load(s, second, at)));
        }
    }
}

/// Rounds what was packed as f32.
#[inline(always)]
pub(super) fn round<S: Simd>(s: S, packed: &mut [f32]) {
    for x in packed.chunks_mut(S::LANES) {
        match x.len() == S::LANES {
            true => s.store(x, s.round_bf16(s.load(x))),
            false => s.store_part(x, s.round_bf16(s.load_part(x))),
        }
    }
}

/// Copies rows `rows` of A, each of whose elements lie together, and rounds them.
#[inline(always)]
pub(super) fn round_rows<S: Simd>(s: S, out: &mut [f32], a: Mat, rows: Range<usize>, depth: usize) {
    assert_eq!(a.col, 1, "the rows of A lie together");
    a.assert_holds(rows.end, depth);
    for (row, out) in rows.zip(out.chunks_exact_mut(depth.max(1))) {
        out.copy_from_slice(&a.data[row * a.row..][..depth]);
        round(s, out);
    }
}

/// Packs rows `rows` of A, each of whose elements lie together, to rows of words.
#[inline(always)]
pub(super) fn pack_rows<S: Simd>(s: S, out: &mut [f32], a: Mat, rows: Range<usize>, depth: usize) {
    assert_eq!(a.col, 1, "the rows of A lie together");
    a.assert_holds(rows.end, depth);
    let words = depth.div_ceil(2);
    for (row, out) in rows.zip(out.chunks_exact_mut(words.max(1))) {
        let row = &a.data[row * a.row..][..depth];
        for (i, out) in out.chunks_mut(S::LANES).enumerate() {
            let at = 2 * i * S::LANES;
            let pairs = s.pair_neighbours(load(s, row, at), load(s, row, at + S::LANES));
            if out.len() == S::LANES { s.store(out, pairs) } else { s.store_part(out, pairs) }
        }
    }
}
