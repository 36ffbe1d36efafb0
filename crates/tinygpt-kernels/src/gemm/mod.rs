//! The matrix product `C = start + A B`, for any layout of A and B.
//!
//! **Invariant**: an element of C is one chain of multiply-adds over k in order, beginning with its
//! start value. However rows, columns and k are cut (threads, blocks, micro-batches), the bits are
//! the same; only another instruction set may round otherwise.
//!
//! Structure (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008): k
//! is cut into blocks; of each, B is packed once by all workers into panels as wide as a register
//! tile; each worker then takes its rows in blocks that stay in L2, and runs the tile over them.

mod tile;
mod pack;

use crate::par::{Cpu, Shared};
use crate::simd::{Simd, dispatch};
pub(crate) use pack::pack_panels;
use pack::pack_strips;
pub(crate) use tile::{Left, Tile, column_of_tiles, tile_width, width};
use tile::{TILE_ROWS, strips_room};

/// A matrix inside a slice: element (r, c) lies at `r * row + c * col`.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    row: usize,
    col: usize,
}

impl<'a> Mat<'a> {
    /// Rows that start `width` elements apart.
    pub fn rows(data: &'a [f32], width: usize) -> Self {
        Self { data, row: width, col: 1 }
    }

    /// Rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self { row: self.col, col: self.row, ..self }
    }

    /// The same without its first `rows` rows.
    #[inline(always)]
    pub(crate) fn skip_rows(self, rows: usize) -> Self {
        Self { data: &self.data[rows * self.row..], ..self }
    }

    #[inline(always)]
    fn assert_holds(&self, rows: usize, cols: usize) {
        if rows == 0 || cols == 0 {
            return;
        }
        let (down, along) = ((rows - 1).checked_mul(self.row), (cols - 1).checked_mul(self.col));
        let last = down.and_then(|down| along?.checked_add(down));
        assert!(
            last.is_some_and(|last| last < self.data.len()),
            "a {rows} x {cols} matrix ends at {last:?}, the slice at {}",
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

/// Most of k in one block: a panel of B is then read from L2, which keeps up, and C is not read and
/// written more often than need be.
const K_BLOCK: usize = 768;
/// Rows of A in one block: with `K_BLOCK` columns they fit most of L2.
const ROW_BLOCK: usize = 96;
/// Most panels of B that are packed together, so that reading goes along its rows.
const PANELS_TOGETHER: usize = 12;

/// `C (m, n) = start + A (m, k) B (k, n)`, with C in rows of `n`.
pub fn product(
    cpu: &Cpu,
    c: &mut [f32],
    a: Mat,
    b: Mat,
    (m, k, n): (usize, usize, usize),
    start: Start,
) {
    assert_eq!(Some(c.len()), m.checked_mul(n), "C is {m} x {n}");
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
    // A few pieces for each worker, so that none waits long for the last.
    let row_unit = m.div_ceil(8 * cpu.threads()).next_multiple_of(TILE_ROWS).min(ROW_BLOCK);
    let panel_unit = panels.div_ceil(cpu.threads()).min(PANELS_TOGETHER);
    // Strips are needed where the rows of A do not lie together; every worker makes room for as
    // many as there may be, so that none has to when it first takes a large piece.
    let strips = if a.col == 1 { 0 } else { strips_room(isa, ROW_BLOCK.min(m), k_block) };
    for block in 0..blocks {
        let (k0, k1) = (block * k_block, ((block + 1) * k_block).min(k));
        let start = if block == 0 { start } else { Start::Add };
        let depth = k1 - k0;
        let packed = Shared::of(&mut pack[..panels * width * depth]);
        let b = Mat { data: &b.data[(k0 * b.row).min(b.data.len())..], ..b };
        cpu.run(|worker| {
            while let Some(part) = worker.turns.take(panels, panel_unit) {
                let cols = part.start * width..n.min(part.end * width);
                let places = part.start * width * depth..part.end * width * depth;
                // SAFETY: each panel belongs to one worker.
                let out = unsafe { packed.slice(places) };
                dispatch!(
                    isa, pack_panels, out: &mut [f32], b: Mat<'_>, cols: std::ops::Range<usize>,
                    depth: usize,
                );
            }
        });
        let packed = &pack[..panels * width * depth];
        let a = Mat { data: &a.data[(k0 * a.col).min(a.data.len())..], ..a };
        let out = Shared::of(c);
        let (size, unit) = if by_rows { (m, row_unit) } else { (n, width) };
        cpu.run(|worker| {
            let turns = worker.turns;
            let scratch = worker.scratch(strips);
            while let Some(part) = turns.take(size, unit) {
                let (rows, cols) = if by_rows { (part, 0..n) } else { (0..m, part) };
                let job = Job { a, packed, depth, n, start, rows, cols };
                dispatch!(isa, multiply, out: Shared<'_, f32>, scratch: &mut [f32], job: Job<'_>);
            }
        });
    }
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
            pack_strips(s, scratch, a, r0..r1, depth);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
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
            (200, 1600, 40),
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
