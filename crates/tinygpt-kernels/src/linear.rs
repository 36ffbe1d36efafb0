//! A linear layer: `Y = X W^T + b`, with the weight stored (out, in).
//!
//! Derivation: `docs/math/linear.md`.

use crate::gemm::{Mat, Start, product};
use crate::par::Cpu;
use crate::profile::Op;
use crate::sum::add_rows;

/// ```text
/// y[n, o] = b[o] + Σ_i x[n, i] w[o, i]
/// ```
/// `y` (N, O) written; `x` (N, I), `w` (O, I), `b` (O) read.
pub fn forward(
    cpu: &Cpu,
    y: &mut [f32],
    x: &[f32],
    w: &[f32],
    b: Option<&[f32]>,
    (n, i, o): (usize, usize, usize),
) {
    let floats = n * i + i * o + n * o;
    let _time = cpu.timed(Op::new("linear forward", &[n, i, o], 2 * n * i * o, floats));
    let start = b.map_or(Start::Zero, Start::Bias);
    product(cpu, y, Mat::rows(x, i), Mat::rows(w, i).transposed(), (n, i, o), start);
}

/// ```text
/// dx[n, i]  = Σ_o dy[n, o] w[o, i]
/// dw[o, i] += Σ_n dy[n, o] x[n, i]
/// db[o]    += Σ_n dy[n, o]
/// ```
/// `dx` (N, I) written; `dw` (O, I) and `db` (O) added to; `dy` (N, O), `x` (N, I), `w` (O, I)
/// read.
pub fn backward(
    cpu: &Cpu,
    dx: &mut [f32],
    dw: &mut [f32],
    db: Option<&mut [f32]>,
    dy: &[f32],
    x: &[f32],
    w: &[f32],
    (n, i, o): (usize, usize, usize),
) {
    backward_input(cpu, dx, dy, w, (n, i, o));
    backward_params(cpu, dw, db, dy, x, (n, i, o));
}

/// The first line of [`backward`]. `dx` (N, I) written; `dy` (N, O), `w` (O, I) read.
pub fn backward_input(
    cpu: &Cpu,
    dx: &mut [f32],
    dy: &[f32],
    w: &[f32],
    (n, i, o): (usize, usize, usize),
) {
    let floats = n * i + i * o + n * o;
    let _time = cpu.timed(Op::new("linear backward dx", &[n, i, o], 2 * n * i * o, floats));
    product(cpu, dx, Mat::rows(dy, o), Mat::rows(w, i), (n, o, i), Start::Zero);
}

/// Its other lines. `dw` (O, I) and `db` (O) added to; `dy` (N, O), `x` (N, I) read.
pub fn backward_params(
    cpu: &Cpu,
    dw: &mut [f32],
    db: Option<&mut [f32]>,
    dy: &[f32],
    x: &[f32],
    (n, i, o): (usize, usize, usize),
) {
    let floats = n * i + 2 * i * o + n * o;
    let time = cpu.timed(Op::new("linear backward dw", &[n, i, o], 2 * n * i * o, floats));
    product(cpu, dw, Mat::rows(dy, o).transposed(), Mat::rows(x, i), (o, n, i), Start::Add);
    drop(time);
    if let Some(db) = db {
        let _time = cpu.timed(Op::new("linear backward db", &[n, o], n * o, n * o + 2 * o));
        add_rows(cpu, db, dy, (n, o));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, assert_close, numeric_gradient, on_every_isa, random};

    #[test]
    fn forward_matches_the_reference() {
        on_every_isa(|cpu| {
            for (n, i, o) in [(1, 1, 1), (3, 7, 9), (4, 33, 65), (17, 31, 127)] {
                let (x, w, b) = (random(1, n * i), random(2, o * i), random(3, o));
                for b in [None, Some(&b[..])] {
                    let exact = reference::linear(&x, &w, b, (n, i, o));
                    let mut y = vec![f32::NAN; n * o];
                    forward(cpu, &mut y, &x, &w, b, (n, i, o));
                    assert_close(&y, &exact, 1e-6);
                }
            }
        });
    }

    #[test]
    fn backward_matches_finite_differences() {
        on_every_isa(|cpu| {
            let (n, i, o) = (5, 7, 11);
            let (x, w, b, dy) =
                (random(1, n * i), random(2, o * i), random(3, o), random(4, n * o));
            let (mut dx, mut dw, mut db) = (vec![f32::NAN; n * i], vec![1.0; o * i], vec![1.0; o]);
            backward(cpu, &mut dx, &mut dw, Some(&mut db), &dy, &x, &w, (n, i, o));
            let loss = |x: &[f32], w: &[f32], b: &[f32]| {
                reference::dot(&reference::linear(x, w, Some(b), (n, i, o)), &dy)
            };
            assert_close(&dx, &numeric_gradient(&x, |x| loss(x, &w, &b)), 1e-5);
            let plus_one = |g: Vec<f64>| g.iter().map(|g| g + 1.0).collect::<Vec<_>>();
            assert_close(&dw, &plus_one(numeric_gradient(&w, |w| loss(&x, w, &b))), 1e-5);
            assert_close(&db, &plus_one(numeric_gradient(&b, |b| loss(&x, &w, b))), 1e-5);
        });
    }
}
