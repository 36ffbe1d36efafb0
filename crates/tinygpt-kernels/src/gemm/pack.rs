//! Operands in the order in which a tile reads them. `pairs.rs` does the same in bf16.

use super::Mat;
use super::tile::{strip_len, tile_rows, width};
use crate::simd::Simd;

/// How many rows before its turn a row's cache lines are asked for: the jumps from one to the next
/// are too long for the processor to foresee.
pub(super) const AHEAD: usize = 16;

/// Packs columns `cols` of B to panels: rows of a tile's width, the last panel's filled up with
/// zeros.
#[inline(always)]
pub(crate) fn pack_panels<S: Simd>(
    s: S,
    out: &mut [f32],
    b: Mat,
    cols: std::ops::Range<usize>,
    depth: usize,
) {
    let width = width::<S>();
    let panel = width * depth;
    assert_eq!(out.len(), cols.len().div_ceil(width) * panel);
    b.assert_holds(depth, cols.end);
    let narrow = cols.len() % width;
    if narrow > 0 {
        out[cols.len() / width * panel..].fill(0.0);
    }
    if b.col == 1 {
        // Along the rows, as they lie in memory.
        for k in 0..depth {
            let row = &b.data[k * b.row..][cols.clone()];
            let ahead = row.as_ptr().wrapping_add(AHEAD * b.row);
            let (mut at, mut to) = (0, k * width);
            while at + width <= row.len() {
                s.prefetch(ahead.wrapping_add(at));
                for at in (at..at + width).step_by(S::LANES) {
                    s.store(&mut out[to + at % width..], s.load(&row[at..]));
                }
                (at, to) = (at + width, to + panel);
            }
            if narrow > 0 {
                out[to..to + narrow].copy_from_slice(&row[at..]);
            }
        }
    } else {
        // Down the columns, whose elements lie together where B is a transposed matrix: as many at
        // once as a vector holds, square by square.
        let squares = if b.row == 1 { depth / S::LANES * S::LANES } else { 0 };
        let mut j = 0;
        while j < cols.len() {
            let (from, to) = (&b.data[(cols.start + j) * b.col..], j / width * panel + j % width);
            let (whole, count) =
                if j + S::LANES <= cols.len() { (squares, S::LANES) } else { (0, cols.len() - j) };
            let ahead = from.as_ptr().wrapping_add(S::LANES * b.col);
            for k in (0..whole).step_by(S::LANES) {
                for col in 0..S::LANES {
                    s.prefetch(ahead.wrapping_add(col * b.col + k));
                }
                // SAFETY: these rows and columns are in `b` and in `out`.
                unsafe {
                    let to = out.as_mut_ptr().add(to + k * width);
                    s.transpose(to, width, from.as_ptr().add(k), b.col);
                }
            }
            for col in 0..count {
                for k in whole..depth {
                    out[to + col + k * width] = from[col * b.col + k * b.row];
                }
            }
            j += count;
        }
    }
}

/// Packs rows `rows` of A, whose elements of one column lie together, to strips.
#[inline(always)]
pub(super) fn pack_strips<S: Simd>(
    s: S,
    out: &mut [f32],
    a: Mat,
    rows: std::ops::Range<usize>,
    depth: usize,
) {
    assert_eq!(a.row, 1, "only transposed matrices are packed");
    a.assert_holds(rows.end, depth);
    let (step, strip) = (tile_rows::<S>(), strip_len::<S>(depth));
    for k in 0..depth {
        let column = &a.data[k * a.col..][..rows.end];
        let ahead = column.as_ptr().wrapping_add(AHEAD * a.col);
        for at in rows.clone().step_by(16) {
            s.prefetch(ahead.wrapping_add(at));
        }
        let (mut at, mut to) = (rows.start, k * step);
        while at + S::LANES <= rows.end {
            // A whole vector is one move; what it has too many, the next k overwrites.
            s.store(&mut out[to..], s.load(&column[at..]));
            (at, to) = (at + step, to + strip);
        }
        while at < rows.end {
            let some = step.min(rows.end - at);
            out[to..to + some].copy_from_slice(&column[at..at + some]);
            (at, to) = (at + step, to + strip);
        }
    }
}
