//! Analytic gradients against numeric ones, tensor by tensor.
//!
//! A wrong backward often trains, only worse; a falling loss proves nothing. The slope of the loss
//! along a direction does not lie: move all of a tensor by `± h` times a random direction, run the
//! forward twice, compare. The forward is the f64 twin, so that the difference of two nearly equal
//! losses keeps its digits.

use super::{CHECK_STREAM, Row};
use crate::config::GptConfig;
use crate::error::Result;
use crate::model::{Gpt, Params, Tensors, reference};
use tinygpt_kernels::rng::Stream;
use tinygpt_kernels::{Cpu, Isa};

/// Far from the truncation error, which falls as h^2, and from rounding, which grows as 1/h.
const H: f64 = 1e-4;
/// f32 has seven digits; sums over a batch cost one or two.
const TOLERANCE: f64 = 1e-4;
/// (B, T)
const DIMS: (usize, usize) = (2, 7);

/// The rows of a model of the same kind that is small enough for the twin: two blocks, width 12.
pub(super) fn of_a_small_twin(config: &GptConfig, isa: Isa) -> Result<Vec<Row>> {
    let config = GptConfig {
        vocab_size: 13,
        block_size: DIMS.1,
        n_layer: 2,
        n_head: config.n_head.min(3),
        n_embd: 12,
        ..config.clone()
    };
    let mut gpt = Gpt::new_on(config, 1337, Cpu::new(1, isa))?;
    let params = gpt.params_mut();
    // Away from the start, where biases are 0 and gains 1.
    for (i, spec) in params.table().clone().iter().enumerate() {
        let noise = random(i, spec.len());
        params.get_mut(spec).iter_mut().zip(noise).for_each(|(x, noise)| *x += 0.1 * noise as f32);
    }
    let (idx, targets) = batch();
    gpt.forward(&idx, Some(&targets), DIMS)?;
    gpt.backward();
    Ok(against_differences(&gpt, gpt.grads()))
}

/// One row for each kind of tensor with the worst error in any block, and one for the bias of the
/// keys, whose gradient is zero: softmax does not see what is added to a whole row of scores.
fn against_differences(gpt: &Gpt, grads: &Params) -> Vec<Row> {
    let w = reference::widen(gpt.params());
    let mut kinds: Vec<(&str, f64)> = Vec::new();
    let table = gpt.params().table();
    for (i, spec) in table.iter().enumerate() {
        let direction = random(100 + i, spec.len());
        let slope = (loss_along(gpt, &w, i, &direction, H)
            - loss_along(gpt, &w, i, &direction, -H))
            / (2.0 * H);
        let grad = grads.get(spec);
        let analytic: f64 = grad.iter().zip(&direction).map(|(g, d)| f64::from(*g) * d).sum();
        let error = (analytic - slope).abs() / norm(grad);
        match kinds.iter_mut().find(|(name, _)| *name == kind(&spec.name)) {
            Some((_, worst)) if error <= *worst || worst.is_nan() => {}
            Some((_, worst)) => *worst = error,
            None => kinds.push((kind(&spec.name), error)),
        }
    }
    let mut rows: Vec<_> =
        kinds.iter().map(|(name, error)| Row::error(*name, *error, TOLERANCE)).collect();
    if let Some(bias) = &table.h[0].attn.c_attn.bias {
        let (grad, c) = (grads.get(bias), gpt.config().n_embd);
        let share = norm(&grad[c..2 * c]) / norm(grad);
        rows.push(Row::error("attn.c_attn.bias, the keys' third", share, TOLERANCE));
    }
    rows
}

/// The twin's loss with tensor `i` moved by `h` times `direction`.
fn loss_along(gpt: &Gpt, w: &Tensors<Vec<f64>>, i: usize, direction: &[f64], h: f64) -> f64 {
    let mut slot = 0;
    let moved = w.map(|x| {
        slot += 1;
        let h = if slot == i + 1 { h } else { 0.0 };
        x.iter().zip(direction.iter().cycle()).map(|(x, d)| x + h * d).collect()
    });
    let (idx, targets) = batch();
    reference::loss(gpt.config(), &moved, &idx, &targets, DIMS)
}

/// Ids and targets below 13, one target ignored.
fn batch() -> (Vec<u32>, Vec<i32>) {
    let n = DIMS.0 * DIMS.1;
    let targets = (0..n as i32).map(|i| if i == 3 { -1 } else { (i * 5 + 1) % 13 }).collect();
    ((0..n as u32).map(|i| (i * i + 3 * i) % 13).collect(), targets)
}

/// `transformer.h.3.attn.c_attn.weight` -> `attn.c_attn.weight`
fn kind(name: &str) -> &str {
    let name = name.strip_prefix("transformer.").unwrap_or(name);
    let in_block = name.strip_prefix("h.").and_then(|rest| rest.split_once('.'));
    in_block.map_or(name, |(_, kind)| kind)
}

fn norm(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

fn random(name: usize, n: usize) -> Vec<f64> {
    let mut stream = Stream::new(1337, CHECK_STREAM, 2 + name as u32);
    (0..n).map(|_| stream.normal()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Dropout;

    fn small() -> Gpt {
        let config = GptConfig {
            vocab_size: 13,
            block_size: DIMS.1,
            n_layer: 2,
            n_head: 2,
            n_embd: 12,
            ..GptConfig::default()
        };
        let mut gpt = Gpt::new(config, 3).unwrap();
        for x in gpt.params_mut().data_mut() {
            *x *= 3.0;
        }
        let (idx, targets) = batch();
        gpt.forward(&idx, Some(&targets), DIMS).unwrap();
        gpt.backward();
        gpt
    }

    fn failed(gpt: &Gpt, grads: &Params) -> Vec<String> {
        let rows = against_differences(gpt, grads).into_iter();
        rows.filter(|row| !row.pass).map(|row| row.what).collect()
    }

    #[test]
    fn one_changed_entry_of_any_gradient_is_found_in_its_row() {
        let gpt = small();
        assert!(failed(&gpt, gpt.grads()).is_empty(), "{:?}", failed(&gpt, gpt.grads()));
        for spec in gpt.params().table().iter() {
            let mut grads = gpt.grads().clone();
            let size = norm(grads.get(spec)) as f32;
            grads.get_mut(spec)[0] += 0.1 * size;
            assert_eq!(failed(&gpt, &grads), [kind(&spec.name)]);
        }
    }

    #[test]
    fn a_tied_embedding_without_its_other_share_is_found() {
        let mut gpt = small();
        let (idx, targets) = batch();
        let valid = targets.iter().filter(|&&target| target != -1).count();
        gpt.zero_grad();
        // Leaves the unembedding's share apart, as the optimizer finds it.
        gpt.accumulate(&idx, &targets, 1.0 / valid as f32, Dropout::NONE, DIMS).unwrap();
        assert_eq!(failed(&gpt, gpt.grads()), ["wte.weight"]);
    }

    #[test]
    fn a_key_bias_with_a_gradient_is_found() {
        let gpt = small();
        let mut grads = gpt.grads().clone();
        let bias = gpt.params().table().h[0].attn.c_attn.bias.clone().unwrap();
        let size = norm(grads.get(&bias)) as f32;
        grads.get_mut(&bias)[12] += 0.1 * size;
        assert_eq!(failed(&gpt, &grads), ["attn.c_attn.bias", "attn.c_attn.bias, the keys' third"]);
    }
}
