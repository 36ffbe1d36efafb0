//! Operands in the order in which a tile reads them.

use super::Mat;
use super::tile::{tile_rows, width};
use crate::simd::Simd;

/// Packs columns `cols` of B to rows of a tile's width, the last ones filled up with zeros.
#[inline(always)]
pub(crate) fn pack_panel<S: Simd>(s: S, out: &mut [f32], b: Mat, cols: std::ops::Range<usize>) {
    let width = width::<S>();
    let depth = out.len() / width;
    if cols.len() < width {
        out.fill(0.0);
    }
    b.assert_holds(depth, cols.end);
    if b.col == 1 && cols.len() == width {
        for (k, row) in out.chunks_exact_mut(width).enumerate() {
            let from = &b.data[k * b.row + cols.start..][..width];
            for at in (0..width).step_by(S::LANES) {
                s.store(&mut row[at..], s.load(&from[at..]));
            }
        }
    } else if b.col == 1 {
        for (k, row) in out.chunks_exact_mut(width).enumerate() {
            row[..cols.len()].copy_from_slice(&b.data[k * b.row..][cols.clone()]);
        }
    } else {
        // Down each column: its elements lie together where B is a transposed matrix.
        for (j, col) in cols.enumerate() {
            let column = &b.data[col * b.col..];
            for k in 0..depth {
                // SAFETY: (depth - 1, cols.end - 1) is in `b`, and k * width + j in `out`.
                unsafe { *out.get_unchecked_mut(k * width + j) = *column.get_unchecked(k * b.row) };
            }
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

/// Floats of one strip: a tile's rows for each k, and room for the last vector's rest.
#[inline(always)]
pub(super) const fn strip_len<S: Simd>(depth: usize) -> usize {
    tile_rows::<S>() * depth + S::LANES
}

/// Floats of the strips of `rows` rows.
#[inline(always)]
pub(super) const fn strips_len<S: Simd>(rows: usize, depth: usize) -> usize {
    rows.div_ceil(tile_rows::<S>()) * strip_len::<S>(depth)
}
