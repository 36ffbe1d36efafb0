//! The data a run was started with, found again.

use super::{Run, Settings};
use crate::checkpoint;
use crate::data::{DataOptions, Dataset, Input};
use crate::error::{Error, Result};

/// The run's own token files, or the built-in text cut as the run's settings say: that one needs no
/// keeping. Either way in the tokens of the run's model.
///
/// # Errors
/// Token files that are damaged, or that another tokenizer wrote; a run without a checkpoint.
pub fn dataset(
    run: &Run,
    settings: &Settings,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Dataset> {
    // Not made anew from the text: a run that started from other weights has their vocabulary.
    let vocabulary = checkpoint::read_tokenizer(&run.model()?)?;
    if !run.data().exists() {
        let options = DataOptions { vocabulary, ..data_options(settings) };
        return Dataset::build(&Input::TinyShakespeare, &options, None, progress);
    }
    let data = Dataset::open(&run.data())?;
    if vocabulary.is_some_and(|vocabulary| vocabulary != data.tokenizer) {
        let problem = "its tokens are not those of the run's model";
        return Err(Error::data(data.source, problem)
            .with_hint("one of the two was replaced; start a new run from the text"));
    }
    Ok(data)
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
