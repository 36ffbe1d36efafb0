//! The tokens of a split, in memory or in a file, and the format of that file.
//!
//! Little-endian: a header of [`HEADER`] bytes, then the ids, two bytes each when the vocabulary
//! has at most 65,536 tokens and four otherwise.
//!
//! ```text
//! 0  magic "TGPTTOKS"        16  vocabulary size, u64     40  tokenizer fingerprint, u64
//! 8  format version, u32     24  tokens, u64
//! 12 bytes of an id, u32     32  bytes of the text, u64
//! ```
//!
//! A file appears whole or not at all: it is written beside its place, synced and renamed. Every id
//! is checked against the vocabulary once, here; whoever reads tokens may rely on it.

use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

const MAGIC: [u8; 8] = *b"TGPTTOKS";
const VERSION: u32 = 1;
/// Bytes before the first id.
const HEADER: usize = 48;

/// Token ids below a vocabulary size, read by position.
#[derive(Debug)]
pub struct Tokens {
    store: Store,
    /// Bytes of an id.
    width: usize,
    len: usize,
}

#[derive(Debug)]
enum Store {
    Memory(Vec<u8>),
    File { file: File, path: PathBuf },
}

impl Tokens {
    /// Tokens in memory.
    ///
    /// # Errors
    /// An id that is not below `vocab_size`.
    pub fn from_ids(ids: &[u32], vocab_size: usize) -> Result<Self> {
        check_ids(ids, 0, vocab_size, "the tokens")?;
        let width = width_for(vocab_size);
        let mut bytes = Vec::with_capacity(ids.len() * width);
        append_ids(&mut bytes, ids, width);
        Ok(Self { store: Store::Memory(bytes), width, len: ids.len() })
    }

    /// The tokens of a file that `tokenizer` wrote, and how many bytes of text they stand for.
    /// The ids stay in the file.
    ///
    /// # Errors
    /// A file that is missing, of another format or version, cut short, of another tokenizer, or
    /// that has an id outside the vocabulary.
    pub fn open(path: &Path, tokenizer: &Tokenizer) -> Result<(Self, u64)> {
        let wrong = |problem: String| Error::data(path.display().to_string(), problem);
        let (mut header, failed) = (Vec::with_capacity(HEADER), |e| Error::io("read", path)(e));
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        (&file).take(HEADER as u64).read_to_end(&mut header).map_err(failed)?;
        if !header.starts_with(&MAGIC) {
            return Err(wrong("is not a TinyGPT token file: it has no such header".into())
                .with_hint(
                    "a file of bare ids from elsewhere cannot be used; start from the text",
                ));
        }
        let Ok(header) = <[u8; HEADER]>::try_from(header) else {
            return Err(wrong(format!(
                "is cut short: expected at least {HEADER} bytes, have {size}"
            )));
        };
        let header = Header::from_bytes(&header);
        if header.version != VERSION {
            return Err(wrong(format!(
                "has format version {}; expected {VERSION}",
                header.version
            )));
        }
        let expected = Header {
            tokens: header.tokens,
            text_bytes: header.text_bytes,
            ..Header::of(tokenizer)
        };
        if header != expected {
            return Err(wrong(format!(
                "belongs to another tokenizer: found {}, expected {}",
                header.tokenizer(),
                expected.tokenizer()
            ))
            .with_hint("build the token files again from the text with this tokenizer"));
        }
        let expected_size = HEADER as u128 + header.tokens as u128 * header.width as u128;
        let len = usize::try_from(header.tokens).ok().filter(|_| expected_size == size as u128);
        let Some(len) = len else {
            return Err(wrong(format!("expected {expected_size} bytes, have {size}"))
                .with_hint("the file was cut short or changed: build it again from the text"));
        };
        let store = Store::File { file, path: path.into() };
        let tokens = Self { store, width: header.width as usize, len };
        tokens.check(tokenizer.vocab_size())?;
        Ok((tokens, header.text_bytes))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tokens from `start` on, as many as fit: `out` (n) written.
    ///
    /// # Errors
    /// A file that cannot be read.
    ///
    /// # Panics
    /// If they would lie outside the tokens.
    pub fn read(&self, start: usize, out: &mut [u32]) -> Result<()> {
        assert!(
            start <= self.len && out.len() <= self.len - start,
            "tokens {start}..+{} of {}",
            out.len(),
            self.len
        );
        let at = start * self.width;
        match &self.store {
            Store::Memory(bytes) => {
                decode_ids(&bytes[at..at + out.len() * self.width], out, self.width);
            }
            Store::File { file, path } => {
                // On the stack: a training step allocates nothing.
                let mut bytes = [0; 4096];
                let mut at = (HEADER + at) as u64;
                for out in out.chunks_mut(bytes.len() / self.width) {
                    let bytes = &mut bytes[..out.len() * self.width];
                    read_exact_at(file, bytes, at).map_err(Error::io("read", path))?;
                    decode_ids(bytes, out, self.width);
                    at += bytes.len() as u64;
                }
            }
        }
        Ok(())
    }

    fn check(&self, vocab_size: usize) -> Result<()> {
        let name = match &self.store {
            Store::File { path, .. } => path.display().to_string(),
            Store::Memory(_) => "the tokens".into(),
        };
        let mut ids = vec![0; self.len.min(1 << 16)];
        for start in (0..self.len).step_by(1 << 16) {
            let n = ids.len().min(self.len - start);
            self.read(start, &mut ids[..n])?;
            check_ids(&ids[..n], start, vocab_size, &name)?;
        }
        Ok(())
    }
}

/// Tokens that are being written, to memory or to a file.
pub(super) struct TokenWriter {
    out: Out,
    header: Header,
    /// The last ids as bytes, kept to use its memory again.
    bytes: Vec<u8>,
}

enum Out {
    Memory(Vec<u8>),
    File { file: BufWriter<NamedTempFile>, path: PathBuf },
}

impl TokenWriter {
    /// Writes to `path`, or to memory when there is none.
    pub fn new(path: Option<PathBuf>, tokenizer: &Tokenizer) -> Result<Self> {
        let out = match path {
            None => Out::Memory(Vec::new()),
            Some(path) => {
                let mut file = BufWriter::new(sibling(&path)?);
                file.write_all(&[0; HEADER]).map_err(Error::io("write", &path))?;
                Out::File { file, path }
            }
        };
        Ok(Self { out, header: Header::of(tokenizer), bytes: Vec::new() })
    }

    /// Appends the ids that stand for the next `text_bytes` bytes of the text.
    pub fn push(&mut self, ids: &[u32], text_bytes: usize) -> Result<()> {
        self.bytes.clear();
        append_ids(&mut self.bytes, ids, self.header.width as usize);
        self.header.tokens += ids.len() as u64;
        self.header.text_bytes += text_bytes as u64;
        match &mut self.out {
            Out::Memory(all) => all.extend_from_slice(&self.bytes),
            Out::File { file, path } => {
                file.write_all(&self.bytes).map_err(Error::io("write", path))?;
            }
        }
        Ok(())
    }

    /// The finished tokens, the file in its place, and how many bytes of text they stand for.
    pub fn finish(self) -> Result<(Tokens, u64)> {
        let Header { width, tokens, text_bytes, .. } = self.header;
        let store = match self.out {
            Out::Memory(bytes) => Store::Memory(bytes),
            Out::File { file, path } => {
                let whole = |file: BufWriter<NamedTempFile>| {
                    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                    file.rewind()?;
                    file.write_all(&self.header.to_bytes())?;
                    Ok(file)
                };
                let file = whole(file).map_err(Error::io("write", &path))?;
                Store::File { file: put(file, &path)?, path }
            }
        };
        Ok((Tokens { store, width: width as usize, len: tokens as usize }, text_bytes))
    }
}

/// A temporary file beside `path`, removed unless it is [`put`] there.
pub(super) fn sibling(path: &Path) -> Result<NamedTempFile> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // A temporary file is private by default; this one is to become an ordinary file.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.prefix(".tmp-").tempfile_in(folder).map_err(Error::io("write", path))
}

/// Moves a written file to its place, whole.
pub(super) fn put(file: NamedTempFile, path: &Path) -> Result<File> {
    file.as_file()
        .sync_all()
        .and_then(|()| file.persist(path).map_err(|error| error.error))
        .map_err(Error::io("write", path))
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Header {
    version: u32,
    width: u32,
    vocab_size: u64,
    tokens: u64,
    text_bytes: u64,
    fingerprint: u64,
}

impl Header {
    /// The header of an empty file.
    fn of(tokenizer: &Tokenizer) -> Self {
        Self {
            version: VERSION,
            width: width_for(tokenizer.vocab_size()) as u32,
            vocab_size: tokenizer.vocab_size() as u64,
            tokens: 0,
            text_bytes: 0,
            fingerprint: tokenizer.fingerprint(),
        }
    }

    fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.width.to_le_bytes());
        let words = [self.vocab_size, self.tokens, self.text_bytes, self.fingerprint];
        for (place, word) in bytes[16..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let [version, width] = [word(8) as u32, (word(8) >> 32) as u32];
        let [vocab_size, tokens, text_bytes, fingerprint] =
            [word(16), word(24), word(32), word(40)];
        Self { version, width, vocab_size, tokens, text_bytes, fingerprint }
    }

    fn tokenizer(&self) -> String {
        format!(
            "a vocabulary of {} with {}-byte ids (fingerprint {:016x})",
            self.vocab_size, self.width, self.fingerprint
        )
    }
}

fn width_for(vocab_size: usize) -> usize {
    if vocab_size <= 1 << 16 { 2 } else { 4 }
}

fn append_ids(bytes: &mut Vec<u8>, ids: &[u32], width: usize) {
    match width {
        2 => bytes.extend(ids.iter().flat_map(|&id| (id as u16).to_le_bytes())),
        _ => bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes())),
    }
}

fn decode_ids(bytes: &[u8], ids: &mut [u32], width: usize) {
    for (id, bytes) in ids.iter_mut().zip(bytes.chunks_exact(width)) {
        *id = match *bytes {
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => unreachable!("an id has two or four bytes, not {width}"),
        };
    }
}

fn check_ids(ids: &[u32], start: usize, vocab_size: usize, name: &str) -> Result<()> {
    match ids.iter().position(|&id| id as usize >= vocab_size) {
        None => Ok(()),
        Some(at) => Err(Error::data(
            name,
            format!("token id {} at offset {} >= vocab_size {vocab_size}", ids[at], start + at),
        )),
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => (bytes, at) = (&mut bytes[n..], at + n as u64),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbered(n: u32) -> Tokenizer {
        Tokenizer::from_chars((0..).filter_map(char::from_u32).take(n as usize))
    }

    fn written(path: &Path, tokenizer: &Tokenizer, ids: &[u32]) -> Tokens {
        let mut writer = TokenWriter::new(Some(path.into()), tokenizer).unwrap();
        for ids in ids.chunks(1000) {
            writer.push(ids, ids.len()).unwrap();
        }
        let (tokens, text_bytes) = writer.finish().unwrap();
        assert_eq!(text_bytes, ids.len() as u64);
        tokens
    }

    fn all(tokens: &Tokens) -> Vec<u32> {
        let mut ids = vec![0; tokens.len()];
        tokens.read(0, &mut ids).unwrap();
        ids
    }

    #[test]
    fn ids_of_any_vocabulary_survive_the_file_without_wrapping() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.bin");
        for (vocab, width) in [(65, 2), (1 << 16, 2), ((1 << 16) + 1, 4), (70_000, 4)] {
            let tokenizer = numbered(vocab);
            let ids: Vec<u32> =
                [vocab - 1, 0, 66_000 % vocab].into_iter().cycle().take(9001).collect();
            assert_eq!(all(&written(&path, &tokenizer, &ids)), ids);
            let (tokens, text_bytes) = Tokens::open(&path, &tokenizer).unwrap();
            assert_eq!((tokens.width, text_bytes), (width, 9001));
            assert_eq!(all(&tokens), ids);
            assert_eq!(all(&Tokens::from_ids(&ids, vocab as usize).unwrap()), ids);
        }
        let names: Vec<_> =
            folder.path().read_dir().unwrap().map(|f| f.unwrap().file_name()).collect();
        assert_eq!(names, ["train.bin"], "no temporary file stays behind");
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_found_when_the_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.bin");
        let mut ids = vec![64; 100_000];
        written(&path, &numbered(65), &ids);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[HEADER + 2 * 70_000..][..2].copy_from_slice(&300u16.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let error = Tokens::open(&path, &numbered(65)).unwrap_err().to_string();
        assert!(error.ends_with("token id 300 at offset 70000 >= vocab_size 65"), "{error}");

        ids[3] = 65;
        let error = Tokens::from_ids(&ids, 65).unwrap_err().to_string();
        assert!(error.ends_with("token id 65 at offset 3 >= vocab_size 65"), "{error}");
    }

    #[test]
    fn damaged_and_foreign_files_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.bin");
        let tokenizer = numbered(65);
        written(&path, &tokenizer, &[1, 2, 3]);
        let good = std::fs::read(&path).unwrap();
        assert_eq!(good.len(), HEADER + 6);
        let error_of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Tokens::open(&path, &tokenizer).unwrap_err().to_string()
        };
        let with = |at: usize, word: u32| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            bytes
        };
        for (bytes, message) in [
            (good[..53].to_vec(), "expected 54 bytes, have 53"),
            ([&good[..], &[0]].concat(), "expected 54 bytes, have 55"),
            (good[..20].to_vec(), "expected at least 48 bytes, have 20"),
            (vec![1; 100], "is not a TinyGPT token file"),
            (vec![], "is not a TinyGPT token file"),
            (with(8, 2), "has format version 2; expected 1"),
            (with(12, 4), "with 4-byte ids"),
            (with(16, 66), "found a vocabulary of 66"),
            (with(40, 7), "belongs to another tokenizer"),
            (with(28, u32::MAX), "bytes, have 54"),
        ] {
            let error = error_of(&bytes);
            assert!(error.contains(message), "{message}: {error}");
        }
        let missing = Tokens::open(&folder.path().join("none"), &tokenizer).unwrap_err();
        assert!(missing.to_string().starts_with("cannot read"), "{missing}");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let path = Path::new("/nonexistent-folder/train.bin");
        let error = TokenWriter::new(Some(path.into()), &Tokenizer::Byte).err().unwrap();
        assert!(error.to_string().contains("/nonexistent-folder/train.bin"), "{error}");
    }

    proptest! {
        #[test]
        fn no_file_makes_the_reader_panic(mut bytes: Vec<u8>, keep in 0usize..=HEADER, tail: Vec<u8>) {
            let header = Header { tokens: 2, ..Header::of(&Tokenizer::Byte) }.to_bytes();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("x");
            bytes.splice(..0, header[..keep].iter().copied());
            std::fs::write(&path, [bytes, tail].concat()).unwrap();
            if let Ok((tokens, _)) = Tokens::open(&path, &Tokenizer::Byte) {
                all(&tokens);
            }
        }
    }
}
