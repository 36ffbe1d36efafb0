//! Finding texts: files, all of a folder, standard input, the built-in one.
//!
//! The same texts can be read several times; what can be read only once (standard input, a pipe)
//! is copied first.

use super::reader::{Damage, Newline, Reader};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// 1,115,394 bytes of ASCII, 65 different ones; `build.rs` puts it here.
static TINY_SHAKESPEARE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tinyshakespeare.txt"));

/// Where the text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The text of nanoGPT's first example, part of this library.
    TinyShakespeare,
    /// Files, in this order. A folder stands for all `.txt` files below it, sorted by name; `-` is
    /// standard input.
    Paths(Vec<PathBuf>),
}

impl Input {
    /// What it is called: a path is given from the current folder on where it is below that.
    pub fn name(&self) -> String {
        let shown = |path: &Path| {
            if path == Path::new("-") {
                return STANDARD_INPUT.to_owned();
            }
            let here = std::env::current_dir().unwrap_or_default();
            let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            match whole.strip_prefix(here) {
                Ok(below) if below != Path::new("") => below.display().to_string(),
                _ => path.display().to_string(),
            }
        };
        match self {
            Input::TinyShakespeare => super::TINY_SHAKESPEARE.into(),
            Input::Paths(paths) => match &paths[..] {
                [] => "the text".into(),
                [one] => shown(one),
                [first, rest @ ..] => format!("{} and {} more", shown(first), rest.len()),
            },
        }
    }
}

const STANDARD_INPUT: &str = "standard input";

/// Texts that can be read from the beginning as often as needed.
pub(super) struct Corpus {
    name: String,
    texts: Vec<Text>,
    newline: Newline,
    damage: Damage,
    /// What was left out of a folder.
    notices: Vec<String>,
}

/// Where one text ends and the next begins, for [`Corpus::read`]'s taker.
pub(super) struct Ends {
    token: Option<u32>,
    source: Option<usize>,
}

impl Ends {
    pub fn new(tokenizer: &Tokenizer) -> Self {
        Self { token: tokenizer.end_of_text(), source: None }
    }

    /// The token that ends the text before the next piece, one of the text `source`, if another text
    /// was before it.
    pub fn before(&mut self, source: usize) -> Option<u32> {
        let former = self.source.replace(source);
        self.token.filter(|_| former.is_some_and(|former| former != source))
    }
}

struct Text {
    name: String,
    place: Place,
    bytes: u64,
}

enum Place {
    Embedded(&'static [u8]),
    Memory(Vec<u8>),
    Path(PathBuf),
    /// An unnamed copy of something that can be read only once.
    Copy(File),
}

impl Corpus {
    /// Finds all texts. `dir` is where to copy those that can be read only once (memory if `None`).
    pub fn open(
        input: &Input,
        newline: Newline,
        damage: Damage,
        dir: Option<&Path>,
    ) -> Result<Self> {
        let (mut texts, mut notices) = (Vec::new(), Vec::new());
        match input {
            Input::TinyShakespeare => texts.push(Text {
                name: super::TINY_SHAKESPEARE.into(),
                place: Place::Embedded(TINY_SHAKESPEARE),
                bytes: TINY_SHAKESPEARE.len() as u64,
            }),
            Input::Paths(paths) => {
                for path in paths {
                    if path.is_dir() {
                        for file in text_files(path, &mut notices)? {
                            texts.push(Text::at(&file, dir)?);
                        }
                    } else {
                        texts.push(Text::at(path, dir)?);
                    }
                }
            }
        }
        if texts.is_empty() {
            return Err(Error::data(input.name(), "no file was named"));
        }
        Ok(Self { name: input.name(), texts, newline, damage, notices })
    }

    /// The texts' names, in order.
    pub fn names(&self) -> Vec<&str> {
        self.texts.iter().map(|text| text.name.as_str()).collect()
    }

    /// All texts in a few words.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.texts.iter().map(|text| text.bytes).sum()
    }

    /// Reads everything: `take(text's index, piece)`, `progress(bytes so far)`. Gives the notices.
    pub fn read(
        &self,
        take: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<String>> {
        let (mut notices, mut done, mut open_line) = (self.notices.clone(), 0, None);
        for (i, text) in self.texts.iter().enumerate() {
            let mut take = |piece: &[u8]| {
                if let Some(former) = open_line.filter(|&former| former != i) {
                    take(former, b"\n")?;
                }
                open_line = (!piece.ends_with(b"\n")).then_some(i);
                take(i, piece)
            };
            let mut source = text.open().map_err(Error::io("read", Path::new(&text.name)))?;
            let mut reader = Reader::new(&text.name, self.newline, self.damage, &mut take);
            reader.read(&mut source, &mut |bytes| progress(done + bytes))?;
            notices.extend(reader.notices());
            if text.bytes == 0 {
                notices.push(format!("{} is empty", text.name));
            }
            done += text.bytes;
        }
        Ok(notices)
    }
}

impl Text {
    fn at(path: &Path, dir: Option<&Path>) -> Result<Self> {
        let failed = |error| Error::io("read", path)(error);
        if path == Path::new("-") {
            return Self::copy(&mut io::stdin().lock(), STANDARD_INPUT, dir);
        }
        let name = path.display().to_string();
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if is_device(&metadata) {
            return Err(Error::data(name, "is a device, which may never end; expected a text"));
        }
        if !metadata.is_file() {
            return Self::copy(&mut file, &name, dir);
        }
        Ok(Self { name, place: Place::Path(path.into()), bytes: metadata.len() })
    }

    fn copy(from: &mut dyn Read, name: &str, dir: Option<&Path>) -> Result<Self> {
        let failed = Error::io("copy", Path::new(name));
        let copied = match dir {
            None => {
                let mut bytes = Vec::new();
                from.read_to_end(&mut bytes).map(|n| (Place::Memory(bytes), n as u64))
            }
            Some(dir) => tempfile::tempfile_in(dir).and_then(|mut file| {
                let bytes = io::copy(from, &mut file)?;
                Ok((Place::Copy(file), bytes))
            }),
        };
        let (place, bytes) = copied.map_err(failed)?;
        Ok(Self { name: name.into(), place, bytes })
    }

    fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        Ok(match &self.place {
            Place::Embedded(bytes) => Box::new(*bytes),
            Place::Memory(bytes) => Box::new(&bytes[..]),
            Place::Path(path) => Box::new(File::open(path)?),
            Place::Copy(file) => {
                let mut file = file;
                file.rewind()?;
                Box::new(file)
            }
        })
    }
}

#[cfg(unix)]
fn is_device(metadata: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    kind.is_char_device() || kind.is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: &Metadata) -> bool {
    false
}

/// All `.txt` files below a folder, sorted by name, folder by folder. What cannot be read is left
/// out with a notice: nobody named it.
fn text_files(folder: &Path, notices: &mut Vec<String>) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut left_out = |path: &Path, why: &dyn Display| {
        notices.push(format!("{} was left out: {why}", path.display()));
    };
    // A run's samples are no text to learn from.
    let walk = walkdir::WalkDir::new(folder).follow_links(true).sort_by_file_name();
    let walk = walk.into_iter().filter_entry(|entry| !entry.path().join("metrics.jsonl").is_file());
    for entry in walk {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if error.depth() == 0 => {
                return Err(Error::io("read", folder)(error.into()));
            }
            Err(error) => {
                let path = error.path().unwrap_or(folder).to_owned();
                match error.loop_ancestor() {
                    Some(above) => {
                        left_out(&path, &format_args!("it leads back to {}", above.display()));
                    }
                    None => left_out(&path, error.io_error().expect("no loop")),
                }
                continue;
            }
        };
        let is_text = entry.path().extension().is_some_and(|end| end.eq_ignore_ascii_case("txt"));
        if !is_text || entry.file_type().is_dir() {
            continue;
        }
        // Not opened: a pipe would wait for its writer.
        if !entry.file_type().is_file() {
            left_out(entry.path(), &"it is no regular file");
            continue;
        }
        match File::open(entry.path()) {
            Ok(_) => files.push(entry.into_path()),
            Err(error) => left_out(entry.path(), &error),
        }
    }
    if files.is_empty() {
        return Err(Error::data(folder.display().to_string(), "no .txt file in this folder")
            .with_hint(match notices.first() {
                Some(notice) => notice,
                None => "name the files themselves if they end in something else",
            }));
    }
    Ok(files)
}
