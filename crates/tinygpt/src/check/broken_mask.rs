//! The broken mask: a model that sees the future beside one that does not, with the same first
//! weights and the same batches of Tiny Shakespeare.
//!
//! Position i is to predict token i + 1, which stands at position i + 1 of its own input. Without
//! a mask the model learns to copy it, and its loss falls far below what any reader of the past
//! can reach. In writing there is no next token to copy: the last position never had one, and the
//! text is worthless. A loss that is too good is a leak.

use super::{Report, Row, uncached};
use crate::config::{GptConfig, TrainConfig};
use crate::data::{DataOptions, Dataset, Input, Tokens, fill};
use crate::error::{Error, Result};
use crate::model::{Attention, Gpt};
use crate::sample::{Sampler, Sampling};
use crate::tokenizer::Tokenizer;
use crate::train::Trainer;
use tinygpt_kernels::{Cpu, Isa};

/// Both models and what became of them.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokenMask {
    /// With the mask.
    pub causal: Learner,
    /// Without.
    pub unmasked: Learner,
}

/// A small model after its training.
#[derive(Clone, Debug, PartialEq)]
pub struct Learner {
    /// The loss of each step's batch, in nats a token. Every batch is new.
    pub losses: Vec<f32>,
    /// The loss on windows of the validation split, all positions at once, as in training.
    pub at_once: f64,
    /// The loss on the same windows and tokens, each predicted from a window that ends before it,
    /// as in writing. The same as `at_once` if the model is causal.
    pub one_by_one: f64,
    /// What it writes.
    pub text: String,
}

const STEPS: u64 = 280;
/// Windows of the validation split.
const WINDOWS: usize = 48;
/// Tokens of text.
const WRITTEN: usize = 150;

/// Trains both and compares.
pub(super) fn report(kind: &GptConfig, isa: Isa) -> Result<Report> {
    let data =
        Dataset::build(&Input::TinyShakespeare, &DataOptions::default(), None, &mut |_, _| {})?;
    let (causal, data) = learn(kind, isa, Attention::Naive, data)?;
    let (unmasked, _) = learn(kind, isa, Attention::NaiveUnmasked, data)?;
    let both = BrokenMask { causal, unmasked };
    Ok(Report { rows: rows(&both), broken_mask: Some(both) })
}

/// The cheater is told by two losses of one and the same text, the validation split's.
fn rows(BrokenMask { causal, unmasked }: &BrokenMask) -> Vec<Row> {
    let nats = |loss: f64| format!("{loss:.3}");
    let same = (causal.one_by_one - causal.at_once).abs() < 1e-3;
    let (low, high) = (0.5 * causal.at_once, causal.one_by_one + 1.0);
    vec![
        Row::new(
            "with a mask: all positions at once",
            nats(causal.at_once),
            "1.5 to 3",
            (1.5..3.0).contains(&causal.at_once),
        ),
        Row::new(
            "the same text, token by token",
            nats(causal.one_by_one),
            format!("{}, the same", nats(causal.at_once)),
            same,
        ),
        Row::new(
            "without a mask: all positions at once",
            nats(unmasked.at_once),
            format!("below {low:.2}"),
            unmasked.at_once < low,
        ),
        Row::new(
            "the same text, token by token",
            nats(unmasked.one_by_one),
            format!("above {high:.2}"),
            unmasked.one_by_one > high,
        ),
    ]
}

/// One block of width 64 on 16 tokens: large enough to find the answer, small enough for seconds.
fn learn(
    kind: &GptConfig,
    isa: Isa,
    attention: Attention,
    data: Dataset,
) -> Result<(Learner, Dataset)> {
    let config = GptConfig {
        vocab_size: data.tokenizer.vocab_size(),
        block_size: 16,
        n_layer: 1,
        n_head: 2,
        n_embd: 64,
        dropout: 0.0,
        ..kind.clone()
    };
    let train = TrainConfig {
        max_iters: STEPS,
        batch_size: 24,
        learning_rate: 4e-3,
        min_lr: 4e-4,
        warmup_iters: 10,
        lr_decay_iters: STEPS,
        beta2: 0.99,
        ..TrainConfig::default()
    };
    // On one thread: so small a model gains nothing from two.
    let gpt = Gpt::new_on(config, train.seed, Cpu::new(1, isa))?;
    let mut trainer = Trainer::new(gpt.with_attention(attention), data, train)?;
    let losses = (0..STEPS).map(|_| Ok(trainer.step()?.loss)).collect::<Result<_>>()?;
    let windows = windows(trainer.data(), 16)?;
    let (at_once, one_by_one) = both_losses(trainer.gpt(), &windows)?;
    let tokenizer = trainer.data().tokenizer.clone();
    let text = write(trainer.gpt(), &tokenizer)?;
    Ok((Learner { losses, at_once, one_by_one, text }, trainer.into_data()))
}

/// Ids and targets (WINDOWS, T), spread over the validation split.
fn windows(data: &Dataset, t: usize) -> Result<(Vec<u32>, Vec<i32>)> {
    let val: &Tokens =
        data.val.as_ref().ok_or_else(|| Error::data(&data.source, "has no validation split"))?;
    let (mut idx, mut targets) = (vec![0; WINDOWS * t], vec![0; WINDOWS * t]);
    let apart = (val.len() - t) / WINDOWS;
    fill(val, (0..WINDOWS).map(|i| i * apart), &mut idx, &mut targets)?;
    Ok((idx, targets))
}

/// The mean loss of the same targets, predicted all at once and one by one.
fn both_losses(gpt: &mut Gpt, (idx, targets): &(Vec<u32>, Vec<i32>)) -> Result<(f64, f64)> {
    let (n, t) = (idx.len(), idx.len() / WINDOWS);
    let at_once = gpt.loss_sum(idx, targets, (WINDOWS, t))?;
    let mut one_by_one = 0.0;
    for seen in 1..=t {
        let idx: Vec<u32> = idx.chunks(t).flat_map(|row| row[..seen].to_vec()).collect();
        let mut last = vec![-1; WINDOWS * seen];
        for (last, targets) in last.chunks_mut(seen).zip(targets.chunks(t)) {
            last[seen - 1] = targets[seen - 1];
        }
        one_by_one += gpt.loss_sum(&idx, &last, (WINDOWS, seen))?;
    }
    Ok((at_once / n as f64, one_by_one / n as f64))
}

/// Text without the KV cache, which would be a mask of its own: what it keeps never saw a later
/// token.
fn write(gpt: &mut Gpt, tokenizer: &Tokenizer) -> Result<String> {
    let sampling = Sampling { temperature: 0.8, ..Sampling::default() };
    let mut sampler = Sampler::new(&sampling, 0)?;
    let mut ids = vec![tokenizer.start()];
    for _ in 0..WRITTEN {
        let logits = uncached(gpt, &ids)?;
        ids.push(sampler.pick(&logits)?);
    }
    Ok(tokenizer.decode(&ids[1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Activation;

    #[test]
    fn the_cheater_is_found_and_a_causal_model_is_not_taken_for_one() {
        let report = report(&GptConfig::default(), Isa::best()).unwrap();
        assert!(report.passed(), "{:?}", report.rows);
        let BrokenMask { causal, unmasked } = report.broken_mask.unwrap();
        assert_eq!(causal.losses.len(), STEPS as usize);
        assert!((causal.losses[0] - 65f32.ln()).abs() < 0.1);
        assert_ne!(causal.text, unmasked.text);
        // Two causal models, and two that cheat: each leaves rows that fail.
        let pass = |causal: &Learner, unmasked: &Learner| -> Vec<bool> {
            let both = BrokenMask { causal: causal.clone(), unmasked: unmasked.clone() };
            rows(&both).iter().map(|row| row.pass).collect()
        };
        assert_eq!(pass(&causal, &causal), [true, true, false, false]);
        assert_eq!(pass(&unmasked, &unmasked)[..2], [false, false]);
    }

    #[test]
    fn every_kind_of_model_cheats_without_a_mask() {
        // With the default kind above, every value of each of these keys.
        for kind in [
            GptConfig { tied: false, activation: Activation::GeluTanh, ..GptConfig::default() },
            GptConfig { bias: false, activation: Activation::Silu, ..GptConfig::default() },
        ] {
            let report = report(&kind, Isa::best()).unwrap();
            assert!(report.passed(), "{kind:?}: {:?}", report.rows);
        }
    }
}
