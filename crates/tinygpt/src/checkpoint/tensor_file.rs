//! A safetensors file of f32 tensors, written and read tensor by tensor through one small buffer.
//!
//! **Nothing is allocated on a file's word alone**: a length is compared with the size of the file
//! first, and values are read into tensors that already exist.

use super::foreign;
use crate::error::{Error, Result};
use crate::files::{self, write_synced};
use crate::model::Params;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes of values on their way between memory and file.
const CHUNK: usize = 1 << 16;
/// The longest header the format allows.
const LONGEST_HEADER: u64 = 100_000_000;
/// The length of the header stands before it, as a u64.
const LENGTH: u64 = 8;

/// Writes every tensor of each `(prefix, params)` under the name prefix + its name, in the table's
/// order, with one pair of metadata, and waits until all is on the disk.
pub(super) fn write(
    path: &Path,
    metadata: (&str, String),
    parts: &[(&str, &Params)],
) -> Result<()> {
    let mut end = 0;
    let row = |(name, shape): (String, &Vec<usize>)| {
        let start = end;
        end += shape.iter().product::<usize>() * size_of::<f32>();
        let (dtype, shape) = (Dtype::F32, shape.clone());
        (name, TensorInfo { dtype, shape, data_offsets: (start, end) })
    };
    let names = parts.iter().flat_map(|(prefix, params)| {
        params.iter().map(move |(spec, _)| (format!("{prefix}{}", spec.name), &spec.shape))
    });
    // One pair, because the order of several would differ from run to run.
    let metadata = HashMap::from([(metadata.0.to_owned(), metadata.1)]);
    let header = Metadata::new(Some(metadata), names.map(row).collect())
        .map_err(io::Error::other)
        .and_then(|header| Ok(serde_json::to_string(&header)?));

    let written = header.and_then(|header| {
        write_synced(path, |file| {
            // Blanks at its end bring the first tensor to a multiple of eight.
            // Bytes, not characters, which `format!` would count.
            let mut header = header.into_bytes();
            header.resize(header.len().next_multiple_of(LENGTH as usize), b' ');
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(&header)?;
            let mut bytes = Vec::with_capacity(CHUNK);
            for (_, values) in parts.iter().flat_map(|(_, params)| params.iter()) {
                for chunk in values.chunks(CHUNK / size_of::<f32>()) {
                    bytes.clear();
                    bytes.extend(chunk.iter().flat_map(|x| x.to_le_bytes()));
                    file.write_all(&bytes)?;
                }
            }
            Ok(())
        })
    });
    written.map_err(Error::io("write", path))
}

/// An open safetensors file whose header was read and agrees with the file's size.
#[derive(Debug)]
pub(super) struct TensorFile {
    pub(super) path: PathBuf,
    /// The one string of metadata a caller wants, by key.
    pub(super) metadata: HashMap<String, String>,
    file: File,
    data_start: u64,
    tensors: BTreeMap<String, TensorInfo>,
}

impl TensorFile {
    /// Opens the file and reads its header. Names lose the prefixes that PyTorch's wrappers add,
    /// and buffers that old GPT-2 files carry are left out.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] says what the file is instead, or how many bytes it lacks.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let problem = |text: String| Error::checkpoint(path, text);
        let mut file = files::open(path).map_err(|error| error.in_checkpoint(path))?;
        let size = file.metadata().map_err(Error::io("read", path))?.len();
        let mut first = Vec::new();
        (&file).take(foreign::ENOUGH).read_to_end(&mut first).map_err(Error::io("read", path))?;
        let Some((length, json)) = first.split_first_chunk() else {
            return Err(problem(format!("has {size} bytes; a safetensors file has more")));
        };
        let length = u64::from_le_bytes(*length);
        if json.first() != Some(&b'{') || length > LONGEST_HEADER {
            return Err(foreign::error(path, &first));
        }
        let truncated = |expected: u64, more: &str| {
            problem(format!("file truncated: expected {expected} bytes{more}, have {size}"))
                .with_hint("copy or download it again")
        };
        let data_start = LENGTH + length;
        if data_start > size {
            return Err(truncated(data_start, " or more"));
        }
        let mut header = vec![0; length as usize];
        file.seek(SeekFrom::Start(LENGTH))
            .and_then(|_| file.read_exact(&mut header))
            .map_err(Error::io("read", path))?;
        let header: Metadata = serde_json::from_slice(&header)
            .map_err(|error| problem(format!("its safetensors header is damaged: {error}")))?;
        let expected = data_start.saturating_add(header.data_len() as u64);
        if expected > size {
            return Err(truncated(expected, ""));
        }
        if expected < size {
            return Err(problem(format!("has {size} bytes; its header describes {expected}")));
        }
        let mut tensors = BTreeMap::new();
        for (name, info) in header.tensors() {
            let name = our_name(&name);
            if name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") {
                continue; // the causal mask, which is not a parameter
            }
            if tensors.insert(name.clone(), info.clone()).is_some() {
                return Err(problem(format!("has {name} twice, under different prefixes")));
            }
        }
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(Self { path: path.to_owned(), metadata, file, data_start, tensors })
    }

    /// How many tensors the file has: a bound on what a table for it can be.
    pub(super) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether the file has a tensor of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Checks that the tensors are exactly those (name, shape), in f32.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] names the first few that are missing, wrong or unexpected.
    pub(super) fn check(&self, expected: &[(String, &[usize])]) -> Result<()> {
        let mut unexpected = self.tensors.clone();
        let mut problems = Vec::new();
        for (name, shape) in expected {
            match unexpected.remove(name) {
                None => problems.push(format!("missing {name} {}", tuple(shape))),
                Some(found) if found.shape != *shape => problems.push(format!(
                    "{name}: expected {}, found {}",
                    tuple(shape),
                    tuple(&found.shape)
                )),
                Some(found) if found.dtype != Dtype::F32 => {
                    problems.push(format!("{name}: expected F32, found {}", found.dtype));
                }
                Some(_) => {}
            }
        }
        problems.extend(
            unexpected
                .iter()
                .map(|(name, info)| format!("unexpected {name} {}", tuple(&info.shape))),
        );
        const SHOWN: usize = 5;
        let more = problems.len().saturating_sub(SHOWN);
        if problems.is_empty() {
            return Ok(());
        }
        problems.truncate(SHOWN);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Err(Error::checkpoint(&self.path, problems.join("; ") + &more))
    }

    /// Reads one tensor that [`Self::check`] has found good.
    ///
    /// # Panics
    /// If there is no tensor of that name and length.
    pub(super) fn read(&mut self, name: &str, values: &mut [f32]) -> Result<()> {
        let (start, end) = self.tensors[name].data_offsets;
        assert_eq!(end - start, size_of_val(values), "{name}: bytes in the file, in memory");
        let mut bytes = [0; CHUNK];
        let mut read = || {
            self.file.seek(SeekFrom::Start(self.data_start + start as u64))?;
            for chunk in values.chunks_mut(CHUNK / size_of::<f32>()) {
                let bytes = &mut bytes[..size_of_val(chunk)];
                self.file.read_exact(bytes)?;
                for (x, le) in chunk.iter_mut().zip(bytes.as_chunks().0) {
                    *x = f32::from_le_bytes(*le);
                }
            }
            Ok(())
        };
        read().map_err(Error::io("read", &self.path))
    }
}

/// A name without what `torch.compile` and data-parallel wrappers put before it, and with the
/// `transformer.` that a bare GPT-2, without its head, leaves out.
fn our_name(mut name: &str) -> String {
    while let Some(rest) = name.strip_prefix("_orig_mod.").or(name.strip_prefix("module.")) {
        name = rest;
    }
    let bare = ["wte.", "wpe.", "h.", "ln_f."].iter().any(|part| name.starts_with(part));
    if bare { format!("transformer.{name}") } else { name.to_owned() }
}

/// A shape as people write it: `(3, 4)`.
fn tuple(shape: &[usize]) -> String {
    let dims: Vec<_> = shape.iter().map(usize::to_string).collect();
    format!("({})", dims.join(", "))
}
