//! Token files: written, read, damaged.

use super::ids as all;
use crate::data::Tokens;
use crate::data::token_file::{HEADER, Header};
use crate::data::token_writer::TokenWriter;
use crate::tokenizer::Tokenizer;
use proptest::prelude::*;
use std::path::Path;

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

#[test]
fn ids_of_any_vocabulary_survive_the_file_without_wrapping() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.bin");
    for (vocab, width) in [(65, 2), (1 << 16, 2), ((1 << 16) + 1, 4), (70_000, 4)] {
        let tokenizer = numbered(vocab);
        let ids: Vec<u32> = [vocab - 1, 0, 66_000 % vocab].into_iter().cycle().take(9001).collect();
        assert_eq!(all(&written(&path, &tokenizer, &ids)), ids);
        let (tokens, text_bytes) = Tokens::open(&path, &tokenizer).unwrap();
        assert_eq!((tokens.width, text_bytes), (width, 9001));
        assert_eq!(all(&tokens), ids);
        assert_eq!(all(&Tokens::from_ids(&ids, vocab as usize).unwrap()), ids);
    }
    let names: Vec<_> = folder.path().read_dir().unwrap().map(|f| f.unwrap().file_name()).collect();
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
