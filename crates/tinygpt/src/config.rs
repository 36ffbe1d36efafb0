//! What a model and a training run are made of. Keys and defaults are nanoGPT's.
//!
//! A configuration is checked once, when something is built from it; after that nobody asks again.

use crate::dtype::Dtype;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The non-linearity of the MLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x Φ(x)` with the exact Gaussian integral (erf): nanoGPT's, PyTorch's default.
    #[default]
    Gelu,
    /// The tanh approximation that the published GPT-2 weights were trained with.
    GeluTanh,
    /// `x σ(x)`.
    Silu,
}

/// The shape of a model: enough to build it, and all that a checkpoint records of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GptConfig {
    /// V: how many tokens there are. GPT-2's 50257, padded to a multiple of 64.
    pub vocab_size: usize,
    /// The longest context in tokens (T is at most this).
    pub block_size: usize,
    /// L: Transformer blocks.
    pub n_layer: usize,
    /// H: attention heads in a block.
    pub n_head: usize,
    /// C: width of the residual stream; `D = C/H` is the width of a head.
    pub n_embd: usize,
    /// Probability of zeroing an element in training, in [0, 1).
    pub dropout: f32,
    /// Biases in the linear layers and LayerNorms.
    pub bias: bool,
    /// The unembedding is the token embedding (`W_U = W_E^T`).
    pub tied: bool,
    /// The non-linearity of the MLP.
    pub activation: Activation,
}

impl GptConfig {
    /// A model to try things on, in milliseconds. No two sizes are alike and none is round, so that
    /// whoever mixes two up is found out.
    pub fn tiny() -> Self {
        Self { vocab_size: 13, block_size: 9, n_layer: 2, n_head: 3, n_embd: 21, ..Self::default() }
    }
}

impl Default for GptConfig {
    fn default() -> Self {
        Self {
            vocab_size: 50304,
            block_size: 1024,
            n_layer: 12,
            n_head: 12,
            n_embd: 768,
            dropout: 0.0,
            bias: true,
            tied: true,
            activation: Activation::Gelu,
        }
    }
}

/// Parameters of one kind that a checkpoint file may claim before it is taken for damaged (a
/// terabyte of f32).
const MOST_PARAMETERS: u128 = 1 << 38;
/// Blocks, likewise: each costs a dozen rows of the table before any parameter does.
const MOST_LAYERS: usize = 10_000;

impl GptConfig {
    /// D: the width of one head.
    pub fn head_size(&self) -> usize {
        self.n_embd / self.n_head
    }

    /// Says the first thing that cannot work, with the numbers and a valid choice.
    pub fn check(&self) -> Result<()> {
        for (key, value) in [
            ("vocab_size", self.vocab_size),
            ("block_size", self.block_size),
            ("n_layer", self.n_layer),
            ("n_head", self.n_head),
            ("n_embd", self.n_embd),
        ] {
            if value == 0 {
                return Err(Error::config(key, 0, "must be at least 1"));
            }
            if u32::try_from(value).is_err() {
                return Err(Error::config(key, value, "must be below 4294967296"));
            }
        }
        if self.n_layer > MOST_LAYERS {
            let expected = format!("must be at most {MOST_LAYERS}");
            return Err(Error::config("n_layer", self.n_layer, expected));
        }
        if !self.n_embd.is_multiple_of(self.n_head) {
            let nearest = nearest_divisor(self.n_embd, self.n_head);
            return Err(Error::config(
                "n_head",
                self.n_head,
                format!("n_embd = {} must be a multiple of n_head = {}", self.n_embd, self.n_head),
            )
            .with_hint(format!(
                "the nearest n_head that divides {} is {nearest}; n_head counts heads, n_layer \
                 counts blocks",
                self.n_embd
            )));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::config("dropout", self.dropout, "must be in [0, 1)")
                .with_hint("0 trains without dropout; 0.2 suits a small corpus"));
        }
        // No count, which is the table's affair: what lets the table be made and counted.
        let [v, t, l, c] =
            [self.vocab_size, self.block_size, self.n_layer, self.n_embd].map(|x| x as u128);
        for (key, value, matrices) in
            [("n_embd", c, l * c * c), ("vocab_size", v, v * c), ("block_size", t, t * c)]
        {
            if matrices > MOST_PARAMETERS {
                let expected = format!(
                    "these sizes make {matrices} parameters and more; the most is \
                     {MOST_PARAMETERS}"
                );
                return Err(Error::config(key, value, expected));
            }
        }
        Ok(())
    }
}

fn nearest_divisor(n: usize, wanted: usize) -> usize {
    (1..=n).filter(|&d| n.is_multiple_of(d)).min_by_key(|&d| d.abs_diff(wanted)).unwrap_or(1)
}

/// How to train. Defaults are those of nanoGPT's trainer, with one change: gradients are not
/// accumulated over 40 micro-steps unless asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Optimizer steps in all.
    pub max_iters: u64,
    /// Sequences (of `block_size` tokens) in a micro-step.
    pub batch_size: usize,
    /// Micro-steps whose gradients make one optimizer step; the result is that of the one big
    /// batch.
    pub gradient_accumulation_steps: usize,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// Warm-up and cosine decay; `false` keeps `learning_rate` throughout.
    pub decay_lr: bool,
    /// Steps of linear warm-up.
    pub warmup_iters: u64,
    /// The step at which the cosine reaches `min_lr`.
    pub lr_decay_iters: u64,
    /// The learning rate after `lr_decay_iters`; nanoGPT suggests `learning_rate / 10`.
    pub min_lr: f64,
    /// Decay of every tensor with two or more dimensions, in units of the learning rate.
    pub weight_decay: f64,
    /// AdamW: decay of the mean of gradients.
    pub beta1: f64,
    /// AdamW: decay of the mean of squared gradients.
    pub beta2: f64,
    /// AdamW: what is added to the denominator.
    pub adam_eps: f64,
    /// The largest norm of all gradients together; 0 never clips.
    pub grad_clip: f64,
    /// Steps between evaluations (and checkpoints); 0 evaluates only at the end.
    pub eval_interval: u64,
    /// Random batches of each split in an evaluation.
    pub eval_iters: usize,
    /// Evaluate on the whole of each split instead of `eval_iters` batches.
    pub eval_full: bool,
    /// Evaluate once and stop.
    pub eval_only: bool,
    /// Steps between log lines; 0 is silent between evaluations.
    pub log_interval: u64,
    /// Stop after this many evaluations without a better validation loss; 0 never stops early.
    pub patience: u64,
    /// Whence every random number of the run comes.
    pub seed: u64,
    /// What the factors of the linear layers' products are rounded to, in training and evaluation.
    /// Weights, moments, activations and all sums are f32.
    pub dtype: Dtype,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            max_iters: 600_000,
            batch_size: 12,
            gradient_accumulation_steps: 1,
            learning_rate: 6e-4,
            decay_lr: true,
            warmup_iters: 2000,
            lr_decay_iters: 600_000,
            min_lr: 6e-5,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            adam_eps: 1e-8,
            grad_clip: 1.0,
            eval_interval: 2000,
            eval_iters: 200,
            eval_full: false,
            eval_only: false,
            log_interval: 1,
            patience: 0,
            seed: 1337,
            dtype: Dtype::Auto,
        }
    }
}

impl TrainConfig {
    /// What the losses of an evaluation are means over, in two words.
    pub fn evaluated_on(&self) -> &'static str {
        if self.eval_full { "whole split" } else { "random batches" }
    }

    /// Says the first thing that cannot work, with the numbers and a valid choice.
    pub fn check(&self) -> Result<()> {
        for (key, value) in [
            ("batch_size", self.batch_size),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps),
        ] {
            if value == 0 || u32::try_from(value).is_err() {
                return Err(Error::config(key, value, "must be at least 1 and below 4294967296"));
            }
        }
        let accumulated = ("gradient_accumulation_steps", self.gradient_accumulation_steps);
        self.check_sequences(accumulated, "in a step")?;
        if !self.eval_full {
            self.check_sequences(("eval_iters", self.eval_iters), "in an evaluation")?;
        }
        if self.eval_iters == 0 && !self.eval_full {
            return Err(Error::config(
                "eval_iters",
                0,
                "must be at least 1 (a mean of no batches)",
            )
            .with_hint("eval_interval = 0 evaluates only at the end"));
        }
        for (key, value) in [
            ("learning_rate", self.learning_rate),
            ("min_lr", self.min_lr),
            ("weight_decay", self.weight_decay),
            ("adam_eps", self.adam_eps),
            ("grad_clip", self.grad_clip),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::config(key, value, "must be a finite number, 0 or more"));
            }
        }
        for (key, value) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&value) {
                return Err(Error::config(key, value, "must be in [0, 1)"));
            }
        }
        if self.decay_lr && self.warmup_iters > self.lr_decay_iters {
            return Err(Error::config(
                "warmup_iters",
                self.warmup_iters,
                format!("must not exceed lr_decay_iters = {}", self.lr_decay_iters),
            )
            .with_hint("lower warmup_iters, raise lr_decay_iters, or set decay_lr = false"));
        }
        if self.decay_lr && self.min_lr > self.learning_rate {
            return Err(Error::config(
                "min_lr",
                self.min_lr,
                format!("must not exceed learning_rate = {}", self.learning_rate),
            )
            .with_hint("nanoGPT's rule is min_lr = learning_rate / 10"));
        }
        Ok(())
    }

    /// Whether `times` batches are few enough for each sequence to have a random number of its own.
    fn check_sequences(&self, (key, times): (&'static str, usize), of: &str) -> Result<()> {
        if self.batch_size.checked_mul(times).is_some_and(|n| u32::try_from(n).is_ok()) {
            return Ok(());
        }
        let batch = format!("batch_size = {}", self.batch_size);
        let expected = format!("with {batch} the sequences {of} must be below 4294967296");
        Err(Error::config(key, times, expected).with_hint(format!("lower {key} or batch_size")))
    }

    /// Sequences in one optimizer step: below 2^32 once checked.
    pub fn sequences_per_step(&self) -> usize {
        self.batch_size * self.gradient_accumulation_steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_layers_and_heads_are_told_the_nearest_head_count() {
        let config = GptConfig { n_embd: 1600, n_head: 48, n_layer: 25, ..Default::default() };
        let error = config.check().unwrap_err();
        assert!(error.to_string().contains("1600") && error.to_string().contains("48"), "{error}");
        assert!(error.hint().unwrap().contains("50"), "{:?}", error.hint());
    }

    #[test]
    fn each_impossible_value_is_named() {
        for (key, config) in [
            ("vocab_size", GptConfig { vocab_size: 0, ..Default::default() }),
            ("block_size", GptConfig { block_size: 0, ..Default::default() }),
            ("n_layer", GptConfig { n_layer: 0, ..Default::default() }),
            ("n_head", GptConfig { n_head: 0, ..Default::default() }),
            ("n_layer", GptConfig { n_layer: 1 << 30, n_embd: 1, n_head: 1, ..Default::default() }),
            ("dropout", GptConfig { dropout: 1.0, ..Default::default() }),
            ("dropout", GptConfig { dropout: f32::NAN, ..Default::default() }),
            ("n_embd", GptConfig { n_embd: 1 << 31, n_head: 1, ..Default::default() }),
            ("vocab_size", GptConfig { vocab_size: 1 << 31, ..Default::default() }),
            ("block_size", GptConfig { block_size: 1 << 31, ..Default::default() }),
        ] {
            let error = config.check().unwrap_err().to_string();
            assert!(error.starts_with(key), "{key}: {error}");
        }
        GptConfig { vocab_size: 2, block_size: 2580, ..Default::default() }.check().unwrap();
    }

    #[test]
    fn more_sequences_than_have_a_number_of_their_own_are_refused_with_both_keys() {
        let fits = TrainConfig {
            batch_size: 1 << 16,
            gradient_accumulation_steps: (1 << 16) - 1,
            eval_iters: (1 << 16) - 1,
            ..Default::default()
        };
        fits.check().unwrap();
        let accumulated = TrainConfig { gradient_accumulation_steps: 1 << 16, ..fits.clone() };
        let evaluated = TrainConfig { eval_iters: usize::MAX, ..fits };
        for (key, config) in [
            ("gradient_accumulation_steps = 65536", &accumulated),
            ("eval_iters = 18446744073709551615", &evaluated),
        ] {
            let error = config.check().unwrap_err().to_string();
            assert!(error.starts_with(key) && error.contains("batch_size = 65536"), "{error}");
        }
        TrainConfig { eval_full: true, ..evaluated }.check().unwrap();
    }

    #[test]
    fn a_schedule_that_warms_up_past_its_end_is_refused() {
        let config = TrainConfig { warmup_iters: 101, lr_decay_iters: 100, ..Default::default() };
        assert!(config.check().unwrap_err().to_string().contains("lr_decay_iters = 100"));
        TrainConfig { warmup_iters: 100, lr_decay_iters: 100, ..Default::default() }
            .check()
            .unwrap();
    }
}
