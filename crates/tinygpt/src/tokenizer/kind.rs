//! What a user asks for when they ask for tokens.

use super::{Bpe, LONGEST_FILE, TOKENIZER_FILE, Tokenizer};
use crate::error::{Error, Result};
use crate::files;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// What a token is to stand for. In files and on the command line: `char`, `byte`, `gpt2`,
/// `bpe:4096`, or the path of what has a `tokenizer.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TokenizerKind {
    /// A character (Unicode scalar value) that occurs in the training text.
    #[default]
    Char,
    /// A byte of the text's UTF-8: any text, 256 tokens.
    Byte,
    /// A run of bytes out of GPT-2's 50,257.
    Gpt2,
    /// A run of bytes out of so many that are learned from the training text.
    Bpe(usize),
    /// What a `tokenizer.json` says.
    File(PathBuf),
}

impl TokenizerKind {
    /// The forms there are, in words.
    pub const FORMS: &str =
        "char, byte, gpt2, bpe:SIZE, a tokenizer.json, a folder with one, a model, or a run";
    /// The fewest tokens that can be learned: the bytes and one more.
    pub const SMALLEST: usize = 257;
    /// The most: more than any text fills.
    pub const LARGEST: usize = 1 << 20;

    /// The tokenizer, if it is there before any text is: characters and runs of bytes are learned.
    ///
    /// # Errors
    /// A file that is missing, or that is no tokenizer.
    pub fn ready(&self) -> Result<Option<Tokenizer>> {
        Ok(Some(match self {
            TokenizerKind::Char | TokenizerKind::Bpe(_) => return Ok(None),
            TokenizerKind::Byte => Tokenizer::Byte,
            TokenizerKind::Gpt2 => Tokenizer::Bpe(Bpe::gpt2()),
            TokenizerKind::File(path) => Tokenizer::read(path)?,
        }))
    }
}

impl Tokenizer {
    /// The tokenizer of a `tokenizer.json`, or of a folder that has one: a model's, a run's.
    ///
    /// # Errors
    /// A file that is missing, or that is no tokenizer.
    pub fn read(path: &Path) -> Result<Self> {
        let mut places =
            ["", "best", "last"].map(|at| path.join(at).join(TOKENIZER_FILE)).into_iter();
        let inside = match path.is_dir() {
            true => places.find(|file| file.is_file()).ok_or_else(|| {
                Error::data(path.display().to_string(), format!("has no {TOKENIZER_FILE}"))
            })?,
            false => path.into(),
        };
        let path = inside.as_path();
        let json = files::read_text(path, LONGEST_FILE)?;
        Self::from_json(&json).map_err(|error| match error {
            Error::Data { problem, hint, .. } => {
                Error::Data { source_name: path.display().to_string(), problem, hint }
            }
            other => other,
        })
    }
}

impl TryFrom<String> for TokenizerKind {
    type Error = String;

    /// The error says what is expected; the caller knows of what.
    fn try_from(text: String) -> std::result::Result<Self, String> {
        match text.as_str() {
            "char" => return Ok(TokenizerKind::Char),
            "byte" => return Ok(TokenizerKind::Byte),
            "gpt2" => return Ok(TokenizerKind::Gpt2),
            _ => {}
        }
        if let Some(size) = text.strip_prefix("bpe:") {
            let (least, most) = (Self::SMALLEST, Self::LARGEST);
            let size = size.replace('_', "").parse().ok().filter(|n| (least..=most).contains(n));
            return size.map(TokenizerKind::Bpe).ok_or_else(|| {
                format!("must be bpe:SIZE with {least} to {most} tokens, the 256 bytes among them")
            });
        }
        let path = PathBuf::from(&text);
        let is_path = text.ends_with(".json") || text.contains(['/', '\\']);
        if is_path || (!text.is_empty() && path.exists()) {
            // A run's config.toml says the same wherever it is read from.
            return Ok(TokenizerKind::File(std::path::absolute(&path).unwrap_or(path)));
        }
        Err(format!("must be {}", Self::FORMS))
    }
}

impl From<TokenizerKind> for String {
    fn from(kind: TokenizerKind) -> Self {
        kind.to_string()
    }
}

impl fmt::Display for TokenizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenizerKind::Char => write!(f, "char"),
            TokenizerKind::Byte => write!(f, "byte"),
            TokenizerKind::Gpt2 => write!(f, "gpt2"),
            TokenizerKind::Bpe(size) => write!(f, "bpe:{size}"),
            TokenizerKind::File(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_what_is_no_form_is_refused() {
        let read = |text: &str| TokenizerKind::try_from(text.to_owned());
        for text in ["char", "byte", "gpt2", "bpe:257", "bpe:50257"] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        let file = read("my/tokenizer.json").unwrap();
        assert!(matches!(&file, TokenizerKind::File(path) if path.is_absolute()));
        assert_eq!(read(&file.to_string()).unwrap(), file);
        assert_eq!(read("bpe:4_096").unwrap(), TokenizerKind::Bpe(4096));
        assert!(
            matches!(read("src").unwrap(), TokenizerKind::File(_)),
            "what is there by that name"
        );
        for wrong in ["bpe:256", "bpe:", "bpe:-1", "bpe:1e9", "bpe:99999999"] {
            assert!(read(wrong).unwrap_err().contains("257 to 1048576"), "{wrong}");
        }
        for wrong in ["", "chr", "gpt-2", "bpe"] {
            assert!(read(wrong).unwrap_err().contains("char, byte, gpt2"), "{wrong}");
        }
    }
}
