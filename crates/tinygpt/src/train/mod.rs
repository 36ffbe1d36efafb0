//! Training: draw windows, forward, backward, AdamW, and now and then an evaluation.
//!
//! A [`Trainer`] does one thing at a time when told to and keeps no files; `run` drives it and
//! writes the run's folder. Every batch is a function of (seed, step), so a step after a resume is
//! the step that would have come.

mod memory;
mod report;

use crate::checkpoint::{Progress, StateRef, TrainState};
use crate::config::{GptConfig, TrainConfig};
use crate::data::{Dataset, Tokens, WindowStream, fill, walk, window_start};
use crate::error::{Error, Result};
use crate::model::{Activations, Dropout, Gpt};
use crate::optim::{AdamW, learning_rate};
pub use memory::Memory;
pub use report::{Evaluation, StepReport};
use std::ops::ControlFlow;
use std::time::Instant;
use tinygpt_kernels::Op;

/// Told after each part of a longer work how many of how many parts are done; `Break` ends it
/// there.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// The [`Watch`] of who waits for the end.
fn unwatched(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Tokens computed at a time: enough to keep every product busy, few enough that their activations
/// stay small. The result does not depend on it.
const MICRO_BATCH_TOKENS: usize = 2048;
/// Most floats of their activations, where one sequence has no more: a gibibyte.
const MICRO_BATCH_FLOATS: u64 = 1 << 28;

/// How many sequences of block_size tokens are computed at a time, of `sequences` in a step.
pub fn micro_batch(model: &GptConfig, sequences: usize) -> usize {
    let t = model.block_size;
    let most = (MICRO_BATCH_TOKENS / t).clamp(1, sequences.max(1));
    let fits = |&b: &usize| Activations::floats(model, b * t, t) <= MICRO_BATCH_FLOATS;
    (1..=most).rev().find(fits).unwrap_or(1)
}

/// A model in training.
pub struct Trainer {
    gpt: Gpt,
    optimizer: AdamW,
    data: Dataset,
    config: TrainConfig,
    progress: Progress,
    idx: Vec<u32>,
    targets: Vec<i32>,
}

impl Trainer {
    /// A trainer at step 0.
    ///
    /// # Errors
    /// A configuration that cannot work, a split shorter than the context, a vocabulary larger
    /// than the model's.
    pub fn new(gpt: Gpt, data: Dataset, config: TrainConfig) -> Result<Self> {
        let optimizer = AdamW::new(&gpt);
        let progress = Progress {
            step: 0,
            best_val_loss: None,
            stale_evals: 0,
            last_eval: None,
            tokens: 0,
            elapsed_s: 0.0,
            source: data.source.clone(),
            train_tokens: data.train.len() as u64,
            train: config.clone(),
            data: data.options.clone(),
        };
        Self::at(gpt, optimizer, data, config, progress)
    }

    /// A trainer that goes on from a checkpoint, under a possibly changed configuration.
    ///
    /// # Errors
    /// As for [`new`](Self::new); data of another length than the checkpoint's.
    pub fn resume(gpt: Gpt, state: TrainState, data: Dataset, config: TrainConfig) -> Result<Self> {
        let TrainState { progress, exp_avg, exp_avg_sq } = state;
        let (found, expected) = (data.train.len() as u64, progress.train_tokens);
        if found != expected {
            let problem = format!("{found} training tokens, the run had {expected}");
            return Err(Error::data(data.source, problem)
                .with_hint("a run goes on with its own text; --init-from starts a new one"));
        }
        let optimizer = AdamW::resumed(exp_avg, exp_avg_sq, progress.step);
        let progress = Progress { train: config.clone(), ..progress };
        Self::at(gpt, optimizer, data, config, progress)
    }

    fn at(
        gpt: Gpt,
        optimizer: AdamW,
        data: Dataset,
        config: TrainConfig,
        progress: Progress,
    ) -> Result<Self> {
        config.check()?;
        let (vocabulary, v) = (data.tokenizer.vocab_size(), gpt.config().vocab_size);
        if vocabulary > v {
            return Err(Error::config(
                "vocab_size",
                v,
                format!("the tokenizer of {} has {vocabulary} tokens", data.source),
            ));
        }
        data.check(gpt.config().block_size)?;
        let part = micro_batch(gpt.config(), config.sequences_per_step());
        let room = part * gpt.config().block_size;
        let (idx, targets) = (vec![0; room], vec![0; room]);
        let gpt = gpt.with_dtype(config.dtype);
        Ok(Self { gpt, optimizer, data, config, progress, idx, targets })
    }

    /// The model.
    pub fn gpt(&mut self) -> &mut Gpt {
        &mut self.gpt
    }

    /// The data.
    pub fn data(&self) -> &Dataset {
        &self.data
    }

    /// The data, the training being over.
    pub fn into_data(self) -> Dataset {
        self.data
    }

    /// How it trains.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// How far it has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Takes the best validation loss to be `best`, when the model that had a better one is lost.
    pub fn set_best_val_loss(&mut self, best: Option<f32>) {
        self.progress.best_val_loss = best;
    }

    /// What a checkpoint holds beside the model.
    pub fn state(&self) -> (&Gpt, StateRef<'_>) {
        let AdamW { exp_avg, exp_avg_sq, .. } = &self.optimizer;
        (&self.gpt, StateRef { progress: &self.progress, exp_avg, exp_avg_sq })
    }

    /// One optimizer step. The loss is that of the whole batch before the step.
    ///
    /// # Errors
    /// [`Error::NotFinite`] when the loss or the gradient is not finite: the parameters are then
    /// those before the step. A token file that cannot be read.
    pub fn step(&mut self) -> Result<StepReport> {
        Ok(self.step_watched(&mut unwatched)?.expect("nobody ends it"))
    }

    /// The same, watched after each micro-batch but the last; none if it was ended there: then
    /// everything is as it was before the step.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn step_watched(&mut self, watch: Watch) -> Result<Option<StepReport>> {
        let started = Instant::now();
        let (step, t) = (self.progress.step, self.gpt.config().block_size);
        let sequences = self.config.sequences_per_step();
        let scale = 1.0 / (sequences * t) as f32;
        let (seed, p) = (self.config.seed, self.gpt.config().dropout);
        let train = &self.data.train;
        let start =
            |i: usize| window_start(seed, WindowStream::Train, step, i as u32, train.len(), t);

        self.gpt.zero_grad();
        let mut loss = 0.0;
        let part = self.idx.len() / t;
        for first in (0..sequences).step_by(part) {
            let b = part.min(sequences - first);
            let (idx, targets) = (&mut self.idx[..b * t], &mut self.targets[..b * t]);
            let time = self.gpt.cpu().timed(Op::new("batch", &[b, t], 0, 3 * b * t));
            fill(train, (first..first + b).map(start), idx, targets)?;
            drop(time);
            let drop = Dropout::new(p, seed, step, first * t);
            loss += self.gpt.accumulate(idx, targets, scale, drop, (b, t))?;
            let done = first + b;
            if done < sequences && watch(done as u64, sequences as u64).is_break() {
                return Ok(None);
            }
        }
        let loss = (loss / (sequences * t) as f64) as f32;
        let lr = learning_rate(&self.config, step);
        finite("loss", loss, step)?;
        let grad_norm = self.optimizer.step(&mut self.gpt, &self.config, lr);
        finite("gradient norm", grad_norm, step)?;

        let seconds = started.elapsed().as_secs_f64();
        let tokens = (sequences * t) as u64;
        self.progress.step += 1;
        self.progress.tokens += tokens;
        self.progress.elapsed_s += seconds;
        Ok(Some(StepReport {
            iter: step,
            loss,
            lr,
            grad_norm,
            step_ms: seconds * 1e3,
            tokens_per_s: tokens as f64 / seconds,
            elapsed_s: self.progress.elapsed_s,
            tokens: self.progress.tokens,
        }))
    }

    /// [`measure`](Self::measure)s to the end, and [`record`](Self::record)s it.
    ///
    /// # Errors
    /// As for `measure`.
    pub fn evaluate(&mut self) -> Result<Evaluation> {
        let evaluation = self.measure(&mut unwatched)?.expect("nobody ends it");
        self.record(&evaluation);
        Ok(evaluation)
    }

    /// The losses of both splits as they are now: over the same `eval_iters` random batches each
    /// time, or over everything with `eval_full`. No dropout, and no training batch is disturbed.
    /// None if it was ended on the way; the trainer is as it was in either case.
    ///
    /// # Errors
    /// [`Error::NotFinite`]; a token file that cannot be read.
    pub fn measure(&mut self, watch: Watch) -> Result<Option<Evaluation>> {
        let step = self.progress.step;
        let splits = if self.data.val.is_some() { 2 } else { 1 };
        // The splits count as equally long, so that one bar can show both.
        let mut first = |done, total| watch(done, splits * total);
        let Some(train_loss) = self.split_loss(WindowStream::EvalTrain, &mut first)? else {
            return Ok(None);
        };
        finite("training loss", train_loss, step)?;
        let val_loss = match self.data.val {
            Some(_) => {
                let mut second = |done, total| watch(total + done, splits * total);
                match self.split_loss(WindowStream::EvalVal, &mut second)? {
                    None => return Ok(None),
                    loss => loss,
                }
            }
            None => None,
        };
        // Without a validation split every checkpoint is better than the one before.
        let best = match (val_loss, self.progress.best_val_loss) {
            (Some(loss), Some(best)) => loss < best,
            _ => true,
        };
        if let Some(loss) = val_loss {
            finite("validation loss", loss, step)?;
        }
        let val_bits_per_byte = val_loss.and_then(|loss| self.data.val_bits_per_byte(loss));
        Ok(Some(Evaluation { iter: step, train_loss, val_loss, val_bits_per_byte, best }))
    }

    /// Lets an evaluation of this step count: for the best loss, for patience, and as done.
    pub fn record(&mut self, evaluation: &Evaluation) {
        let Evaluation { val_loss, best, .. } = *evaluation;
        if best {
            self.progress.best_val_loss = val_loss;
        }
        self.progress.stale_evals = if best { 0 } else { self.progress.stale_evals + 1 };
        self.progress.last_eval = Some(self.progress.step);
    }

    /// Whether the model as it is now still computes: a step that was finite can leave weights that
    /// are not worth replacing a checkpoint for.
    ///
    /// # Errors
    /// [`Error::NotFinite`] if the loss of one training window is not finite.
    pub fn check_health(&mut self) -> Result<()> {
        let t = self.gpt.config().block_size;
        let (idx, targets) = (&mut self.idx[..t], &mut self.targets[..t]);
        fill(&self.data.train, std::iter::once(0), idx, targets)?;
        let loss = self.gpt.loss_sum(idx, targets, (1, t))? / t as f64;
        finite("loss", loss as f32, self.progress.step)
    }

    fn split_loss(&mut self, stream: WindowStream, watch: Watch) -> Result<Option<f32>> {
        let tokens = match (stream, &self.data.val) {
            (WindowStream::EvalVal, Some(val)) => val,
            _ => &self.data.train,
        };
        if self.config.eval_full {
            return exact_loss(&mut self.gpt, tokens, watch);
        }
        let (t, seed) = (self.gpt.config().block_size, self.config.seed);
        let sequences = self.config.eval_iters * self.config.batch_size;
        let part = self.idx.len() / t;
        let mut sum = 0.0;
        for first in (0..sequences).step_by(part) {
            let b = part.min(sequences - first);
            let start = |i: usize| window_start(seed, stream, 0, i as u32, tokens.len(), t);
            let (idx, targets) = (&mut self.idx[..b * t], &mut self.targets[..b * t]);
            fill(tokens, (first..first + b).map(start), idx, targets)?;
            sum += self.gpt.loss_sum(idx, targets, (b, t))?;
            if watch((first + b) as u64, sequences as u64).is_break() {
                return Ok(None);
            }
        }
        Ok(Some((sum / (sequences * t) as f64) as f32))
    }
}

/// The mean loss over every token of a split but the first, in consecutive windows of block_size,
/// which is what `watch` counts; none if that ended it.
///
/// # Errors
/// Fewer than two tokens; a token file that cannot be read; ids outside the model's vocabulary.
pub fn exact_loss(gpt: &mut Gpt, tokens: &Tokens, watch: Watch) -> Result<Option<f32>> {
    let t = gpt.config().block_size;
    let part = micro_batch(gpt.config(), usize::MAX);
    let mut windows = walk(tokens.len(), t).peekable();
    let total = windows.len() as u64;
    if total == 0 {
        let found = tokens.len();
        return Err(Error::data("the split", format!("{found} tokens, a loss needs at least 2")));
    }
    let (mut sum, mut group) = (0.0, Vec::with_capacity(part));
    while let Some(window) = windows.next() {
        let t = window.len();
        group.push(window.start);
        // Windows of one length go together; only the last may be shorter.
        if group.len() < part && windows.peek().is_some_and(|next| next.len() == t) {
            continue;
        }
        let n = group.len() * t;
        let (mut idx, mut targets) = (vec![0; n], vec![0; n]);
        fill(tokens, group.drain(..), &mut idx, &mut targets)?;
        sum += gpt.loss_sum(&idx, &targets, (n / t, t))?;
        if watch(total - windows.len() as u64, total).is_break() {
            return Ok(None);
        }
    }
    Ok(Some((sum / (tokens.len() - 1) as f64) as f32))
}

fn finite(what: &str, value: f32, step: u64) -> Result<()> {
    if value.is_finite() {
        return Ok(());
    }
    Err(Error::NotFinite {
        what: format!("the {what} of step {step}"),
        value,
        hint: Some(
            "lower learning_rate or weight_decay, or raise warmup_iters; the checkpoints are \
             untouched"
                .into(),
        ),
    })
}
