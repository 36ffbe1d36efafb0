//! A trained model ready to work, with the tokenizer it was saved with.

use crate::{args::cpu, failure::Failure, memory::check_loading, out::tell, progress::patiently};
use std::path::{Path, PathBuf};
use tinygpt::checkpoint::read_tokenizer;
use tinygpt::files::quoted;
use tinygpt::run::{folder::RUNS, model_path};
use tinygpt::{Checkpoint, Error, Gpt, Tokenizer};

/// A model and what its tokens mean.
pub struct Trained {
    /// Its checkpoint: a folder, or a `.safetensors` file.
    pub path: PathBuf,
    pub gpt: Gpt,
    pub tokenizer: Tokenizer,
}

impl Trained {
    /// The model that the user typed, or that of the newest run.
    pub fn load(typed: Option<&PathBuf>, threads: usize) -> Result<Self, Failure> {
        let (path, Checkpoint { config, params, .. }, tokenizer) =
            named_checkpoint(typed.map(PathBuf::as_path))?;
        let wrong = |problem: String, hint: &str| Error::Checkpoint {
            path: path.clone(),
            problem,
            hint: Some(hint.into()),
        };
        let tokenizer = tokenizer.ok_or_else(|| {
            let problem = "has no tokenizer.json, which says what its tokens mean";
            wrong(problem.into(), "copy it from the folder that the weights came from")
        })?;
        let (known, v) = (tokenizer.vocab_size(), config.vocab_size);
        if known > v {
            let problem = format!("its tokenizer.json has {known} tokens, its model {v}");
            let hint = "the tokenizer.json must be the one that the model was trained with";
            return Err(wrong(problem, hint).into());
        }
        let gpt = Gpt::with_params(config, params, cpu(threads)?)?;
        Ok(Self { path, gpt, tokenizer })
    }
}

/// Where the checkpoint is that the user typed, or that of the newest run, and what is in it. Its
/// training state is not looked at. A run that nobody typed is named.
pub fn named_checkpoint(
    typed: Option<&Path>,
) -> Result<(PathBuf, Checkpoint, Option<Tokenizer>), Failure> {
    let path = model_path(Path::new(RUNS), typed)?;
    if typed.is_none() {
        tell(&format!("the newest run: {}", quoted(&path)));
    }
    match whole(&path) {
        Ok((checkpoint, tokenizer)) => Ok((path, checkpoint, tokenizer)),
        Err(failure) => {
            let last = path.with_file_name("last");
            Err(match path.ends_with("best") && whole(&last).is_ok() {
                true => failure.with_hint(format!(
                    "{} is whole: name it instead, or copy it over {}",
                    quoted(&last),
                    quoted(&path)
                )),
                false => failure,
            })
        }
    }
}

fn whole(path: &Path) -> Result<(Checkpoint, Option<Tokenizer>), Failure> {
    check_loading(path)?;
    let doing = format!("loading {}", path.display());
    let checkpoint = patiently(&doing, || Checkpoint::load(path))?;
    Ok((checkpoint, read_tokenizer(path)?))
}
