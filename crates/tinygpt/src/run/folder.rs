//! The folder of a run: what is where in it, and making one.
//!
//! ```text
//!   runs/                     the folder of runs
//!     latest                  the newest run (`latest.rs`)
//!     NAME/  NAME-2/ ..       runs
//!       config.toml           every setting, and whence it came
//!       metrics.jsonl         a line for each step and evaluation; what makes a folder a run
//!       metrics.csv           the same, for spreadsheets
//!       events.out.tfevents.* the same for TensorBoard, if it was asked for (`tensorboard.rs`)
//!       loss.svg  samples.txt
//!       profile.json          what the ops cost, if it was asked for
//!       best/  last/          checkpoints: of the best validation loss, and of the last step
//!       data/                 token files
//! ```
//!
//! **A run is never overwritten unless asked for, and then only files that runs make are removed.**

use super::latest::{LATEST, point_latest};
use crate::checkpoint;
use crate::error::{Error, Result};
use crate::files;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Where runs are unless another place is asked for.
pub const RUNS: &str = "runs";

const CONFIG: &str = "config.toml";
pub(super) const METRICS: &str = "metrics.jsonl";
const TABLE: &str = "metrics.csv";
const CHART: &str = "loss.svg";
const SAMPLES: &str = "samples.txt";
const PROFILE: &str = "profile.json";
/// How a file for TensorBoard is called before and after its number; the end says that it is ours.
const EVENTS: (&str, &str) = ("events.out.tfevents.", ".tinygpt");
const DATA: &str = "data";
/// What data/ can hold.
const DATA_FILES: [&str; 3] = ["train.bin", "val.bin", "tokenizer.json"];

/// A run's folder. It exists; what it holds so far is for the caller to see.
#[derive(Debug)]
pub struct Run {
    folder: PathBuf,
    /// What keeps other processes from training it.
    lock: Option<File>,
    /// The folders that were made for it, innermost first, while it can be [taken
    /// back](Self::take_back).
    made: Option<Vec<PathBuf>>,
}

impl Run {
    /// Makes `runs/name`, or `runs/name-2`, `-3`.. if that is taken, [locked](Self::lock).
    ///
    /// # Errors
    /// [`Error::Config`] if `name` is no name of a folder; [`Error::Io`].
    pub fn create(runs: &Path, name: &str) -> Result<Self> {
        let mut parts = Path::new(name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(Error::config("name", name, "must be the name of a folder, not a path"));
        }
        let above = missing(runs);
        fs::create_dir_all(runs).map_err(Error::io("create", runs))?;
        let numbered = (2..).map(|n: u64| format!("{name}-{n}"));
        for name in std::iter::once(name.to_owned()).chain(numbered).filter(|name| name != LATEST) {
            let folder = runs.join(&name);
            // Made, not looked for first: two runs that start together must not share a folder.
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                made => made.map_err(Error::io("create", &folder))?,
            }
            let mut run = Self::unmade(folder);
            // Between the two lines another may have made its run in this folder.
            if run.lock().is_err() || is_run(&run.folder) {
                continue;
            }
            let made = [run.folder.clone()].into_iter().chain(above).collect();
            return run.marked(made);
        }
        unreachable!("there is always another number")
    }

    /// Makes the run `folder`, wherever that is, [locked](Self::lock).
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if there is a run already (`overwrite` removes its files instead), or
    /// if the folder holds other things; [`Error::Io`].
    pub fn create_at(folder: &Path, overwrite: bool) -> Result<Self> {
        Self::check_place(folder, overwrite)?;
        let made = missing(folder);
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let mut run = Self::unmade(folder.to_owned());
        // Asked again under the lock: of several that start together one makes the run.
        run.lock()?;
        Self::check_place(folder, overwrite)?;
        if is_run(folder) {
            run.remove_files()?;
        }
        run.marked(made)
    }

    fn unmade(folder: PathBuf) -> Self {
        Self { folder, lock: None, made: None }
    }

    /// Makes a run of the folder, for which those in `made` were, or takes them away again.
    fn marked(mut self, made: Vec<PathBuf>) -> Result<Self> {
        self.made = Some(made);
        let marked = files::write_whole(&self.metrics(), "");
        if marked.is_err() {
            self.take_back();
        }
        marked.map(|()| self)
    }

    /// Takes a run away that was made and never [kept](Self::keep): its files, and the folders that
    /// were made for it. What cannot be removed stays, and what a user put there.
    pub(super) fn take_back(&mut self) {
        let Some(made) = self.made.take() else { return };
        if is_run(&self.folder) {
            let _ = self.remove_files();
            // Last, because it keeps a folder that was there before from being removed as empty.
            let _ = fs::remove_file(self.metrics());
        }
        let _ = made.iter().try_for_each(fs::remove_dir);
    }

    /// From now on the run stays: it is trained.
    pub(super) fn keep(&mut self) {
        self.made = None;
    }

    /// Calls this run the latest of `runs`. Whether that worked: a run is safe without, where
    /// `runs` cannot be written or holds something of the user's by that name.
    pub fn call_latest(&self, runs: &Path) -> bool {
        let Ok(folder) = fs::canonicalize(&self.folder) else { return false };
        let _ = fs::create_dir_all(runs);
        let inside = fs::canonicalize(runs).ok().filter(|runs| folder.parent() == Some(runs));
        let to = match (inside, folder.file_name()) {
            (Some(_), Some(name)) => Path::new(name),
            _ => &folder,
        };
        point_latest(runs, to).is_ok()
            && Run::open(runs, None)
                .is_ok_and(|latest| fs::canonicalize(latest.folder).is_ok_and(|at| at == folder))
    }

    /// Whether [`create_at`](Self::create_at) would make a run of `folder`; changes nothing.
    ///
    /// # Errors
    /// As for `create_at`.
    pub fn check_place(folder: &Path, overwrite: bool) -> Result<()> {
        let taken = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            // What a start that was killed at once leaves is no reason to refuse the folder.
            entries => entries.map_err(Error::io("read", folder))?.any(|entry| {
                entry.map_or(true, |entry| !files::is_left_of(METRICS, &entry.file_name()))
            }),
        };
        match (is_run(folder), overwrite) {
            (true, false) => {
                let begun = Self::unmade(folder.to_owned()).newest().is_ok();
                Err(Error::checkpoint(folder, "there is a run already").with_hint(match begun {
                    true => {
                        "--resume goes on with it, --overwrite replaces it, another --out-dir \
                         keeps it"
                    }
                    false => "it has not saved a checkpoint yet: --overwrite starts it anew",
                }))
            }
            (false, _) if taken => Err(Error::checkpoint(folder, "is neither empty nor a run")
                .with_hint("choose a new folder with --out-dir")),
            // Saving replaces these two as wholes, so nothing else can stay in them.
            _ => match ["best", "last"]
                .iter()
                .find_map(|name| checkpoint::foreign_file(&folder.join(name)))
            {
                Some(file) => {
                    Err(Error::checkpoint(file, "is in the way: no part of a checkpoint")
                        .with_hint("move it elsewhere, or choose another --out-dir"))
                }
                None => Ok(()),
            },
        }
    }

    /// The run in `folder`, if there is one.
    pub(super) fn at(folder: PathBuf) -> Option<Self> {
        is_run(&folder).then(|| Self::unmade(folder))
    }

    /// Keeps others from training this run, or making another of its folder, while `self` lives:
    /// what is read of it from now on stays as it is. One that is locked stays so.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if another process trains it, or somebody else in this one.
    pub fn lock(&mut self) -> Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        // The folder itself: a file of its own would stay behind, and the others are replaced as
        // wholes. Where a folder cannot be opened there is no lock.
        let Ok(file) = File::open(&self.folder) else { return Ok(()) };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                Err(Error::checkpoint(&self.folder, "another process is training this run")
                    .with_hint("wait for it to end, or start a new run in another folder"))
            }
            // A file system that knows no locks is no reason not to train.
            Err(TryLockError::Error(_)) | Ok(()) => {
                self.lock = Some(file);
                Ok(())
            }
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every setting, and whence it came.
    pub fn config(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    /// See [`metrics`](super::metrics).
    pub fn metrics(&self) -> PathBuf {
        self.folder.join(METRICS)
    }

    /// See [`chart`](super::chart).
    pub fn chart(&self) -> PathBuf {
        self.folder.join(CHART)
    }

    /// See [`samples`](super::samples).
    pub fn samples(&self) -> PathBuf {
        self.folder.join(SAMPLES)
    }

    /// What the ops of the last training cost, if that was asked for.
    pub fn profile(&self) -> PathBuf {
        self.folder.join(PROFILE)
    }

    /// The checkpoint with the best validation loss.
    pub fn best(&self) -> PathBuf {
        self.folder.join("best")
    }

    /// The checkpoint of the last step.
    pub fn last(&self) -> PathBuf {
        self.folder.join("last")
    }

    /// The token files.
    pub fn data(&self) -> PathBuf {
        self.folder.join(DATA)
    }

    /// The checkpoint to sample from: the best, or the last where nothing was validated.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if nothing was saved yet.
    pub fn model(&self) -> Result<PathBuf> {
        let places = [self.best(), self.last()];
        if let Some(path) = places.iter().find(|path| checkpoint::exists(path)) {
            return Ok(path.clone());
        }
        Err(match places.into_iter().find(|path| checkpoint::is_damaged(path)) {
            Some(path) => Error::checkpoint(path, "is damaged: it has no model.safetensors")
                .with_hint("put back a copy of that file, or start a new run"),
            None => Error::checkpoint(&self.folder, "this run has not saved a checkpoint yet")
                .with_hint(format!(
                    "it saves at its first evaluation, at its end, and when interrupted; if it \
                         is not training any more: tinygpt train --overwrite --out-dir {}",
                    files::quoted(&self.folder)
                )),
        })
    }

    /// The checkpoint to go on from: the last, even one whose loading will say what it lacks, or
    /// the best where a kill came before the first last.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if nothing was saved yet.
    pub fn newest(&self) -> Result<PathBuf> {
        let last = self.last();
        let there = checkpoint::exists(&last) || checkpoint::is_damaged(&last);
        if there { Ok(last) } else { self.model() }
    }

    /// Removes what kills left of files that were being written; for who holds the [`lock`](Self::lock).
    pub(super) fn remove_left(&self) {
        files::remove_left(&self.folder, &[METRICS, CONFIG, TABLE, CHART, SAMPLES, PROFILE]);
    }

    /// Removes what a run makes but for its metrics, so that a kill on the way leaves a run.
    fn remove_files(&self) -> Result<()> {
        checkpoint::remove(&self.best())?;
        checkpoint::remove(&self.last())?;
        files::remove_only(&self.data(), &DATA_FILES)?;
        for (_, path) in event_files(&self.folder) {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
        files::remove_only(&self.folder, &[CONFIG, TABLE, CHART, SAMPLES, PROFILE])
    }
}

/// A run's file for TensorBoard that was begun so many seconds after 1970.
pub(super) fn event_file(folder: &Path, seconds: u64) -> PathBuf {
    folder.join(format!("{}{seconds:010}{}", EVENTS.0, EVENTS.1))
}

/// Those that are there, each with its seconds.
pub(super) fn event_files(folder: &Path) -> impl Iterator<Item = (u64, PathBuf)> {
    let seconds = |name: &str| name.strip_prefix(EVENTS.0)?.strip_suffix(EVENTS.1)?.parse().ok();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(move |entry| Some((seconds(entry.file_name().to_str()?)?, entry.path())))
}

/// The folders on the way to `path` that are not there, and itself if it is not, innermost first.
fn missing(path: &Path) -> Vec<PathBuf> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    path.ancestors().take_while(is_missing).map(Path::to_owned).collect()
}

fn is_run(folder: &Path) -> bool {
    folder.join(METRICS).is_file()
}

#[cfg(test)]
pub(super) mod tests;
