//! nanoGPT's folder of tokens, read and written.
//!
//! ```text
//!   train.bin  val.bin   bare ids, two bytes each, little-endian
//!   meta.pkl             of characters: which is which (`meta.rs`)
//!   tokenizer.json       ours, of any kind; nanoGPT does not look at it
//! ```

use super::{META, meta};
use crate::data::{DataOptions, Dataset, Input, Room, Tokens};
use crate::error::{Error, Result};
use crate::files;
use crate::tokenizer::TOKENIZER_FILE as TOKENIZER;
use crate::tokenizer::{Tokenizer, TokenizerKind};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const TRAIN: &str = "train.bin";
const VAL: &str = "val.bin";
/// All that the folder holds, in the order in which it is put there: what makes it one of tokens is
/// last.
const FILES: [&str; 4] = [META, TOKENIZER, VAL, TRAIN];
/// As many ids as two bytes can tell apart.
const MOST_TOKENS: usize = 1 << 16;
/// Ids written at a time.
const PART: usize = 1 << 16;

/// [`Dataset::adopt`] of a folder that may have a `meta.pkl` in place of a `tokenizer.json`.
///
/// # Errors
/// As for `Dataset::adopt`; a `meta.pkl` that is none, or of other tokens than the model's.
pub fn adopt(
    from: &Path,
    options: &DataOptions,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Dataset> {
    let Some((own, file)) = tokenizer(from)?.filter(|(_, file)| file.ends_with(META)) else {
        return Dataset::adopt(from, options, to, progress);
    };
    if options.vocabulary.as_ref().is_some_and(|models| *models != own) {
        return Err(Error::data(file.display().to_string(), "belongs to another tokenizer")
            .with_hint("these tokens are not those of the model's weights"));
    }
    let options = DataOptions { vocabulary: Some(own), ..options.clone() };
    Dataset::adopt(from, &options, to, progress)
}

/// The tokenizer of a folder of tokens, and the file in it that says so; none of another folder, or
/// of one that does not say.
///
/// # Errors
/// A `tokenizer.json` or `meta.pkl` that is none.
pub fn tokenizer(folder: &Path) -> Result<Option<(Tokenizer, PathBuf)>> {
    let (ours, meta) = (folder.join(TOKENIZER), folder.join(META));
    Ok(match Dataset::is_prepared(folder) {
        true if ours.is_file() => Some((Tokenizer::read(&ours)?, ours)),
        true if meta.is_file() => Some((meta::read(&meta)?, meta)),
        _ => None,
    })
}

/// What [`prepare`] wrote.
#[derive(Debug)]
pub struct Prepared {
    /// What the tokens mean.
    pub tokenizer: Tokenizer,
    /// Tokens to train on.
    pub train: usize,
    /// Tokens to validate on; none without `val.bin`.
    pub val: Option<usize>,
    /// What the text is called.
    pub source: String,
    /// The files, in order of their names.
    pub files: Vec<&'static str>,
    /// What the user should know of the text, in whole sentences.
    pub notices: Vec<String>,
}

/// Writes the tokens of a text to the folder `to`, which is made if need be. A new folder appears
/// whole; in one that is there each file does, and `train.bin` last, so that a kill leaves no folder
/// that is taken for a whole one. `replace` allows files of these names to be replaced; no other is
/// touched. `progress(done, total)` counts bytes.
///
/// # Errors
/// As for [`Dataset::build`]; more tokens in the vocabulary than two bytes can number; files that are
/// there already; a folder that cannot be written.
pub fn prepare(
    input: &Input,
    options: &DataOptions,
    to: &Path,
    replace: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Prepared> {
    check_place(to, replace)?;
    let known = match (&options.vocabulary, &options.tokenizer) {
        (Some(tokenizer), _) => Some(tokenizer.vocab_size()),
        (None, TokenizerKind::Bpe(size)) => Some(*size),
        (None, kind) => kind.ready()?.map(|tokenizer| tokenizer.vocab_size()),
    };
    check_size(known.unwrap_or(0))?;
    // On the same disk, so that what is written has only to be renamed.
    let room = Room::beside(Some(to))?;
    let (ours, theirs) = (room.path().join("ours"), room.path().join("theirs"));
    let data = Dataset::build(input, options, Some(&ours), progress)?;
    check_size(data.tokenizer.vocab_size())?;
    fs::create_dir(&theirs).map_err(Error::io("create", &theirs))?;
    write_ids(&data.train, &theirs.join(TRAIN))?;
    data.val.as_ref().map_or(Ok(()), |val| write_ids(val, &theirs.join(VAL)))?;
    files::write_whole(&theirs.join(TOKENIZER), data.tokenizer.to_json())?;
    if let Tokenizer::Char(chars) = &data.tokenizer {
        files::write_whole(&theirs.join(META), meta::pickled(chars))?;
    }
    let mut files: Vec<_> = FILES.into_iter().filter(|name| theirs.join(name).is_file()).collect();
    files.sort_unstable();
    // Another may have come first while the text was read.
    check_place(to, replace)?;
    put(&theirs, to)?;
    Ok(Prepared {
        train: data.train.len(),
        val: data.val.as_ref().map(Tokens::len),
        tokenizer: data.tokenizer,
        source: data.source,
        files,
        notices: data.notices,
    })
}

fn check_size(vocab_size: usize) -> Result<()> {
    if vocab_size <= MOST_TOKENS {
        return Ok(());
    }
    let problem = format!(
        "a vocabulary of {vocab_size} tokens: nanoGPT's files have two bytes for each, which number \
         {MOST_TOKENS}"
    );
    Err(Error::data("train.bin", problem)
        .with_hint("train on the text itself, where an id may be larger: tinygpt train TEXT"))
}

fn check_place(to: &Path, replace: bool) -> Result<()> {
    if fs::metadata(to).is_ok_and(|kind| !kind.is_dir()) {
        return Err(Error::data(to.display().to_string(), "is a file; expected a folder"));
    }
    // Not `exists`: a dangling link is in the way too.
    let there = |name: &&str| fs::symlink_metadata(to.join(name)).is_ok();
    match FILES.iter().find(|name| there(name)).filter(|_| !replace) {
        None => Ok(()),
        Some(name) => Err(Error::data(to.join(name).display().to_string(), "is there already")
            .with_hint("--force replaces what `tinygpt prepare` writes, or choose another --out")),
    }
}

/// Bare ids, whole.
fn write_ids(tokens: &Tokens, path: &Path) -> Result<()> {
    let failed = |error| Error::io("write", path)(error);
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    let mut ids = vec![0; PART.min(tokens.len())];
    for start in (0..tokens.len()).step_by(PART) {
        let ids = &mut ids[..PART.min(tokens.len() - start)];
        tokens.read(start, ids)?;
        for &id in &*ids {
            let id = u16::try_from(id).expect("the vocabulary was checked");
            out.write_all(&id.to_le_bytes()).map_err(failed)?;
        }
    }
    let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)
}

/// Moves the files of `from` to `to`.
fn put(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| Error::io("write", to)(error);
    if !to.exists() {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        fs::rename(from, to).map_err(failed)?;
        return files::sync_parent(to).map_err(failed);
    }
    // Files of an old text beside those of a new one would be taken for one set.
    for name in FILES.into_iter().rev() {
        match fs::remove_file(to.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("replace", &to.join(name))(error));
            }
            _ => {}
        }
    }
    for name in FILES.into_iter().filter(|name| from.join(name).is_file()) {
        fs::rename(from.join(name), to.join(name)).map_err(failed)?;
    }
    files::sync_folder(to).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(kind: &str) -> DataOptions {
        let tokenizer = TokenizerKind::try_from(kind.to_owned()).unwrap();
        DataOptions { tokenizer, ..DataOptions::default() }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_prepared_is_nanogpts_folder_and_trains_as_the_text_does() {
        let here = tempfile::tempdir().unwrap();
        let text = here.path().join("my.txt");
        fs::write(&text, "banana\u{e9}xyz").unwrap();
        let input = Input::Paths(vec![text]);
        let to = here.path().join("data/mine");
        let done = prepare(&input, &options("char"), &to, false, &mut |_, _| ()).unwrap();
        assert_eq!((done.train, done.val), (9, Some(1)));
        assert_eq!(done.files, ["meta.pkl", "tokenizer.json", "train.bin", "val.bin"]);
        // Sorted: a b n x y z é.
        let ids = |name: &str| fs::read(to.join(name)).unwrap();
        assert_eq!(ids(TRAIN), [1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 6, 0, 3, 0, 4, 0]);
        assert_eq!(ids(VAL), [5, 0]);
        assert_eq!(names(here.path()), ["data", "my.txt"]);
        for removed in ["none", TOKENIZER] {
            let _ = fs::remove_file(to.join(removed));
            let run = here.path().join(removed);
            let data = adopt(&to, &options("gpt2"), &run, &mut |_, _| ()).unwrap();
            let mut ids = [0; 9];
            data.train.read(0, &mut ids).unwrap();
            assert_eq!(data.tokenizer.decode(&ids), "banana\u{e9}xy");
        }
        let other = Tokenizer::from_chars("abn".chars());
        let options = DataOptions { vocabulary: Some(other), ..DataOptions::default() };
        let error = adopt(&to, &options, &here.path().join("x"), &mut |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("another tokenizer"), "{error}");
    }

    proptest! {
        #[test]
        fn a_prepared_folder_with_damage_is_an_error_or_tokens_and_no_panic(
            file in 0..3usize, at in any::<prop::sample::Index>(), byte: u8, cut: bool,
        ) {
            let here = tempfile::tempdir().unwrap();
            let (text, to) = (here.path().join("my.txt"), here.path().join("d"));
            fs::write(&text, "banana\u{e9}xyz").unwrap();
            prepare(&Input::Paths(vec![text]), &options("char"), &to, false, &mut |_, _| ()).unwrap();
            fs::remove_file(to.join(TOKENIZER)).unwrap();
            let path = to.join([TRAIN, VAL, META][file]);
            let mut bytes = fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(if cut { at } else { bytes.len() });
            fs::write(&path, bytes).unwrap();
            if let Ok(data) = adopt(&to, &options("char"), &here.path().join("run"), &mut |_, _| ()) {
                let mut ids = vec![0; data.train.len()];
                data.train.read(0, &mut ids).unwrap();
                assert!(ids.iter().all(|&id| (id as usize) < data.tokenizer.vocab_size()));
            }
        }
    }

    #[test]
    fn the_built_in_text_has_nanogpts_split_and_first_ids() {
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("shakespeare_char");
        let done =
            prepare(&Input::TinyShakespeare, &options("char"), &to, false, &mut |_, _| ()).unwrap();
        assert_eq!((done.train, done.val), (1_003_854, Some(111_540)));
        assert_eq!(fs::read(to.join(TRAIN)).unwrap()[..8], [18, 0, 47, 0, 56, 0, 57, 0]);
        assert_eq!(fs::metadata(to.join(VAL)).unwrap().len(), 2 * 111_540);
    }

    #[test]
    fn nothing_is_replaced_unless_asked_and_then_nothing_of_the_old_text_stays() {
        let here = tempfile::tempdir().unwrap();
        let text = here.path().join("my.txt");
        fs::write(&text, "to be or not to be").unwrap();
        let (input, to) = (Input::Paths(vec![text]), here.path().join("d"));
        let prepare = |kind: &str, fraction: f64, force| {
            let options = DataOptions { val_fraction: fraction, ..options(kind) };
            prepare(&input, &options, &to, force, &mut |_, _| ())
        };
        prepare("char", 0.1, false).unwrap();
        fs::write(to.join("readme.md"), "mine").unwrap();
        let error = prepare("byte", 0.0, false).unwrap_err();
        assert!(error.to_string().contains("is there already"), "{error}");
        assert_eq!(names(&to).len(), 5);
        assert_eq!(prepare("byte", 0.0, true).unwrap().files, ["tokenizer.json", "train.bin"]);
        assert_eq!(names(&to), ["readme.md", "tokenizer.json", "train.bin"]);
        assert_eq!(names(here.path()), ["d", "my.txt"]);
    }

    #[test]
    fn of_two_that_prepare_one_folder_at_once_the_second_to_end_is_refused() {
        let here = tempfile::tempdir().unwrap();
        let [text, other] = ["my.txt", "other.txt"].map(|name| here.path().join(name));
        fs::write(&text, "to be or not to be").unwrap();
        fs::write(&other, "something else").unwrap();
        let to = here.path().join("d");
        let mut first = None;
        let second =
            prepare(&Input::Paths(vec![text]), &options("char"), &to, false, &mut |_, _| {
                first.get_or_insert_with(|| {
                    let input = Input::Paths(vec![other.clone()]);
                    prepare(&input, &options("byte"), &to, false, &mut |_, _| ()).unwrap()
                });
            });
        let error = second.unwrap_err().to_string();
        assert!(error.contains("is there already"), "{error}");
        assert_eq!(first.unwrap().files, ["tokenizer.json", "train.bin", "val.bin"]);
        assert_eq!(names(&to), ["tokenizer.json", "train.bin", "val.bin"]);
        assert_eq!(fs::read(to.join(TRAIN)).unwrap()[..4], [b's', 0, b'o', 0]);
        assert_eq!(names(here.path()), ["d", "my.txt", "other.txt"]);
    }

    #[test]
    fn more_tokens_than_two_bytes_number_are_refused_before_the_text_is_read() {
        let here = tempfile::tempdir().unwrap();
        let (input, to) = (Input::Paths(vec!["missing.txt".into()]), here.path().join("d"));
        let error = prepare(&input, &options("bpe:65537"), &to, false, &mut |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("65537") && error.to_string().contains("two bytes"));
        assert!(names(here.path()).is_empty());
    }
}
