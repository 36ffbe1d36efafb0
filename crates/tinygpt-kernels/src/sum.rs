//! Sums down the rows of a matrix: the gradients of biases and gains.

use crate::par::{Cpu, Shared};

/// `sum[c] += Σ_n rows[n, c]`, down the rows in order. `sum` (C) added to; `rows` (N, C) read.
pub(crate) fn add_rows(cpu: &Cpu, sum: &mut [f32], rows: &[f32], (n, c): (usize, usize)) {
    assert_eq!((sum.len(), rows.len()), (c, n * c));
    let out = Shared::of(sum);
    cpu.run(|worker| {
        let cols = worker.part(c, 16);
        // SAFETY: this worker alone has these columns.
        let sum = unsafe { out.slice(cols.clone()) };
        for row in rows.chunks_exact(c) {
            for (sum, x) in sum.iter_mut().zip(&row[cols.clone()]) {
                *sum += x;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{assert_close, on_every_isa, random};

    #[test]
    fn columns_are_added_to_what_is_there() {
        on_every_isa(|cpu| {
            let (n, c) = (9, 37);
            let (rows, mut sum) = (random(1, n * c), vec![1.0; c]);
            add_rows(cpu, &mut sum, &rows, (n, c));
            let exact: Vec<f64> =
                (0..c).map(|i| 1.0 + (0..n).map(|r| rows[r * c + i] as f64).sum::<f64>()).collect();
            assert_close(&sum, &exact, 1e-6);
        });
    }
}
