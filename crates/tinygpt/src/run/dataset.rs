//! The data a run was started with, found again.

use super::{Run, Settings};
use crate::data::{DataOptions, Dataset, Input};
use crate::error::Result;

/// The run's own token files, or the built-in text cut as the run's settings say: that one needs no
/// keeping.
///
/// # Errors
/// Token files that are damaged.
pub fn dataset(
    run: &Run,
    settings: &Settings,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Dataset> {
    if run.data().exists() {
        return Dataset::open(&run.data());
    }
    Dataset::build(&Input::TinyShakespeare, &data_options(settings), None, progress)
}

/// How the settings say that a text becomes tokens.
pub fn data_options(settings: &Settings) -> DataOptions {
    DataOptions {
        tokenizer: settings.run.tokenizer,
        vocabulary: None,
        val_fraction: settings.run.val_fraction,
        split: settings.run.split,
        newline: settings.run.newline,
        lossy: settings.run.lossy,
        seed: settings.train.seed,
    }
}
