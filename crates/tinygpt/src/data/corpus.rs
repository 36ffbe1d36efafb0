//! Reading texts: bytes from somewhere -> checked UTF-8, piece by piece.
//!
//! The same texts can be read several times; what can be read only once (standard input, a pipe)
//! is copied first. No piece is longer than [`CHUNK`] bytes, and no character is cut. Pieces are bytes,
//! because who takes bytes for tokens may have any.

use crate::error::{Error, Result};
use crate::tokenizer::is_cut_short;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// 1,115,394 bytes of ASCII, 65 different ones; `build.rs` puts it here.
static TINY_SHAKESPEARE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tinyshakespeare.txt"));

/// Bytes read at once. Tests read so little that everything is cut somewhere.
const CHUNK: usize = if cfg!(test) { 16 } else { 1 << 20 };

/// Where the text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The text of nanoGPT's first example, part of this library.
    TinyShakespeare,
    /// Files, in this order. A folder stands for all `.txt` files below it, sorted by name; `-` is
    /// standard input.
    Paths(Vec<PathBuf>),
}

/// What to do with the line ends of Windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Newline {
    /// Keep every character: `\r` is one like any other.
    #[default]
    Keep,
    /// `\r\n` and a lone `\r` become `\n`.
    Normalize,
}

/// What to do with bytes that are not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// Say where they are, and what the file may be instead.
    Refuse,
    /// U+FFFD in their place.
    Replace,
    /// Any byte is welcome.
    Keep,
}

/// Texts that can be read from the beginning as often as needed.
pub(super) struct Corpus {
    texts: Vec<Text>,
    newline: Newline,
    damage: Damage,
    /// What was left out of a folder.
    notices: Vec<String>,
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
            return Err(Error::data("the text", "no file was named"));
        }
        Ok(Self { texts, newline, damage, notices })
    }

    /// The texts' names, in order.
    pub fn names(&self) -> Vec<&str> {
        self.texts.iter().map(|text| text.name.as_str()).collect()
    }

    /// All texts in a few words.
    pub fn name(&self) -> String {
        match &self.texts[..] {
            [one] => one.name.clone(),
            [first, rest @ ..] => format!("{} and {} more", first.name, rest.len()),
            [] => unreachable!("a corpus has a text"),
        }
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
            let mut reader = Reader::new(text, self.newline, self.damage, &mut take);
            reader.read(&mut |bytes| progress(done + bytes))?;
            notices.extend(reader.notices());
            done += text.bytes;
        }
        Ok(notices)
    }
}

impl Text {
    fn at(path: &Path, dir: Option<&Path>) -> Result<Self> {
        let failed = |error| Error::io("read", path)(error);
        if path == Path::new("-") {
            return Self::copy(&mut io::stdin().lock(), "standard input", dir);
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

/// All `.txt` files below a folder, sorted by name, folder by folder. What cannot be read is left out
/// with a notice: nobody named it.
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
            Err(error) if error.depth() == 0 => return Err(Error::io("read", folder)(error.into())),
            Err(error) => {
                let path = error.path().unwrap_or(folder).to_owned();
                match error.loop_ancestor() {
                    Some(above) => {
                        left_out(&path, &format_args!("it leads back to {}", above.display()));
                    }
                    None => left_out(&path, &io::Error::from(error)),
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

/// One reading of one text.
struct Reader<'a> {
    text: &'a Text,
    newline: Newline,
    damage: Damage,
    take: &'a mut dyn FnMut(&[u8]) -> Result<()>,
    /// Bytes of the text before the next one to be looked at, and its line from 1.
    offset: u64,
    line: u64,
    /// Whether the last character was a `\r` (already written as `\n` when normalizing).
    after_return: bool,
    had_mark: bool,
    returns: u64,
    /// Places that are not UTF-8, and where the first was.
    damaged: u64,
    first_damaged: (u64, u64),
}

impl<'a> Reader<'a> {
    fn new(
        text: &'a Text,
        newline: Newline,
        damage: Damage,
        take: &'a mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Self {
        Self {
            text,
            newline,
            damage,
            take,
            offset: 0,
            line: 1,
            after_return: false,
            had_mark: false,
            returns: 0,
            damaged: 0,
            first_damaged: (0, 0),
        }
    }

    fn read(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let path = Path::new(&self.text.name);
        let mut source = self.text.open().map_err(Error::io("read", path))?;
        let mut buffer = Vec::with_capacity(CHUNK);
        loop {
            // The buffer begins with what the last round held back.
            let room = (CHUNK - buffer.len()) as u64;
            let n = source.by_ref().take(room).read_to_end(&mut buffer);
            let end = n.map_err(Error::io("read", path))? == 0;
            let skipped = if self.offset == 0 { self.beginning(&buffer)? } else { 0 };
            self.offset += skipped as u64;
            let held_back = self.pass_on(&buffer[skipped..], end)?;
            progress(self.offset);
            if end {
                return Ok(());
            }
            buffer.drain(..buffer.len() - held_back);
        }
    }

    /// Looks at the first bytes; how many of them are a mark and not text.
    fn beginning(&mut self, bytes: &[u8]) -> Result<usize> {
        let utf_16 = |problem: &str| {
            Error::data(&self.text.name, problem)
                .with_hint("convert it first: iconv -f UTF-16 -t UTF-8 FILE")
        };
        let utf_16_mark = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
        if utf_16_mark && self.damage != Damage::Keep {
            return Err(utf_16(
                "looks like UTF-16 (it starts with its byte order mark), not UTF-8",
            ));
        }
        // As git does: a NUL near the beginning is no text.
        let head = &bytes[..bytes.len().min(8192)];
        let nul = head.iter().position(|&byte| byte == 0);
        if let Some(at) = nul.filter(|_| self.damage == Damage::Refuse) {
            let nuls = |first| head.iter().skip(first).step_by(2).filter(|&&b| b == 0).count();
            if head.len() >= 4 && nuls(0).abs_diff(nuls(1)) > head.len() / 4 {
                return Err(utf_16("looks like UTF-16 (every other byte is 0), not UTF-8"));
            }
            return Err(Error::data(&self.text.name, format!("is not a text: byte {at} is 0"))
                .with_hint("is this the right file? `--tokenizer byte` takes any bytes"));
        }
        self.had_mark = bytes.starts_with("\u{feff}".as_bytes());
        Ok(if self.had_mark { "\u{feff}".len() } else { 0 })
    }

    /// Passes on all text in `bytes`; how many bytes at the end are half a character.
    fn pass_on(&mut self, bytes: &[u8], end: bool) -> Result<usize> {
        let mut left = bytes.len();
        for chunk in bytes.utf8_chunks() {
            self.offset += chunk.valid().len() as u64;
            self.line += chunk.valid().bytes().filter(|&byte| byte == b'\n').count() as u64;
            self.emit(chunk.valid())?;
            let damage = chunk.invalid();
            left -= chunk.valid().len() + damage.len();
            if damage.is_empty() {
                continue;
            }
            if left == 0 && !end && is_cut_short(damage) {
                return Ok(damage.len());
            }
            if self.damage == Damage::Refuse {
                return Err(self.not_utf_8(damage, end && left == 0));
            }
            if self.damaged == 0 {
                self.first_damaged = (self.offset, self.line);
            }
            self.damaged += 1;
            self.offset += damage.len() as u64;
            match self.damage {
                Damage::Keep => {
                    self.after_return = false;
                    (self.take)(damage)?;
                }
                _ => self.emit("\u{fffd}")?,
            }
        }
        Ok(0)
    }

    fn emit(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if !self.after_return && !text.contains('\r') {
            return (self.take)(text.as_bytes());
        }
        self.returns += text.bytes().filter(|&byte| byte == b'\r').count() as u64;
        if self.newline == Newline::Keep {
            return (self.take)(text.as_bytes());
        }
        let text = match self.after_return {
            true => text.strip_prefix('\n').unwrap_or(text),
            false => text,
        };
        self.after_return = text.ends_with('\r');
        match text.is_empty() {
            true => Ok(()),
            false => (self.take)(text.replace("\r\n", "\n").replace('\r', "\n").as_bytes()),
        }
    }

    fn not_utf_8(&self, damage: &[u8], at_end: bool) -> Error {
        let damage: Vec<String> = damage.iter().map(|byte| format!("0x{byte:02X}")).collect();
        let (damage, offset, line) = (damage.join(" "), self.offset, self.line);
        let ends = if at_end { " and the end of the file" } else { "" };
        Error::data(
            &self.text.name,
            format!("is not UTF-8: {damage}{ends} at byte {offset} (line {line})"),
        )
        .with_hint(
            "convert it first (iconv -f ITS-ENCODING -t UTF-8 FILE), or read it with lossy = true, \
             which replaces what is damaged by U+FFFD; `--tokenizer byte` takes any bytes",
        )
    }

    /// What the user should know about this text.
    fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.had_mark {
            notices.push("a byte order mark at the beginning was left out".to_owned());
        }
        match (self.returns, self.newline) {
            (0, _) => {}
            (n, Newline::Keep) => notices.push(format!(
                "Windows line ends (\\r, {n} times) are kept: \\r is a token of its own, one more \
                 than the same text has with \\n; newline = normalize avoids it"
            )),
            (n, Newline::Normalize) => {
                notices.push(format!("Windows line ends (\\r\\n, {n} times) were turned into \\n"));
            }
        }
        if self.damaged > 0 {
            let (offset, line) = self.first_damaged;
            let what = match self.damage {
                Damage::Keep => "places that are not UTF-8, kept byte by byte",
                _ => "damaged places replaced by U+FFFD",
            };
            let n = self.damaged;
            notices.push(format!("{what}: {n}, the first at byte {offset} (line {line})"));
        }
        let name = &self.text.name;
        let mut notices: Vec<_> =
            notices.iter().map(|notice| format!("{name}: {notice}")).collect();
        if self.text.bytes == 0 {
            notices.push(format!("{name} is empty"));
        }
        notices
    }
}
