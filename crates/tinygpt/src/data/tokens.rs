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

use super::token_file::{HEADER, Header, MAGIC, VERSION, append_ids, decode_ids, width_for};
use crate::error::{Error, Result};
use crate::files;
use crate::tokenizer::Tokenizer;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Token ids below a vocabulary size, read by position.
#[derive(Debug)]
pub struct Tokens {
    pub(super) store: Store,
    /// Bytes of an id.
    pub(super) width: usize,
    pub(super) len: usize,
}

#[derive(Debug)]
pub(super) enum Store {
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
        let file = files::open(path)?;
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
    use crate::data::token_file::TokenWriter;
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
        fn no_file_makes_the_reader_panic(keep in 0usize..=HEADER, mut bytes: Vec<u8>) {
            let header = Header { tokens: 2, ..Header::of(&Tokenizer::Byte) }.to_bytes();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("x");
            bytes.splice(..0, header[..keep].iter().copied());
            std::fs::write(&path, bytes).unwrap();
            if let Ok((tokens, _)) = Tokens::open(&path, &Tokenizer::Byte) {
                all(&tokens);
            }
        }
    }
}
