//! From the trainer's events to text: nanoGPT's lines in a file or a pipe, a live bar on a
//! terminal.
//!
//! `iter 10: loss 3.2439, time 123.45ms, ...` and `step 250: train loss 1.9000, val loss 2.0000`
//! begin as nanoGPT's do, for everybody who has a script that reads those.

use crate::progress::{MOMENT, PATIENCE};
use crate::{Outcome, out::Out, out::tell};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tinygpt::run::thousands;
use tinygpt::{Evaluation, StepReport};

const LIVE: &str = "{bar:20} {pos}/{len}  {msg}  {eta} left";

/// A run that takes less is not worth an estimate.
const LONG: Duration = Duration::from_secs(60);

/// Shows a training run as it happens. A reader that goes away does not stop the run.
pub struct Renderer<'a> {
    out: &'a mut Out,
    bar: Option<ProgressBar>,
    log_interval: u64,
    val_loss: Option<f32>,
    end: u64,
    /// Steps seen, and their time, until the rest of the run was estimated from them.
    pace: Option<(u64, Duration)>,
    /// What is being done part by part, and since when.
    doing: Option<(&'static str, Instant)>,
    /// What was said to take long: once is enough.
    told: Vec<&'static str>,
}

impl<'a> Renderer<'a> {
    /// For steps `start..end`; a line every `log_interval` steps, none if 0.
    pub fn new(out: &'a mut Out, start: u64, end: u64, log_interval: u64) -> Self {
        let live = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let bar = live.then(|| {
            let style = ProgressStyle::with_template(LIVE);
            ProgressBar::new(end)
                .with_position(start)
                .with_style(style.expect("the template is well formed"))
        });
        if let Some(bar) = &bar {
            // What an earlier start did says nothing of how long the rest takes.
            bar.reset_eta();
        }
        let pace = Some((0, Duration::ZERO));
        Self { out, bar, log_interval, val_loss: None, end, pace, doing: None, told: Vec::new() }
    }

    /// So much of a longer work is done: on the live line, or once in a line of its own.
    pub fn progress(&mut self, what: &'static str, done: u64, total: u64) {
        let since = match self.doing {
            Some((same, since)) if same == what => since,
            _ => self.doing.insert((what, Instant::now())).1,
        };
        let spent = since.elapsed();
        match &self.bar {
            Some(bar) if spent > MOMENT => {
                bar.set_message(format!("{what} {}%", 100 * done / total.max(1)));
            }
            None if spent > PATIENCE && done < total && !self.told.contains(&what) => {
                self.told.push(what);
                tell(&long_line(what, spent, done, total));
            }
            _ => {}
        }
        if done >= total {
            self.doing = None;
        }
    }

    pub fn step(&mut self, step: &StepReport) -> Outcome {
        self.doing = None;
        if let Some(bar) = &self.bar {
            bar.set_position(step.iter + 1);
            bar.set_message(live_message(step, self.val_loss));
        } else if self.log_interval > 0 && step.iter.is_multiple_of(self.log_interval) {
            self.out.write(&step_line(step))?;
        }
        self.estimate(step);
        Ok(())
    }

    /// Says once how long a long run will take, where no bar does.
    fn estimate(&mut self, step: &StepReport) {
        let Some((steps, spent)) = self.pace.filter(|_| self.bar.is_none()) else { return };
        let took = Duration::try_from_secs_f64(step.step_ms / 1e3).unwrap_or_default();
        let (steps, spent) = (steps + 1, spent.saturating_add(took));
        self.pace = Some((steps, spent));
        if spent > PATIENCE {
            self.pace = None;
            rest_line(steps, spent, self.end.saturating_sub(step.iter + 1))
                .iter()
                .for_each(|s| tell(s));
        }
    }

    pub fn evaluation(&mut self, evaluation: &Evaluation) -> Outcome {
        self.val_loss = evaluation.val_loss.or(self.val_loss);
        self.text(&evaluation_line(evaluation))
    }

    /// Anything else there is to say: a sample, where the run is kept.
    pub fn text(&mut self, text: &str) -> Outcome {
        match &self.bar {
            _ if text.is_empty() => Ok(()),
            Some(bar) => bar.suspend(|| self.out.write(text)),
            None => self.out.write(text),
        }
    }

    /// Trouble that does not end the run, on standard error.
    pub fn warn(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(text)),
            None => tell(text),
        }
    }

    /// Takes the bar away.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// What takes long, and how long.
fn long_line(what: &str, spent: Duration, done: u64, total: u64) -> String {
    let all = spent.as_secs_f64() * total as f64 / done.max(1) as f64;
    let all = HumanDuration(Duration::try_from_secs_f64(all).unwrap_or_default());
    format!("note: this {what} takes about {all}")
}

/// How long the steps left take, if that is long; `steps` took the time `spent`.
fn rest_line(steps: u64, spent: Duration, left: u64) -> Option<String> {
    let time = spent.as_secs_f64() / steps.max(1) as f64 * left as f64;
    let time = Duration::try_from_secs_f64(time).ok().filter(|&time| time > LONG)?;
    let (left, time) = (thousands(left), HumanDuration(time));
    Some(format!("note: the {left} steps left take about {time}, without evaluations"))
}

fn step_line(step: &StepReport) -> String {
    let StepReport { iter, loss, lr, grad_norm, step_ms, tokens_per_s, .. } = step;
    format!(
        "iter {iter}: loss {loss:.4}, time {step_ms:.2}ms, {} tok/s, lr {lr:.2e}, \
         grad norm {grad_norm:.2}\n",
        thousands(*tokens_per_s as u64),
    )
}

fn evaluation_line(evaluation: &Evaluation) -> String {
    let Evaluation { iter, train_loss, val_loss, best, .. } = evaluation;
    let val = match val_loss {
        Some(loss) if *best => format!("val loss {loss:.4}, the best so far"),
        Some(loss) => format!("val loss {loss:.4}"),
        None => "no validation".into(),
    };
    format!("step {iter}: train loss {train_loss:.4}, {val}\n")
}

fn live_message(step: &StepReport, val_loss: Option<f32>) -> String {
    let val = val_loss.map_or(String::new(), |loss| format!("  val {loss:.4}"));
    format!("loss {:.4}{val}  {} tok/s", step.loss, thousands(step.tokens_per_s as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_as_nanogpts_do() {
        let step = StepReport {
            iter: 10,
            loss: 3.24391,
            lr: 1e-3,
            grad_norm: 0.5,
            step_ms: 123.451,
            tokens_per_s: 6213.7,
            elapsed_s: 61.0,
            tokens: 7680,
        };
        assert!(step_line(&step).starts_with("iter 10: loss 3.2439, time 123.45ms, 6,213 tok/s, "));
        assert_eq!(live_message(&step, Some(2.0)), "loss 3.2439  val 2.0000  6,213 tok/s");
        let (iter, train_loss, val_loss) = (250, 1.9, Some(2.0));
        let (val_bits_per_byte, best) = (Some(2.885), false);
        let mut evaluation = Evaluation { iter, train_loss, val_loss, val_bits_per_byte, best };
        assert_eq!(evaluation_line(&evaluation), "step 250: train loss 1.9000, val loss 2.0000\n");
        evaluation.val_loss = None;
        assert!(!evaluation_line(&evaluation).contains("NaN"));
    }

    #[test]
    fn what_takes_long_says_how_long() {
        let line = long_line("evaluation", Duration::from_secs(3), 5, 200);
        assert_eq!(line, "note: this evaluation takes about 2 minutes");
        assert!(long_line("step", Duration::MAX, 0, u64::MAX).starts_with("note: this step"));
    }

    #[test]
    fn a_long_run_is_estimated_from_its_first_steps_and_a_short_one_is_not() {
        let line = |left| rest_line(4, Duration::from_secs(2), left);
        let expected = "note: the 14,400 steps left take about 2 hours, without evaluations";
        assert_eq!(line(14_400).unwrap(), expected);
        assert_eq!((line(100), line(0)), (None, None));
        assert_eq!(rest_line(1, Duration::MAX, u64::MAX), None);
    }

    #[test]
    fn the_live_line_is_well_formed() {
        assert!(ProgressStyle::with_template(LIVE).is_ok());
    }

    #[test]
    fn numbers_that_are_not_finite_are_shown_and_do_not_panic() {
        let step = StepReport {
            iter: 1,
            loss: f32::NAN,
            lr: f64::NAN,
            grad_norm: f32::INFINITY,
            step_ms: f64::NAN,
            tokens_per_s: f64::INFINITY,
            elapsed_s: f64::NAN,
            tokens: u64::MAX,
        };
        assert!(step_line(&step).contains("loss NaN"));
    }
}
