//! What the loop leaves in the run's folder: lines, samples, the chart, and the two checkpoints.

use super::event::Event;
use super::folder::Run;
use super::metrics::{self, Metrics, Record};
use super::tensorboard::Scalars;
use super::{chart, samples};
use crate::checkpoint;
use crate::error::Result;
use crate::train::{Evaluation, StepReport, Trainer};
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time between checkpoints, whatever `eval_interval` says.
const AUTOSAVE: Duration = Duration::from_secs(300);

/// Writes the folder.
pub(super) struct Keeper<'a> {
    run: &'a Run,
    metrics: Metrics,
    scalars: Option<Scalars>,
    records: Vec<Record>,
    /// The validation loss of what is in `best/`.
    best_val_loss: Option<f32>,
    /// Whether this run has a checkpoint to fall back to.
    has_checkpoint: bool,
    /// The step of `last`, if this process saved it.
    saved_step: Option<u64>,
    saved_at: Instant,
    /// Whether lines of steps could not be written, which is told once.
    behind: bool,
    title: String,
    tokenizer_json: String,
    vocab_size: usize,
}

impl<'a> Keeper<'a> {
    pub fn open(run: &'a mut Run, trainer: &mut Trainer, tensorboard: bool) -> Result<Self> {
        // Two trainings in one folder would ruin each other's checkpoints.
        run.lock()?;
        run.remove_left();
        let progress = trainer.progress().clone();
        let (path, step) = (run.metrics(), progress.step);
        let resumed = step > 0 || progress.last_eval.is_some();
        let metrics = if resumed {
            samples::keep_until(&run.samples(), step)?;
            Metrics::resume(&path, step)?
        } else {
            Metrics::create(&path)?
        };
        let records = metrics::read(&path)?;
        let scalars = tensorboard.then(|| {
            let gpt = trainer.gpt();
            let model = (gpt.config(), gpt.num_params());
            Scalars::begin(run.folder(), resumed, model, &records)
        });
        let scalars = scalars.transpose()?;
        run.keep();
        let name = run.folder().file_name().map_or("run".into(), |name| name.to_string_lossy());
        Ok(Self {
            records,
            metrics,
            scalars,
            best_val_loss: progress.best_val_loss,
            has_checkpoint: checkpoint::exists(&run.last()),
            saved_step: None,
            saved_at: Instant::now(),
            behind: false,
            title: format!("{name}: {}", trainer.data().source),
            tokenizer_json: trainer.data().tokenizer.to_json(),
            vocab_size: trainer.gpt().config().vocab_size,
            run,
        })
    }

    pub fn run(&self) -> &Run {
        self.run
    }

    pub fn step(&mut self, report: StepReport) -> Result<()> {
        let written = self.write(Record::Step(report));
        let told = std::mem::replace(&mut self.behind, written.is_err());
        if told { Ok(()) } else { written }
    }

    fn write(&mut self, record: Record) -> Result<()> {
        self.records.push(record);
        let written = self.metrics.write(&record);
        let shown = self.scalars.as_mut().map_or(Ok(()), |scalars| scalars.add(&record));
        written.and(shown)
    }

    /// Writes all it can, and then says what it could not: a checkpoint is worth more than a chart.
    pub fn evaluation(
        &mut self,
        trainer: &mut Trainer,
        evaluation: Evaluation,
        text: Option<&str>,
    ) -> Result<()> {
        let line = self.write(Record::Evaluation(evaluation));
        let sample = text.map(|text| samples::append(&self.run.samples(), evaluation.iter, text));
        let svg = chart::loss_svg(&self.title, &self.records, self.vocab_size);
        let drawn = crate::files::write_whole(&self.run.chart(), svg);
        let best = if evaluation.best { self.save(&self.run.best(), trainer) } else { Ok(()) };
        if best.is_err() {
            // What counts is what is on the disk: the next model better than that is saved again.
            trainer.set_best_val_loss(self.best_val_loss);
        }
        self.best_val_loss = trainer.progress().best_val_loss;
        let last = self.save_last(trainer);
        best.and(last).and(line).and(sample.unwrap_or(Ok(()))).and(drawn)
    }

    pub fn save_last(&mut self, trainer: &Trainer) -> Result<()> {
        let step = trainer.progress().step;
        if self.saved_step == Some(step) {
            return Ok(());
        }
        self.save(&self.run.last(), trainer)?;
        (self.saved_step, self.saved_at, self.has_checkpoint) = (Some(step), Instant::now(), true);
        Ok(())
    }

    /// Whether a checkpoint is due by the clock.
    pub fn is_due(&self) -> bool {
        self.saved_at.elapsed() > AUTOSAVE
    }

    fn save(&self, folder: &Path, trainer: &Trainer) -> Result<()> {
        let (gpt, state) = trainer.state();
        checkpoint::save(
            folder,
            gpt.config(),
            gpt.params(),
            Some(&self.tokenizer_json),
            Some(state),
        )
    }

    /// A failure to write ends the run only where there is nothing to fall back to, or nothing
    /// left to do.
    pub fn settle(
        &self,
        result: Result<()>,
        last: bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<()> {
        match result {
            Err(error) if !last && self.has_checkpoint => {
                on_event(Event::Failed(&error));
                Ok(())
            }
            other => other,
        }
    }
}
