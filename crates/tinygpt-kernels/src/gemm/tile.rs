//! The register tile: a few rows by two vectors of C, and all of one block of k.

use super::{Mat, Packed, Start};
use crate::simd::{Isa, Simd, dispatch};

/// A multiple of every instruction set's rows of a tile.
pub(super) const TILE_ROWS: usize = 12;
/// The most columns of a tile.
const TILE_WIDTH: usize = 32;
/// Steps of k in one round of the innermost loop.
const UNROLL: usize = 4;

/// Columns of a register tile.
pub(crate) fn tile_width(isa: Isa) -> usize {
    fn kernel<S: Simd>(_: S, out: &mut usize) {
        *out = width::<S>();
    }
    let mut width = 0;
    let out = &mut width;
    dispatch!(isa, kernel, out: &mut usize);
    width
}

#[inline(always)]
pub(crate) const fn width<S: Simd>() -> usize {
    S::TILE.1 * S::LANES
}

#[inline(always)]
pub(super) const fn tile_rows<S: Simd>() -> usize {
    S::TILE.0
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

/// The same for the instruction set `isa`.
pub(super) fn strips_room(isa: Isa, rows: usize, depth: usize) -> usize {
    fn kernel<S: Simd>(_: S, out: &mut usize, rows: usize, depth: usize) {
        *out = strips_len::<S>(rows, depth);
    }
    let mut room = 0;
    let out = &mut room;
    dispatch!(isa, kernel, out: &mut usize, rows: usize, depth: usize);
    room
}

/// The left operand of a column of tiles.
#[derive(Clone, Copy)]
pub(crate) enum Left<'a> {
    /// Where it is.
    InPlace(Mat<'a>),
    /// Strips of a tile's rows; in a strip, the rows' elements of each k together.
    Strips(&'a [f32]),
}

/// Where a column of tiles writes, `rows` x `cols` of a matrix in rows of `stride`, and what.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// What the operands consist of; their depths count that.
    pub(crate) packed: Packed,
    pub(crate) c: *mut f32,
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

/// `C (rows, cols) = start + A (rows, depth) panel (depth, width)`.
///
/// Compiled once for each instruction set and called, not inlined: it is large and has many
/// callers.
///
/// # Safety
/// `out` describes places valid for writing that nobody else uses.
pub(crate) unsafe fn column_of_tiles<S: Simd>(
    _: S,
    out: Tile,
    a: Left,
    panel: &[f32],
    start: Start,
) {
    let isa = Isa(S::LEVEL);
    dispatch!(isa, column, out: Tile, a: Left<'_>, panel: &[f32], start: Start<'_>);
}

/// [`column_of_tiles`], whose caller's promise it relies on.
#[inline(always)]
fn column<S: Simd>(s: S, out: Tile, a: Left, panel: &[f32], start: Start) {
    let width = width::<S>();
    let (depth, step) = (panel.len() / width, tile_rows::<S>());
    match a {
        Left::InPlace(a) => a.assert_holds(out.rows, depth),
        Left::Strips(strips) => assert!(strips_len::<S>(out.rows, depth) <= strips.len()),
    }
    debug_assert!(out.cols <= width);
    // A narrow tile is computed in a full one on the side.
    let mut side = [0.0f32; TILE_ROWS * TILE_WIDTH];
    let mut side_bias = [0.0f32; TILE_WIDTH];
    assert!(width <= TILE_WIDTH && step <= TILE_ROWS);
    let narrow = out.cols < width;
    let start = match start {
        Start::Bias(bias) if narrow => {
            side_bias[..out.cols].copy_from_slice(bias);
            Start::Bias(&side_bias)
        }
        other => other,
    };
    let mut r = 0;
    while r < out.rows {
        let rows = rows_together::<S>(out.rows - r);
        // SAFETY: rows r.. of `out`, by the caller's promise.
        let c = unsafe { out.c.add(r * out.stride) };
        let (to, stride) = if narrow { (side.as_mut_ptr(), width) } else { (c, out.stride) };
        if narrow && matches!(start, Start::Add) {
            for i in 0..rows {
                // SAFETY: `cols` floats of row r + i.
                unsafe { c.add(i * out.stride).copy_to(to.add(i * width), out.cols) };
            }
        }
        if matches!(start, Start::Add) {
            // A chain of multiply-adds cannot begin before its start value is there.
            for next in rows..(2 * rows).min(out.rows - r) {
                s.prefetch(c.wrapping_add(next * out.stride));
            }
        }
        let (from, layout) = match a {
            Left::InPlace(a) => (&a.data[r * a.row..], a),
            Left::Strips(strips) => {
                let strip = &strips[r / step * strip_len::<S>(depth) + r % step..];
                (strip, Mat { data: strip, row: 1, col: step })
            }
        };
        // SAFETY: A holds rows r..r + rows (asserted above); `to` holds rows of `width` floats.
        unsafe {
            let from = from.as_ptr();
            if S::LEVEL.multiplies_pairs() && out.packed == Packed::Pairs {
                tile_of_rows::<S, true>(s, rows, to, stride, from, layout, panel, start);
            } else {
                tile_of_rows::<S, false>(s, rows, to, stride, from, layout, panel, start);
            }
        }
        if narrow {
            for i in 0..rows {
                // SAFETY: `cols` floats of row r + i.
                unsafe { c.add(i * out.stride).copy_from(to.add(i * width), out.cols) };
            }
        }
        r += rows;
    }
}

/// Rows of the next tile, of so many that are left: of a large kind not every number has a tile of
/// its own.
#[inline(always)]
fn rows_together<S: Simd>(left: usize) -> usize {
    match (S::TILE.0, left) {
        (12, 12..) => 12,
        (12, 8..) => 8,
        (12, 4..) => 4,
        (12, 2..) => 2,
        (most, left) => most.min(left),
    }
}

/// A tile of [`rows_together`].
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn tile_of_rows<S: Simd, const PAIRS: bool>(
    s: S,
    rows: usize,
    c: *mut f32,
    stride: usize,
    a: *const f32,
    layout: Mat,
    panel: &[f32],
    start: Start,
) {
    macro_rules! tile {
        ($r:literal, $v:literal) => {
            tile::<S, $r, $v, PAIRS>(s, c, stride, a, layout, panel, start)
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        match (S::TILE, rows) {
            ((12, 2), 12) => tile!(12, 2),
            ((12, 2), 8) => tile!(8, 2),
            ((6, 2), 6) => tile!(6, 2),
            ((6, 2), 5) => tile!(5, 2),
            ((6 | 12, 2), 4) => tile!(4, 2),
            ((6, 2), 3) => tile!(3, 2),
            ((6 | 12, 2), 2) => tile!(2, 2),
            ((6 | 12, 2), 1) => tile!(1, 2),
            ((4, 1), 4) => tile!(4, 1),
            ((4, 1), 3) => tile!(3, 1),
            ((4, 1), 2) => tile!(2, 1),
            ((4, 1), 1) => tile!(1, 1),
            (size, rows) => unreachable!("{rows} rows of a tile of {size:?}"),
        }
    }
}

/// The innermost loop: R x (V vectors) accumulators in registers, one multiply-add each per k, or
/// two where an element is a pair of bf16.
///
/// # Safety
/// `c` is valid for R rows of V vectors at `stride`; `a` for R rows and `depth` columns in
/// `layout`.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const V: usize, const PAIRS: bool>(
    s: S,
    c: *mut f32,
    stride: usize,
    a: *const f32,
    layout: Mat,
    panel: &[f32],
    start: Start,
) {
    let lanes = S::LANES;
    let depth = panel.len() / (V * lanes);
    let mut acc = [[s.splat(0.0); V]; R];
    for (r, acc) in acc.iter_mut().enumerate() {
        for (v, acc) in acc.iter_mut().enumerate() {
            *acc = match start {
                Start::Zero => s.splat(0.0),
                Start::Bias(bias) => s.load(&bias[v * lanes..]),
                // SAFETY: in the tile of C.
                Start::Add => unsafe { s.load_ptr(c.add(r * stride + v * lanes)) },
            };
        }
    }
    let Mat { row, col, .. } = layout;
    // SAFETY: k < depth and r < R, so every element is one of A's; the panel is `depth` deep.
    unsafe {
        let b = panel.as_ptr();
        if col == 1 {
            // One pointer a row, hidden from the compiler, which would derive them anew at each k.
            let rows: [*const f32; R] = std::array::from_fn(|r| a.wrapping_add(r * row));
            let rows = std::hint::black_box(rows);
            chains::<S, R, V, PAIRS, UNROLL>(s, &mut acc, b, depth, |k, r| *rows[r].add(k));
        } else if (row, col) == (1, tile_rows::<S>()) {
            let strip = tile_rows::<S>();
            chains::<S, R, V, PAIRS, UNROLL>(s, &mut acc, b, depth, |k, r| *a.add(k * strip + r));
        } else {
            assert!(
                row == 1 && !PAIRS,
                "the rows or the columns of A lie together, pairs in strips"
            );
            chains::<S, R, V, PAIRS, 1>(s, &mut acc, b, depth, |k, r| *a.add(k * col + r));
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        for (v, acc) in acc.iter().enumerate() {
            // SAFETY: in the tile of C.
            unsafe { s.store_ptr(c.add(r * stride + v * lanes), *acc) };
        }
    }
}

/// `acc[r] += a(k, r) b[k]` for each k in order, `UNROLL` of them a round.
///
/// The loop does next to nothing but load and multiply, because a neighbour on the same core (its
/// other hyperthread) takes instruction slots rather than multipliers.
///
/// # Safety
/// `b` is valid for reading `depth` rows of V vectors; `a(k, r)` may be called for k < depth and
/// r < R.
#[inline(always)]
unsafe fn chains<
    S: Simd,
    const R: usize,
    const V: usize,
    const PAIRS: bool,
    const UNROLL: usize,
>(
    s: S,
    acc: &mut [[S::F; V]; R],
    b: *const f32,
    depth: usize,
    a: impl Fn(usize, usize) -> f32,
) {
    let whole = depth / UNROLL * UNROLL;
    for k in (0..whole).step_by(UNROLL) {
        for k in k..k + UNROLL {
            // SAFETY: k < depth.
            unsafe { multiply_add::<S, R, V, PAIRS>(s, acc, b.add(k * V * S::LANES), |r| a(k, r)) };
        }
    }
    for k in whole..depth {
        // SAFETY: k < depth.
        unsafe { multiply_add::<S, R, V, PAIRS>(s, acc, b.add(k * V * S::LANES), |r| a(k, r)) };
    }
}

/// One k, or two: every row's element of A times the vectors at `b`.
///
/// # Safety
/// `b` is valid for reading V vectors, and `a(r)` may be called for r < R.
#[inline(always)]
unsafe fn multiply_add<S: Simd, const R: usize, const V: usize, const PAIRS: bool>(
    s: S,
    acc: &mut [[S::F; V]; R],
    b: *const f32,
    a: impl Fn(usize) -> f32,
) {
    let mut row = [s.splat(0.0); V];
    for (v, row) in row.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *row = unsafe { s.load_ptr(b.add(v * S::LANES)) };
    }
    for (r, acc) in acc.iter_mut().enumerate() {
        let x = s.splat(a(r));
        for (acc, row) in acc.iter_mut().zip(row) {
            *acc = if PAIRS { s.dot_pairs(x, row, *acc) } else { s.mul_add(x, row, *acc) };
        }
    }
}
