//! What training says of itself, as plain numbers: the events of the loop, the lines of
//! `metrics.jsonl`, the points of the chart.
//!
//! Steps count as nanoGPT's do: `iter` is the number of optimizer steps **done before**. An
//! evaluation at `iter` n, and a checkpoint of step n, know n steps; the training step called n is
//! the one that comes next.

use serde::{Deserialize, Deserializer, Serialize};

/// One optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Optimizer steps done before this one.
    pub iter: u64,
    /// Mean cross-entropy of the step's batch, in nats per token, before the update.
    #[serde(rename = "train/loss", deserialize_with = "null_is_nan")]
    pub loss: f32,
    /// The learning rate it used.
    pub lr: f64,
    /// The norm of all gradients together, before clipping.
    #[serde(deserialize_with = "null_is_nan")]
    pub grad_norm: f32,
    /// How long it took, in milliseconds.
    #[serde(rename = "ms")]
    pub step_ms: f64,
    /// Training tokens per second.
    pub tokens_per_s: f64,
    /// Seconds since training began, over all resumes.
    pub elapsed_s: f64,
    /// Tokens trained on, this step's included.
    pub tokens: u64,
}

/// One evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Optimizer steps done.
    pub iter: u64,
    /// Mean cross-entropy on the training split, in nats per token.
    #[serde(rename = "train/loss", deserialize_with = "null_is_nan")]
    pub train_loss: f32,
    /// The same on the validation split, if there is one.
    #[serde(rename = "val/loss")]
    pub val_loss: Option<f32>,
    /// `val/loss` in bits per byte of text: the measure that compares across tokenizers.
    #[serde(rename = "val/bits_per_byte", default, skip_serializing_if = "Option::is_none")]
    pub val_bits_per_byte: Option<f32>,
    /// The best validation loss so far.
    pub best: bool,
}

/// JSON has no NaN: it is written as null.
fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f32::NAN))
}
