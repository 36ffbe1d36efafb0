//! A file that only grows, and what of it could not be written yet.

use crate::error::{Error, Result};
use crate::files;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The file. What is added is in it when the call returns; what could not be written (a full disk)
/// comes with the next that can.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    unwritten: Vec<u8>,
}

impl Log {
    /// A file that begins with `contents`, in place of one that is there.
    pub fn begin(path: &Path, contents: impl AsRef<[u8]>) -> Result<Self> {
        files::write_whole(path, contents)?;
        Self::open(path)
    }

    /// The file that is there, or an empty one.
    pub fn open(path: &Path) -> Result<Self> {
        let file = files::open_to_append(path)?;
        Ok(Self { path: path.to_owned(), file, unwritten: Vec::new() })
    }

    /// Appends, with what could not be written before.
    pub fn add(&mut self, contents: &[u8]) -> Result<()> {
        self.unwritten.extend_from_slice(contents);
        files::append(&mut self.file, &self.unwritten).map_err(Error::io("write", &self.path))?;
        self.unwritten.clear();
        Ok(())
    }
}
