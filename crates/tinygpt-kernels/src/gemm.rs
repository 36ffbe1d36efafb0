//! The matrix product `C = start + A B`, for any layout of A and B.
//!
//! **Invariant**: an element of C is one chain of multiply-adds over k in order, beginning with its
//! start value. However rows, columns and k are cut (threads, blocks, micro-batches), the bits are
//! the same; only another instruction set may round otherwise.
//!
//! Structure (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008): k
//! is cut into blocks; of each, B is packed once by all workers into panels as wide as a register
//! tile; each worker then takes its rows in blocks that stay in L2, and runs the tile over them.

use crate::par::{Cpu, Shared};
use crate::simd::{Isa, Simd, dispatch};

/// A matrix inside a slice: element (r, c) lies at `r * row + c * col`.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    row: usize,
    col: usize,
}

impl<'a> Mat<'a> {
    /// Rows of `width` elements one after the other.
    pub fn rows(data: &'a [f32], width: usize) -> Self {
        Self { data, row: width, col: 1 }
    }

    /// Rows that start `stride` elements apart.
    pub fn strided(data: &'a [f32], stride: usize) -> Self {
        Self::rows(data, stride)
    }

    /// Rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self { row: self.col, col: self.row, ..self }
    }

    #[inline(always)]
    fn assert_holds(&self, rows: usize, cols: usize) {
        let last = (rows.max(1) - 1) * self.row + (cols.max(1) - 1) * self.col;
        assert!(
            rows == 0 || cols == 0 || last < self.data.len(),
            "a {rows} x {cols} matrix ends at {last}, the slice at {}",
            self.data.len()
        );
    }
}

/// What an element's chain begins with.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    /// 0: C is written.
    Zero,
    /// The bias of its column: C is written.
    Bias(&'a [f32]),
    /// What is there: C is added to.
    Add,
}

/// Most of k in one block: a packed panel of B then fits half of L1.
const K_BLOCK: usize = 384;
/// Rows of A in one block: with `K_BLOCK` columns they fit half of L2.
const ROW_BLOCK: usize = 96;
/// Rows of a tile, for the widest kind.
const TILE_ROWS: usize = 6;

/// `C (m, n) = start + A (m, k) B (k, n)`, with C in rows of `n`.
pub fn product(
    cpu: &Cpu,
    c: &mut [f32],
    a: Mat,
    b: Mat,
    (m, k, n): (usize, usize, usize),
    start: Start,
) {
    assert_eq!(c.len(), m * n, "C is {m} x {n}");
    a.assert_holds(m, k);
    b.assert_holds(k, n);
    if let Start::Bias(bias) = start {
        assert_eq!(bias.len(), n, "one bias a column");
    }
    let isa = cpu.isa();
    let width = tile_width(isa);
    let panels = n.div_ceil(width);
    let blocks = k.div_ceil(K_BLOCK).max(1);
    let k_block = k.div_ceil(blocks);
    let mut pack = cpu.pack.borrow_mut();
    pack.resize(panels * width * k_block);
    // Rows are shared out where there are enough of them for all workers, else columns.
    let by_rows = m >= cpu.threads() * TILE_ROWS * 2;
    for block in 0..blocks {
        let (k0, k1) = (block * k_block, ((block + 1) * k_block).min(k));
        let start = if block == 0 { start } else { Start::Add };
        let depth = k1 - k0;
        let packed = Shared::of(&mut pack[..panels * width * depth]);
        let b = Mat { data: &b.data[(k0 * b.row).min(b.data.len())..], ..b };
        cpu.run(|worker| {
            for panel in worker.part(panels, 1) {
                let at = panel * width * depth;
                // SAFETY: each panel belongs to one worker.
                let out = unsafe { packed.slice(at..at + width * depth) };
                let cols = panel * width..n.min((panel + 1) * width);
                dispatch!(isa, pack_panel, out: &mut [f32], b: Mat<'_>, cols: std::ops::Range<usize>);
            }
        });
        let packed = &pack[..panels * width * depth];
        let a = Mat { data: &a.data[(k0 * a.col).min(a.data.len())..], ..a };
        let out = Shared::of(c);
        cpu.run(|worker| {
            let (rows, cols) = if by_rows {
                (worker.part(m, TILE_ROWS), 0..n)
            } else {
                (0..m, worker.part(n, width))
            };
            if rows.is_empty() || cols.is_empty() {
                return;
            }
            let scratch = worker.scratch((ROW_BLOCK + TILE_ROWS) * depth);
            let job = Job { a, packed, depth, n, start, rows, cols };
            dispatch!(isa, multiply, out: Shared<'_, f32>, scratch: &mut [f32], job: Job<'_>);
        });
    }
}

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
    if S::WIDE_TILE { 2 * S::LANES } else { S::LANES }
}

/// One worker's part of a product over one block of k.
struct Job<'a> {
    a: Mat<'a>,
    packed: &'a [f32],
    depth: usize,
    n: usize,
    start: Start<'a>,
    rows: std::ops::Range<usize>,
    cols: std::ops::Range<usize>,
}

/// Packs columns `cols` of B to rows of a tile's width, the last ones filled up with zeros.
#[inline(always)]
pub(crate) fn pack_panel<S: Simd>(_: S, out: &mut [f32], b: Mat, cols: std::ops::Range<usize>) {
    let width = width::<S>();
    let depth = out.len() / width;
    if cols.len() < width {
        out.fill(0.0);
    }
    b.assert_holds(depth, cols.end);
    if b.col == 1 {
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

#[inline(always)]
fn multiply<S: Simd>(s: S, c: Shared<f32>, scratch: &mut [f32], job: Job) {
    let width = width::<S>();
    let Job { a, packed, depth, n, .. } = job;
    let mut r0 = job.rows.start;
    while r0 < job.rows.end {
        let r1 = (r0 + ROW_BLOCK).min(job.rows.end);
        let block = if a.col == 1 {
            Left::InPlace(Mat { data: &a.data[r0 * a.row..], ..a })
        } else {
            pack_strips::<S>(scratch, a, r0..r1, depth);
            Left::Strips(scratch)
        };
        let mut c0 = job.cols.start;
        while c0 < job.cols.end {
            let c1 = (c0 + width).min(n);
            let panel = &packed[c0 / width * width * depth..][..width * depth];
            let start = match job.start {
                Start::Bias(bias) => Start::Bias(&bias[c0..c1]),
                other => other,
            };
            // SAFETY: this worker alone has these rows and columns of C, which `product` checked.
            unsafe {
                let out =
                    Tile { c: c.ptr().add(r0 * n + c0), stride: n, rows: r1 - r0, cols: c1 - c0 };
                column_of_tiles(s, out, block, panel, start);
            }
            c0 = c1;
        }
        r0 = r1;
    }
}

/// The left operand of a column of tiles.
#[derive(Clone, Copy)]
pub(crate) enum Left<'a> {
    /// Where it is.
    InPlace(Mat<'a>),
    /// Strips of a tile's rows; in a strip, the rows' elements of each k together.
    Strips(&'a [f32]),
}

/// Packs rows `rows` of A, whose elements of one column lie together, to strips.
#[inline(always)]
fn pack_strips<S: Simd>(out: &mut [f32], a: Mat, rows: std::ops::Range<usize>, depth: usize) {
    assert_eq!(a.row, 1, "only transposed matrices are packed");
    a.assert_holds(rows.end, depth);
    let step = tile_rows::<S>();
    for k in 0..depth {
        let column = &a.data[k * a.col..][rows.clone()];
        for (strip, x) in column.chunks(step).enumerate() {
            let at = (strip * depth + k) * step;
            out[at..at + x.len()].copy_from_slice(x);
        }
    }
}

#[inline(always)]
const fn tile_rows<S: Simd>() -> usize {
    if S::WIDE_TILE { TILE_ROWS } else { 4 }
}

/// Where a column of tiles writes: `rows` x `cols` of a matrix in rows of `stride`.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) c: *mut f32,
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

/// `C (rows, cols) = start + A (rows, depth) panel (depth, width)`.
///
/// # Safety
/// `out` describes places valid for writing that nobody else uses.
#[inline(always)]
pub(crate) unsafe fn column_of_tiles<S: Simd>(
    s: S,
    out: Tile,
    a: Left,
    panel: &[f32],
    start: Start,
) {
    let width = width::<S>();
    let (depth, step) = (panel.len() / width, tile_rows::<S>());
    match a {
        Left::InPlace(a) => a.assert_holds(out.rows, depth),
        Left::Strips(strips) => assert!(out.rows.next_multiple_of(step) * depth <= strips.len()),
    }
    debug_assert!(out.cols <= width);
    // A narrow tile is computed in a full one on the side.
    let mut side = [0.0f32; TILE_ROWS * 32];
    let mut side_bias = [0.0f32; 32];
    assert!(width <= 32);
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
        let rows = step.min(out.rows - r);
        // SAFETY: rows r.. of `out`, by the caller's promise.
        let c = unsafe { out.c.add(r * out.stride) };
        let (to, stride) = if narrow { (side.as_mut_ptr(), width) } else { (c, out.stride) };
        if narrow && matches!(start, Start::Add) {
            for i in 0..rows {
                // SAFETY: `cols` floats of row r + i.
                unsafe { c.add(i * out.stride).copy_to(to.add(i * width), out.cols) };
            }
        }
        let (from, layout) = match a {
            Left::InPlace(a) => (&a.data[r * a.row..], a),
            Left::Strips(strips) => {
                let strip = &strips[r * depth..];
                (strip, Mat { data: strip, row: 1, col: step })
            }
        };
        // SAFETY: A holds rows r..r + rows (asserted above); `to` holds rows of `width` floats.
        unsafe { some_rows(s, rows, to, stride, from.as_ptr(), layout, panel, start) };
        if narrow {
            for i in 0..rows {
                // SAFETY: `cols` floats of row r + i.
                unsafe { c.add(i * out.stride).copy_from(to.add(i * width), out.cols) };
            }
        }
        r += rows;
    }
}

/// A tile of 1 to 6 rows.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn some_rows<S: Simd>(
    s: S,
    rows: usize,
    c: *mut f32,
    stride: usize,
    a: *const f32,
    layout: Mat,
    panel: &[f32],
    start: Start,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (S::WIDE_TILE, rows) {
            (true, 6) => tile::<S, 6, 2>(s, c, stride, a, layout, panel, start),
            (true, 5) => tile::<S, 5, 2>(s, c, stride, a, layout, panel, start),
            (true, 4) => tile::<S, 4, 2>(s, c, stride, a, layout, panel, start),
            (true, 3) => tile::<S, 3, 2>(s, c, stride, a, layout, panel, start),
            (true, 2) => tile::<S, 2, 2>(s, c, stride, a, layout, panel, start),
            (true, _) => tile::<S, 1, 2>(s, c, stride, a, layout, panel, start),
            (false, 4) => tile::<S, 4, 1>(s, c, stride, a, layout, panel, start),
            (false, 3) => tile::<S, 3, 1>(s, c, stride, a, layout, panel, start),
            (false, 2) => tile::<S, 2, 1>(s, c, stride, a, layout, panel, start),
            (false, _) => tile::<S, 1, 1>(s, c, stride, a, layout, panel, start),
        }
    }
}

/// The innermost loop: R x (V vectors) accumulators in registers, one multiply-add each per k.
///
/// # Safety
/// `c` is valid for R rows of V vectors at `stride`; `a` for R rows and `depth` columns in `layout`.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const V: usize>(
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
    let mut b = panel.as_ptr();
    // One pointer a row, one offset for all: the loop then does nothing but load and multiply.
    let rows: [*const f32; R] = std::array::from_fn(|r| a.wrapping_add(r * layout.row));
    let mut at = 0;
    for _ in 0..depth {
        // SAFETY: k < depth, in the panel and in A.
        unsafe {
            let mut row = [s.splat(0.0); V];
            for (v, row) in row.iter_mut().enumerate() {
                *row = s.load_ptr(b.add(v * lanes));
            }
            for (r, acc) in acc.iter_mut().enumerate() {
                let x = s.splat(*rows[r].add(at));
                for (acc, row) in acc.iter_mut().zip(row) {
                    *acc = s.mul_add(x, row, *acc);
                }
            }
            b = b.add(V * lanes);
            at += layout.col;
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        for (v, acc) in acc.iter().enumerate() {
            // SAFETY: in the tile of C.
            unsafe { s.store_ptr(c.add(r * stride + v * lanes), *acc) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::random;

    /// Every layout and start on awkward sizes, against f64.
    #[test]
    fn product_matches_the_naive_one_in_every_layout() {
        let sizes = [
            (1, 1, 1),
            (2, 7, 3),
            (6, 16, 16),
            (7, 17, 15),
            (13, 400, 33),
            (101, 5, 97),
            (200, 800, 40),
        ];
        for isa in Isa::available() {
            let cpu = Cpu::new(3, isa);
            for (m, k, n) in sizes {
                let (a, b, c0, bias) =
                    (random(1, m * k), random(2, k * n), random(3, m * n), random(4, n));
                for layout in 0..4 {
                    let a_mat = if layout & 1 == 0 {
                        Mat::rows(&a, k)
                    } else {
                        Mat::rows(&a, m).transposed()
                    };
                    let b_mat = if layout & 2 == 0 {
                        Mat::rows(&b, n)
                    } else {
                        Mat::rows(&b, k).transposed()
                    };
                    for start in [Start::Zero, Start::Bias(&bias), Start::Add] {
                        let mut c = c0.clone();
                        product(&cpu, &mut c, a_mat, b_mat, (m, k, n), start);
                        for i in 0..m * n {
                            let (r, j) = (i / n, i % n);
                            let mut exact = match start {
                                Start::Zero => 0.0,
                                Start::Bias(bias) => bias[j] as f64,
                                Start::Add => c0[i] as f64,
                            };
                            let mut size = exact.abs();
                            for x in 0..k {
                                let term = a_mat.data[r * a_mat.row + x * a_mat.col] as f64
                                    * b_mat.data[x * b_mat.row + j * b_mat.col] as f64;
                                (exact, size) = (exact + term, size + term.abs());
                            }
                            let error = (c[i] as f64 - exact).abs();
                            assert!(
                                error <= 5e-7 * size,
                                "{isa:?} ({m},{k},{n}) layout {layout} [{i}]: {} for {exact}",
                                c[i]
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads_or_on_how_rows_and_k_are_cut() {
        let (m, k, n) = (37, 1000, 50);
        let (a, b) = (random(1, m * k), random(2, k * n));
        for isa in Isa::available() {
            let whole = |threads| {
                let mut c = vec![0.5; m * n];
                product(
                    &Cpu::new(threads, isa),
                    &mut c,
                    Mat::rows(&a, k),
                    Mat::rows(&b, n),
                    (m, k, n),
                    Start::Add,
                );
                c
            };
            let one = whole(1);
            for threads in [2, 5, 16] {
                assert_eq!(one, whole(threads), "{isa:?}, {threads} threads");
            }
            let cpu = Cpu::new(2, isa);
            for cut in [1, 33, 384, 999] {
                let mut c = vec![0.5; m * n];
                let left = Mat::rows(&a, k);
                let right = Mat { data: &a[cut..], ..left };
                product(&cpu, &mut c, left, Mat::rows(&b, n), (m, cut, n), Start::Add);
                product(
                    &cpu,
                    &mut c,
                    right,
                    Mat::rows(&b[cut * n..], n),
                    (m, k - cut, n),
                    Start::Add,
                );
                assert_eq!(one, c, "{isa:?}, k cut at {cut}");
            }
            for rows in [1, 5, 20] {
                let mut c = vec![0.5; rows * n];
                product(&cpu, &mut c, Mat::rows(&a, k), Mat::rows(&b, n), (rows, k, n), Start::Add);
                assert_eq!(one[..rows * n], c, "{isa:?}, the first {rows} rows alone");
            }
        }
    }
}
