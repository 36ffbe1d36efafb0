//! Products against f64, and the bits that no way of cutting them may change.

use super::*;
use crate::narrow::{from_bf16, to_bf16};
use crate::reference::{on_every_isa, random};

const FACTORS: [Factors; 2] = [Factors::F32, Factors::Bf16];

/// Every layout, start and kind of factors on awkward sizes, against f64.
#[test]
fn product_matches_the_naive_one_in_every_layout() {
    let sizes = [
        (1, 1, 1),
        (2, 7, 3),
        (6, 16, 16),
        (7, 17, 15),
        (13, 400, 33),
        (101, 5, 97),
        (200, 1600, 40),
        (150, 40, 300),
    ];
    on_every_isa(|cpu| {
        for (factors, size) in FACTORS.iter().flat_map(|f| sizes.map(|size| (*f, size))) {
            let cpu = Cpu::new(3, cpu.isa()).with_factors(factors);
            for layout in 0..4 {
                check(&cpu, size, layout);
            }
        }
    });
}

fn check(cpu: &Cpu, (m, k, n): (usize, usize, usize), layout: usize) {
    let (a, b, c0, bias) = (random(1, m * k), random(2, k * n), random(3, m * n), random(4, n));
    let rows_or = |rows: usize, cols: usize, data, flag| match layout & flag {
        0 => Mat::rows(data, cols),
        _ => Mat::rows(data, rows).transposed(),
    };
    let (a, b) = (rows_or(m, k, &a, 1), rows_or(k, n, &b, 2));
    let factor = |x: f32| match cpu.factors() {
        Factors::F32 => x as f64,
        Factors::Bf16 => from_bf16(to_bf16(x)) as f64,
    };
    for start in [Start::Zero, Start::Bias(&bias), Start::Add] {
        let mut c = c0.clone();
        product(cpu, &mut c, a, b, (m, k, n), start);
        for i in 0..m * n {
            let (r, j) = (i / n, i % n);
            let mut exact = match start {
                Start::Zero => 0.0,
                Start::Bias(bias) => bias[j] as f64,
                Start::Add => c0[i] as f64,
            };
            let mut size = exact.abs();
            for x in 0..k {
                let term =
                    factor(a.data[r * a.row + x * a.col]) * factor(b.data[x * b.row + j * b.col]);
                (exact, size) = (exact + term, size + term.abs());
            }
            let error = (c[i] as f64 - exact).abs();
            assert!(
                error <= 5e-7 * size,
                "{cpu:?} ({m},{k},{n}) layout {layout} [{i}]: {} for {exact}",
                c[i]
            );
        }
    }
}

#[test]
fn bits_do_not_depend_on_threads_or_on_how_rows_and_k_are_cut() {
    // All rows are more than the columns, twenty are fewer.
    let (m, k, n) = (60, 1000, 50);
    let (a, b) = (random(1, m * k), random(2, k * n));
    on_every_isa(|cpu| {
        for factors in FACTORS {
            bits_are_one(&a, &b, (m, k, n), |threads| {
                Cpu::new(threads, cpu.isa()).with_factors(factors)
            });
        }
    });
}

fn bits_are_one(
    a: &[f32],
    b: &[f32],
    (m, k, n): (usize, usize, usize),
    cpu: impl Fn(usize) -> Cpu,
) {
    let add = |cpu: &Cpu, c: &mut [f32], a, b, size| product(cpu, c, a, b, size, Start::Add);
    let (left, right) = (Mat::rows(a, k), Mat::rows(b, n));
    let whole = |threads| {
        let mut c = vec![0.5; m * n];
        add(&cpu(threads), &mut c, left, right, (m, k, n));
        c
    };
    let one = whole(1);
    for threads in [2, 5, 16] {
        assert_eq!(one, whole(threads), "{:?}", cpu(threads));
    }
    let cpu = cpu(2);
    for cut in [1, 33, 384, 999] {
        let mut c = vec![0.5; m * n];
        add(&cpu, &mut c, left, right, (m, cut, n));
        let rest = Mat { data: &a[cut..], ..left };
        add(&cpu, &mut c, rest, right.skip_rows(cut), (m, k - cut, n));
        assert_eq!(one, c, "{cpu:?}, k cut at {cut}");
    }
    for rows in [1, 5, 20] {
        let mut c = vec![0.5; rows * n];
        add(&cpu, &mut c, left, right, (rows, k, n));
        assert_eq!(one[..rows * n], c, "{cpu:?}, the first {rows} rows alone");
    }
}

#[test]
fn rounded_factors_give_the_bits_that_f32_gives_for_them_rounded() {
    let (m, k, n) = (37, 501, 45);
    let (a, b) = (random(1, m * k), random(2, k * n));
    let round = |x: &[f32]| x.iter().map(|&x| from_bf16(to_bf16(x))).collect::<Vec<_>>();
    on_every_isa(|cpu| {
        let multiply = |a: &[f32], b: &[f32], factors| {
            let (mut c, cpu) = (vec![0.0; m * n], Cpu::new(1, cpu.isa()).with_factors(factors));
            let (a, b) = (Mat::rows(a, k), Mat::rows(b, n));
            product(&cpu, &mut c, a, b, (m, k, n), Start::Zero);
            c
        };
        let rounded = multiply(&round(&a), &round(&b), Factors::F32);
        assert_eq!(multiply(&a, &b, Factors::Bf16), rounded, "{cpu:?}");
    });
}
