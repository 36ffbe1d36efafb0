//! Dropout whose mask is a function of its place, regenerated wherever it is needed and never
//! stored.
//!
//! The factor of element (row, col) is 0 or `1 / (1 - p)`, decided by 16 bits of
//! `philox(seed, [group * 16 + lane, row, site, step])`: columns go in groups of 128, in which
//! column `word * 16 + lane` has half `word % 2` of word `word / 2`. So sixteen neighbours are
//! sixteen lanes, and every instruction set makes the same mask. Derivation:
//! `docs/math/dropout.md`.
//!
//! Source: Srivastava et al., "Dropout" (JMLR 2014), in the inverted form.

use crate::par::{Cpu, Shared, rows_of_share};
use crate::profile::Op;
use crate::rng::{MUL, WEYL, philox};
use crate::simd::{Simd, dispatch};

/// Which mask: everything but the row and column.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// Elements whose 16 bits are below this are dropped: `p * 65536`, rounded.
    threshold: u32,
    key: [u32; 2],
    step: u32,
    site: u32,
    /// The row that the first row of the tensor is called, so that a part of a batch gets its part
    /// of the batch's mask.
    first_row: u32,
}

impl Mask {
    /// Drops with probability `p` in [0, 1) (to a multiple of 1/65536).
    pub fn new(p: f32, seed: u64, step: u64, site: u32) -> Self {
        assert!((0.0..1.0).contains(&p), "dropout {p} is not in [0, 1)");
        Self {
            threshold: ((p * 65536.0).round() as u32).min(65535),
            key: [seed as u32, (seed >> 32) as u32],
            step: step as u32,
            site,
            first_row: 0,
        }
    }

    /// No dropout: every factor is 1.
    pub fn none() -> Self {
        Self::new(0.0, 0, 0, 0)
    }

    /// The same mask for a tensor whose first row is row `row` of the whole.
    pub fn from_row(self, row: usize) -> Self {
        Self { first_row: row as u32, ..self }
    }

    /// Whether nothing is ever dropped.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        self.threshold == 0
    }

    /// The factor of one element: the definition in the module's first lines, as code.
    pub fn factor(&self, row: usize, col: usize) -> f32 {
        let (group, word, lane) = (col / GROUP, col % GROUP / 16, col % 16);
        let row = self.first_row.wrapping_add(row as u32);
        let words = philox(self.key, [(group * 16 + lane) as u32, row, self.site, self.step]);
        let bits = (words[word / 2] >> (word % 2 * 16)) & 0xFFFF;
        if bits < self.threshold { 0.0 } else { self.scale() }
    }

    /// `1 / (1 - p)`, so that the expectation stays.
    #[inline(always)]
    pub fn scale(&self) -> f32 {
        65536.0 / (65536 - self.threshold) as f32
    }
}

/// Sixteen random 16-bit numbers times eight, as (low half, high half) of four words a lane.
#[inline(always)]
fn philox_lanes<S: Simd>(s: S, mask: &Mask, counter: u32, row: u32) -> [S::U; 4] {
    let (mut c0, mut c1) = (s.count_from(counter), s.splat_u(row));
    let (mut c2, mut c3) = (s.splat_u(mask.site), s.splat_u(mask.step));
    let [mut k0, mut k1] = mask.key;
    let (m0, m1) = (s.splat_u(MUL[0]), s.splat_u(MUL[1]));
    for _ in 0..10 {
        let (high0, low0) = s.mul_wide(c0, m0);
        let (high1, low1) = s.mul_wide(c2, m1);
        (c0, c2) = (s.xor(s.xor(high1, c1), s.splat_u(k0)), s.xor(s.xor(high0, c3), s.splat_u(k1)));
        (c1, c3) = (low1, low0);
        (k0, k1) = (k0.wrapping_add(WEYL[0]), k1.wrapping_add(WEYL[1]));
    }
    [c0, c1, c2, c3]
}

/// Columns that one group of counters decides.
const GROUP: usize = 128;

/// `factors[col] = 0 or scale` for the first columns of row `row` of the tensor. Writes up to a
/// multiple of [`GROUP`]; `factors` must be long enough for that.
#[inline(always)]
pub(crate) fn factors<S: Simd>(s: S, factors: &mut [f32], mask: &Mask, row: usize, cols: usize) {
    let (threshold, scale) = (s.splat_u(mask.threshold), s.splat(mask.scale()));
    let row = mask.first_row.wrapping_add(row as u32);
    for (group, factors) in
        factors[..cols.next_multiple_of(GROUP)].chunks_exact_mut(GROUP).enumerate()
    {
        let mut lane = 0;
        while lane < 16 {
            let words = philox_lanes(s, mask, (group * 16 + lane) as u32, row);
            for (word, bits) in words.iter().enumerate() {
                let at = word * 32 + lane;
                s.store(&mut factors[at..], s.zero_where_less(s.low_half(*bits), threshold, scale));
                s.store(
                    &mut factors[at + 16..],
                    s.zero_where_less(s.high_half(*bits), threshold, scale),
                );
            }
            lane += S::LANES;
        }
    }
}

/// Floats that [`factors`] may write for `cols` columns.
pub(crate) fn factors_len(cols: usize) -> usize {
    cols.next_multiple_of(GROUP)
}

/// Dropout in place: `x[n, c] *= factor[n, c]`; its own backward. `x` (N, C) written.
pub fn apply(cpu: &Cpu, x: &mut [f32], mask: Mask, (n, c): (usize, usize)) {
    assert_eq!(x.len(), n * c);
    if mask.is_none() {
        return;
    }
    let _time = cpu.timed(Op::new("dropout", &[n, c], n * c, 2 * n * c));
    let isa = cpu.isa();
    let x = Shared::of(x);
    cpu.run(|worker| {
        let turns = worker.turns;
        let scratch = worker.scratch(factors_len(c));
        while let Some(rows) = turns.take_share(n, rows_of_share(c)) {
            // SAFETY: this worker alone has these rows.
            let x = unsafe { x.slice(rows.start * c..rows.end * c) };
            let (to, mask) = (&mut *scratch, mask.from_row(mask.first_row as usize + rows.start));
            dispatch!(isa, apply_rows, x: &mut [f32], to: &mut [f32], mask: Mask, c: usize);
        }
    });
}

#[inline(always)]
fn apply_rows<S: Simd>(s: S, x: &mut [f32], scratch: &mut [f32], mask: Mask, c: usize) {
    for (row, x) in x.chunks_exact_mut(c).enumerate() {
        factors(s, scratch, &mask, row, c);
        for (x, factor) in x.iter_mut().zip(scratch.iter()) {
            *x *= factor;
        }
    }
}

/// The residual connection around a branch with dropout:
/// ```text
/// out[n, c] = x[n, c] + factor[n, c] branch[n, c]
/// ```
/// `out` (N, C) written; `x`, `branch` (N, C) read.
pub fn forward_residual(
    cpu: &Cpu,
    out: &mut [f32],
    x: &[f32],
    branch: &[f32],
    mask: Mask,
    (n, c): (usize, usize),
) {
    assert_eq!((out.len(), x.len(), branch.len()), (n * c, n * c, n * c));
    let _time = cpu.timed(Op::new("residual forward", &[n, c], 2 * n * c, 3 * n * c));
    each_row(cpu, out, mask, (n, c), |row, out, factors| {
        let (x, branch) = (&x[row * c..][..c], &branch[row * c..][..c]);
        match factors {
            Some(factors) => {
                for (((out, x), branch), factor) in out.iter_mut().zip(x).zip(branch).zip(factors) {
                    *out = x + branch * factor;
                }
            }
            None => {
                for ((out, x), branch) in out.iter_mut().zip(x).zip(branch) {
                    *out = x + branch;
                }
            }
        }
    });
}

/// The gradient into the branch (the other part of the residual gradient stays where it is):
/// ```text
/// dbranch[n, c] = factor[n, c] dout[n, c]
/// ```
/// `dbranch` (N, C) written; `dout` (N, C) read.
pub fn backward_residual(
    cpu: &Cpu,
    dbranch: &mut [f32],
    dout: &[f32],
    mask: Mask,
    (n, c): (usize, usize),
) {
    assert_eq!((dbranch.len(), dout.len()), (n * c, n * c));
    let _time = cpu.timed(Op::new("residual backward", &[n, c], n * c, 2 * n * c));
    each_row(cpu, dbranch, mask, (n, c), |row, dbranch, factors| {
        let dout = &dout[row * c..][..c];
        match factors {
            Some(factors) => {
                for ((dbranch, dout), factor) in dbranch.iter_mut().zip(dout).zip(factors) {
                    *dbranch = dout * factor;
                }
            }
            None => dbranch.copy_from_slice(dout),
        }
    });
}

fn each_row(
    cpu: &Cpu,
    out: &mut [f32],
    mask: Mask,
    (n, c): (usize, usize),
    f: impl Fn(usize, &mut [f32], Option<&[f32]>) + Sync,
) {
    #[inline(always)]
    fn row_factors<S: Simd>(s: S, out: &mut [f32], mask: &Mask, row: usize, cols: usize) {
        factors(s, out, mask, row, cols);
    }
    let isa = cpu.isa();
    let out = Shared::of(out);
    cpu.run(|worker| {
        let turns = worker.turns;
        let scratch = worker.scratch(factors_len(c));
        for row in std::iter::from_fn(|| turns.take_share(n, rows_of_share(c))).flatten() {
            // SAFETY: each row belongs to one worker.
            let out = unsafe { out.slice(row * c..(row + 1) * c) };
            if mask.is_none() {
                f(row, out, None);
            } else {
                let (to, mask) = (&mut *scratch, &mask);
                dispatch!(isa, row_factors, to: &mut [f32], mask: &Mask, row: usize, c: usize);
                f(row, out, Some(scratch));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{on_every_isa, random};

    #[test]
    fn every_instruction_set_makes_the_documented_mask() {
        on_every_isa(|cpu| {
            for c in [1, 15, 128, 200] {
                let mask = Mask::new(0.3, 0x1234_5678_9ABC, 77, 5).from_row(1000);
                let mut x = vec![1.0; 3 * c];
                apply(cpu, &mut x, mask, (3, c));
                for (i, x) in x.iter().enumerate() {
                    assert_eq!(*x, mask.factor(i / c, i % c), "row {}, column {}", i / c, i % c);
                }
            }
        });
    }

    #[test]
    fn the_share_dropped_is_p_and_the_expectation_stays() {
        let cpu = Cpu::new(2, crate::Isa::best());
        for p in [0.1, 0.2, 0.5, 0.9] {
            let n = 1 << 18;
            let mut x = vec![1.0; n];
            apply(&cpu, &mut x, Mask::new(p, 3, 1, 2), (n / 512, 512));
            let dropped = x.iter().filter(|&&x| x == 0.0).count() as f32 / n as f32;
            assert!((dropped - p).abs() < 5e-3, "{dropped} for {p}");
            let mean = x.iter().sum::<f32>() / n as f32;
            assert!((mean - 1.0).abs() < 0.02, "mean {mean} for p = {p}");
        }
    }

    #[test]
    fn a_part_of_a_batch_gets_its_part_of_the_mask() {
        let cpu = Cpu::new(2, crate::Isa::best());
        let mask = Mask::new(0.5, 3, 1, 2);
        let (mut whole, mut part) = (vec![1.0; 10 * 40], vec![1.0; 4 * 40]);
        apply(&cpu, &mut whole, mask, (10, 40));
        apply(&cpu, &mut part, mask.from_row(6), (4, 40));
        assert_eq!(whole[6 * 40..], part);
    }

    #[test]
    fn residual_adds_the_masked_branch_and_its_backward_masks_the_gradient() {
        on_every_isa(|cpu| {
            let (n, c) = (7, 45);
            let (x, branch) = (random(1, n * c), random(2, n * c));
            for mask in [Mask::none(), Mask::new(0.4, 9, 8, 7)] {
                let (mut out, mut dbranch) = (vec![f32::NAN; n * c], vec![f32::NAN; n * c]);
                forward_residual(cpu, &mut out, &x, &branch, mask, (n, c));
                backward_residual(cpu, &mut dbranch, &x, mask, (n, c));
                for i in 0..n * c {
                    let factor = mask.factor(i / c, i % c);
                    assert_eq!(out[i], x[i] + branch[i] * factor);
                    assert_eq!(dbranch[i], x[i] * factor);
                }
            }
        });
    }
}
