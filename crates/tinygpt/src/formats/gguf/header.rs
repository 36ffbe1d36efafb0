//! Reads what stands before the data: keys with their values, and where the tensors lie.

use super::{TOKEN_TYPES, kind};
use crate::checkpoint::stored::{Number, Q8_BLOCK, Stored, truncated};
use crate::error::Error;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// A value of a key, of the kinds that are looked at.
#[derive(Debug)]
pub(super) enum Value {
    Int(u64),
    Float(f64),
    Text(String),
    Texts(Vec<String>),
    Ints(Vec<u32>),
    /// Of a kind that nothing here needs.
    Skipped,
}

/// The bytes of one value of that kind, where all have as many.
fn width(kind: u32) -> Option<u64> {
    match kind {
        kind::U8 | kind::I8 | kind::BOOL => Some(1),
        kind::U16 | kind::I16 => Some(2),
        kind::U32 | kind::I32 | kind::F32 => Some(4),
        kind::U64 | kind::I64 | kind::F64 => Some(8),
        _ => None,
    }
}

/// What is wrong with a header.
pub(super) enum Fault {
    Io(io::Error),
    /// It needs so many bytes.
    Short(u64),
    Problem(String),
}

impl Fault {
    pub fn of(self, path: &Path, size: u64) -> Error {
        match self {
            Self::Io(error) => Error::io("read", path)(error),
            Self::Short(expected) => truncated(path, expected, " or more", size),
            Self::Problem(problem) => {
                Error::checkpoint(path, problem).with_hint("copy or download it again")
            }
        }
    }
}

type Part<T> = std::result::Result<T, Fault>;
pub(super) type Keys = BTreeMap<String, Value>;

/// The part of the file before its data.
pub(super) struct Header<'a> {
    file: BufReader<&'a File>,
    at: u64,
    size: u64,
}

impl<'a> Header<'a> {
    /// That of a file of `size` bytes.
    pub fn new(file: &'a File, size: u64) -> Self {
        Self { file: BufReader::new(file), at: 0, size }
    }

    pub fn read(mut self) -> Part<(Keys, Vec<(String, Stored)>)> {
        let problem = |text: &str| Err(Fault::Problem(text.into()));
        if &self.array::<4>()? != b"GGUF" {
            return problem("is no GGUF file");
        }
        let version = u32::from_le_bytes(self.array()?);
        if !(2..=3).contains(&version) {
            return Err(Fault::Problem(format!("has GGUF version {version}; 2 and 3 are read")));
        }
        let (tensors, count) = (self.int()?, self.int()?);
        let mut keys = Keys::new();
        for _ in 0..count {
            let name = self.text()?;
            let kind = u32::from_le_bytes(self.array()?);
            let value = match kind {
                kind::ARRAY => self.list(name == TOKEN_TYPES)?,
                kind => self.value(kind)?,
            };
            keys.insert(name, value);
        }
        let mut infos = Vec::new();
        for _ in 0..tensors {
            infos.push(self.tensor()?);
        }
        let alignment = match keys.get("general.alignment") {
            Some(&Value::Int(n)) if n > 0 && n <= 1 << 16 => n,
            None => 32,
            Some(_) => return problem("has an impossible general.alignment"),
        };
        let start = self.at.next_multiple_of(alignment);
        for (_, stored) in &mut infos {
            stored.start = stored.start.saturating_add(start);
        }
        Ok((keys, infos))
    }

    fn tensor(&mut self) -> Part<(String, Stored)> {
        let name = self.text()?;
        let n = u32::from_le_bytes(self.array()?);
        if n > 4 {
            return Err(Fault::Problem(format!("has a tensor of {n} dimensions")));
        }
        let mut shape = Vec::new();
        for _ in 0..n {
            let dim = usize::try_from(self.int()?);
            shape.push(dim.map_err(|_| Fault::Problem("has an impossible shape".into()))?);
        }
        shape.reverse();
        let kind = u32::from_le_bytes(self.array()?);
        let number = match kind {
            0 => Number::F32,
            1 => Number::F16,
            // A row is whole blocks.
            8 if shape.last().is_some_and(|dim| dim.is_multiple_of(Q8_BLOCK)) => Number::Q8,
            30 => Number::Bf16,
            other => Number::Other(format!("GGML type {other}")),
        };
        Ok((name, Stored { file: 0, start: self.int()?, number, shape, transposed: false }))
    }

    fn value(&mut self, kind: u32) -> Part<Value> {
        Ok(match kind {
            kind::U8 => Value::Int(self.array::<1>()?[0].into()),
            kind::U16 => Value::Int(u16::from_le_bytes(self.array()?).into()),
            kind::U32 => Value::Int(u32::from_le_bytes(self.array()?).into()),
            kind::U64 => Value::Int(self.int()?),
            kind::I32 => match u64::try_from(i32::from_le_bytes(self.array()?)) {
                Ok(int) => Value::Int(int),
                Err(_) => Value::Skipped,
            },
            kind::F32 => Value::Float(shortest(f32::from_le_bytes(self.array()?))),
            kind::F64 => Value::Float(f64::from_le_bytes(self.array()?)),
            kind::TEXT => Value::Text(self.text()?),
            kind::BOOL | kind::I8 | kind::I16 | kind::I64 => {
                self.skip(width(kind).unwrap_or_default())?;
                Value::Skipped
            }
            other => return Err(Fault::Problem(format!("has a value of kind {other}"))),
        })
    }

    /// A list; one of numbers only if they are `wanted`, because others take more room in memory
    /// than in the file.
    fn list(&mut self, wanted: bool) -> Part<Value> {
        let (of, n) = (u32::from_le_bytes(self.array()?), self.int()?);
        if let Some(width) = width(of) {
            if wanted && matches!(of, kind::U32 | kind::I32) {
                self.need(n.saturating_mul(width))?;
                let ints =
                    (0..n).map(|_| self.array().map(u32::from_le_bytes)).collect::<Part<_>>()?;
                return Ok(Value::Ints(ints));
            }
            self.skip(n.saturating_mul(width))?;
            return Ok(Value::Skipped);
        }
        if of != kind::TEXT {
            return Err(Fault::Problem(format!("has a list of values of kind {of}")));
        }
        // Each has its length before it, so a list longer than the file is not begun.
        self.need(n.saturating_mul(8))?;
        let mut texts = Vec::new();
        for _ in 0..n {
            texts.push(self.text()?);
        }
        Ok(Value::Texts(texts))
    }

    fn text(&mut self) -> Part<String> {
        let length = self.int()?;
        self.need(length)?;
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| Fault::Problem("has a text that is not UTF-8".into()))
    }

    fn int(&mut self) -> Part<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Part<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Part<()> {
        self.need(bytes.len() as u64)?;
        self.at += bytes.len() as u64;
        self.file.read_exact(bytes).map_err(Fault::Io)
    }

    fn skip(&mut self, bytes: u64) -> Part<()> {
        self.need(bytes)?;
        self.at += bytes;
        self.file.seek(SeekFrom::Start(self.at)).map(drop).map_err(Fault::Io)
    }

    /// Whether the file has so many bytes more.
    fn need(&self, bytes: u64) -> Part<()> {
        match self.at.saturating_add(bytes) {
            end if end > self.size => Err(Fault::Short(end)),
            _ => Ok(()),
        }
    }
}

/// In decimal, so that 1e-5 in 32 bits is 1e-5 in 64.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
