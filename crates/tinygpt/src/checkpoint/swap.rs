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
//! that saves repairs, and a lock on what it writes keeps a second one out. The names are long on purpose: people call their own copies `best.old`.

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
/// Those of `fill`, [`Error::Io`], and [`Error::Checkpoint`] if another process saves here. Then `folder` is what it was, and nothing is left beside it.
pub(crate) fn replace(
    folder: &Path,
    names: &[&str],
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let folder = &target(folder);
    refuse_foreign(folder, names)?;
    let new = beside(folder, SAVING);
    // The second is the first renamed, while its saver still tidies up.
    let held = [lock(&new)?, lock(folder)?];
    repair(folder, names)?;
    drop(held);
    let made = fs::create_dir_all(new.parent().unwrap_or(Path::new("")));
    match made.and_then(|()| fs::create_dir(&new)) {
        // Another began after it was looked for.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(busy(folder)),
        made => made.map_err(Error::io("create", &new))?,
    }
    let _held = lock(&new)?;
    let done =
        fill(&new).and_then(|()| switch(folder, &new, names).map_err(Error::io("replace", folder)));
    if done.is_err() {
        // The error that matters is the first one.
        let _ = fs::remove_dir_all(&new);
    }
    done
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
        Err(TryLockError::Error(_)) | Ok(()) => Ok(Some(file)),
    }
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
fn repair(folder: &Path, names: &[&str]) -> Result<()> {
    let (new, old) = (beside(folder, SAVING), beside(folder, REPLACED));
    refuse_users(&new, &old, folder, names)?;
    let survivor = current(folder);
    let repaired = (|| {
        if survivor != folder {
            fs::rename(&survivor, folder)?;
            sync_parent(folder)?;
        }
        if exists(&new) {
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
/// ours and the new one in its place.
fn refuse_users(new: &Path, old: &Path, folder: &Path, names: &[&str]) -> Result<()> {
    let known = |name: &std::ffi::OsString| names.iter().any(|known| name == known);
    let holds = |folder: &Path| -> Option<Vec<_>> {
        let entries = fs::read_dir(folder).ok()?;
        Some(entries.flatten().map(|entry| entry.file_name()).collect())
    };
    let saving = holds(new).is_some_and(|names| names.iter().all(known));
    let replaced = holds(old).is_some_and(|held| {
        let model = held.iter().any(|name| name == names[0]);
        model || held.is_empty() || (exists(folder) || exists(new)) && held.iter().any(known)
    });
    for (path, ours) in [(new, saving), (old, replaced)] {
        if exists(path) && !ours {
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
mod tests {
    use super::*;
    use crate::files::read_text;

    /// Makes `folder` with one file that says `content`; a checkpoint as far as this file knows.
    fn fill(folder: &Path, content: &str) -> Result<()> {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(super::super::MODEL), content).unwrap();
        Ok(())
    }

    fn content(folder: &Path) -> String {
        read_text(&folder.join(super::super::MODEL), 100).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn every_state_a_kill_can_leave_loads_and_is_repaired_by_the_next_save() {
        for (present, loaded) in [
            ("best", "best"),
            ("best saving", "best"),
            ("saving", "nothing"),
            ("saving replaced", "saving"),
            ("best replaced", "best"),
            ("replaced", "replaced"),
            ("", "nothing"),
        ] {
            let parent = tempfile::tempdir().unwrap();
            let best = parent.path().join("best");
            for which in present.split_whitespace() {
                let folder = if which == "best" {
                    best.clone()
                } else {
                    beside(&best, &format!(".{which}"))
                };
                fill(&folder, which).unwrap();
            }
            let found = current(&best);
            let found = if exists(&found) { content(&found) } else { "nothing".into() };
            assert_eq!(found, loaded, "{present}");
            assert_eq!(names(parent.path()).len(), present.split_whitespace().count());

            let failed = replace(&best, &FILES, |new| {
                fill(new, "half")?;
                Err(Error::checkpoint(new, "no space"))
            });
            assert!(failed.is_err());
            assert_eq!(exists(&best), loaded != "nothing", "{present}");
            assert!(!exists(&best) || content(&best) == loaded, "{present}");
            assert!(names(parent.path()).len() <= 1, "{present}: {:?}", names(parent.path()));

            replace(&best, &FILES, |new| fill(new, "next")).unwrap();
            assert_eq!(content(&best), "next", "{present}");
            assert_eq!(names(parent.path()), ["best"], "{present}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn of_two_that_save_at_once_the_second_is_refused_and_the_first_is_whole() {
        let parent = tempfile::tempdir().unwrap();
        let best = parent.path().join("best");
        for saved_before in [false, true] {
            assert_eq!(exists(&best), saved_before);
            replace(&best, &FILES, |new| {
                let error = replace(&best, &FILES, |new| fill(new, "second")).unwrap_err();
                assert!(error.to_string().contains("another process"), "{error}");
                fill(new, "first")
            })
            .unwrap();
            assert_eq!(content(&best), "first");
            assert_eq!(names(parent.path()), ["best"]);
        }
    }

    #[test]
    fn a_users_own_files_in_a_checkpoint_survive_saves_and_removal() {
        let parent = tempfile::tempdir().unwrap();
        let best = parent.path().join("best");
        replace(&best, &FILES, |new| fill(new, "1")).unwrap();
        fs::write(best.join("notes.txt"), "mine").unwrap();
        replace(&best, &FILES, |new| fill(new, "2")).unwrap();
        assert_eq!(names(&best), ["model.safetensors", "notes.txt"]);
        remove(&best).unwrap();
        assert_eq!(names(&best), ["notes.txt"]);
    }

    #[test]
    fn a_replaced_checkpoint_that_cannot_be_removed_is_no_failure_and_goes_with_the_next_save() {
        let parent = tempfile::tempdir().unwrap();
        let best = parent.path().join("best");
        replace(&best, &FILES, |new| fill(new, "1")).unwrap();
        let obstacle = |folder: &Path| folder.join(super::super::CONFIG);
        fs::create_dir(obstacle(&best)).unwrap();
        replace(&best, &FILES, |new| fill(new, "2")).unwrap();
        assert_eq!(content(&best), "2");
        assert_eq!(names(parent.path()), ["best", "best.replaced"]);
        assert!(replace(&best, &FILES, |new| fill(new, "3")).is_err());
        assert_eq!(content(&best), "2");
        fs::remove_dir(obstacle(&beside(&best, REPLACED))).unwrap();
        replace(&best, &FILES, |new| fill(new, "4")).unwrap();
        assert_eq!(content(&best), "4");
        assert_eq!(names(parent.path()), ["best"]);
    }

    #[test]
    fn a_users_folder_with_the_name_of_a_save_is_neither_removed_nor_moved() {
        for suffix in [SAVING, REPLACED] {
            for saved_before in [false, true] {
                let parent = tempfile::tempdir().unwrap();
                let best = parent.path().join("best");
                if saved_before {
                    replace(&best, &FILES, |new| fill(new, "1")).unwrap();
                }
                let mine = beside(&best, suffix);
                fs::create_dir(&mine).unwrap();
                fs::write(mine.join("thesis.tex"), "mine").unwrap();
                let error = replace(&best, &FILES, |new| fill(new, "2")).unwrap_err();
                assert!(error.to_string().contains("holds what no save wrote"), "{error}");
                assert_eq!(names(&mine), ["thesis.tex"]);
                assert_eq!(exists(&best), saved_before);
            }
        }
    }

    #[test]
    fn a_folder_of_other_things_is_never_replaced() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("thesis.tex"), "mine").unwrap();
        let error = replace(parent.path(), &FILES, |new| fill(new, "1")).unwrap_err();
        assert!(error.to_string().contains("neither empty nor a checkpoint"), "{error}");
        assert_eq!(names(parent.path()), ["thesis.tex"]);
    }

    #[test]
    fn a_users_file_is_never_replaced_by_a_checkpoint() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("book.txt");
        fs::write(&file, "my only copy").unwrap();
        let error = replace(&file, &FILES, |new| fill(new, "1")).unwrap_err();
        assert!(error.to_string().contains("is a file; a model is saved as a folder"), "{error}");
        let error = replace(&file.join("best"), &FILES, |new| fill(new, "1")).unwrap_err();
        assert!(error.to_string().contains("book.txt"), "{error}");
        assert_eq!(names(parent.path()), ["book.txt"]);
        assert_eq!(read_text(&file, 100).unwrap(), "my only copy");
    }

    #[cfg(unix)]
    #[test]
    fn a_users_file_behind_a_link_is_never_replaced_and_the_link_stays() {
        let parent = tempfile::tempdir().unwrap();
        let [file, link] = ["book.txt", "best"].map(|name| parent.path().join(name));
        fs::write(&file, "my only copy").unwrap();
        std::os::unix::fs::symlink("book.txt", &link).unwrap();
        let error = replace(&link, &FILES, |new| fill(new, "1")).unwrap_err();
        assert!(error.to_string().contains("is a file"), "{error}");
        assert!(link.is_symlink());
        assert_eq!(names(parent.path()), ["best", "book.txt"]);
        assert_eq!(read_text(&file, 100).unwrap(), "my only copy");
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_in_the_place_of_a_checkpoint_is_refused_without_being_opened() {
        let parent = tempfile::tempdir().unwrap();
        let socket = parent.path().join("best");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = replace(&socket, &FILES, |new| fill(new, "1")).unwrap_err();
        assert!(error.to_string().contains("is no folder"), "{error}");
        assert_eq!(names(parent.path()), ["best"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_in_a_circle_is_an_error_and_stays() {
        let parent = tempfile::tempdir().unwrap();
        let link = parent.path().join("best");
        std::os::unix::fs::symlink("best", &link).unwrap();
        assert!(replace(&link, &FILES, |new| fill(new, "1")).is_err());
        assert!(link.is_symlink());
        assert_eq!(names(parent.path()), ["best"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_checkpoint_behind_a_link_is_replaced_where_the_link_leads() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("best"));
        std::os::unix::fs::symlink("real", &link).unwrap();
        std::os::unix::fs::symlink("best", parent.path().join("twice")).unwrap();
        for (link, expected) in [("best", "1"), ("best", "2"), ("best/", "3"), ("twice", "4")] {
            let link = parent.path().join(link);
            replace(&link, &FILES, |new| fill(new, expected)).unwrap();
            assert_eq!(content(&real), expected);
        }
        assert_eq!(names(parent.path()), ["best", "real", "twice"]);
    }
}
