//! What a run tells as it goes, and why it ended.

use crate::error::Error;
use crate::train::{Evaluation, StepReport};

/// What a run tells as it goes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A step was taken.
    Step(&'a StepReport),
    /// Both splits were evaluated.
    Evaluation(&'a Evaluation),
    /// What the model writes now.
    Sample(&'a str),
    /// So much of something that can take long is done: an evaluation, a sample, a step.
    Progress {
        /// What, as a noun.
        what: &'static str,
        /// Parts done.
        done: u64,
        /// Parts in all.
        total: u64,
    },
    /// What the user should know, in a whole sentence without a stop.
    Note(&'a str),
    /// Something could not be written; the run goes on and tries again at its next checkpoint.
    Failed(&'a Error),
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps are done.
    Finished,
    /// `patience` evaluations in a row were not better.
    Patience,
    /// It was asked to stop, and saved first.
    Stopped,
}
