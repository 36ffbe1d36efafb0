//! A model for another program: what each format can hold of it, and the writing, all or nothing.

use super::{Format, Kept, bare, gguf, hugging_face, nanogpt};
use crate::checkpoint::{self, StateRef, swap};
use crate::config::{Activation, GptConfig};
use crate::error::{Error, Result};
use crate::files;
use crate::model::{Params, Tensors};
use crate::tokenizer::Tokenizer;
use std::borrow::Cow;
use std::fs;
use std::path::Path;

/// A model to write.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// What the file calls it, where it can.
    pub name: &'a str,
    /// Its shape.
    pub config: &'a GptConfig,
    /// Its parameters.
    pub params: &'a Params,
    /// What its tokens mean, if that is known.
    pub tokenizer: Option<&'a Tokenizer>,
    /// What its training goes on from; only nanoGPT's format keeps it.
    pub state: Option<StateRef<'a>>,
    /// What the weights are kept in.
    pub kept: Kept,
}

/// A tensor to write: name, shape, and numbers (zeros for a bias that the model has not).
pub(super) struct Row<'a> {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Cow<'a, [f32]>,
}

impl<'a> Export<'a> {
    /// Writes it to `to`: a folder for [`Format::HuggingFace`] and [`Format::NanoGpt`] (a file if
    /// the name ends in `.pt`), a file for the others. All or nothing: a failure leaves what was
    /// there. Returns its bytes.
    ///
    /// # Errors
    /// As for [`warnings`](Self::warnings); [`Error::Checkpoint`] if there is something at `to`
    /// already (`force` replaces a file, or the files of an export in a folder); [`Error::Io`].
    pub fn write(&self, format: Format, to: &Path, force: bool) -> Result<u64> {
        self.warnings(format)?;
        self.kept.check(self.params)?;
        let is_run = match to.is_file() {
            true => Format::of(to).is_ok_and(|format| format == Format::TinyGpt),
            false => checkpoint::exists(to) && !super::is_theirs(to),
        };
        if is_run {
            return Err(Error::checkpoint(to, "is a checkpoint of TinyGPT's, and no export")
                .with_hint("choose another place to write to"));
        }
        let is_file = |path: &Path| path.extension().is_some_and(|end| end == "pt");
        match format {
            Format::HuggingFace => {
                self.folder(to, force, &hugging_face::FILES, |new| hugging_face::write(self, new))
            }
            Format::NanoGpt if !is_file(to) => {
                self.folder(to, force, &nanogpt::FILES, |new| nanogpt::write_folder(self, new))
            }
            Format::NanoGpt => self.file(to, force, |file| nanogpt::write(self, file)),
            Format::Safetensors => self.file(to, force, |file| bare::write(self, file)),
            Format::Gguf => self.file(to, force, |file| gguf::write(self, file)),
            Format::TinyGpt => {
                Err(Error::config("to", "tinygpt", "a run of TinyGPT's is one already"))
            }
        }
    }

    fn file(
        &self,
        to: &Path,
        force: bool,
        write: impl FnOnce(&mut fs::File) -> std::io::Result<()>,
    ) -> Result<u64> {
        if to.is_dir() {
            return Err(Error::checkpoint(to, "is a folder; expected the name of a file"));
        }
        files::place(to)?;
        if !force && fs::symlink_metadata(to).is_ok() {
            return Err(taken(to));
        }
        let holds = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() > 0);
        if to.is_file() && holds(to) && Format::of(to).is_err() {
            return Err(Error::checkpoint(to, "is no model, which --force would replace")
                .with_hint("choose another name, or remove it first"));
        }
        files::write_whole_by(to, write)?;
        Ok(fs::metadata(to).map_err(Error::io("read", to))?.len())
    }

    fn folder(
        &self,
        to: &Path,
        force: bool,
        names: &[&str],
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<u64> {
        if to.exists() && !to.is_dir() {
            let what = if to.is_file() { "a file" } else { "no folder" };
            let problem = format!("is {what}; expected the name of a folder");
            return Err(Error::checkpoint(to, problem));
        }
        // Taken away under a shell, the folder that it is in would be one without a name.
        if to.canonicalize().is_ok_and(|to| std::env::current_dir().is_ok_and(|here| here == to)) {
            return Err(Error::checkpoint(to, "is the current folder, which cannot be replaced")
                .with_hint("name another, or run this from elsewhere"));
        }
        let is_empty = fs::read_dir(to).map_or(true, |mut entries| entries.next().is_none());
        if !force && !is_empty {
            return Err(taken(to));
        }
        swap::replace(to, names, fill)?;
        let size = |name: &&str| fs::metadata(to.join(name)).map_or(0, |file| file.len());
        Ok(names.iter().map(size).sum())
    }

    /// What the program that reads such a file will do otherwise than this one, in whole sentences.
    ///
    /// # Errors
    /// [`Error::Config`] if the format cannot hold the model, with the reason.
    pub fn warnings(&self, format: Format) -> Result<Vec<String>> {
        let refuse = |key: &'static str, found: &dyn ToString, expected: &str, hint: &str| {
            Err(Error::config(key, found.to_string(), expected).with_hint(hint))
        };
        let GptConfig { activation, bias, tied, n_embd, .. } = *self.config;
        let mut warnings = Vec::new();
        let mut warn = |text: &str| warnings.push(text.to_owned());
        if self.kept == Kept::Q8 && format != Format::Gguf {
            return refuse("dtype", &"q8_0", "only GGUF has it", "--to gguf, or --dtype bf16");
        }
        match format {
            Format::HuggingFace if !bias => {
                warn("transformers' GPT-2 has every bias: this model's are written as zeros");
            }
            Format::NanoGpt if activation == Activation::Silu => {
                let hint = "--to hf keeps any activation";
                return refuse("activation", &"silu", "nanoGPT computes gelu only", hint);
            }
            Format::NanoGpt if !tied => {
                let hint = "--to hf keeps both";
                return refuse("tied", &false, "nanoGPT has one embedding for both ends", hint);
            }
            Format::NanoGpt if activation == Activation::GeluTanh => warn(
                "nanoGPT computes the exact GELU, this model was trained with tanh's: units differ \
                 by up to 5e-4",
            ),
            Format::Gguf => {
                if activation == Activation::Silu {
                    let hint = "--to hf keeps any activation";
                    return refuse("activation", &"silu", "llama.cpp's GPT-2 has gelu only", hint);
                }
                if self.kept == Kept::Q8 && !n_embd.is_multiple_of(32) {
                    let expected = format!("n_embd = {n_embd} is no multiple of 32");
                    return refuse("dtype", &"q8_0", &expected, "--dtype f16 is half as small");
                }
                if activation == Activation::Gelu {
                    warn(
                        "llama.cpp computes tanh's GELU, this model was trained with the exact one: \
                         units differ by up to 5e-4",
                    );
                }
                if !bias {
                    warn("llama.cpp's GPT-2 has every bias: this model's are written as zeros");
                }
                match self.tokenizer {
                    Some(other @ (Tokenizer::Char(_) | Tokenizer::Foreign(_))) => {
                        let hint = "--to hf keeps any tokenizer; models of --tokenizer byte, gpt2 \
                                    or bpe:SIZE have a GGUF";
                        let expected = "a GGUF's tokens are made by merging bytes";
                        return refuse("tokenizer", &other.name(), expected, hint);
                    }
                    None => warn("the model has no tokenizer: llama.cpp will not open it"),
                    Some(_) => {}
                }
            }
            _ => {}
        }
        if matches!(format, Format::HuggingFace) && self.tokenizer.is_none() {
            warn("the model has no tokenizer: AutoTokenizer will find none");
        }
        Ok(warnings)
    }

    /// Every tensor, as the table has it; with all biases if `biased`.
    pub(super) fn rows(&self, biased: bool) -> Vec<Row<'a>> {
        let config = GptConfig { bias: self.config.bias || biased, ..self.config.clone() };
        let table = Tensors::of(&config);
        let mut ours = self.params.iter().peekable();
        let row = |spec: &crate::model::Spec| {
            // Both are in the table's order, and ours lacks only biases.
            let values = match ours.next_if(|(own, _)| own.name == spec.name) {
                Some((_, values)) => Cow::Borrowed(values),
                None => Cow::Owned(vec![0.0; spec.len()]),
            };
            Row { name: spec.name.clone(), shape: spec.shape.clone(), values }
        };
        table.iter().map(row).collect()
    }
}

fn taken(to: &Path) -> Error {
    Error::checkpoint(to, "is there already").with_hint("--force replaces it")
}
