//! What the processor could do at best, measured: the limits that a kernel's speed is judged by.

use crate::Buffer;
use crate::narrow::Factors;
use crate::par::{Cpu, Shared};
use crate::simd::{Simd, dispatch};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Operations a second of multiply-adds (each counts two) of all threads together, from registers,
/// of the factors that `cpu` multiplies: with this instruction set no program computes faster. The
/// mean over about `time`, so that whatever else runs on the machine counts as it does for the
/// program.
pub fn flops_per_s(cpu: &Cpu, time: Duration) -> f64 {
    // Of each thread at a time: some tenths of a millisecond, so that `time` is kept.
    const MULTIPLY_ADDS: usize = 50_000 * 96;
    let (isa, pairs) = (cpu.isa(), cpu.factors() == Factors::Bf16);
    let piece = || {
        cpu.run(|_| {
            let n = MULTIPLY_ADDS;
            dispatch!(isa, multiply_adds, n: usize, pairs: bool);
        })
    };
    2.0 * (MULTIPLY_ADDS * cpu.threads()) as f64 * rate(time, piece)
}

/// Bytes of the array that [`bytes_per_s`] takes: much larger than any cache.
pub const BYTES: usize = 1 << 28;

/// Bytes a second that all threads together read and write, half of each, in an array much larger
/// than any cache.
pub fn bytes_per_s(cpu: &Cpu, time: Duration) -> f64 {
    const FLOATS: usize = BYTES / size_of::<f32>();
    let isa = cpu.isa();
    let mut array = Buffer::zeros(FLOATS);
    let shared = Shared::of(&mut array);
    let pass = || {
        cpu.run(|worker| {
            // SAFETY: each worker has its own part.
            let x = unsafe { shared.slice(worker.part(FLOATS, 16)) };
            dispatch!(isa, read_and_write, x: &mut [f32]);
        })
    };
    2.0 * (size_of::<f32>() * FLOATS) as f64 * rate(time, pass)
}

/// How many pieces of work are done in a second, the first left out: it wakes the threads, and finds
/// them memory.
fn rate(time: Duration, piece: impl Fn()) -> f64 {
    piece();
    let (started, mut pieces) = (Instant::now(), 0.0);
    loop {
        piece();
        pieces += 1.0;
        let spent = started.elapsed();
        if spent >= time {
            return pieces / spent.as_secs_f64();
        }
    }
}

/// `n` of them, as a multiple of 96.
#[inline(always)]
fn multiply_adds<S: Simd>(s: S, n: usize, pairs: bool) {
    // As many accumulators as the registers hold: they do not wait for one another.
    match (S::TILE, S::LEVEL.multiplies_pairs() && pairs) {
        ((4, 1), false) => chained::<S, 6, false>(s, n),
        ((4, 1), true) => chained::<S, 6, true>(s, n),
        (_, false) => chained::<S, 12, false>(s, n),
        (_, true) => chained::<S, 12, true>(s, n),
    }
}

#[inline(always)]
fn chained<S: Simd, const CHAINS: usize, const PAIRS: bool>(s: S, n: usize) {
    // Every chain has a start of its own, or the compiler would make them one.
    let half = s.splat(black_box(0.5));
    let halves = if PAIRS { s.pair(half, half) } else { half };
    let mut sums: [S::F; CHAINS] = std::array::from_fn(|i| s.splat(i as f32));
    let each = if PAIRS { 2 } else { 1 };
    for _ in 0..n / (each * S::LANES * CHAINS) {
        for sum in &mut sums {
            *sum =
                if PAIRS { s.dot_pairs(halves, halves, *sum) } else { s.mul_add(*sum, half, half) };
        }
    }
    // Whole, because it is from where vectors are stored that the compiler finds them.
    black_box(sums);
}

#[inline(always)]
fn read_and_write<S: Simd>(s: S, x: &mut [f32]) {
    for x in x.chunks_exact_mut(S::LANES) {
        let next = s.add(s.load(x), s.splat(1.0));
        s.store(x, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Mat, Start, product};
    use crate::reference::on_every_isa;

    #[test]
    fn every_instruction_set_has_a_peak_between_a_slow_and_an_impossible_machine() {
        on_every_isa(|cpu| {
            let flops = flops_per_s(cpu, Duration::from_millis(5));
            let bytes = bytes_per_s(cpu, Duration::from_millis(5));
            assert!((1e7..1e16).contains(&flops), "{flops:e} {cpu:?}");
            assert!((1e7..1e14).contains(&bytes), "{bytes:e} {cpu:?}");
        });
    }

    /// As it would be if the compiler made single numbers of the vectors.
    #[test]
    fn no_product_is_twice_as_fast_as_the_peak() {
        const N: usize = 128;
        let (a, b) = (vec![0.5; N * N], vec![0.5; N * N]);
        on_every_isa(|cpu| {
            let multiply = || {
                let mut c = vec![0.0; N * N];
                let (a, b) = (Mat::rows(&a, N), Mat::rows(&b, N));
                product(cpu, &mut c, a, b, (N, N, N), Start::Zero);
            };
            // Whatever else runs may slow down the one and not the other, but not every time.
            let slower = (0..10).any(|_| {
                let peak = flops_per_s(cpu, Duration::from_millis(5));
                (2 * N * N * N) as f64 * rate(Duration::from_millis(5), multiply) < 2.0 * peak
            });
            assert!(slower, "{cpu:?}");
        });
    }
}
