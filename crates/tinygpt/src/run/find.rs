//! What a user means by a run or a model: a name, a folder, a file, or nothing for the latest.

use super::folder::{METRICS, Run};
use super::latest::{LATEST, followed};
use crate::checkpoint;
use crate::error::{Error, Result};
use crate::formats::{self, Format};
use std::fs;
use std::path::{Path, PathBuf};

impl Run {
    /// Opens the run that a user typed, or the latest. A name is looked for in `runs` too.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] says that there is none yet, or what the path is instead.
    pub fn open(runs: &Path, typed: Option<&Path>) -> Result<Self> {
        let Some(typed) = typed else { return latest(runs) };
        let candidates = [typed.to_owned(), runs.join(typed)];
        if let Some(run) = candidates.iter().find_map(|path| Run::at(followed(path)?)) {
            return Ok(run);
        }
        let problem = match fs::metadata(typed) {
            Err(_) => "there is no such run".to_owned(),
            Ok(_) if checkpoint::exists(typed) => "is a checkpoint, not a run".to_owned(),
            Ok(_) if formats::exists(typed) && Format::of(typed).is_ok() => {
                "is a model, not a run".to_owned()
            }
            Ok(_) => format!("is no run: it has no {METRICS}"),
        };
        Err(known_runs(runs, Error::checkpoint(typed, problem)))
    }
}

/// The model that a user means: of a run (none typed: the latest, or if that never saved the newest
/// that did), a folder with a checkpoint or
/// another program's model, or a file, whose loading will say what it is.
///
/// # Errors
/// [`Error::Checkpoint`] if there is no such thing, or a run without a checkpoint.
pub fn model_path(runs: &Path, typed: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = typed {
        // A text file `latest` is a file too, but means a run.
        let is_pointer = path.file_name().is_some_and(|name| name == LATEST);
        if formats::exists(path) && !is_pointer {
            return Ok(path.to_owned());
        }
    }
    match (Run::open(runs, typed), typed) {
        (Ok(run), None) => run.model().or_else(|error| {
            let damaged = [run.best(), run.last()].iter().any(|path| checkpoint::is_damaged(path));
            newest_saved(runs).filter(|_| !damaged).ok_or(error)
        }),
        (Ok(run), _) => run.model(),
        (Err(error), Some(path)) if is_hubs(path) => Err(error.with_hint(format!(
            "TinyGPT downloads nothing: `hf download {0} --local-dir {0}` brings a model from the \
             hub into a folder to name",
            path.display()
        ))),
        (Err(error), _) => Err(error),
    }
}

/// The model of the run that trained last among those with a checkpoint.
fn newest_saved(runs: &Path) -> Option<PathBuf> {
    let all = fs::read_dir(runs).ok()?.flatten().filter_map(|entry| Run::at(entry.path()));
    let saved = all.filter_map(|run| {
        let trained = fs::metadata(run.metrics()).and_then(|file| file.modified()).ok()?;
        // `latest` is one of the others.
        let named = !run.folder().ends_with(LATEST);
        Some((trained, run.model().ok().filter(|_| named)?))
    });
    saved.max().map(|(_, model)| model)
}

/// Whether a name for which there is no folder looks like one of Hugging Face's hub.
fn is_hubs(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let published = ["gpt2", "distilgpt2"].iter().any(|gpt2| name.starts_with(gpt2));
    !path.exists() && (published || name.starts_with("openai-community/"))
}

fn latest(runs: &Path) -> Result<Run> {
    let path = runs.join(LATEST);
    if fs::symlink_metadata(&path).is_err() {
        let place = std::path::absolute(runs).unwrap_or_else(|_| runs.to_owned());
        return Err(known_runs(runs, Error::checkpoint(place, "there is no latest run yet")));
    }
    // The run's own name, which tells a user more than "latest".
    let folder = match fs::read_link(&path) {
        Ok(name) => Some(runs.join(name)),
        Err(_) => followed(&path),
    };
    folder.and_then(Run::at).ok_or_else(|| {
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|kind| kind.is_dir());
        let problem = match is_folder {
            true => "is a folder, where a link to the newest run should be",
            false => "the run it names is not there any more",
        };
        known_runs(runs, Error::checkpoint(&path, problem))
    })
}

/// The error with a hint: the runs there are, or how to make one.
fn known_runs(runs: &Path, error: Error) -> Error {
    let mut names: Vec<_> = fs::read_dir(runs)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name() != LATEST)
        .filter_map(|entry| Run::at(entry.path()))
        .map(|run| run.folder().display().to_string())
        .collect();
    names.sort();
    let shown = names.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => error.with_hint(
            "`tinygpt train` makes one; runs are looked for below the current folder, others by \
             their path",
        ),
        1..=8 => error.with_hint(format!("the runs here: {shown}")),
        more => error.with_hint(format!("the runs here: {shown} and {} more", more - 8)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::tests::{names, said, save};
    use super::*;
    use std::fs::File;

    #[test]
    fn the_latest_run_is_found_through_a_link_or_a_text_file() {
        let parent = tempfile::tempdir().unwrap();
        let runs = parent.path().join("runs");
        let run = Run::create(&runs, "quick").unwrap();
        save(&run.best());
        let elsewhere = Run::create_at(&parent.path().join("out"), false).unwrap();
        assert!(elsewhere.call_latest(&runs));
        assert!(Run::open(&runs, None).unwrap().folder().ends_with(elsewhere.folder()));
        fs::remove_file(runs.join("latest")).unwrap();
        assert!(said(Run::open(&runs, None)).contains("runs/quick"));
        fs::write(runs.join("latest"), "quick\r\n").unwrap();
        assert_eq!(Run::open(&runs, None).unwrap().folder(), run.folder());
        assert_eq!(Run::open(&runs, Some(&runs.join("latest"))).unwrap().folder(), run.folder());
        assert_eq!(model_path(&runs, Some(&runs.join("latest"))).unwrap(), run.best());
        fs::write(runs.join("latest"), "deleted").unwrap();
        assert!(said(Run::open(&runs, None)).contains("not there any more"));
    }

    #[test]
    fn where_the_latest_run_never_saved_the_newest_that_did_is_meant() {
        let parent = tempfile::tempdir().unwrap();
        let runs = parent.path().join("runs");
        let [old, newer, unsaved] = ["a", "b", "c"].map(|name| Run::create(&runs, name).unwrap());
        for (run, seconds) in [(&newer, 2), (&old, 1), (&unsaved, 3)] {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            File::options().write(true).open(run.metrics()).unwrap().set_modified(time).unwrap();
        }
        save(&old.best());
        save(&newer.last());
        assert!(unsaved.call_latest(&runs));
        assert_eq!(model_path(&runs, None).unwrap(), newer.last());
        let typed = model_path(&runs, Some(unsaved.folder()));
        assert!(said(typed).contains("not saved a checkpoint yet"));
        assert_eq!(Run::open(&runs, None).unwrap().folder(), unsaved.folder());
    }

    #[test]
    fn a_folder_called_latest_is_in_nobodys_way_and_is_said() {
        let runs = tempfile::tempdir().unwrap();
        fs::create_dir_all(runs.path().join("latest/mine")).unwrap();
        let run = Run::create(runs.path(), "quick").unwrap();
        assert!(!run.call_latest(runs.path()));
        assert!(run.metrics().exists() && runs.path().join("latest/mine").exists());
        let text = said(Run::open(runs.path(), None));
        assert!(text.contains("is a folder, where") && text.contains("quick"), "{text}");
        assert_eq!(names(runs.path()), ["latest", "quick"]);
    }

    #[test]
    fn what_a_user_types_for_a_model_is_a_run_a_checkpoint_or_a_file() {
        let parent = tempfile::tempdir().unwrap();
        let runs = parent.path().join("runs");
        let run = Run::create(&runs, "quick").unwrap();
        assert!(run.call_latest(&runs));
        assert!(said(model_path(&runs, None)).contains("not saved a checkpoint yet"));
        save(&run.last());
        assert_eq!(model_path(&runs, None).unwrap(), run.last());
        save(&run.best());
        let file = run.last().join("model.safetensors");
        for (typed, expected) in [
            (None, run.best()),
            (Some(run.folder()), run.best()),
            (Some(Path::new("quick")), run.best()),
            (Some(&*run.last()), run.last()),
            (Some(&*file), file.clone()),
        ] {
            assert_eq!(model_path(&runs, typed).unwrap(), expected, "{typed:?}");
        }
        let text = said(model_path(&runs, Some(Path::new("quikc"))));
        assert!(text.contains("no such run") && text.contains("runs/quick"), "{text}");
        assert!(said(Run::open(&runs, Some(&run.best()))).contains("a checkpoint, not a run"));
        assert!(said(Run::open(&runs, Some(parent.path()))).contains("no metrics.jsonl"));
    }
}
