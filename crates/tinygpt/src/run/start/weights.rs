//! The weights that a training starts from, and what of its settings they decide.

use super::{Hear, Starting, tell};
use crate::checkpoint::{check_finite, read_progress};
use crate::config::GptConfig;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::formats::{Format, GoesOn, Model, tokenizer_at};
use crate::model::Params;
use crate::run::layers::Origin;
use crate::run::model::read_model;
use crate::run::settings::{Settings, diff};
use crate::tokenizer::{Tokenizer, TokenizerKind};
use std::path::PathBuf;

/// Weights to start from.
pub struct Weights {
    path: PathBuf,
    pub params: Params,
    pub tokenizer: Option<Tokenizer>,
    /// The shortest context that was asked for, and by whom, if one was.
    block_size: Option<(usize, Origin)>,
    /// What is taken along where a training goes on.
    pub goes_on: Option<GoesOn>,
}

impl Weights {
    /// Loads them, and makes `settings` fit them.
    pub fn load(model: &Model, settings: &mut Settings, goes_on: bool, hear: Hear) -> Result<Self> {
        tell(hear, Starting::Doing(&format!("loading {}", model.path.display())))?;
        let (params, tokenizer) = read_model(model)?;
        let path = model.path.clone();
        check_finite(&params, &path)?;
        let block_size = fit(model, tokenizer.as_ref(), settings, goes_on)?;
        let goes_on = goes_on.then(|| model.goes_on(&params)).transpose()?;
        let has_state = match model.iterations() {
            Some(_) => model.has_state(),
            None => !matches!(read_progress(&path), Ok(None)),
        };
        if goes_on.is_none() && (!has_state || model.format != Format::TinyGpt) {
            let (shown, only) =
                (path.display(), if has_state { "" } else { "holds weights only; " });
            tell(hear, Starting::Note(&format!("{shown} {only}the optimizer starts afresh")))?;
        }
        Ok(Self { path, params, tokenizer, block_size, goes_on })
    }

    /// Leaves out the last positions: those that were not asked for, or that no part of the text is
    /// long enough for.
    pub fn crop(&mut self, settings: &mut Settings, data: &Dataset, hear: Hear) -> Result<()> {
        let val = data.val.as_ref().map(|val| val.len());
        let longest =
            val.into_iter().chain([data.train.len()]).min().unwrap_or(0).saturating_sub(1);
        let asked = self.block_size.as_ref();
        let block_size = asked.map_or(settings.model.block_size, |(asked, _)| *asked);
        let fits = block_size.min(longest);
        if self.goes_on.is_some() || fits == 0 || fits == settings.model.block_size {
            return Ok(());
        }
        if fits < block_size {
            let note =
                format!("block_size = {fits} instead of {block_size}: the text has no more tokens");
            tell(hear, Starting::Note(&note))?;
        }
        settings.model.block_size = fits;
        let origin = match asked {
            Some((asked, origin)) if *asked == fits => origin.clone(),
            _ => Origin::File(self.path.clone()),
        };
        settings.origins.insert("block_size", origin);
        self.params = self.params.first_positions(&settings.model);
        Ok(())
    }
}

/// The settings of a run that starts from `model`, as far as they are known before its text is.
///
/// # Errors
/// Another architecture or tokenizer was asked for than the model's; nothing says what its tokens
/// mean.
pub fn fitted(mut settings: Settings, model: Option<&Model>) -> Result<Settings> {
    if let Some(model) = model {
        let shorter = fit(model, model.tokenizer()?.as_ref(), &mut settings, false)?;
        settings.model.block_size =
            shorter.map_or(settings.model.block_size, |(block_size, _)| block_size);
    }
    Ok(settings)
}

/// Makes the architecture and the tokenizer of `settings` those of `model`. Returns the shorter
/// context that was asked for, and by whom, if one was.
///
/// # Errors
/// Another architecture or tokenizer was asked for; nothing says what the tokens mean, and no
/// training `goes_on` whose text will.
fn fit(
    model: &Model,
    tokenizer: Option<&Tokenizer>,
    settings: &mut Settings,
    goes_on: bool,
) -> Result<Option<(usize, Origin)>> {
    let (path, asked) = (model.path.clone(), settings.clone());
    settings.model = GptConfig { dropout: settings.model.dropout, ..model.config.clone() };
    let mut block_size = None;
    for change in diff(&asked, settings) {
        let name = change.key.name;
        let origin = &asked.origins[name];
        let is_shorter = name == "block_size" && asked.model.block_size < settings.model.block_size;
        if origin.is_typed() && is_shorter {
            block_size = Some((asked.model.block_size, origin.clone()));
            continue;
        }
        if origin.is_typed() {
            return Err(Error::usage(format!(
                "{name} = {}: the weights at {} have {name} = {}",
                change.old,
                path.display(),
                change.new
            ))
            .with_hint("weights keep their shape; leave that flag out"));
        }
        settings.origins.insert(name, Origin::File(path.clone()));
    }
    // A vocabulary that once came from a text now comes with the weights.
    settings.origins.insert("vocab_size", Origin::File(path.clone()));
    let origin = &asked.origins["tokenizer"];
    let named = origin.is_chosen();
    match tokenizer {
        Some(tokenizer) => {
            settings.run.tokenizer = its_kind(model, tokenizer, &asked)?;
            if settings.run.tokenizer != asked.run.tokenizer {
                settings.origins.insert("tokenizer", Origin::File(path));
            }
        }
        None if named || goes_on => {}
        None => {
            let (shown, size) = (path.display(), model.config.vocab_size);
            let problem =
                format!("{shown} has no tokenizer, which says what its {size} tokens mean");
            return Err(Error::usage(problem).with_hint(
                "put the model's tokenizer.json (nanoGPT's: meta.pkl) beside it, or name the \
                 tokenizer it was trained with (--tokenizer)",
            ));
        }
    }
    Ok(block_size)
}

/// How the settings say which tokens the model has.
///
/// # Errors
/// Others were asked for.
fn its_kind(model: &Model, tokenizer: &Tokenizer, asked: &Settings) -> Result<TokenizerKind> {
    let kind = match tokenizer.name() {
        "char" => TokenizerKind::Char,
        "byte" => TokenizerKind::Byte,
        "gpt2" => TokenizerKind::Gpt2,
        _ => {
            let file = model.tokenizer_file();
            TokenizerKind::File(std::path::absolute(&file).unwrap_or(file))
        }
    };
    let typed = &asked.run.tokenizer;
    if !asked.origins["tokenizer"].is_typed() || *typed == kind {
        return Ok(kind);
    }
    let is_other = match typed {
        TokenizerKind::File(file) => tokenizer_at(file)? != *tokenizer,
        _ => true,
    };
    if is_other {
        let problem = format!(
            "tokenizer = {typed}: the weights at {} have their own, {}",
            model.path.display(),
            tokenizer.name()
        );
        return Err(Error::usage(problem).with_hint("leave that flag out"));
    }
    Ok(kind)
}
