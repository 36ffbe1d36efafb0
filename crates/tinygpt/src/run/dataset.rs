//! The data a run was started with, found again.

use super::folder::Run;
use super::layers::Origin;
use super::settings::Settings;
use crate::checkpoint;
use crate::data::{DataOptions, Dataset, Input};
use crate::error::{Error, Result};
use crate::files;
use crate::formats::{prepared_tokenizer, tokenizer_at};
use crate::tokenizer::{Tokenizer, TokenizerKind};
use std::path::{Path, absolute};

/// The run's own token files, or the built-in text cut as the run's settings say: that one needs no
/// keeping. Either way in the tokens of the model at `checkpoint`, one of the run's. Token files
/// that somebody removed are made anew, in memory, while the text is as long as it was.
///
/// # Errors
/// Token files that are damaged or of another tokenizer, or missing as their text is.
pub fn dataset(
    run: &Run,
    checkpoint: &Path,
    settings: &Settings,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Dataset> {
    // Not made anew from the text: a run that started from other weights has their vocabulary.
    let vocabulary = checkpoint::read_tokenizer(checkpoint)?;
    if !run.data().exists() {
        let options = DataOptions { vocabulary, ..data_options(settings) };
        if !settings.text.is_empty() {
            return made_anew(run, checkpoint, settings, &options, progress);
        }
        return Dataset::build(&Input::TinyShakespeare, &options, None, progress);
    }
    let mut data = Dataset { options: data_options(settings), ..Dataset::open(&run.data())? };
    if data.val.is_none() && settings.run.val_fraction > 0.0 {
        let problem = format!("no val.bin, but val_fraction = {}", settings.run.val_fraction);
        return Err(Error::data(data.source, problem)
            .with_hint("start a new run from the text, with --init-from this one"));
    }
    if vocabulary.is_some_and(|vocabulary| vocabulary != data.tokenizer) {
        let problem = "its tokens are not those of the run's model";
        return Err(Error::data(data.source, problem)
            .with_hint("one of the two was replaced; start a new run from the text"));
    }
    // Files have no name but their text's.
    if !settings.text.is_empty() {
        data.source = Input::Paths(settings.text.clone()).name();
    }
    Ok(data)
}

/// The data set of a run whose token files are gone, from its text.
fn made_anew(
    run: &Run,
    checkpoint: &Path,
    settings: &Settings,
    options: &DataOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Dataset> {
    let (paths, gone) = (&settings.text, run.data().display().to_string());
    let text = paths[0].display();
    let failed = |why: String| {
        let problem = format!("the tokens of {text} are gone, and {why}");
        Error::data(&gone, problem).with_hint(format!(
            "start a new run from these weights: tinygpt train TEXT --init-from {}",
            files::quoted(run.folder())
        ))
    };
    // Standard input cannot be read again.
    if let Some(path) = paths.iter().find(|path| !path.exists()) {
        return Err(failed(format!("{} is not there", path.display())));
    }
    let mut data = Dataset::build(&Input::Paths(paths.clone()), options, None, progress)?;
    let (now, then) = (data.train.len() as u64, checkpoint::read_progress(checkpoint)?);
    if let Some(then) = then.map(|then| then.train_tokens).filter(|&then| then != now) {
        return Err(failed(format!("it has {now} training tokens now, the run had {then}")));
    }
    data.notices.push(format!("{gone} is gone; the tokens were made again from {text}"));
    Ok(data)
}

/// Takes for `tokenizer` the one that a folder of tokens has, where that is what is trained on.
///
/// # Errors
/// Another was typed; a tokenizer of the folder's that cannot be read.
pub(super) fn settle_tokenizer(settings: &mut Settings) -> Result<()> {
    let [folder] = &settings.text[..] else { return Ok(()) };
    let Some((own, file)) = prepared_tokenizer(folder)? else { return Ok(()) };
    let told = &settings.run.tokenizer;
    let is_same = match told {
        // A short text has fewer to learn than are asked for.
        TokenizerKind::Bpe(most) => own.name() == "bpe" && own.vocab_size() <= *most,
        TokenizerKind::File(path) => tokenizer_at(path).is_ok_and(|told| told == own),
        kind => own.name() == kind.to_string(),
    };
    if is_same {
        return Ok(());
    }
    if settings.origins["tokenizer"].is_typed() {
        let problem = format!(
            "tokenizer = {told}: the tokens in {} have their own, {} ({})",
            folder.display(),
            own.name(),
            file.display(),
        );
        return Err(Error::usage(problem).with_hint("leave that flag out"));
    }
    settings.run.tokenizer = match own {
        Tokenizer::Char(_) => TokenizerKind::Char,
        Tokenizer::Byte => TokenizerKind::Byte,
        _ if own.name() == "gpt2" => TokenizerKind::Gpt2,
        _ => TokenizerKind::File(absolute(&file).unwrap_or(file)),
    };
    let origin = Origin::File(folder.clone());
    settings.origins.insert("tokenizer", origin);
    Ok(())
}

/// How the settings say that a text becomes tokens.
pub fn data_options(settings: &Settings) -> DataOptions {
    DataOptions {
        tokenizer: settings.run.tokenizer.clone(),
        vocabulary: None,
        val_fraction: settings.run.val_fraction,
        split: settings.run.split,
        newline: settings.run.newline,
        lossy: settings.run.lossy,
        allow_special: settings.run.allow_special,
        seed: settings.train.seed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GptConfig;
    use crate::model::{Params, Tensors};
    use crate::run::Layers;
    use std::sync::Arc;

    fn run_of(tokenizer: &Tokenizer, folder: &Path) -> (Run, Settings) {
        let mut settings = Settings::resolve(&Layers::default()).unwrap();
        settings.settle_vocab_size(tokenizer.vocab_size()).unwrap();
        let config = GptConfig { n_layer: 1, n_embd: 4, ..settings.model.clone() };
        let params = Params::zeros(Arc::new(Tensors::of(&config)));
        let run = Run::create(folder, "run").unwrap();
        let json = tokenizer.to_json();
        checkpoint::save(&run.last(), &config, &params, Some(&json), None).unwrap();
        (run, settings)
    }

    #[test]
    fn the_built_in_text_is_in_the_tokens_of_the_runs_model() {
        let folder = tempfile::tempdir().unwrap();
        let more = Tokenizer::from_chars((32..127).map(char::from).chain("\né".chars()));
        for tokenizer in [more, Tokenizer::Byte] {
            let (run, settings) = run_of(&tokenizer, folder.path());
            let data = dataset(&run, &run.last(), &settings, &mut |_, _| {}).unwrap();
            assert_eq!(data.tokenizer, tokenizer);
            let mut ids = [0; 13];
            data.train.read(0, &mut ids).unwrap();
            assert_eq!(tokenizer.decode(&ids), "First Citizen");
            assert_eq!(data.val.unwrap().len(), 111_540);
        }
    }

    #[test]
    fn token_files_of_another_tokenizer_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("my.txt");
        std::fs::write(&text, "abcba").unwrap();
        let (run, settings) = run_of(&Tokenizer::from_chars("abc".chars()), folder.path());
        let prepared = |vocabulary: &str| {
            let options = DataOptions {
                vocabulary: Some(Tokenizer::from_chars(vocabulary.chars())),
                ..data_options(&settings)
            };
            let input = Input::Paths(vec![text.clone()]);
            Dataset::build(&input, &options, Some(&run.data()), &mut |_, _| {}).unwrap();
            dataset(&run, &run.last(), &settings, &mut |_, _| {})
        };
        prepared("abc").unwrap();
        let error = prepared("abcd").unwrap_err();
        assert!(error.to_string().contains("not those of the run's model"), "{error}");
    }

    #[test]
    fn a_run_whose_own_tokens_are_gone_is_not_taken_for_one_on_the_built_in_text() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("my.txt");
        let (run, mut settings) = run_of(&Tokenizer::Byte, folder.path());
        settings.text = vec![text.clone()];
        let open = || dataset(&run, &run.last(), &settings, &mut |_, _| {});
        let error = open().unwrap_err().to_string();
        assert!(error.contains("my.txt are gone") && error.contains("is not there"), "{error}");
        std::fs::write(&text, "to be or not").unwrap();
        let data = open().unwrap();
        assert_eq!(data.train.len() + data.val.unwrap().len(), 12);
        assert!(data.notices[0].contains("were made again from"), "{:?}", data.notices);
    }

    #[test]
    fn a_folder_of_tokens_decides_the_tokenizer_and_another_that_is_typed_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("tokens");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("train.bin"), [0, 0]).unwrap();
        let settled = |typed: Option<&str>| {
            let typed = typed.map(|typed| ("tokenizer".to_owned(), typed.to_owned()));
            let layers = Layers {
                text: vec![folder.clone()],
                command_line: typed.into_iter().collect(),
                ..Default::default()
            };
            let mut settings = Settings::resolve(&layers).unwrap();
            settle_tokenizer(&mut settings).map(|()| settings)
        };
        // Nothing in the folder says what they mean: what is typed does.
        assert_eq!(settled(Some("gpt2")).unwrap().run.tokenizer, TokenizerKind::Gpt2);
        std::fs::write(folder.join("tokenizer.json"), Tokenizer::Byte.to_json()).unwrap();
        for typed in [None, Some("byte")] {
            let settings = settled(typed).unwrap();
            assert_eq!(settings.run.tokenizer, TokenizerKind::Byte);
            assert_eq!(settings.origins["tokenizer"].is_typed(), typed.is_some());
        }
        let error = settled(Some("gpt2")).unwrap_err().to_string();
        assert!(error.contains("tokenizer = gpt2") && error.contains("their own, byte"), "{error}");
    }
}
