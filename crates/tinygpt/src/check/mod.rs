//! The facts that a GPT stands on, measured: one function a fact, one or more rows a function.
//!
//! Each function takes the thing to be checked, so that the tests can hand it a broken one: a check
//! that has never failed has shown nothing. `docs/questions.md` says why each fact matters.
//!
//! Tokens are random unless a check says otherwise: what holds for every text holds for noise.

mod subject;
mod start;
mod gradients;
mod attention;
mod broken_mask;
mod equal;

pub use broken_mask::{BrokenMask, Learner};
pub use subject::Subject;

use crate::error::Result;
use crate::model::Gpt;

/// The random stream of the checks (see `model::INIT_STREAM`).
const CHECK_STREAM: u32 = 11;

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What, in a few words.
    pub what: String,
    /// What came out.
    pub measured: String,
    /// What should have.
    pub expected: String,
    /// Whether it did.
    pub pass: bool,
}

impl Row {
    fn new(
        what: impl Into<String>,
        measured: impl Into<String>,
        expected: impl Into<String>,
        pass: bool,
    ) -> Self {
        Self { what: what.into(), measured: measured.into(), expected: expected.into(), pass }
    }

    /// An error that has to be small. NaN is not.
    fn error(what: impl Into<String>, error: f64, most: f64) -> Self {
        Self::new(what, format!("{error:.1e}"), format!("below {most:.0e}"), error < most)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// One row a measurement.
    pub rows: Vec<Row>,
    /// The curves and texts behind the rows of `broken-mask`.
    pub broken_mask: Option<BrokenMask>,
}

impl Report {
    /// Whether everything was as expected.
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.pass)
    }
}

impl From<Vec<Row>> for Report {
    fn from(rows: Vec<Row>) -> Self {
        Self { rows, broken_mask: None }
    }
}

/// A check, by the name that its rows go under.
pub struct Check {
    /// Lower case, no blanks.
    pub name: &'static str,
    /// Measures it on a subject, which stays as it was.
    ///
    /// # Errors
    /// Something that kept it from measuring; what it measured being wrong is no error.
    pub run: fn(&mut Subject) -> Result<Report>,
}

/// Every check, in the order in which one explains the next.
pub const CHECKS: &[Check] = &[
    Check { name: "weights", run: |s| Ok(vec![start::weights(s.gpt.params())].into()) },
    Check { name: "parameters", run: |s| Ok(start::parameters(&s.config, &s.table()).into()) },
    Check {
        name: "first-loss",
        run: |s| {
            let mut untrained = s.untrained()?;
            let batch = s.batch()?;
            Ok(vec![start::first_loss(&mut untrained, &batch)?].into())
        },
    },
    Check {
        name: "score-variance",
        run: |s| Ok(start::score_variance(&s.config, start::naive).into()),
    },
    Check {
        name: "gradients",
        run: |s| Ok(gradients::of_a_small_twin(&s.config, s.cpu().isa())?.into()),
    },
    Check {
        name: "causality",
        run: |s| {
            let idx = s.sequence();
            Ok(attention::causality(&mut s.gpt, &idx)?.into())
        },
    },
    Check { name: "broken-mask", run: |s| broken_mask::report(&s.config, s.cpu().isa()) },
    Check {
        name: "head-order",
        run: |s| Ok(attention::head_order(&s.config, start::naive).into()),
    },
    Check {
        name: "tying",
        run: |s| {
            let tied = s.config.tied;
            Ok(equal::tying(&mut s.gpt, tied)?.into())
        },
    },
    Check {
        name: "kv-cache",
        run: |s| {
            let prompt = s.sequence();
            let mut cached = equal::cached(&s.gpt);
            Ok(vec![equal::kv_cache(&mut s.gpt, &prompt, &mut cached)?].into())
        },
    },
    Check {
        name: "naive-fused",
        run: |s| {
            let batch = s.batch()?;
            let [fused, naive] = attention::both(&mut s.gpt, &batch)?;
            Ok(attention::naive_fused(&fused, &naive).into())
        },
    },
    Check {
        name: "threads",
        run: |s| {
            let batch = s.batch()?;
            let many = s.gpt.cpu().threads().max(2);
            let one = equal::step_on(&mut s.gpt, &batch, 1)?;
            let all = equal::step_on(&mut s.gpt, &batch, many)?;
            Ok(equal::threads(&one, &all, many).into())
        },
    },
];

/// A batch of windows: ids (B, T), the same one token later (B, T), (B, T).
struct Batch {
    idx: Vec<u32>,
    targets: Vec<i32>,
    dims: (usize, usize),
}

/// Logits (V) after `tokens`, from a whole forward pass over the last block_size of them.
fn uncached(gpt: &mut Gpt, tokens: &[u32]) -> Result<Vec<f32>> {
    let (t, v) = (gpt.config().block_size, gpt.config().vocab_size);
    let window = &tokens[tokens.len().saturating_sub(t)..];
    let (logits, _) = gpt.forward(window, None, (1, window.len()))?;
    Ok(logits[logits.len() - v..].to_vec())
}

/// The largest difference as a share of the largest magnitude; NaN when there is one.
fn difference(found: &[f32], exact: &[f32]) -> f64 {
    assert_eq!(found.len(), exact.len());
    let largest = |values: &mut dyn Iterator<Item = f32>| {
        values.fold(0.0f32, |most, x| if x.is_nan() || x > most { x } else { most })
    };
    let size = largest(&mut exact.iter().map(|x| x.abs()));
    let error = largest(&mut found.iter().zip(exact).map(|(a, b)| (a - b).abs()));
    f64::from(error) / f64::from(size.max(f32::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GptConfig;
    use tinygpt_kernels::{Cpu, Isa};

    #[test]
    fn every_check_passes_on_every_kind_of_model() {
        let config = GptConfig::tiny();
        for config in [
            config.clone(),
            GptConfig { bias: false, tied: false, ..config.clone() },
            GptConfig { dropout: 0.5, n_head: 1, ..config.clone() },
            GptConfig { block_size: 1, n_layer: 1, n_head: 1, n_embd: 2, ..config.clone() },
            GptConfig { n_layer: 1, n_head: 1, n_embd: 1, ..config.clone() },
        ] {
            let mut subject = Subject::fresh(&config, Cpu::new(2, Isa::best())).unwrap();
            // The experiment with the mask has a model of its own, and its own test.
            for check in CHECKS.iter().filter(|check| check.name != "broken-mask") {
                let report = (check.run)(&mut subject).unwrap();
                assert!(report.passed(), "{}: {:?} of {config:?}", check.name, report.rows);
            }
        }
    }

    #[test]
    fn a_check_leaves_its_subject_as_it_was() {
        let mut subject = Subject::fresh(&GptConfig::tiny(), Cpu::new(2, Isa::best())).unwrap();
        let before = subject.gpt.params().data().to_vec();
        for check in CHECKS.iter().filter(|check| check.name != "broken-mask") {
            (check.run)(&mut subject).unwrap();
            assert!(subject.gpt.params().data() == before, "{} changed it", check.name);
        }
    }

    #[test]
    fn a_nan_is_the_largest_difference() {
        assert!(difference(&[0.0, f32::NAN, 1.0], &[0.0; 3]).is_nan());
        assert!(difference(&[0.0; 3], &[1.0, f32::NAN, 1.0]).is_nan());
        assert_eq!(difference(&[1.0, 2.0], &[1.0, 4.0]), 0.5);
        assert!(!Row::error("", f64::NAN, 1.0).pass);
    }
}
