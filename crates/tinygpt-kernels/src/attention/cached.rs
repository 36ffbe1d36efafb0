//! Attention of one new position over keys and values kept from before.

use crate::par::{Cpu, Shared};
use crate::profile::Op;
use crate::simd::math::exp;
use crate::simd::{Simd, dispatch};

/// `y` (C) written; `q` (C), `keys` and `values` (T, C) read. The new position sees all T of
/// them, its own key among them.
pub fn forward(
    cpu: &Cpu,
    y: &mut [f32],
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    (t, c, h): (usize, usize, usize),
) {
    super::assert_dims((1, t, c, h));
    assert_eq!((y.len(), q.len(), keys.len(), values.len()), (c, c, t * c, t * c));
    let _time = cpu.timed(Op::new("attention cached", &[c, h], 4 * t * c, 2 * t * c + 2 * c));
    let (isa, d) = (cpu.isa(), c / h);
    let y = Shared::of(y);
    cpu.run_for(t * c, |worker| {
        let heads = worker.part(h, 1);
        let p = worker.scratch(t.next_multiple_of(16));
        for head in heads {
            // SAFETY: each head belongs to one worker.
            let y = unsafe { y.slice(head * d..(head + 1) * d) };
            let at = head * d;
            let q = &q[at..at + d];
            let p = &mut *p;
            dispatch!(
                isa, one_head, y: &mut [f32], p: &mut [f32], q: &[f32], keys: &[f32],
                values: &[f32], at: usize, t: usize, c: usize,
            );
        }
    });
}

#[inline(always)]
fn one_head<S: Simd>(
    s: S,
    y: &mut [f32],
    p: &mut [f32],
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    at: usize,
    t: usize,
    c: usize,
) {
    let d = q.len();
    let scale = 1.0 / (d as f32).sqrt();
    let mut max = f32::NEG_INFINITY;
    for (j, p) in p[..t].iter_mut().enumerate() {
        *p = scale * super::dot(s, q, &keys[j * c + at..][..d]);
        max = if *p > max { *p } else { max };
    }
    let end = t.next_multiple_of(S::LANES);
    p[t..end].fill(f32::NEG_INFINITY);
    let mut sum = s.splat(0.0);
    for x in p[..end].chunks_exact_mut(S::LANES) {
        let e = exp(s, s.sub(s.load(x), s.splat(max)));
        s.store(x, e);
        sum = s.add(sum, e);
    }
    let inverse = 1.0 / s.sum(sum);
    y.fill(0.0);
    let whole = d / S::LANES * S::LANES;
    for (j, p) in p[..t].iter().enumerate() {
        let (v, p) = (&values[j * c + at..][..d], p * inverse);
        for at in (0..whole).step_by(S::LANES) {
            let next = s.mul_add(s.splat(p), s.load(&v[at..]), s.load(&y[at..]));
            s.store(&mut y[at..], next);
        }
        for at in whole..d {
            y[at] += p * v[at];
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::reference::{self, assert_close, on_every_isa, random};

    #[test]
    fn the_last_position_of_full_attention_comes_out() {
        on_every_isa(|cpu| {
            for (t, c, h) in [(1, 4, 2), (5, 39, 3), (64, 128, 2), (300, 96, 4)] {
                let qkv = random(1, t * 3 * c);
                let (exact, _) = reference::attention(&qkv, |i, j| j <= i, (1, t, c, h));
                let part = |part: usize| -> Vec<f32> {
                    qkv.chunks(3 * c)
                        .flat_map(|row| row[part * c..(part + 1) * c].to_vec())
                        .collect()
                };
                let (q, keys, values) = (part(0), part(1), part(2));
                let mut y = vec![f32::NAN; c];
                super::forward(cpu, &mut y, &q[(t - 1) * c..], &keys, &values, (t, c, h));
                assert_close(&y, &exact[(t - 1) * c..], 1e-6);
            }
        });
    }
}
