//! Training: what it reports.

pub mod report;

pub use report::{Evaluation, StepReport};
