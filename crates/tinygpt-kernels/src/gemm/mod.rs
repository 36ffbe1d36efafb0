//! The matrix product `C = start + A B`, for any layout of A and B.
//!
//! **Invariant**: an element of C is one chain of multiply-adds over k in order, beginning with its
//! start value. However rows, columns and k are cut (threads, blocks, micro-batches), the bits are
//! the same; only another instruction set may round otherwise.
//!
//! Structure (after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008):
//! k is cut into blocks. Of each, the operand of the smaller side is packed once, by all workers for
//! all of them, in the order in which a register tile reads it. Each worker then takes pieces of the
//! larger side, packs what belongs to them for itself, into its own cache, and runs the tile over
//! them. An A whose rows lie together is read where it is.

mod tile;
mod pack;

use crate::par::{Cpu, Shared};
use crate::simd::{Simd, dispatch};
pub(crate) use pack::pack_panels;
use pack::pack_strips;
use std::ops::Range;
pub(crate) use tile::{Left, Tile, column_of_tiles, tile_width, width};
use tile::{TILE_ROWS, strips_len, strips_room};

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

    /// The same without its first `rows` rows, of which it has as many or no column.
    #[inline(always)]
    pub(crate) fn skip_rows(self, rows: usize) -> Self {
        Self { data: &self.data[(rows * self.row).min(self.data.len())..], ..self }
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
/// Most panels of B that are packed together for all, so that reading goes along its rows.
const PANELS_TOGETHER: usize = 12;
/// Most panels of B that a worker packs for itself: with `K_BLOCK` rows they leave half of L2.
const PANELS_OWN: usize = 4;

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
    let c = Shared::of(c);
    let blocks = k.div_ceil(K_BLOCK).max(1);
    let k_block = k.div_ceil(blocks);
    for block in 0..blocks {
        let (k0, k1) = (block * k_block, ((block + 1) * k_block).min(k));
        let start = if block == 0 { start } else { Start::Add };
        let (a, b) = (a.transposed().skip_rows(k0).transposed(), b.skip_rows(k0));
        let job = Job { c, a, b, m, n, depth: k1 - k0, start };
        if m > n { by_rows(cpu, job) } else { by_columns(cpu, job) }
    }
}

/// A product over one block of k.
#[derive(Clone, Copy)]
struct Job<'a> {
    c: Shared<'a, f32>,
    a: Mat<'a>,
    b: Mat<'a>,
    m: usize,
    n: usize,
    depth: usize,
    start: Start<'a>,
}

/// B is packed for all; each worker packs the strips of the rows it takes.
fn by_rows(cpu: &Cpu, job: Job) {
    let (isa, Job { a, b, m, n, depth, .. }) = (cpu.isa(), job);
    let width = tile_width(isa);
    let panels = n.div_ceil(width);
    let mut pack = cpu.pack.borrow_mut();
    pack.resize(panels * width * depth);
    let packed = Shared::of(&mut pack);
    let unit = panels.div_ceil(cpu.threads()).min(PANELS_TOGETHER);
    cpu.run(|worker| {
        while let Some(part) = worker.turns.take(panels, unit) {
            let cols = part.start * width..n.min(part.end * width);
            // SAFETY: each panel belongs to one worker.
            let out = unsafe { packed.slice(part.start * width * depth..part.end * width * depth) };
            dispatch!(
                isa, pack_panels, out: &mut [f32], b: Mat<'_>, cols: Range<usize>, depth: usize,
            );
        }
    });
    let panels = &pack[..];
    // Every worker makes room for as many strips as there may be, so that none has to when it first
    // takes a large piece.
    let room = if a.col == 1 { 0 } else { strips_room(isa, ROW_BLOCK.min(m), depth) };
    // A few pieces for each worker, so that none waits long for the last.
    let unit = m.div_ceil(8 * cpu.threads()).next_multiple_of(TILE_ROWS).min(ROW_BLOCK);
    cpu.run(|worker| {
        let turns = worker.turns;
        let scratch = worker.scratch(room);
        while let Some(rows) = turns.take(m, unit) {
            dispatch!(
                isa, some_rows, job: Job<'_>, rows: Range<usize>, scratch: &mut [f32],
                panels: &[f32],
            );
        }
    });
}

#[inline(always)]
fn some_rows<S: Simd>(s: S, job: Job, rows: Range<usize>, strips: &mut [f32], panels: &[f32]) {
    let left = if job.a.col == 1 {
        Left::InPlace(job.a.skip_rows(rows.start))
    } else {
        pack_strips(s, strips, job.a, rows.clone(), job.depth);
        Left::Strips(strips)
    };
    // SAFETY: this worker alone has these rows.
    unsafe { tiles(s, job, left, panels, rows, 0..job.n) };
}

/// The strips of A, if it needs any, are packed for all; each worker packs the panels of the
/// columns it takes.
fn by_columns(cpu: &Cpu, job: Job) {
    let (isa, Job { a, m, n, depth, .. }) = (cpu.isa(), job);
    let width = tile_width(isa);
    let panels = n.div_ceil(width);
    let mut pack = cpu.pack.borrow_mut();
    if a.col != 1 {
        pack.resize(strips_room(isa, m, depth));
        let packed = Shared::of(&mut pack);
        cpu.run(|worker| {
            while let Some(rows) = worker.turns.take(m, ROW_BLOCK) {
                let (first, end) = (strips_room(isa, rows.start, depth), rows.end);
                // SAFETY: each row belongs to one worker.
                let out = unsafe { packed.slice(first..strips_room(isa, end, depth)) };
                dispatch!(
                    isa, pack_strips, out: &mut [f32], a: Mat<'_>, rows: Range<usize>,
                    depth: usize,
                );
            }
        });
    }
    let strips = &pack[..];
    let unit = panels.div_ceil(4 * cpu.threads()).min(PANELS_OWN);
    cpu.run(|worker| {
        let turns = worker.turns;
        let scratch = worker.scratch(unit * width * depth);
        while let Some(part) = turns.take(panels, unit) {
            let cols = part.start * width..n.min(part.end * width);
            let panels = &mut scratch[..part.len() * width * depth];
            dispatch!(
                isa, some_columns, job: Job<'_>, cols: Range<usize>, panels: &mut [f32],
                strips: &[f32],
            );
        }
    });
}

#[inline(always)]
fn some_columns<S: Simd>(s: S, job: Job, cols: Range<usize>, panels: &mut [f32], strips: &[f32]) {
    pack_panels(s, panels, job.b, cols.clone(), job.depth);
    let mut r0 = 0;
    while r0 < job.m {
        let rows = r0..(r0 + ROW_BLOCK).min(job.m);
        let left = if job.a.col == 1 {
            Left::InPlace(job.a.skip_rows(r0))
        } else {
            Left::Strips(&strips[strips_len::<S>(r0, job.depth)..])
        };
        // SAFETY: this worker alone has these columns.
        unsafe { tiles(s, job, left, panels, rows, cols.clone()) };
        r0 += ROW_BLOCK;
    }
}

/// The tiles of those rows and columns; `panels` begins with that of the first column.
///
/// # Safety
/// Nobody else uses that part of C.
#[inline(always)]
unsafe fn tiles<S: Simd>(
    s: S,
    job: Job,
    left: Left,
    panels: &[f32],
    rows: Range<usize>,
    cols: Range<usize>,
) {
    let (width, Job { n, depth, .. }) = (width::<S>(), job);
    let mut at = cols.start;
    while at < cols.end {
        let end = (at + width).min(cols.end);
        let panel = &panels[(at - cols.start) * depth..][..width * depth];
        let start = match job.start {
            Start::Bias(bias) => Start::Bias(&bias[at..end]),
            other => other,
        };
        // SAFETY: the caller's promise; `product` checked that C has these rows and columns.
        unsafe {
            let c = job.c.ptr().add(rows.start * n + at);
            let out = Tile { c, stride: n, rows: rows.len(), cols: end - at };
            column_of_tiles(s, out, left, panel, start);
        }
        at = end;
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
            (150, 40, 300),
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
        // All rows are more than the columns, twenty are fewer.
        let (m, k, n) = (60, 1000, 50);
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
