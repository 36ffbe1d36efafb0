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
//! them. An A whose rows lie together is read where it is, unless it is to be rounded.
//!
//! Factors that are rounded to bf16 ([`Cpu::with_factors`]) are so when they are packed; sums are f32.

mod tile;
mod pack;
mod pairs;

use crate::narrow::Factors;
use crate::par::{Cpu, Shared};
use crate::simd::{Isa, Simd, dispatch};
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
    let count = k.div_ceil(K_BLOCK).max(1);
    // Even, that pairs of k are whole.
    let k_block = k.div_ceil(count).next_multiple_of(2);
    for block in 0..count {
        let (k0, k1) = (block * k_block, ((block + 1) * k_block).min(k));
        let start = if block == 0 { start } else { Start::Add };
        let (a, b) = (a.transposed().skip_rows(k0).transposed(), b.skip_rows(k0));
        let job = Job { packed: Packed::on(cpu), c, a, b, m, n, depth: k1 - k0, start };
        if m > n { by_rows(cpu, job) } else { by_columns(cpu, job) }
    }
}

/// What packed operands consist of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packed {
    /// The elements.
    F32,
    /// The nearest bf16 of each, as f32.
    Rounded,
    /// Words of two bf16, neighbours in k.
    Pairs,
}

impl Packed {
    fn on(cpu: &Cpu) -> Self {
        match cpu.factors() {
            Factors::F32 => Packed::F32,
            Factors::Bf16 if cpu.isa().0.multiplies_pairs() => Packed::Pairs,
            Factors::Bf16 => Packed::Rounded,
        }
    }
}

/// A product over one block of k.
#[derive(Clone, Copy)]
struct Job<'a> {
    packed: Packed,
    c: Shared<'a, f32>,
    a: Mat<'a>,
    b: Mat<'a>,
    m: usize,
    n: usize,
    depth: usize,
    start: Start<'a>,
}

impl<'a> Job<'a> {
    /// The depth in words, of which each is as large as an f32.
    fn words(&self) -> usize {
        if self.packed == Packed::Pairs { self.depth.div_ceil(2) } else { self.depth }
    }

    /// Whether A is read where it is.
    fn in_place(&self) -> bool {
        self.packed == Packed::F32 && self.a.col == 1
    }

    /// Words of `rows` packed rows of A.
    fn room(&self, isa: Isa, rows: usize) -> usize {
        match self.a.col {
            1 if self.in_place() => 0,
            1 => rows * self.words(),
            _ => strips_room(isa, rows, self.words()),
        }
    }

    #[inline(always)]
    fn pack_panels<S: Simd>(&self, s: S, out: &mut [f32], cols: Range<usize>) {
        if self.packed == Packed::Pairs {
            return pairs::pack_panels(s, out, self.b, cols, self.depth);
        }
        pack_panels(s, out, self.b, cols, self.depth);
        if self.packed == Packed::Rounded {
            pairs::round(s, out);
        }
    }

    #[inline(always)]
    fn pack_left<S: Simd>(&self, s: S, out: &mut [f32], rows: Range<usize>) {
        let depth = self.depth;
        match (self.packed, self.a.col) {
            (Packed::F32, 1) => {}
            (Packed::F32, _) => pack_strips(s, out, self.a, rows, depth),
            (Packed::Rounded, 1) => pairs::round_rows(s, out, self.a, rows, depth),
            (Packed::Rounded, _) => {
                pack_strips(s, out, self.a, rows, depth);
                pairs::round(s, out);
            }
            (Packed::Pairs, 1) => pairs::pack_rows(s, out, self.a, rows, depth),
            (Packed::Pairs, _) => pairs::pack_strips(s, out, self.a, rows, depth),
        }
    }

    /// A from row `row` on, which is row `at` of those that were packed.
    #[inline(always)]
    fn left<'b, S: Simd>(&self, packed: &'b [f32], row: usize, at: usize) -> Left<'b>
    where
        'a: 'b,
    {
        let words = self.words();
        match self.a.col {
            1 if self.in_place() => Left::InPlace(self.a.skip_rows(row)),
            1 => Left::InPlace(Mat::rows(packed, words).skip_rows(at)),
            _ => Left::Strips(&packed[strips_len::<S>(at, words)..]),
        }
    }
}

/// A range in pieces of `most`.
#[inline(always)]
fn blocks(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(most).map(move |start| start..(start + most).min(end))
}

/// B is packed for all; each worker packs the rows of A that it takes.
fn by_rows(cpu: &Cpu, job: Job) {
    let (isa, Job { m, n, .. }, words) = (cpu.isa(), job, job.words());
    let width = tile_width(isa);
    let panels = n.div_ceil(width);
    let mut pack = cpu.pack.borrow_mut();
    pack.resize(panels * width * words);
    let packed = Shared::of(&mut pack);
    cpu.run(|worker| {
        while let Some(part) = worker.turns.take_share(panels, 1) {
            let cols = part.start * width..n.min(part.end * width);
            // SAFETY: each panel belongs to one worker.
            let out = unsafe { packed.slice(part.start * width * words..part.end * width * words) };
            dispatch!(isa, right, out: &mut [f32], job: Job<'_>, cols: Range<usize>);
        }
    });
    let panels = &pack[..];
    // Every worker makes room for as many rows as there may be, so that none has to when it first
    // takes a large piece.
    let room = job.room(isa, ROW_BLOCK.min(m));
    cpu.run(|worker| {
        let turns = worker.turns;
        let scratch = worker.scratch(room);
        while let Some(share) = turns.take_share(m, TILE_ROWS) {
            for rows in blocks(share, ROW_BLOCK) {
                dispatch!(
                    isa, some_rows, job: Job<'_>, rows: Range<usize>, scratch: &mut [f32],
                    panels: &[f32],
                );
            }
        }
    });
}

#[inline(always)]
fn right<S: Simd>(s: S, out: &mut [f32], job: Job, cols: Range<usize>) {
    job.pack_panels(s, out, cols);
}

#[inline(always)]
fn some_rows<S: Simd>(s: S, job: Job, rows: Range<usize>, room: &mut [f32], panels: &[f32]) {
    job.pack_left(s, room, rows.clone());
    let left = job.left::<S>(room, rows.start, 0);
    // SAFETY: this worker alone has these rows.
    unsafe { tiles(s, job, left, panels, rows, 0..job.n) };
}

/// A, if it is not read where it is, is packed for all; each worker packs the panels of the columns
/// it takes.
fn by_columns(cpu: &Cpu, job: Job) {
    let (isa, Job { m, n, .. }, words) = (cpu.isa(), job, job.words());
    let width = tile_width(isa);
    let panels = n.div_ceil(width);
    let mut pack = cpu.pack.borrow_mut();
    if !job.in_place() {
        pack.resize(job.room(isa, m));
        let packed = Shared::of(&mut pack);
        cpu.run(|worker| {
            while let Some(rows) = worker.turns.take(m, ROW_BLOCK) {
                let place = job.room(isa, rows.start)..job.room(isa, rows.end);
                // SAFETY: each row belongs to one worker.
                let out = unsafe { packed.slice(place) };
                dispatch!(isa, left, out: &mut [f32], job: Job<'_>, rows: Range<usize>);
            }
        });
    }
    let packed = &pack[..];
    cpu.run(|worker| {
        let turns = worker.turns;
        let scratch = worker.scratch(panels.min(PANELS_OWN) * width * words);
        while let Some(share) = turns.take_share(panels, 1) {
            for part in blocks(share, PANELS_OWN) {
                let cols = part.start * width..n.min(part.end * width);
                let panels = &mut scratch[..part.len() * width * words];
                dispatch!(
                    isa, some_columns, job: Job<'_>, cols: Range<usize>, panels: &mut [f32],
                    packed: &[f32],
                );
            }
        }
    });
}

#[inline(always)]
fn left<S: Simd>(s: S, out: &mut [f32], job: Job, rows: Range<usize>) {
    job.pack_left(s, out, rows);
}

#[inline(always)]
fn some_columns<S: Simd>(s: S, job: Job, cols: Range<usize>, panels: &mut [f32], packed: &[f32]) {
    job.pack_panels(s, panels, cols.clone());
    for rows in blocks(0..job.m, ROW_BLOCK) {
        let left = job.left::<S>(packed, rows.start, rows.start);
        // SAFETY: this worker alone has these columns.
        unsafe { tiles(s, job, left, panels, rows, cols.clone()) };
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
    let (width, words, Job { n, packed, .. }) = (width::<S>(), job.words(), job);
    let mut at = cols.start;
    while at < cols.end {
        let end = (at + width).min(cols.end);
        let panel = &panels[(at - cols.start) * words..][..width * words];
        let start = match job.start {
            Start::Bias(bias) => Start::Bias(&bias[at..end]),
            other => other,
        };
        // SAFETY: the caller's promise; `product` checked that C has these rows and columns.
        unsafe {
            let c = job.c.ptr().add(rows.start * n + at);
            let out = Tile { packed, c, stride: n, rows: rows.len(), cols: end - at };
            column_of_tiles(s, out, left, panel, start);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests;
