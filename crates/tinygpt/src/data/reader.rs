//! Reading a text: bytes -> checked UTF-8, piece by piece.
//!
//! No piece is longer than [`CHUNK`] bytes, and no character is cut. Pieces are bytes, because who
//! takes bytes for tokens may have any.

use crate::error::{Error, Result};
use crate::tokenizer::is_cut_short;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// Bytes read at once. Tests read so little that everything is cut somewhere.
const CHUNK: usize = if cfg!(test) { 16 } else { 1 << 20 };

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

/// One reading of one text.
pub(super) struct Reader<'a> {
    /// What the text is called.
    name: &'a str,
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
    pub fn new(
        name: &'a str,
        newline: Newline,
        damage: Damage,
        take: &'a mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Self {
        Self {
            name,
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

    /// Reads `source` to its end; `progress` counts its bytes.
    pub fn read(&mut self, source: &mut dyn Read, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let path = Path::new(self.name);
        let mut buffer = Vec::with_capacity(CHUNK);
        loop {
            // The buffer begins with what the last round held back.
            let room = (CHUNK - buffer.len()) as u64;
            let n = (&mut *source).take(room).read_to_end(&mut buffer);
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
        let utf = |bits: u32, because: &str| {
            Error::data(self.name, format!("looks like UTF-{bits} ({because}), not UTF-8"))
                .with_hint(format!("convert it first: iconv -f UTF-{bits} -t UTF-8 FILE"))
        };
        // The longer marks first: one of them begins with one of the shorter.
        const MARKS: [(u32, &[u8]); 4] = [
            (32, &[0xff, 0xfe, 0, 0]),
            (32, &[0, 0, 0xfe, 0xff]),
            (16, &[0xff, 0xfe]),
            (16, &[0xfe, 0xff]),
        ];
        let marked = MARKS.iter().find(|(_, mark)| bytes.starts_with(mark));
        if let Some((bits, _)) = marked.filter(|_| self.damage != Damage::Keep) {
            return Err(utf(*bits, "it starts with its byte order mark"));
        }
        // As git does: a NUL near the beginning is no text.
        let head = &bytes[..bytes.len().min(8192)];
        let nul = head.iter().position(|&byte| byte == 0);
        if let Some(at) = nul.filter(|_| self.damage == Damage::Refuse) {
            let nuls = |first, step| {
                head.iter().skip(first).step_by(step).filter(|&&byte| byte == 0).count()
            };
            if head.len() >= 8 && nuls(1, 4) + nuls(2, 4) > head.len() * 2 / 5 {
                return Err(utf(32, "three of four bytes are 0"));
            }
            if head.len() >= 4 && nuls(0, 2).abs_diff(nuls(1, 2)) > head.len() / 4 {
                return Err(utf(16, "every other byte is 0"));
            }
            return Err(Error::data(self.name, format!("is not a text: byte {at} is 0"))
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
            self.name,
            format!("is not UTF-8: {damage}{ends} at byte {offset} (line {line})"),
        )
        .with_hint(
            "convert it first (iconv -f ITS-ENCODING -t UTF-8 FILE), or read it with --lossy, \
             which replaces what is damaged by U+FFFD; `--tokenizer byte` takes any bytes",
        )
    }

    /// What the user should know about this text.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.had_mark {
            notices.push("a byte order mark at the beginning was left out".to_owned());
        }
        match (self.returns, self.newline) {
            (0, _) => {}
            (n, Newline::Keep) => notices.push(format!(
                "Windows line ends (\\r, {n} times) are kept: \\r is a token of its own, one more \
                 than the same text has with \\n; --newline normalize avoids it"
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
        notices.iter().map(|notice| format!("{}: {notice}", self.name)).collect()
    }
}
