//! A trained model ready to work, with the tokenizer it was saved with.

use crate::{failure::Failure, out::tell, progress::patiently};
use std::path::{Path, PathBuf};
use tinygpt::files::quoted;
use tinygpt::formats::{Format, Model};
use tinygpt::model::Params;
use tinygpt::run::{cpu, folder::RUNS, model_path, open_model, read_model};
use tinygpt::{Error, Gpt, Run, Tokenizer};

/// A model and what its tokens mean.
pub struct Trained {
    /// Where it is: a folder or a file.
    pub path: PathBuf,
    pub gpt: Gpt,
    pub tokenizer: Tokenizer,
}

impl Trained {
    /// The model that the user typed, or that of the newest run.
    pub fn load(typed: Option<&PathBuf>, threads: usize) -> Result<Self, Failure> {
        let model = named(typed.map(PathBuf::as_path))?;
        let (params, tokenizer) = read(&model)?;
        let Model { path, config, format, .. } = model;
        let wrong = |problem: String, hint: &str| Error::Checkpoint {
            path: path.clone(),
            problem,
            hint: Some(hint.into()),
        };
        let tokenizer = tokenizer.ok_or_else(|| {
            let (what, hint) = match format {
                Format::NanoGpt => (
                    "meta.pkl or tokenizer.json beside it",
                    "copy meta.pkl from \
                    its data set's folder in nanoGPT's data/, or the model's tokenizer.json",
                ),
                _ => ("tokenizer.json", "copy it from the folder that the weights came from"),
            };
            wrong(format!("has no {what}, which says what its tokens mean"), hint)
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

/// The model that the user typed, or that of the newest run, which is told then. What was assumed
/// of a model of another program's is told.
pub fn named(typed: Option<&Path>) -> Result<Model, Failure> {
    let path = model_path(Path::new(RUNS), typed)?;
    if typed.is_none() {
        let newest = Run::open(Path::new(RUNS), None)?;
        tell(&match path.starts_with(newest.folder()) {
            true => format!("the newest run: {}", quoted(&path)),
            false => format!(
                "the newest run with a checkpoint: {} ({} has none yet)",
                quoted(&path),
                newest.folder().display()
            ),
        });
    }
    let model = open_model(&path)?;
    model.notices.iter().for_each(|notice| tell(&format!("note: {notice}")));
    Ok(model)
}

/// Its weights and its tokenizer. The training state of a checkpoint is not looked at.
pub fn read(model: &Model) -> Result<(Params, Option<Tokenizer>), Failure> {
    let doing = format!("loading {}", model.path.display());
    Ok(patiently(&doing, || read_model(model))?)
}
