//! AdamW on one tensor, and the norm of a gradient.
//!
//! Derivation: `docs/math/adamw.md`. Source: Loshchilov and Hutter, "Decoupled weight decay
//! regularization" (ICLR 2019), algorithm 2, in the order of PyTorch's `torch.optim.AdamW`.

use crate::par::{Cpu, SHARE, Shared};
use crate::profile::Op;
use crate::simd::{Simd, dispatch};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The numbers of one step.
#[derive(Clone, Copy, Debug)]
pub struct Hyper {
    /// learning rate
    pub lr: f32,
    /// decay of the first moment
    pub beta1: f32,
    /// decay of the second moment
    pub beta2: f32,
    /// added to the denominator
    pub eps: f32,
    /// decoupled decay, in units of `lr`
    pub weight_decay: f32,
    /// `1 - beta1^t`
    pub correction1: f32,
    /// `1 - beta2^t`
    pub correction2: f32,
    /// what each gradient is multiplied by first (clipping)
    pub grad_scale: f32,
}

/// ```text
/// g = grad_scale dw
/// m = beta1 m + (1 - beta1) g
/// v = beta2 v + (1 - beta2) g²
/// w = w - lr weight_decay w - lr (m / correction1) / (√(v / correction2) + eps)
/// ```
/// `w`, `m`, `v` updated; `dw` read; all of one length.
pub fn step(cpu: &Cpu, w: &mut [f32], m: &mut [f32], v: &mut [f32], dw: &[f32], h: Hyper) {
    let n = w.len();
    assert_eq!((m.len(), v.len(), dw.len()), (n, n, n));
    let _time = cpu.timed(Op::new("AdamW", &[], 17 * n, 7 * n));
    let isa = cpu.isa();
    let (w, m, v) = (Shared::of(w), Shared::of(m), Shared::of(v));
    cpu.run_for(n, |worker| {
        while let Some(part) = worker.turns.take_share(n, SHARE) {
            // SAFETY: this worker alone has this part.
            let (w, m, v) =
                unsafe { (w.slice(part.clone()), m.slice(part.clone()), v.slice(part.clone())) };
            let dw = &dw[part];
            dispatch!(
                isa, step_part, w: &mut [f32], m: &mut [f32], v: &mut [f32], dw: &[f32], h: Hyper,
            );
        }
    });
}

#[inline(always)]
fn step_part<S: Simd>(s: S, w: &mut [f32], m: &mut [f32], v: &mut [f32], dw: &[f32], h: Hyper) {
    let whole = w.len() / S::LANES * S::LANES;
    for at in (0..whole).step_by(S::LANES) {
        let state = (s.load(&w[at..]), s.load(&m[at..]), s.load(&v[at..]));
        let (w2, m2, v2) = update(s, state, s.load(&dw[at..]), h);
        s.store(&mut w[at..], w2);
        s.store(&mut m[at..], m2);
        s.store(&mut v[at..], v2);
    }
    let state = (s.load_part(&w[whole..]), s.load_part(&m[whole..]), s.load_part(&v[whole..]));
    let (w2, m2, v2) = update(s, state, s.load_part(&dw[whole..]), h);
    s.store_part(&mut w[whole..], w2);
    s.store_part(&mut m[whole..], m2);
    s.store_part(&mut v[whole..], v2);
}

#[inline(always)]
fn update<S: Simd>(s: S, (w, m, v): (S::F, S::F, S::F), dw: S::F, h: Hyper) -> (S::F, S::F, S::F) {
    let g = s.mul(dw, s.splat(h.grad_scale));
    let m = s.mul_add(s.splat(h.beta1), m, s.mul(s.splat(1.0 - h.beta1), g));
    let v = s.mul_add(s.splat(h.beta2), v, s.mul(s.splat(1.0 - h.beta2), s.mul(g, g)));
    let root = s.sqrt(s.mul(v, s.splat(1.0 / h.correction2)));
    let denominator = s.add(root, s.splat(h.eps));
    let kept = s.mul(w, s.splat(1.0 - h.lr * h.weight_decay));
    let change = s.div(s.mul(m, s.splat(h.lr / h.correction1)), denominator);
    (s.sub(kept, change), m, v)
}

/// Into how many parts a sum of squares is cut, whoever adds them up.
const PARTS: usize = 64;

/// `Σ x²` in f64, the same for any number of threads.
pub fn sum_of_squares(cpu: &Cpu, x: &[f32]) -> f64 {
    let _time = cpu.timed(Op::new("gradient norm", &[], 2 * x.len(), x.len()));
    let isa = cpu.isa();
    let sums = [const { AtomicU64::new(0) }; PARTS];
    let part = x.len().div_ceil(PARTS);
    cpu.run_for(x.len(), |worker| {
        while let Some(range) = worker.turns.take(x.len(), part) {
            let (sum, x) = (&sums[range.start / part], &x[range]);
            dispatch!(isa, squares, sum: &AtomicU64, x: &[f32]);
        }
    });
    sums.iter().map(|sum| f64::from_bits(sum.load(Relaxed))).sum()
}

/// `sum`, the bits of an f64, written.
#[inline(always)]
fn squares<S: Simd>(_: S, sum: &AtomicU64, x: &[f32]) {
    // Lanes that the compiler makes vectors of: an f64 is needed nowhere else.
    let mut lanes = [0.0f64; 16];
    let (whole, rest) = x.as_chunks::<16>();
    for part in whole {
        for (lane, &x) in lanes.iter_mut().zip(part) {
            *lane += x as f64 * x as f64;
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += x as f64 * x as f64;
    }
    sum.store(lanes.iter().sum::<f64>().to_bits(), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, assert_close, on_every_isa, random};

    #[test]
    fn ten_steps_match_the_reference() {
        on_every_isa(|cpu| {
            for n in [1, 7, 16, 33, 5000] {
                let mut w = random(1, n);
                let (mut m, mut v) = (vec![0.0; n], vec![0.0; n]);
                let mut exact =
                    (w.iter().map(|&x| x as f64).collect::<Vec<_>>(), vec![0.0; n], vec![0.0; n]);
                for t in 1..=10 {
                    let dw = random(t as u64, n);
                    let h = Hyper {
                        lr: 1e-2,
                        beta1: 0.9,
                        beta2: 0.95,
                        eps: 1e-8,
                        weight_decay: 0.1,
                        correction1: 1.0 - 0.9f32.powi(t),
                        correction2: 1.0 - 0.95f32.powi(t),
                        grad_scale: 0.5,
                    };
                    step(cpu, &mut w, &mut m, &mut v, &dw, h);
                    reference::adamw(&mut exact.0, &mut exact.1, &mut exact.2, &dw, h);
                }
                assert_close(&w, &exact.0, 2e-6);
                assert_close(&m, &exact.1, 1e-6);
                assert_close(&v, &exact.2, 1e-6);
            }
        });
    }

    #[test]
    fn sum_of_squares_is_exact_to_double_precision_and_the_same_on_any_number_of_threads() {
        for isa in crate::Isa::available() {
            for n in [0, 1, 63, 65, 5000, 100_003] {
                let x = random(1, n);
                let exact: f64 = x.iter().map(|&x| x as f64 * x as f64).sum();
                let one = sum_of_squares(&Cpu::new(1, isa), &x);
                assert!((one - exact).abs() <= 1e-13 * exact, "{one}, not {exact}");
                assert_eq!(one, sum_of_squares(&Cpu::new(3, isa), &x), "{n} numbers");
            }
        }
    }
}
