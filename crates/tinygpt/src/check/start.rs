//! What a model must show before it has learnt anything.

use super::{Batch, CHECK_STREAM, Row};
use crate::config::GptConfig;
use crate::error::Result;
use crate::model::{Gpt, Params, Spec, Tensors};
use crate::run::thousands;
use tinygpt_kernels::attention::{self, Dims};
use tinygpt_kernels::dropout::Mask;
use tinygpt_kernels::rng::Stream;

/// One weight that is NaN or infinite soon makes every logit so.
pub(super) fn weights(params: &Params) -> Row {
    let bad = |values: &[f32]| values.iter().filter(|x| !x.is_finite()).count();
    let found = params.iter().map(|(spec, values)| (&spec.name, bad(values)));
    let found: Vec<_> = found.filter(|&(_, bad)| bad > 0).collect();
    let measured = match found.first() {
        None => "0".to_owned(),
        Some((name, _)) => {
            let all: usize = found.iter().map(|(_, bad)| bad).sum();
            format!("{}, from {name} on", thousands(all))
        }
    };
    Row::new("weights that are NaN or infinite", measured, "0", found.is_empty())
}

/// The number of parameters against the formula written out:
///
/// ```text
/// embeddings              V C + T C
/// a block's products      3 C^2 + C^2 + 4 C^2 + 4 C^2 = 12 C^2, with biases + 3 C + C + 4 C + C
/// a block's norms         2 C,                                  with biases + 2 C
/// the last norm           C,                                    with biases + C
/// an unembedding apart    V C
/// ```
pub(super) fn parameters(config: &GptConfig, table: &Tensors<Spec>) -> Vec<Row> {
    let GptConfig { vocab_size: v, block_size: t, n_layer: l, n_embd: c, bias, tied, .. } = *config;
    let (in_block, in_last, head) =
        (if bias { 13 } else { 2 }, if bias { 2 } else { 1 }, if tied { 0 } else { v * c });
    let expected = v * c + t * c + l * (12 * c * c + in_block * c) + in_last * c + head;
    let found: usize = table.iter().map(Spec::len).sum();
    let row = |what: &str, found, expected| {
        Row::new(what, thousands(found), thousands(expected), found == expected)
    };
    let head = if tied { "" } else { " + VC" };
    let last = if bias { "2C" } else { "C" };
    vec![
        row(&format!("VC + TC + L(12C^2 + {in_block}C) + {last}{head}"), found, expected),
        row("the same without TC, as nanoGPT says", found - table.wpe.len(), expected - t * c),
    ]
}

/// A model that knows nothing gives each of V tokens 1/V, and pays ln V. Its logits are not quite
/// equal: their variance is 0.02^2 C, and that costs half as much.
///
/// The tolerance grows with C like the excess: where the embedding is tied, the token just read is
/// a little too likely. A head that starts at N(0, 1) is off by about C, targets that are not
/// shifted by a unit.
pub(super) fn first_loss(fresh: &mut Gpt, batch: &Batch) -> Result<Row> {
    let (v, c) = (fresh.config().vocab_size as f64, fresh.config().n_embd as f64);
    let loss = fresh.forward(&batch.idx, Some(&batch.targets), batch.dims)?.1.unwrap_or(f32::NAN);
    let (expected, most) = (v.ln() + 2e-4 * c, 0.05 + 5e-4 * c);
    let pass = (f64::from(loss) - expected).abs() <= most;
    let what = format!("loss before training; ln V = {:.3}", v.ln());
    Ok(Row::new(what, format!("{loss:.3}"), format!("{expected:.2} ± {most:.2}"), pass))
}

/// Attention on the blackboard: `y` (B, T, C) and `p` (B, H, T, T) from `qkv` (B, T, 3C).
pub(super) type Attend = fn(y: &mut [f32], p: &mut [f32], qkv: &[f32], dims: Dims);

/// The right one: causal, every head by itself.
pub(super) fn naive(y: &mut [f32], p: &mut [f32], qkv: &[f32], dims: Dims) {
    attention::naive::forward(y, p, qkv, |i, j| j <= i, Mask::none(), dims);
}

/// The variance of the scores when queries and keys have variance 1: as they are, D; as attention
/// uses them, 1. The second is read off its probabilities: `ln p` is the score but for a constant.
pub(super) fn score_variance(config: &GptConfig, attend: Attend) -> Vec<Row> {
    let (c, h, d) = (config.n_embd, config.n_head, config.head_size());
    // Narrow heads need more sequences for a steady mean.
    let dims @ (b, t, ..) = (512usize.div_ceil(c), 64, c, h);
    let mut stream = Stream::new(1337, CHECK_STREAM, 1);
    let qkv: Vec<f32> = (0..b * t * 3 * c).map(|_| stream.normal() as f32).collect();
    let (mut y, mut p) = (vec![0.0; b * t * c], vec![0.0; b * h * t * t]);
    attend(&mut y, &mut p, &qkv, dims);

    let (mut raw, mut used) = (0.0, 0.0);
    for (row, p) in p.chunks_exact(t).enumerate() {
        let (batch, head, i) = (row / t / h, row / t % h, row % t);
        let at = |pos: usize, part: usize| &qkv[(batch * t + pos) * 3 * c + part * c + head * d..];
        let dot = |j| at(i, 0)[..d].iter().zip(at(j, 1)).map(|(q, k)| f64::from(q * k)).sum();
        raw += variance((0..=i).map(dot).collect());
        used += variance(p[..=i].iter().map(|p| f64::from(p.ln())).collect());
    }
    let rows = (b * h * (t - 1)) as f64; // the first position sees one key: no variance
    let row = |what: String, found: f64, expected: f64| {
        let pass = (found / expected - 1.0).abs() < 0.15;
        Row::new(what, format!("{found:.2}"), format!("{expected} ± 15 %"), pass)
    };
    vec![
        row("scores q.k / sqrt(D), our attention's".into(), used / rows, 1.0),
        row(format!("scores q.k, D = {d}"), raw / rows, d as f64),
    ]
}

/// Of a sample; 0 for a single value.
fn variance(x: Vec<f64>) -> f64 {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (x.len() - 1).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::Subject;
    use super::*;
    use crate::run::{Layers, Settings};
    use tinygpt_kernels::{Cpu, Isa};

    fn quick() -> GptConfig {
        GptConfig { vocab_size: 65, ..Settings::resolve(&Layers::default()).unwrap().model }
    }

    #[test]
    fn a_nan_among_the_weights_is_named() {
        let config = GptConfig { n_layer: 1, ..quick() };
        let mut subject = Subject::fresh(&config, Cpu::new(1, Isa::best())).unwrap();
        subject.gpt.params_mut().block_mut(0).mlp.c_fc.weight[7] = f32::NAN;
        subject.gpt.params_mut().ln_f_mut().weight[1] = f32::INFINITY;
        let row = weights(subject.gpt.params());
        assert!(
            !row.pass && row.measured == "2, from transformer.h.0.mlp.c_fc.weight on",
            "{row:?}"
        );
    }

    #[test]
    fn a_missing_tensor_shows_in_the_parameter_count() {
        let faults = [
            GptConfig { bias: true, ..quick() },
            GptConfig { tied: false, ..quick() },
            GptConfig { n_layer: 5, ..quick() },
        ];
        for fault in faults {
            let rows = parameters(&quick(), &Tensors::of(&fault));
            assert!(rows.iter().all(|row| !row.pass), "{rows:?}");
        }
        let rows = parameters(&quick(), &Tensors::of(&GptConfig { block_size: 65, ..quick() }));
        assert!(!rows[0].pass && rows[1].pass, "{rows:?}");
    }

    #[test]
    fn a_head_of_unit_variance_and_unshifted_targets_show_in_the_first_loss() {
        for config in [quick(), GptConfig { n_embd: 384, n_head: 6, n_layer: 6, ..quick() }] {
            let subject = Subject::fresh(&config, Cpu::new(2, Isa::best())).unwrap();
            let mut batch = subject.batch().unwrap();
            let mut gpt = subject.untrained().unwrap();
            assert!(first_loss(&mut gpt, &batch).unwrap().pass);
            let wte = gpt.params_mut().embeddings_mut().0;
            wte.iter_mut().for_each(|x| *x *= 50.0);
            assert!(!first_loss(&mut gpt, &batch).unwrap().pass);
            batch.targets = batch.idx.iter().map(|&id| id as i32).collect();
            let row = first_loss(&mut subject.untrained().unwrap(), &batch).unwrap();
            assert!(!row.pass, "{row:?}");
        }
    }

    /// The scores that attention would have with `factor` times its 1 / sqrt(D).
    fn attend_with(factor: f32, y: &mut [f32], p: &mut [f32], qkv: &[f32], dims: Dims) {
        let mut qkv = qkv.to_vec();
        for row in qkv.chunks_exact_mut(3 * dims.2) {
            row[..dims.2].iter_mut().for_each(|q| *q *= factor);
        }
        naive(y, p, &qkv, dims);
    }

    #[test]
    fn scores_that_are_not_divided_or_by_the_width_of_the_model_have_another_variance() {
        // D = 32, C = 128.
        let undivided: Attend = |y, p, qkv, dims| attend_with(32f32.sqrt(), y, p, qkv, dims);
        let by_width: Attend = |y, p, qkv, dims| attend_with(0.5, y, p, qkv, dims);
        for fault in [undivided, by_width] {
            let rows = score_variance(&quick(), fault);
            assert!(!rows[0].pass && rows[1].pass, "{rows:?}");
        }
    }
}
