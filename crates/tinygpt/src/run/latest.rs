//! `runs/latest`, which names the newest run: a link, or a text file where links cannot be.

use crate::error::{Error, Result};
use crate::files;
use std::path::{Path, PathBuf};

pub(super) const LATEST: &str = "latest";

/// Makes `runs/latest` name that run, by a path that is relative to `runs` if the run is in it.
pub(super) fn point_latest(runs: &Path, to: &Path) -> Result<()> {
    let path = runs.join(LATEST);
    #[cfg(unix)]
    {
        // A link cannot be overwritten, but renamed over; under a name of its own, because another
        // run may be starting.
        let link = tempfile::Builder::new()
            .prefix(".latest-")
            .make_in(runs, |new| std::os::unix::fs::symlink(to, new));
        if let Ok(link) = link {
            let placed = link.into_temp_path().persist(&path);
            return placed.map_err(|error| Error::io("write", &path)(error.error));
        }
    }
    files::write_whole(&path, format!("{}\n", to.display()))
}

/// The folder a path names, be it through the text file that stands in for a link.
pub(super) fn followed(path: &Path) -> Option<PathBuf> {
    if path.is_file() && path.file_name()? == LATEST {
        let name = files::read_text(path, 1 << 12).ok()?;
        return Some(path.parent()?.join(name.trim()));
    }
    path.is_dir().then(|| path.to_owned())
}
