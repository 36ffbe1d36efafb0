//! Whole files, written so that a reader sees the old one or the new one and never a part.
//!
//! A file is written beside its place under a new name, `.NAME.tmp-` and six letters, flushed to the
//! disk, and renamed. A kill leaves at most that one. **Nothing else is ever written to**: neither a
//! file that happens to be beside it, nor a pipe or device in its place.

use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Puts `contents` at `path`, all or nothing.
///
/// # Errors
/// [`Error::Io`]: what was there before stays, and nothing is left beside it. Only when the very
/// last flush fails, of the name, `contents` are there already, if perhaps not on the disk.
pub fn write_whole(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    write_whole_by(path, |file| file.write_all(contents.as_ref()))
}

/// Puts what `write` writes at `path`, all or nothing.
///
/// # Errors
/// As for [`write_whole`].
pub(crate) fn write_whole_by(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<()> {
    let mut file = sibling(path)?;
    write(file.as_file_mut()).map_err(Error::io("write", path))?;
    put(file, path).map(|_| ())
}

/// A temporary file beside `path`, removed unless it is [`put`] there.
///
/// # Errors
/// [`Error::Io`], also if what is at `path` is no regular file.
pub(crate) fn sibling(path: &Path) -> Result<NamedTempFile> {
    let path = place(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // A temporary file is private by default; this one is to become an ordinary file.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.prefix(&temporary(&path)).tempfile_in(folder);
    file.map_err(Error::io("write", &path))
}

/// Moves a written file to its place, whole.
///
/// # Errors
/// As for [`sibling`].
pub(crate) fn put(file: NamedTempFile, path: &Path) -> Result<File> {
    let path = &place(path)?;
    file.as_file()
        .sync_all()
        .and_then(|()| file.persist(path).map_err(|error| error.error))
        .and_then(|file| sync_parent(path).map(|()| file))
        .map_err(Error::io("write", path))
}

/// How the names of the temporary files begin that become `path`.
fn temporary(path: &Path) -> OsString {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tmp-");
    name
}

/// Whether the file `found` is what a killed [`write_whole`] of `name` left.
pub(crate) fn is_left_of(name: &str, found: &OsStr) -> bool {
    let start = temporary(Path::new(name));
    let random = found.as_encoded_bytes().strip_prefix(start.as_encoded_bytes());
    random.is_some_and(|random| random.len() == 6)
}

/// Where a file of that name is written: where a link leads, so that the link stays.
///
/// # Errors
/// [`Error::Io`] if what is there is no regular file: a rename would take its place.
pub fn place(path: &Path) -> Result<PathBuf> {
    let place = match fs::metadata(path) {
        Ok(there) if there.is_file() => path.is_symlink().then(|| path.canonicalize()).transpose(),
        Ok(there) => {
            let what = kind(there.file_type());
            Err(io::Error::other(format!("it is {what}; expected a regular file or a new name")))
        }
        Err(_) => Ok(None),
    };
    Ok(place.map_err(Error::io("write", path))?.unwrap_or_else(|| path.to_owned()))
}

/// What is there, in words.
fn kind(of: fs::FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if of.is_fifo() {
            return "a pipe";
        }
        if of.is_char_device() || of.is_block_device() {
            return "a device";
        }
        if of.is_socket() {
            return "a socket";
        }
    }
    if of.is_dir() { "a folder" } else { "no regular file" }
}

/// Bytes of the longest log that is read: a run of tens of millions of steps.
const LONGEST_LOG: u64 = 1 << 32;

/// The text of a log, with U+FFFD where it is not UTF-8: a kill may have cut a character.
pub(crate) fn read_log(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    open(path)?.take(LONGEST_LOG + 1).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    if bytes.len() as u64 > LONGEST_LOG {
        let problem = format!("is larger than {LONGEST_LOG} bytes");
        return Err(Error::data(path.display().to_string(), problem));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a text file of at most `most` bytes.
///
/// # Errors
/// [`Error::Io`] when it cannot be read, [`Error::Data`] when it is no regular file, larger than
/// that, or not UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    read_all(open(path)?, most, path)
}

/// [`read_text`] of something that the user named, which may be a pipe too.
///
/// # Errors
/// As for `read_text`; a folder.
pub fn read_named(path: &Path, most: u64) -> Result<String> {
    if path.is_dir() {
        return Err(Error::data(path.display().to_string(), "is a folder; expected a file"));
    }
    read_all(File::open(path).map_err(Error::io("read", path))?, most, path)
}

/// All of `from`, a text of at most `most` bytes, which errors call `name`.
///
/// # Errors
/// As for [`read_text`].
pub fn read_all(from: impl Read, most: u64, name: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    // One byte more than allowed: the size is what can be read, not what the system claims.
    from.take(most + 1).read_to_end(&mut bytes).map_err(Error::io("read", name))?;
    let name = || name.display().to_string();
    if bytes.len() as u64 > most {
        return Err(Error::data(name(), format!("is larger than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::data(name(), format!("is not UTF-8 text (byte {at})"))
    })
}

/// Opens a regular file for reading; a folder, pipe or device is refused.
pub(crate) fn open(path: &Path) -> Result<File> {
    // Asked before opening: opening a pipe would wait for its writer.
    let kind = fs::metadata(path).map_err(Error::io("read", path))?;
    if !kind.is_file() {
        let what = if kind.is_dir() { "is a folder" } else { "is no regular file" };
        return Err(Error::data(path.display().to_string(), format!("{what}; expected a file")));
    }
    File::open(path).map_err(Error::io("read", path))
}

/// Creates `path`, which is new, lets `write` fill it, and waits until it is on the disk.
pub(crate) fn write_synced(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    write(&mut file)?;
    file.sync_all()
}

/// Opens `path`, creating it if need be, for [`append`].
pub(crate) fn open_to_append(path: &Path) -> Result<File> {
    // Not `append(true)`: on Windows that right alone does not let a file be shortened.
    let options = File::options().write(true).create(true).truncate(false).open(path);
    options.map_err(Error::io("open", path))
}

/// Writes `contents` at the end of the file, or nothing: half a line would spoil the next one.
pub(crate) fn append(file: &mut File, contents: &[u8]) -> io::Result<()> {
    let end = file.seek(SeekFrom::End(0))?;
    // In one call, so that a kill cuts at most the end.
    let written = file.write_all(contents);
    if written.is_err() {
        let _ = file.set_len(end);
    }
    written
}

/// Waits until the names in a folder (new files, renames) are on the disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    // Windows opens no folders as files, and writes names through.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// [`sync_folder`] of the folder that `path` is in.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => sync_folder(parent),
        Some(_) => sync_folder(Path::new(".")),
        None => Ok(()),
    }
}

/// A path as a shell takes it: in quotes if need be, and never taken for a flag.
pub fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let path = if path.starts_with('-') { format!("./{path}") } else { path };
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    match !path.is_empty() && path.chars().all(plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// The sibling of `path` whose name is longer by `suffix`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    // Not `path + suffix`: "best/" would become "best/.tmp", inside instead of beside.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// What killed [`write_whole`]s of those files left in `folder`.
fn left_of(folder: &Path, names: &[&str]) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| names.iter().any(|name| is_left_of(name, &entry.file_name())))
        .map(|entry| entry.path())
}

/// Removes what killed [`write_whole`]s of those files left in `folder`, where nobody writes them
/// now. What cannot be removed stays: it is in nobody's way.
pub(crate) fn remove_left(folder: &Path, names: &[&str]) {
    left_of(folder, names).for_each(|path| _ = fs::remove_file(path));
}

/// Removes those files from `folder`, with what a killed [`write_whole`] left of them, and the
/// folder if it is empty then. A folder that is not there is fine.
pub(crate) fn remove_only(folder: &Path, names: &[&str]) -> Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    for path in left_of(folder, names).chain(names.iter().map(|name| folder.join(name))) {
        gone(fs::remove_file(&path)).map_err(Error::io("remove", &path))?;
    }
    match gone(fs::remove_dir(folder)) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other.map_err(Error::io("remove", folder)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_replaces_the_whole_file_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        write_whole(&path, "long first contents").unwrap();
        write_whole(&path, "second").unwrap();
        assert_eq!(read_text(&path, 6).unwrap(), "second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_users_file_beside_the_target_is_not_touched_and_what_a_kill_left_goes_with_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mine) = (folder.path().join("a.toml"), folder.path().join("a.toml.tmp"));
        fs::write(&mine, "mine").unwrap();
        write_whole(&path, "new").unwrap();
        assert_eq!(read_text(&mine, 9).unwrap(), "mine");
        sibling(&path).unwrap().keep().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        remove_only(folder.path(), &["a.toml"]).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_not_replaced_and_a_link_stays_one() {
        let error = write_whole(Path::new("/dev/null"), "new").unwrap_err().to_string();
        assert!(error.contains("/dev/null") && error.contains("a device"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("real"), "old").unwrap();
        std::os::unix::fs::symlink("real", at("link")).unwrap();
        std::os::unix::fs::symlink("link", at("to link")).unwrap();
        write_whole(&at("to link"), "new").unwrap();
        assert_eq!(read_text(&at("real"), 9).unwrap(), "new");
        assert!(at("link").is_symlink() && at("to link").is_symlink());
    }

    #[test]
    fn a_failed_write_leaves_what_was_there_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "").unwrap();
        let error = write_whole(&path, "new").unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
        assert!(path.join("inside").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn paths_in_commands_are_quoted_where_a_shell_needs_it() {
        for (path, shown) in [
            ("runs/quick-2", "runs/quick-2"),
            ("my run", "'my run'"),
            ("it's", r"'it'\''s'"),
            ("~/a", "'~/a'"),
            ("-x", "./-x"),
            ("größe", "größe"),
            ("", "''"),
        ] {
            assert_eq!(quoted(Path::new(path)), shown);
        }
    }

    #[test]
    fn texts_that_are_too_long_or_no_text_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, b"abc\xFFd").unwrap();
        assert!(read_text(&path, 4).unwrap_err().to_string().contains("larger than 4 bytes"));
        assert!(read_text(&path, 5).unwrap_err().to_string().contains("UTF-8 text (byte 3)"));
        assert!(read_text(folder.path(), 5).unwrap_err().to_string().contains("is a folder"));
        assert!(read_text(&folder.path().join("b"), 5).unwrap_err().to_string().contains("read"));
        assert!(read_named(folder.path(), 5).unwrap_err().to_string().contains("is a folder"));
    }

    #[cfg(unix)]
    #[test]
    fn what_never_ends_is_refused_at_its_limit() {
        let zeros = Path::new("/dev/zero");
        let error = read_named(zeros, 1000).unwrap_err().to_string();
        assert!(error.contains("/dev/zero") && error.contains("larger than 1000"), "{error}");
        assert!(read_text(zeros, 9).unwrap_err().to_string().contains("no regular file"));
        assert!(read_log(zeros).unwrap_err().to_string().contains("no regular file"));
    }
}
