//! Causal multi-head attention: one to learn from ([`naive`]), one to train with ([`fused`]), one
//! to generate with ([`cached`]).
//!
//! ```text
//! s[b, h, i, j] = Σ_d q[b, i, h, d] k[b, j, h, d] / √D
//! p[b, h, i, :] = softmax over the j that i may see (in the causal model, j <= i)
//! y[b, i, h, d] = Σ_j factor[i, j] p[b, h, i, j] v[b, j, h, d]
//! ```
//! `factor` is dropout's. Queries, keys and values of all heads lie side by side in `qkv` (B, T,
//! 3C); head h has columns `h D .. (h + 1) D` of each. Derivation: `docs/math/attention.md`.
//! Sources: Vaswani et al., "Attention is all you need" (2017); the block-wise form after Dao et
//! al., "FlashAttention" (2022).

pub mod cached;
pub mod fused;
pub mod naive;

use crate::simd::Simd;

/// `(B, T, C, H)`
pub type Dims = (usize, usize, usize, usize);

/// Heads divide the channels, and the sizes of all tensors can be computed.
fn assert_dims((b, t, c, h): Dims) {
    assert!(h > 0 && c % h == 0, "{h} heads in {c} channels");
    let size = |of: [usize; 4]| of.iter().try_fold(1usize, |size, &n| size.checked_mul(n));
    assert!(size([b, t, 3, c]).is_some() && size([b, h, t, t]).is_some(), "B {b}, T {t}, C {c}");
}

#[inline(always)]
fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let whole = a.len() / S::LANES * S::LANES;
    let mut sum = s.splat(0.0);
    for at in (0..whole).step_by(S::LANES) {
        sum = s.mul_add(s.load(&a[at..]), s.load(&b[at..]), sum);
    }
    s.sum(s.mul_add(s.load_part(&a[whole..]), s.load_part(&b[whole..]), sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropout::Mask;
    use crate::reference::{self, assert_close, numeric_gradient, on_every_isa, random};

    const SIZES: [Dims; 5] =
        [(1, 1, 1, 1), (2, 5, 6, 2), (1, 64, 16, 1), (2, 67, 39, 3), (1, 150, 80, 2)];

    fn widen(x: &[f32]) -> Vec<f64> {
        x.iter().map(|&x| x as f64).collect()
    }

    #[test]
    fn naive_and_fused_forward_match_the_reference() {
        on_every_isa(|cpu| {
            for dims @ (b, t, c, h) in SIZES {
                let qkv = random(1, b * t * 3 * c);
                let (exact, exact_p) = reference::attention(&qkv, |i, j| j <= i, dims);
                let (mut y, mut p) = (vec![f32::NAN; b * t * c], vec![f32::NAN; b * h * t * t]);
                naive::forward(&mut y, &mut p, &qkv, |i, j| j <= i, Mask::none(), dims);
                assert_close(&y, &exact, 1e-6);
                assert_close(&p, &exact_p, 1e-6);
                let mut lse = vec![f32::NAN; b * h * t];
                y.fill(f32::NAN);
                fused::forward(cpu, &mut y, &mut lse, &qkv, Mask::none(), dims);
                assert_close(&y, &exact, 2e-6);
            }
        });
    }

    #[test]
    fn naive_and_fused_agree_in_forward_and_every_gradient_with_dropout() {
        on_every_isa(|cpu| {
            for dims @ (b, t, c, h) in SIZES {
                let (qkv, dy) = (random(1, b * t * 3 * c), random(2, b * t * c));
                for mask in [Mask::none(), Mask::new(0.3, 5, 6, 7).from_row(11)] {
                    let (mut y, mut p) = (vec![0.0; b * t * c], vec![0.0; b * h * t * t]);
                    naive::forward(&mut y, &mut p, &qkv, |i, j| j <= i, mask, dims);
                    let mut dqkv = vec![f32::NAN; b * t * 3 * c];
                    naive::backward(&mut dqkv, &dy, &qkv, &p, mask, dims);
                    let (mut y2, mut lse) = (vec![f32::NAN; b * t * c], vec![f32::NAN; b * h * t]);
                    fused::forward(cpu, &mut y2, &mut lse, &qkv, mask, dims);
                    let mut dqkv2 = vec![f32::NAN; b * t * 3 * c];
                    fused::backward(cpu, &mut dqkv2, &dy, &qkv, &y2, &lse, mask, dims);
                    assert_close(&y2, &widen(&y), 5e-6);
                    assert_close(&dqkv2, &widen(&dqkv), 1e-5);
                }
            }
        });
    }

    #[test]
    fn both_backwards_match_finite_differences() {
        on_every_isa(|cpu| {
            let dims @ (b, t, c, h) = (2, 7, 6, 2);
            let (qkv, dy) = (random(1, b * t * 3 * c), random(2, b * t * c));
            let loss = |qkv: &[f32]| {
                reference::dot(&reference::attention(qkv, |i, j| j <= i, dims).0, &dy)
            };
            let exact = numeric_gradient(&qkv, loss);
            let (mut y, mut p) = (vec![0.0; b * t * c], vec![0.0; b * h * t * t]);
            let mut dqkv = vec![f32::NAN; b * t * 3 * c];
            naive::forward(&mut y, &mut p, &qkv, |i, j| j <= i, Mask::none(), dims);
            naive::backward(&mut dqkv, &dy, &qkv, &p, Mask::none(), dims);
            assert_close(&dqkv, &exact, 1e-5);
            let mut lse = vec![0.0; b * h * t];
            fused::forward(cpu, &mut y, &mut lse, &qkv, Mask::none(), dims);
            fused::backward(cpu, &mut dqkv, &dy, &qkv, &y, &lse, Mask::none(), dims);
            assert_close(&dqkv, &exact, 1e-5);
        });
    }

    #[test]
    fn any_mask_works_in_the_naive_one_and_huge_scores_stay_finite() {
        let dims @ (b, t, c, h) = (1, 6, 4, 2);
        let qkv: Vec<f32> = random(1, b * t * 3 * c).iter().map(|x| 100.0 * x).collect();
        let banded = |i: usize, j: usize| i.abs_diff(j) <= 1;
        let (mut y, mut p) = (vec![0.0; b * t * c], vec![0.0; b * h * t * t]);
        naive::forward(&mut y, &mut p, &qkv, banded, Mask::none(), dims);
        assert!(y.iter().all(|y| y.is_finite()));
        for (i, p) in p.iter().enumerate() {
            assert!(banded(i / t % t, i % t) || *p == 0.0);
        }
        on_every_isa(|cpu| {
            let (mut y, mut lse) = (vec![0.0; b * t * c], vec![0.0; b * h * t]);
            fused::forward(cpu, &mut y, &mut lse, &qkv, Mask::none(), dims);
            assert!(y.iter().all(|y| y.is_finite()));
        });
    }

    /// Softmax does not see a constant added to a row of scores, which is what K's bias adds.
    #[test]
    fn a_constant_added_to_every_key_changes_nothing() {
        on_every_isa(|cpu| {
            let dims @ (b, t, c, h) = (1, 9, 8, 2);
            let mut qkv = random(1, b * t * 3 * c);
            let (mut y, mut lse, mut shifted) =
                (vec![0.0; t * c], vec![0.0; b * h * t], vec![0.0; t * c]);
            fused::forward(cpu, &mut y, &mut lse, &qkv, Mask::none(), dims);
            for row in qkv.chunks_exact_mut(3 * c) {
                row[c..2 * c].iter_mut().for_each(|k| *k += 0.5);
            }
            fused::forward(cpu, &mut shifted, &mut lse, &qkv, Mask::none(), dims);
            assert_close(&shifted, &widen(&y), 1e-5);
        });
    }
}
