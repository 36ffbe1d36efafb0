//! What a file is that is no model's, told by its first bytes.

use crate::error::Error;
use std::path::Path;

/// As many first bytes as [`error`] wants to see.
pub(crate) const ENOUGH: u64 = 64;

/// The error for a file that begins with `first` and is not what was expected.
pub(crate) fn error(path: &Path, first: &[u8]) -> Error {
    let Some((what, hint)) = recognise(first) else {
        let shown: String = first
            .iter()
            .take(12)
            .flat_map(|&b| std::ascii::escape_default(b))
            .map(char::from)
            .collect();
        return Error::checkpoint(path, format!("is no model's file (it begins with \"{shown}\")"));
    };
    Error::checkpoint(path, format!("is {what}, where a model's file is expected")).with_hint(hint)
}

fn recognise(first: &[u8]) -> Option<(&'static str, &'static str)> {
    const RENAMED: &str = "it is another format under this name: give it its own folder and name \
        (ckpt.pt of nanoGPT's, MODEL.gguf), and name the file itself";
    const PYTORCH: &str = "nanoGPT's ckpt.pt is read if torch.save wrote it as a zip archive, its \
        default since 2020: load and save it once more with torch";
    let text = first.trim_ascii_start().to_ascii_lowercase();
    match first {
        _ if first.starts_with(b"version https://git-lfs") => Some((
            "a Git LFS pointer, which only names the real file",
            "fetch the real file: git lfs pull",
        )),
        _ if text.starts_with(b"<!doctype html") || text.starts_with(b"<html") => {
            Some(("an HTML page", "the download got a web page; use the link of the file itself"))
        }
        [b'P', b'K', 3 | 5, 4 | 6, ..] => {
            Some(("a zip archive, as PyTorch's torch.save writes", RENAMED))
        }
        [0x80, 2..=5, ..] => Some(("a Python pickle, as older PyTorch writes", PYTORCH)),
        [b'G', b'G', b'U', b'F', ..] => Some(("a GGUF file, llama.cpp's format", RENAMED)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_named_with_what_to_do() {
        for (first, name, what_to_do) in [
            (
                &b"version https://git-lfs.github.com/spec/v1\noid"[..],
                "Git LFS pointer",
                "git lfs pull",
            ),
            (b"\n<!DOCTYPE html><html>", "HTML page", "link of the file"),
            (b"PK\x03\x04\x00\x00\x08\x08", "zip archive", "ckpt.pt"),
            (b"\x80\x02\x8a\x0al\xfc\x9c", "Python pickle", "zip archive"),
            (b"GGUF\x03\x00\x00\x00", "GGUF", "MODEL.gguf"),
        ] {
            let error = error(Path::new("model.safetensors"), first);
            assert!(error.to_string().contains(name), "{error}");
            assert!(error.hint().unwrap().contains(what_to_do), "{:?}", error.hint());
        }
        let error = error(Path::new("a"), b"First Citizen:\n");
        assert!(error.to_string().contains("begins with \"First Citize\""), "{error}");
    }
}
