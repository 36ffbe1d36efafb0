//! A folder for tokens in the making, gone with the program that makes them.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const PREFIX: &str = ".preparing-";
/// Younger ones may not have been locked yet by who makes them.
const SURELY_LOCKED: Duration = Duration::from_secs(60);

/// The folder. A second process sees by its lock that it is in use.
pub struct Room {
    folder: TempDir,
    _lock: Option<File>,
}

impl Room {
    /// One on the disk where the tokens will be, in the first folder of that path that exists, so that
    /// what fails leaves nothing. Those that a kill left there are removed.
    pub fn beside(place: Option<&Path>) -> Result<Self> {
        let here = Path::new(".");
        let mut above = place.into_iter().flat_map(Path::ancestors);
        let beside = above.find(|folder| folder.is_dir()).unwrap_or(here);
        // Where there was no folder of runs yet, it was here.
        [beside, here].into_iter().for_each(sweep);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(beside);
        let folder = folder.map_err(Error::io("write in", beside))?;
        let lock = File::open(folder.path()).ok().filter(|file| file.try_lock().is_ok());
        Ok(Self { folder, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes what killed programs left in a folder: old enough, and locked by nobody. What cannot be
/// looked at or removed is in nobody's way.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX) && path.is_dir();
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if ours && age().is_some_and(|age| age > SURELY_LOCKED) && unlocked(&path) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Where folders cannot be opened there are no locks, and nobody can tell.
fn unlocked(folder: &Path) -> bool {
    File::open(folder).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_a_kill_left_is_removed_and_what_is_in_use_or_young_or_a_users_stays() {
        let parent = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - Duration::from_secs(600);
        let make = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("train.bin"), "").unwrap();
            File::open(&path).unwrap().set_modified(old).unwrap();
            path
        };
        let (left, used, mine) = (make(".preparing-a"), make(".preparing-b"), make("preparing"));
        let lock = File::open(&used).unwrap();
        lock.try_lock().unwrap();
        let young = parent.path().join(".preparing-c");
        fs::create_dir(&young).unwrap();
        let room = Room::beside(Some(&parent.path().join("runs/new"))).unwrap();
        assert_eq!(room.path().parent(), Some(parent.path()));
        assert!(!left.exists() && used.exists() && mine.exists() && young.exists());
        File::open(room.path()).unwrap().set_modified(old).unwrap();
        sweep(parent.path());
        assert!(room.path().exists(), "locked by this test");
    }
}
