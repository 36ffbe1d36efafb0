//! Token plus position embedding: a row of each table, added.
//!
//! Derivation: `docs/math/embedding.md`.

use crate::par::{Cpu, Shared};
use crate::profile::Op;

/// ```text
/// x[b, t, c] = wte[idx[b, t], c] + wpe[first + t, c]
/// ```
/// `x` (B, T, C) written; `idx` (B, T), `wte` (V, C), `wpe` (at least first + T, C) read. `first`
/// is the position of t = 0. Panics when an id is V or more.
pub fn forward(
    cpu: &Cpu,
    x: &mut [f32],
    idx: &[u32],
    wte: &[f32],
    wpe: &[f32],
    first: usize,
    (b, t, c): (usize, usize, usize),
) {
    assert_eq!((x.len(), idx.len()), (b * t * c, b * t));
    let _time = cpu.timed(Op::new("embedding forward", &[b, t, c], b * t * c, (2 * b + 1) * t * c));
    let x = Shared::of(x);
    cpu.run_for(b * t * c, |worker| {
        for row in worker.part(b * t, 1) {
            // SAFETY: each row belongs to one worker.
            let x = unsafe { x.slice(row * c..(row + 1) * c) };
            let token = &wte[idx[row] as usize * c..][..c];
            let position = &wpe[(first + row % t) * c..][..c];
            for ((x, token), position) in x.iter_mut().zip(token).zip(position) {
                *x = token + position;
            }
        }
    });
}

/// ```text
/// dwte[idx[b, t], c] += dx[b, t, c]
/// dwpe[t, c]         += dx[b, t, c]
/// ```
/// `dwte` (V, C) and `dwpe` (at least T, C) added to, down the tokens in order; `dx` (B, T, C),
/// `idx` (B, T) read.
pub fn backward(
    cpu: &Cpu,
    dwte: &mut [f32],
    dwpe: &mut [f32],
    dx: &[f32],
    idx: &[u32],
    (b, t, c): (usize, usize, usize),
) {
    assert_eq!((dx.len(), idx.len()), (b * t * c, b * t));
    let rows = b * t + 2 * t + 2 * (b * t).min(dwte.len() / c);
    let _time = cpu.timed(Op::new("embedding backward", &[b, t, c], 2 * b * t * c, rows * c));
    let (dwte, dwpe) = (Shared::of(dwte), Shared::of(dwpe));
    // Workers share out columns: two tokens may be the same row.
    cpu.run(|worker| {
        let cols = worker.part(c, 16);
        for (row, &id) in idx.iter().enumerate() {
            let dx = &dx[row * c..][cols.clone()];
            for (table, at) in [(dwte, id as usize), (dwpe, row % t)] {
                // SAFETY: this worker alone has these columns.
                let sum = unsafe { table.slice(at * c + cols.start..at * c + cols.end) };
                for (sum, dx) in sum.iter_mut().zip(dx) {
                    *sum += dx;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{on_every_isa, random};

    #[test]
    fn forward_adds_the_right_rows_and_backward_sends_gradients_home() {
        on_every_isa(|cpu| {
            let (b, t, c, v) = (3, 5, 19, 7);
            let (wte, wpe) = (random(1, v * c), random(2, (t + 2) * c));
            let idx: Vec<u32> = (0..b * t).map(|i| (i * i % v) as u32).collect();
            let mut x = vec![f32::NAN; b * t * c];
            forward(cpu, &mut x, &idx, &wte, &wpe, 2, (b, t, c));
            for (i, x) in x.iter().enumerate() {
                let (row, col) = (i / c, i % c);
                let expected = wte[idx[row] as usize * c + col] + wpe[(2 + row % t) * c + col];
                assert_eq!(*x, expected);
            }
            let dx = random(3, b * t * c);
            let (mut dwte, mut dwpe) = (vec![0.0; v * c], vec![0.0; t * c]);
            backward(cpu, &mut dwte, &mut dwpe, &dx, &idx, (b, t, c));
            let (mut dwte2, mut dwpe2) = (vec![0.0; v * c], vec![0.0; t * c]);
            for (i, dx) in dx.iter().enumerate() {
                let (row, col) = (i / c, i % c);
                dwte2[idx[row] as usize * c + col] += dx;
                dwpe2[row % t * c + col] += dx;
            }
            assert_eq!((dwte, dwpe), (dwte2, dwpe2));
        });
    }
}
