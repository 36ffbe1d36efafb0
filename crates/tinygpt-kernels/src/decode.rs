//! A linear layer for a few rows, as in writing text token by token: bound by reading the weights,
//! so these may be in fewer bits, each is read once for all rows, and nothing is packed.
//!
//! An element of the result is one vector of chains over the inputs, added up at the end, whatever
//! the weights are kept in and however many rows there are: a text does not depend on those that
//! are written with it, and weights in fewer bits give the bits that their f32 values would.

use crate::activation::{self, Kind};
use crate::kept::Kept;
use crate::narrow::GROUP;
use crate::par::{Cpu, Shared};
use crate::profile::Op;
use crate::simd::{Simd, dispatch};

/// The weight (O, I) of a layer, as it is kept.
#[derive(Clone, Copy, Debug)]
pub enum Weight<'a> {
    /// As it was trained.
    F32(&'a [f32]),
    /// See [`crate::narrow`].
    Bf16(&'a [u16]),
    /// Row by row a scale for each group of [`GROUP`] inputs.
    Int8 {
        /// (O, I)
        values: &'a [i8],
        /// (O, I / GROUP, rounded up)
        scales: &'a [f32],
    },
}

/// What becomes of a product before it is written.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// Nothing.
    Plain,
    /// The MLP's non-linearity.
    Activation(Kind),
    /// Added to these (N, O): the residual stream.
    Add(&'a [f32]),
}

/// ```text
/// y[n, o] = end(b[o] + Σ_i x[n, i] w[o, i])
/// ```
/// `y` (N, O) written; `x` (N, I), `w` (O, I), `b` (O) read.
///
/// Sums run in another order than in [`crate::linear::forward`], so results differ by rounding.
pub fn forward(
    cpu: &Cpu,
    y: &mut [f32],
    x: &[f32],
    w: Weight,
    b: Option<&[f32]>,
    end: End,
    (n, i, o): (usize, usize, usize),
) {
    let size = |a: usize, b: usize| a.checked_mul(b).expect("a size that memory could have");
    assert_eq!((y.len(), x.len()), (size(n, o), size(n, i)));
    let (weights, words) = match w {
        Weight::F32(w) => (w.len(), w.len()),
        Weight::Bf16(w) => (w.len(), w.len() / 2),
        Weight::Int8 { values, scales } => {
            assert_eq!(scales.len(), size(o, i.div_ceil(GROUP)), "scales");
            (values.len(), values.len() / 4 + scales.len())
        }
    };
    assert_eq!(weights, size(i, o), "weights");
    assert!(b.is_none_or(|b| b.len() == o), "one bias an output");
    assert!(!matches!(end, End::Add(to) if to.len() != n * o), "as many as are written");
    let floats = words + n * (i + o);
    let _time = cpu.timed(Op::new("linear few rows", &[n, i, o], 2 * n * i * o, floats));
    let (isa, out, dims) = (cpu.isa(), Shared::of(y), (n, i, o));
    // The least that is worth taking.
    let unit = (16_384 / i.max(1)).next_multiple_of(TALL).max(TALL);
    cpu.run_for(n * i * o, |worker| {
        while let Some(outputs) = worker.turns.take_share(o, unit) {
            let (first, last) = (outputs.start, outputs.end);
            dispatch!(
                isa, some_outputs, out: Shared<f32>, x: &[f32], w: Weight, b: Option<&[f32]>,
                end: End, first: usize, last: usize, dims: (usize, usize, usize),
            );
        }
    });
}

/// Lines of 64 bytes between what is read and what is asked for: half a microsecond of reading,
/// more than memory takes to answer.
const AHEAD: usize = 96;

/// Outputs computed side by side: their chains hide the latency of a multiply-add.
const TALL: usize = 4;

/// Outputs `first..last` of every row.
#[inline(always)]
fn some_outputs<S: Simd>(
    s: S,
    out: Shared<f32>,
    x: &[f32],
    w: Weight,
    b: Option<&[f32]>,
    end: End,
    first: usize,
    last: usize,
    dims @ (n, _, o): (usize, usize, usize),
) {
    match w {
        Weight::F32(w) => products(s, out, x, w, (first, last), dims),
        Weight::Bf16(w) => products(s, out, x, w, (first, last), dims),
        Weight::Int8 { values, scales } => {
            products(s, out, x, (values, scales), (first, last), dims);
        }
    }
    for row in 0..n {
        let place = row * o + first..row * o + last;
        // SAFETY: this worker alone has these outputs.
        let y = unsafe { out.slice(place.clone()) };
        if let Some(b) = b {
            y.iter_mut().zip(&b[first..last]).for_each(|(y, b)| *y += b);
        }
        match end {
            End::Plain => {}
            End::Activation(kind) => activation::in_place(s, y, kind),
            End::Add(to) => y.iter_mut().zip(&to[place]).for_each(|(y, to)| *y += to),
        }
    }
}

/// The sums alone.
#[inline(always)]
fn products<S: Simd, W: Kept>(
    s: S,
    out: Shared<f32>,
    x: &[f32],
    w: W,
    (first, last): (usize, usize),
    dims @ (n, ..): (usize, usize, usize),
) {
    // A few outputs for all rows before the next few: their weights come from memory once.
    for first in (first..last).step_by(TALL) {
        let outputs = (first, last.min(first + TALL));
        let mut row = 0;
        while row < n {
            row += match n - row {
                4.. => tiles::<S, W, 2, 4>(s, out, x, w, outputs, row, dims),
                2.. => tiles::<S, W, TALL, 2>(s, out, x, w, outputs, row, dims),
                _ => tiles::<S, W, TALL, 1>(s, out, x, w, outputs, row, dims),
            };
        }
    }
}

/// These outputs of `M` rows from `row` on, `R` at a time. Returns `M`.
#[inline(always)]
fn tiles<S: Simd, W: Kept, const R: usize, const M: usize>(
    s: S,
    out: Shared<f32>,
    x: &[f32],
    w: W,
    (first, last): (usize, usize),
    row: usize,
    (n, i, o): (usize, usize, usize),
) -> usize {
    assert!(row + M <= n && last <= o);
    let x = &x[row * i..(row + M) * i];
    // SAFETY: a place in the first output's row, which the assertion makes one of y's.
    let y = unsafe { out.ptr().add(row * o) };
    let mut at = first;
    while at + R <= last {
        for (r, sums) in tile::<S, W, R, M>(s, x, w, at, (i, o)).iter().enumerate() {
            for (m, sum) in sums.iter().enumerate() {
                // SAFETY: output `at + r` of row `row + m`, which this worker alone has.
                unsafe { *y.add(m * o + at + r) = *sum };
            }
        }
        at += R;
    }
    for at in at..last {
        for (m, sum) in tile::<S, W, 1, M>(s, x, w, at, (i, o))[0].iter().enumerate() {
            // SAFETY: output `at` of row `row + m`, which this worker alone has.
            unsafe { *y.add(m * o + at) = *sum };
        }
    }
    M
}

/// The sums of `R` outputs from `at` on for `M` rows of x.
#[inline(always)]
fn tile<S: Simd, W: Kept, const R: usize, const M: usize>(
    s: S,
    x: &[f32],
    w: W,
    at: usize,
    (i, o): (usize, usize),
) -> [[f32; M]; R] {
    assert!(x.len() == M * i && at + R <= o && w.len() == i * o);
    let mut acc = [[s.splat(0.0); M]; R];
    let (whole, groups) = (i - i % S::LANES, i.div_ceil(GROUP));
    for col in (0..whole).step_by(GROUP) {
        // Memory is slower to answer than it is to read: what is read a while later.
        for line in 0..R * GROUP / W::LINE {
            s.prefetch(w.place(at * i + R * col + (AHEAD + line) * W::LINE));
        }
        let mut scale = [s.splat(1.0); R];
        for (r, scale) in scale.iter_mut().enumerate() {
            *scale = s.splat(w.scale((at + r) * groups + col / GROUP));
        }
        let end = whole.min(col + GROUP);
        for col in (col..end).step_by(S::LANES) {
            let mut rows = [s.splat(0.0); M];
            for (m, row) in rows.iter_mut().enumerate() {
                // SAFETY: whole vectors of the rows whose length was checked.
                *row = unsafe { s.load_ptr(x.as_ptr().add(m * i + col)) };
            }
            for r in 0..R {
                // SAFETY: likewise.
                let w = unsafe { w.load(s, (at + r) * i + col, scale[r]) };
                for m in 0..M {
                    acc[r][m] = s.mul_add(rows[m], w, acc[r][m]);
                }
            }
        }
    }
    if whole < i {
        for (r, acc) in acc.iter_mut().enumerate() {
            let mut rest = [0.0; GROUP];
            for (rest, col) in rest.iter_mut().zip(whole..i) {
                *rest = w.one((at + r) * i + col, (at + r) * groups + col / GROUP);
            }
            let w = s.load_part(&rest[..i - whole]);
            for (m, acc) in acc.iter_mut().enumerate() {
                let x = s.load_part(&x[m * i + whole..(m + 1) * i]);
                *acc = s.mul_add(x, w, *acc);
            }
        }
    }
    let mut sums = [[0.0; M]; R];
    for r in 0..R {
        for m in 0..M {
            sums[r][m] = s.sum(acc[r][m]);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::narrow::{from_bf16, from_int8};
    use crate::narrow::{to_bf16, to_int8};
    use crate::reference::{self, assert_close, on_every_isa, random};

    const SIZES: [(usize, usize, usize); 7] =
        [(1, 1, 1), (2, 7, 9), (3, 64, 8), (4, 33, 65), (7, 31, 127), (9, 129, 17), (16, 131, 40)];

    /// A weight (O, I) as bf16 and as int8, each with the f32 values that it stands for.
    struct Narrow {
        bf16: (Vec<u16>, Vec<f32>),
        int8: (Vec<i8>, Vec<f32>, Vec<f32>),
    }

    fn narrow(w: &[f32], i: usize) -> Narrow {
        let bf16: Vec<u16> = w.iter().map(|&w| to_bf16(w)).collect();
        let groups = w.chunks(i).flat_map(|row| row.chunks(GROUP));
        let (mut int8, mut scales, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for group in groups {
            let (mut of, mut scale) = (vec![0; group.len()], 0.0);
            to_int8(&mut of, &mut scale, group);
            values.extend(of.iter().map(|&x| from_int8(x, scale)));
            int8.extend(of);
            scales.push(scale);
        }
        let wide = bf16.iter().map(|&x| from_bf16(x)).collect();
        Narrow { bf16: (bf16, wide), int8: (int8, scales, values) }
    }

    #[test]
    fn every_kind_of_weight_matches_the_reference_and_the_bits_of_its_f32_values() {
        on_every_isa(|cpu| {
            for dims @ (n, i, o) in SIZES {
                let (x, w, b) = (random(1, n * i), random(2, o * i), random(3, o));
                let Narrow { bf16: (bf16, wide), int8: (values, scales, scaled) } = narrow(&w, i);
                let int8 = Weight::Int8 { values: &values, scales: &scales };
                for (kept, w) in
                    [(Weight::F32(&w), &w), (Weight::Bf16(&bf16), &wide), (int8, &scaled)]
                {
                    for b in [None, Some(&b[..])] {
                        let (mut y, mut same) = (vec![f32::NAN; n * o], vec![f32::NAN; n * o]);
                        forward(cpu, &mut y, &x, kept, b, End::Plain, dims);
                        assert_close(&y, &reference::linear(&x, w, b, dims), 1e-6);
                        forward(cpu, &mut same, &x, Weight::F32(w), b, End::Plain, dims);
                        assert_eq!(y, same, "{dims:?}");
                    }
                }
            }
        });
    }

    #[test]
    fn a_row_has_the_same_bits_alone_as_among_others_on_any_number_of_threads() {
        on_every_isa(|cpu| {
            // The last is large enough to be shared out.
            for dims @ (n, i, o) in SIZES.into_iter().chain([(5, 70, 1000)]) {
                let (x, w) = (random(1, n * i), random(2, o * i));
                let Narrow { bf16: (bf16, _), int8: (values, scales, _) } = narrow(&w, i);
                let int8 = Weight::Int8 { values: &values, scales: &scales };
                for w in [Weight::F32(&w), Weight::Bf16(&bf16), int8] {
                    let (mut all, mut alone) = (vec![f32::NAN; n * o], vec![f32::NAN; n * o]);
                    forward(cpu, &mut all, &x, w, None, End::Plain, dims);
                    let one = Cpu::new(1, cpu.isa());
                    for (y, x) in alone.chunks_mut(o).zip(x.chunks(i)) {
                        forward(&one, y, x, w, None, End::Plain, (1, i, o));
                    }
                    assert_eq!(all, alone, "{dims:?}");
                }
            }
        });
    }

    #[test]
    fn an_end_is_what_its_own_kernel_would_do_after_the_product() {
        on_every_isa(|cpu| {
            for dims @ (n, i, o) in SIZES.into_iter().chain([(2, 70, 1001)]) {
                let (x, w, b) = (random(1, n * i), random(2, o * i), random(3, o));
                let (w, b, to) = (Weight::F32(&w), Some(&b[..]), random(4, n * o));
                let mut plain = vec![f32::NAN; n * o];
                forward(cpu, &mut plain, &x, w, b, End::Plain, dims);
                let (mut y, mut expected) = (vec![f32::NAN; n * o], vec![f32::NAN; n * o]);
                for kind in [Kind::Gelu, Kind::GeluTanh, Kind::Silu] {
                    forward(cpu, &mut y, &x, w, b, End::Activation(kind), dims);
                    activation::forward(cpu, &mut expected, &plain, kind);
                    assert_eq!(y, expected, "{dims:?}");
                }
                forward(cpu, &mut y, &x, w, b, End::Add(&to), dims);
                let sums: Vec<f32> = plain.iter().zip(&to).map(|(y, to)| to + y).collect();
                assert_eq!(y, sums, "{dims:?}");
            }
        });
    }
}
