//! Replacing a checkpoint folder as a whole, so that a kill at any moment leaves one to load.
//!
//! ```text
//!   1  write every file into best.saving, each flushed to the disk, then the folder itself
//!   2  rename best        -> best.replaced
//!   3  rename best.saving -> best
//!   4  remove best.replaced
//! ```
//!
//! **Invariant: `best` is moved away only when `best.saving` is complete.** So what a kill leaves
//! explains itself, without a marker file:
//!
//! ```text
//!   best  saving  replaced   killed in    what is loaded   what the next save does first
//!    x                       -            best             nothing
//!    x      x                1            best             remove best.saving, perhaps a part
//!           x                1, no best   nothing          remove best.saving, perhaps a part
//!           x        x       between 2,3  best.saving      finish 3 and 4
//!    x               x       4            best             finish 4
//!                    x       -            best.replaced    put it back (somebody removed a folder)
//! ```
//!
//! Loading only looks, because another process may be saving at that moment; only the one process
//! that saves repairs, and locks keep a second one out ([`Held`]). The names are long on purpose:
//! people call their own copies `best.old`.

use super::FILES;
use crate::error::{Error, Result};
use crate::files::{beside, sync_folder, sync_parent};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const SAVING: &str = ".saving";
const REPLACED: &str = ".replaced";

/// Makes `folder` be what `fill` writes into the folder it is given, all or nothing. Of what it held
/// the files of those `names` go, and every other stays.
///
/// # Errors
/// Those of `fill`, [`Error::Io`], and [`Error::Checkpoint`] if another process saves here. Then
/// `folder` is what it was, and nothing is left beside it.
pub(crate) fn replace(
    folder: &Path,
    names: &[&str],
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let folder = &target(folder);
    refuse_foreign(folder, names)?;
    let new = beside(folder, SAVING);
    let held = Held::take(folder)?;
    repair(folder, names, &held)?;
    let made = fs::create_dir_all(new.parent().unwrap_or(Path::new("")));
    match made.and_then(|()| fs::create_dir(&new)) {
        // Another began after it was looked for.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(busy(folder)),
        made => made.map_err(Error::io("create", &new))?,
    }
    let written = lock(&new)?;
    if written.is_none() && !(exists(&new) && is_still(&new, None)) {
        // Another took it for what a kill left, before it was locked.
        return Err(busy(folder));
    }
    drop(held);
    let done =
        fill(&new).and_then(|()| switch(folder, &new, names).map_err(Error::io("replace", folder)));
    if done.is_err() {
        // The error that matters is the first one.
        let _ = fs::remove_dir_all(&new);
    }
    done
}

/// The locks of one who is about to save: on the folder and, of those beside it, on what was there.
/// Whoever fills a folder holds the one on what it fills, also after that is renamed.
struct Held {
    saving: Option<File>,
    _others: [Option<File>; 2],
}

impl Held {
    /// # Errors
    /// Another process saves, or did while this one looked.
    fn take(folder: &Path) -> Result<Self> {
        let paths = [folder.to_owned(), beside(folder, SAVING), beside(folder, REPLACED)];
        let [whole, saving, replaced] = [lock(&paths[0])?, lock(&paths[1])?, lock(&paths[2])?];
        // Each was looked at alone: together they say what is there only if they still do.
        let locks = [&whole, &saving, &replaced];
        if !paths.iter().zip(locks).all(|(path, lock)| is_still(path, lock.as_ref())) {
            return Err(busy(folder));
        }
        Ok(Self { saving, _others: [whole, replaced] })
    }

    /// Whether an unfinished folder at `new` is what a kill left. One that came since is another's,
    /// which making it once more will tell.
    fn is_left(&self, new: &Path) -> bool {
        // Where folders cannot be locked there is no telling.
        exists(new) && (self.saving.is_some() || cfg!(not(unix)))
    }
}

/// Keeps other processes from writing the folder while the result lives. None where it is not there,
/// or where there are no locks.
fn lock(folder: &Path) -> Result<Option<File>> {
    // To open a pipe would be to wait for who writes to it.
    let Some(file) = folder.is_dir().then(|| File::open(folder).ok()).flatten() else {
        return Ok(None);
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(busy(folder)),
        // Before it was locked, another process finished and put another in its place.
        _ if !is_still(folder, Some(&file)) => Err(busy(folder)),
        Err(TryLockError::Error(_)) | Ok(()) => Ok(Some(file)),
    }
}

/// Whether the path is still that of the locked folder; of none that can be locked, if none was.
#[cfg(unix)]
fn is_still(path: &Path, locked: Option<&File>) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (fs::metadata(path), locked.map(File::metadata)) {
        (Ok(there), Some(Ok(held))) => (there.dev(), there.ino()) == (held.dev(), held.ino()),
        (Ok(_), None) => !path.is_dir() || File::open(path).is_err(),
        (Err(_), None) => true,
        (Err(_), Some(_)) | (Ok(_), Some(Err(_))) => false,
    }
}

#[cfg(not(unix))]
fn is_still(_: &Path, _: Option<&File>) -> bool {
    true
}

fn busy(folder: &Path) -> Error {
    Error::checkpoint(folder, "another process is writing there at this moment; nothing saved")
        .with_hint("wait for it to end, or choose another folder")
}

/// Steps 2 to 4.
fn switch(folder: &Path, new: &Path, names: &[&str]) -> std::io::Result<()> {
    let old = beside(folder, REPLACED);
    sync_folder(new)?;
    sync_parent(new)?;
    if exists(folder) {
        fs::rename(folder, &old)?;
    }
    // The old one goes only when the new one's name is on the disk.
    if let Err(error) = fs::rename(new, folder).and_then(|()| sync_parent(folder)) {
        let _ = fs::rename(folder, new);
        let _ = fs::rename(&old, folder);
        return Err(error);
    }
    // The new one is saved; what stays of the old one, the next save removes.
    let _ = retire(&old, folder, names);
    Ok(())
}

/// The folder to read `folder` from: itself, or what a killed save left (see the table).
pub(crate) fn current(folder: &Path) -> PathBuf {
    let folder = target(folder);
    let (new, old) = (beside(&folder, SAVING), beside(&folder, REPLACED));
    match (exists(&folder), exists(&new), exists(&old)) {
        (false, true, true) => new,
        (false, false, true) => old,
        _ => folder,
    }
}

/// Brings what a killed save left to an end (see the table).
fn repair(folder: &Path, names: &[&str], held: &Held) -> Result<()> {
    let (new, old) = (beside(folder, SAVING), beside(folder, REPLACED));
    let left = held.is_left(&new);
    refuse_users(left.then_some(&*new), &old, folder, names)?;
    let survivor = current(folder);
    let repaired = (|| {
        if survivor != folder {
            fs::rename(&survivor, folder)?;
            sync_parent(folder)?;
        }
        if left && exists(&new) {
            fs::remove_dir_all(&new)?;
        }
        retire(&old, folder, names)
    })();
    repaired.map_err(Error::io("repair", folder))
}

/// Removes a replaced checkpoint; files that are not ours move to the one in its place.
fn retire(old: &Path, folder: &Path, names: &[&str]) -> std::io::Result<()> {
    if !exists(old) {
        return Ok(());
    }
    let ours = |entry: &fs::DirEntry| names.iter().any(|&name| entry.file_name() == name);
    let entries: Vec<_> = fs::read_dir(old)?.collect::<std::io::Result<_>>()?;
    // Ours last: by them the folder is known as a replaced one after a kill in between.
    for entry in entries.iter().filter(|entry| !ours(entry)) {
        fs::rename(entry.path(), folder.join(entry.file_name()))?;
    }
    for entry in entries.iter().filter(|entry| ours(entry)) {
        fs::remove_file(entry.path())?;
    }
    fs::remove_dir(old)
}

/// Removes the files of the checkpoint at `folder`, what a killed save left of it, and the folders
/// that are empty then. Files that are not ours stay.
pub(super) fn remove(folder: &Path) -> Result<()> {
    let target = target(folder);
    // The checkpoint itself last: a kill must not leave one that is repaired into existence.
    for folder in [beside(&target, SAVING), beside(&target, REPLACED), target] {
        crate::files::remove_only(&folder, &FILES)?;
    }
    Ok(())
}

/// A folder with files, none of which is the first of `names`, a model, is somebody's, and so is
/// whatever is no folder: a save must not move it about.
fn refuse_foreign(folder: &Path, names: &[&str]) -> Result<()> {
    let found = match fs::metadata(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("save to", folder)(error)),
    };
    // Told by its kind alone: to open a pipe is to wait for who writes to it.
    if !found.is_dir() {
        let what = if found.is_file() { "a file" } else { "no folder" };
        let problem = format!("is {what}; a model is saved as a folder; nothing saved");
        return Err(Error::checkpoint(folder, problem).with_hint("choose a new name"));
    }
    let mut entries = fs::read_dir(folder).map_err(Error::io("read", folder))?;
    if entries.next().is_some() && !exists(&folder.join(names[0])) {
        return Err(Error::checkpoint(folder, "is neither empty nor a checkpoint; nothing saved")
            .with_hint("choose a new folder"));
    }
    Ok(())
}

/// A user's own folder may have the name of one that a save makes: what is in it tells. One that is
/// being written has our files only; one that was replaced has the model, or else what is left of
/// ours and the new one in its place. No `new` is one that another process is writing.
fn refuse_users(new: Option<&Path>, old: &Path, folder: &Path, names: &[&str]) -> Result<()> {
    let known = |name: &std::ffi::OsString| names.iter().any(|known| name == known);
    let holds = |folder: &Path| -> Option<Vec<_>> {
        let entries = fs::read_dir(folder).ok()?;
        Some(entries.flatten().map(|entry| entry.file_name()).collect())
    };
    let new = new.filter(|new| exists(new));
    let saving = new.and_then(holds).is_some_and(|names| names.iter().all(known));
    let replaced = holds(old).is_some_and(|held| {
        let model = held.iter().any(|name| name == names[0]);
        model || held.is_empty() || (exists(folder) || new.is_some()) && held.iter().any(known)
    });
    for (path, ours) in [(new, saving), (Some(old), replaced)] {
        if let Some(path) = path.filter(|path| exists(path) && !ours) {
            let problem = "is in the way of saving, and holds what no save wrote; nothing saved";
            return Err(Error::checkpoint(path, problem).with_hint("move it, or save elsewhere"));
        }
    }
    Ok(())
}

/// Where a link leads, or a path without a name of its own: renaming must happen there.
fn target(folder: &Path) -> PathBuf {
    // Without a slash at the end, behind which a link is not seen.
    let folder: PathBuf = folder.components().collect();
    let indirect = folder.is_symlink() || folder.file_name().is_none();
    if let (true, Ok(real)) = (indirect, folder.canonicalize()) {
        return real;
    }
    match fs::read_link(&folder) {
        Ok(to) => folder.parent().unwrap_or(Path::new("")).join(to),
        Err(_) => folder,
    }
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests;
