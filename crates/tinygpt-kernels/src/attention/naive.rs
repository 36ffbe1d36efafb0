//! Attention as on the blackboard: T x T scores, any mask, the probabilities returned.
//!
//! For learning, for looking at what attends to what, and for breaking the mask on purpose.

use super::Dims;
use crate::dropout::Mask;

/// Where head `head` of batch row `row` starts in `qkv`; `part` is 0 for queries, 1 keys, 2 values.
fn at(row: usize, part: usize, head: usize, (_, _, c, h): Dims) -> usize {
    row * 3 * c + part * c + head * (c / h)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_scaled(sum: &mut [f32], x: &[f32], scale: f32) {
    sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += scale * x);
}

/// `y` (B, T, C) and `p` (B, H, T, T) written; `qkv` (B, T, 3C) read. Position i sees position j
/// where `allowed(i, j)`; every position must see at least one.
pub fn forward(
    y: &mut [f32],
    p: &mut [f32],
    qkv: &[f32],
    allowed: impl Fn(usize, usize) -> bool,
    dropout: Mask,
    dims @ (b, t, c, h): Dims,
) {
    let d = c / h;
    super::assert_dims((b, t, c, h));
    assert_eq!((y.len(), p.len(), qkv.len()), (b * t * c, b * h * t * t, b * t * 3 * c));
    let scale = 1.0 / (d as f32).sqrt();
    y.fill(0.0);
    for (row, p) in p.chunks_exact_mut(t).enumerate() {
        let (batch, head, i) = (row / t / h, row / t % h, row % t);
        let q = &qkv[at(batch * t + i, 0, head, dims)..][..d];
        // 1. scores; what may not be seen is minus infinity
        for (j, p) in p.iter_mut().enumerate() {
            let k = &qkv[at(batch * t + j, 1, head, dims)..][..d];
            *p = if allowed(i, j) { scale * dot(q, k) } else { f32::NEG_INFINITY };
        }
        // 2. softmax
        let max = p.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        p.iter_mut().for_each(|p| *p = (*p - max).exp());
        let sum: f32 = p.iter().sum();
        p.iter_mut().for_each(|p| *p /= sum);
        // 3. the mean of the values, weighted
        let y = &mut y[(batch * t + i) * c + head * d..][..d];
        for (j, p) in p.iter().enumerate() {
            add_scaled(
                y,
                &qkv[at(batch * t + j, 2, head, dims)..][..d],
                p * dropout.factor(row, j),
            );
        }
    }
}

/// ```text
/// dv[j] = Σ_i factor[i, j] p[i, j] dy[i]          dp[i, j] = factor[i, j] dy[i] · v[j]
/// ds[i, j] = p[i, j] (dp[i, j] - Σ_j' p[i, j'] dp[i, j'])
/// dq[i] = Σ_j ds[i, j] k[j] / √D                  dk[j] = Σ_i ds[i, j] q[i] / √D
/// ```
/// `dqkv` (B, T, 3C) written; `dy` (B, T, C), `qkv` (B, T, 3C), `p` (B, H, T, T) read. The mask
/// needs no mention: where nothing was seen, p is 0 and so is ds.
pub fn backward(
    dqkv: &mut [f32],
    dy: &[f32],
    qkv: &[f32],
    p: &[f32],
    dropout: Mask,
    dims @ (b, t, c, h): Dims,
) {
    let d = c / h;
    super::assert_dims((b, t, c, h));
    assert_eq!((dy.len(), p.len(), qkv.len()), (b * t * c, b * h * t * t, dqkv.len()));
    let scale = 1.0 / (d as f32).sqrt();
    dqkv.fill(0.0);
    for (row, p) in p.chunks_exact(t).enumerate() {
        let (batch, head, i) = (row / t / h, row / t % h, row % t);
        let place = |j: usize, part| at(batch * t + j, part, head, dims);
        let dy = &dy[(batch * t + i) * c + head * d..][..d];
        // 3.
        let dp = |j| dropout.factor(row, j) * dot(dy, &qkv[place(j, 2)..][..d]);
        for (j, p) in p.iter().enumerate() {
            add_scaled(&mut dqkv[place(j, 2)..][..d], dy, p * dropout.factor(row, j));
        }
        // 2.
        let mean: f32 = (0..t).map(|j| p[j] * dp(j)).sum();
        for (j, p) in p.iter().enumerate() {
            let ds = scale * p * (dp(j) - mean);
            // 1.
            add_scaled(&mut dqkv[place(i, 0)..][..d], &qkv[place(j, 1)..][..d], ds);
            add_scaled(&mut dqkv[place(j, 1)..][..d], &qkv[place(i, 0)..][..d], ds);
        }
    }
}
