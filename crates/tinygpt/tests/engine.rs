//! The whole model against its f64 twin, and the equalities it promises bit for bit.

use tinygpt::model::{Attention, Dropout, reference};
use tinygpt::optim::AdamW;
use tinygpt::{Activation, Dtype, Gpt, GptConfig, TrainConfig};
use tinygpt_kernels::{Cpu, Isa, reference::random};

/// A model whose every parameter was moved away from where it starts.
fn model(config: &GptConfig, threads: usize, isa: Isa) -> Gpt {
    let mut gpt = Gpt::new_on(config.clone(), 1, Cpu::new(threads, isa)).unwrap();
    let params = gpt.params_mut();
    for (i, spec) in params.table().clone().iter().enumerate() {
        for (x, noise) in params.get_mut(spec).iter_mut().zip(random(i as u64, spec.len())) {
            *x += 0.1 * noise;
        }
    }
    gpt
}

fn batch(config: &GptConfig, b: usize, t: usize) -> (Vec<u32>, Vec<i32>) {
    let v = config.vocab_size;
    let idx: Vec<u32> = (0..b * t).map(|i| (i * i + 3 * i) as u32 % v as u32).collect();
    let targets =
        (0..b * t).map(|i| if i % 7 == 3 { -1 } else { ((i * 5 + 1) % v) as i32 }).collect();
    (idx, targets)
}

#[test]
fn every_gradient_of_every_variant_matches_differences_of_the_f64_twin() {
    for (tied, bias, activation) in [
        (true, true, Activation::Gelu),
        (false, false, Activation::GeluTanh),
        (true, false, Activation::Silu),
    ] {
        let config = GptConfig { tied, bias, activation, ..GptConfig::tiny() };
        let (idx, targets) = batch(&config, 2, 7);
        for isa in Isa::available() {
            for attention in [Attention::Fused, Attention::Naive] {
                let mut gpt = model(&config, 2, isa).with_attention(attention);
                let w = reference::widen(gpt.params());
                let loss = gpt.forward(&idx, Some(&targets), (2, 7)).unwrap().1.unwrap() as f64;
                let exact = reference::loss(&config, &w, &idx, &targets, (2, 7));
                assert!((loss - exact).abs() < 1e-6 * exact, "{loss}, twin {exact}");
                gpt.backward();
                for (i, spec) in gpt.params().table().clone().iter().enumerate() {
                    // Along one random direction a tensor: every element takes part.
                    let direction = random(100 + i as u64, spec.len());
                    let at = |h: f64| {
                        let mut slot = 0;
                        let shifted = w.map(|x| {
                            let h = if slot == i { h } else { 0.0 };
                            slot += 1;
                            x.iter()
                                .zip(direction.iter().cycle())
                                .map(|(x, d)| x + h * *d as f64)
                                .collect()
                        });
                        reference::loss(&config, &shifted, &idx, &targets, (2, 7))
                    };
                    let numeric = (at(1e-4) - at(-1e-4)) / 2e-4;
                    let grad = gpt.grads().get(spec);
                    let analytic: f64 =
                        grad.iter().zip(&direction).map(|(g, d)| *g as f64 * *d as f64).sum();
                    let size: f64 = grad.iter().map(|g| (*g as f64).powi(2)).sum::<f64>().sqrt();
                    assert!(
                        (analytic - numeric).abs() < 1e-5 + 1e-4 * size,
                        "{} on {isa:?}, {attention:?}: {analytic}, by differences {numeric}",
                        spec.name
                    );
                }
            }
        }
    }
}

/// The gradients after accumulating `b` sequences in parts of `part`, with dropout.
fn accumulated(
    config: &GptConfig,
    threads: usize,
    (isa, dtype): (Isa, Dtype),
    part: usize,
) -> (f64, Vec<f32>) {
    let (b, t) = (6, 9);
    let (idx, targets) = batch(config, b, t);
    let valid = targets.iter().filter(|&&x| x != -1).count();
    let mut gpt = model(config, threads, isa).with_dtype(dtype);
    let mut loss = 0.0;
    for first in (0..b).step_by(part) {
        let rows = first * t..(first + part).min(b) * t;
        let drop = Dropout::new(0.3, 42, 7, first * t);
        let (idx, targets) = (&idx[rows.clone()], &targets[rows.clone()]);
        loss +=
            gpt.accumulate(idx, targets, 1.0 / valid as f32, drop, (rows.len() / t, t)).unwrap();
    }
    gpt.fold_tied_grads();
    (loss, gpt.grads().data().to_vec())
}

#[test]
fn gradients_are_the_same_bits_for_any_threads_and_any_cut_of_the_batch() {
    // The last is large enough for every op to be shared out.
    for config in [
        GptConfig::tiny(),
        GptConfig { tied: false, bias: false, n_head: 7, ..GptConfig::tiny() },
        GptConfig { n_embd: 132, n_head: 6, ..GptConfig::tiny() },
    ] {
        let isas = Isa::available().into_iter();
        for how in isas.flat_map(|isa| [(isa, Dtype::F32), (isa, Dtype::Bf16)]) {
            let (loss, grads) = accumulated(&config, 1, how, 6);
            for (threads, part) in [(2, 6), (5, 6), (1, 1), (2, 2), (3, 4), (16, 5)] {
                let other = accumulated(&config, threads, how, part);
                assert!(
                    grads == other.1,
                    "{how:?}: {threads} threads, parts of {part}: other gradients"
                );
                assert_eq!(loss, other.0, "{how:?}: {threads} threads, parts of {part}");
            }
        }
    }
}

#[test]
fn a_future_token_changes_no_earlier_logit_by_a_single_bit() {
    let config = GptConfig::tiny();
    let mut gpt = model(&config, 2, Isa::best());
    let (mut idx, _) = batch(&config, 1, 9);
    let before = gpt.forward(&idx, None, (1, 9)).unwrap().0.to_vec();
    for changed in 1..9 {
        idx[changed] = (idx[changed] + 1) % 13;
        let after = gpt.forward(&idx, None, (1, 9)).unwrap().0;
        let seen = changed * config.vocab_size;
        assert_eq!(before[..seen], after[..seen], "token {changed} was seen before its time");
        assert_ne!(before[seen..], after[seen..], "token {changed} is not seen at all");
        idx[changed] = (idx[changed] + 12) % 13;
    }
}

#[test]
fn the_unmasked_model_does_see_the_future() {
    let config = GptConfig::tiny();
    let mut gpt = model(&config, 1, Isa::best()).with_attention(Attention::NaiveUnmasked);
    let (mut idx, _) = batch(&config, 1, 9);
    let before = gpt.forward(&idx, None, (1, 9)).unwrap().0[..13].to_vec();
    idx[8] = (idx[8] + 1) % 13;
    assert_ne!(before, gpt.forward(&idx, None, (1, 9)).unwrap().0[..13]);
}

#[test]
fn one_batch_can_be_learnt_by_heart() {
    let config = GptConfig { n_embd: 24, ..GptConfig::tiny() };
    let (idx, _) = batch(&config, 2, 9);
    let targets: Vec<i32> = idx.iter().map(|&x| (x as i32 * 7 + 3) % 13).collect();
    let train = TrainConfig::default();
    let mut gpt = Gpt::new(config, 3).unwrap();
    let mut adamw = AdamW::new(&gpt);
    let mut loss = f32::NAN;
    for _ in 0..200 {
        gpt.zero_grad();
        loss = gpt.forward(&idx, Some(&targets), (2, 9)).unwrap().1.unwrap();
        gpt.backward();
        adamw.step(&mut gpt, &train, 1e-2);
    }
    assert!(loss < 0.02, "{loss}");
}

#[test]
fn the_first_loss_is_ln_v() {
    for vocab_size in [13, 65, 1000] {
        let config = GptConfig { vocab_size, ..GptConfig::tiny() };
        let (idx, targets) = batch(&config, 4, 9);
        let loss =
            Gpt::new(config, 5).unwrap().forward(&idx, Some(&targets), (4, 9)).unwrap().1.unwrap();
        assert!((loss - (vocab_size as f32).ln()).abs() < 0.05, "{loss} for {vocab_size} tokens");
    }
}

#[test]
fn dropout_acts_in_training_and_never_in_evaluation() {
    let config = GptConfig::tiny();
    let dropped = GptConfig { dropout: 0.5, ..config.clone() };
    let (idx, targets) = batch(&config, 2, 9);
    let loss = |config: &GptConfig| {
        model(config, 1, Isa::best()).loss_sum(&idx, &targets, (2, 9)).unwrap()
    };
    assert_eq!(loss(&config), loss(&dropped));
    let trained = |p| {
        let mut gpt = model(&config, 1, Isa::best());
        gpt.accumulate(&idx, &targets, 1.0, Dropout::new(p, 1, 1, 0), (2, 9)).unwrap()
    };
    assert_eq!(trained(0.0), loss(&config));
    assert_ne!(trained(0.5), trained(0.0));
}

#[test]
fn wrong_ids_targets_and_lengths_are_told_never_wrapped() {
    let mut gpt = Gpt::new(GptConfig { block_size: 4, ..GptConfig::tiny() }, 1).unwrap();
    let message = |gpt: &mut Gpt, idx: &[u32], targets: Option<&[i32]>, dims| {
        gpt.forward(idx, targets, dims).unwrap_err().to_string()
    };
    assert_eq!(
        message(&mut gpt, &[1, 300], None, (1, 2)),
        "idx: token id 300 at offset 1 >= vocab_size 13"
    );
    assert!(message(&mut gpt, &[1; 5], None, (1, 5)).contains("block_size is 4"));
    assert!(message(&mut gpt, &[1; 5], None, (2, 2)).contains("5 ids, expected 2 x 2"));
    assert!(message(&mut gpt, &[], None, (0, 0)).contains("0 ids"));
    assert!(message(&mut gpt, &[1, 2], Some(&[1, 13]), (1, 2)).contains("target 13 at offset 1"));
    assert!(message(&mut gpt, &[1, 2], Some(&[-2, 1]), (1, 2)).contains("target -2"));
}

#[test]
fn all_targets_ignored_give_a_nan_loss_and_zero_gradients_as_in_pytorch() {
    let mut gpt = Gpt::new(GptConfig::tiny(), 1).unwrap();
    let loss = gpt.forward(&[1, 2], Some(&[-1, -1]), (1, 2)).unwrap().1.unwrap();
    gpt.backward();
    assert!(loss.is_nan());
    assert!(gpt.grads().data().iter().all(|&g| g == 0.0));
}

#[test]
#[should_panic(expected = "a forward pass with targets before its backward")]
fn a_backward_whose_forward_was_overwritten_is_refused() {
    let mut gpt = Gpt::new(GptConfig::tiny(), 1).unwrap();
    gpt.forward(&[1, 2], Some(&[2, 3]), (1, 2)).unwrap();
    gpt.generate(&[4], 1, &tinygpt::Sampling::greedy()).unwrap();
    gpt.backward();
}
