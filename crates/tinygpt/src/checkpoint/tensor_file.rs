//! A safetensors file: its header read, and checkpoints written tensor by tensor through one small
//! buffer.
//!
//! **Nothing is allocated on a file's word alone**: a length is compared with the size of the file
//! first.

use super::foreign;
use super::stored::{Number, Stored, Weights, truncated};
use crate::error::{Error, Result};
use crate::files::write_synced;
use crate::model::Params;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

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
    let names = parts.iter().flat_map(|(prefix, params)| {
        params.iter().map(move |(spec, _)| (format!("{prefix}{}", spec.name), spec.shape.clone()))
    });
    let written = header(&[metadata], Number::F32, names).and_then(|header| {
        write_synced(path, |file| {
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

/// What stands before the numbers of a file of those tensors, all of one kind, one after the other.
pub(crate) fn header(
    metadata: &[(&str, String)],
    number: Number,
    tensors: impl Iterator<Item = (String, Vec<usize>)>,
) -> io::Result<Vec<u8>> {
    let (dtype, width) = match number {
        Number::F32 => (Dtype::F32, 4),
        Number::F16 => (Dtype::F16, 2),
        Number::Bf16 => (Dtype::BF16, 2),
        other => return Err(io::Error::other(format!("safetensors has no {other}"))),
    };
    let mut end = 0;
    let row = |(name, shape): (String, Vec<usize>)| {
        let start = end;
        end += shape.iter().product::<usize>() * width;
        (name, TensorInfo { dtype, shape, data_offsets: (start, end) })
    };
    let header = Metadata::new(None, tensors.map(row).collect()).map_err(io::Error::other)?;
    let tensors = serde_json::to_string(&header)?;
    // In a fixed order, which the library's own map of them has not.
    let metadata: BTreeMap<_, _> = metadata.iter().map(|(key, text)| (key, text)).collect();
    let metadata = serde_json::to_string(&metadata)?;
    let rest = tensors.strip_prefix('{').filter(|rest| rest.len() > 1);
    let header = format!(
        "{{\"__metadata__\":{metadata}{}",
        match rest {
            Some(rest) => format!(",{rest}"),
            None => "}".into(),
        }
    );
    // Blanks at its end bring the first tensor to a multiple of eight.
    // Bytes, not characters, which `format!` would count.
    let mut header = header.into_bytes();
    header.resize(header.len().next_multiple_of(LENGTH as usize), b' ');
    Ok([&(header.len() as u64).to_le_bytes(), &header[..]].concat())
}

/// A safetensors file whose header was read and agrees with the file's size.
#[derive(Debug)]
pub(crate) struct TensorFile {
    pub weights: Weights,
    /// The strings beside the tensors, by key.
    pub metadata: HashMap<String, String>,
}

impl TensorFile {
    /// Opens the file and reads its header.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] says what the file is instead, or how many bytes it lacks.
    pub fn open(path: &Path) -> Result<Self> {
        let mut weights = Weights::new(path);
        let metadata = add(&mut weights, path)?;
        Ok(Self { weights, metadata })
    }
}

/// Adds the tensors of the file at `path` to `weights`, and returns its metadata.
///
/// # Errors
/// As for [`TensorFile::open`].
pub(crate) fn add(weights: &mut Weights, path: &Path) -> Result<HashMap<String, String>> {
    let problem = |text: String| Error::checkpoint(path, text);
    let (number, size) = weights.open(path)?;
    let mut file = weights.file(number);
    let mut first = Vec::new();
    file.take(foreign::ENOUGH).read_to_end(&mut first).map_err(Error::io("read", path))?;
    let Some((length, json)) = first.split_first_chunk() else {
        return Err(problem(format!("has {size} bytes; a safetensors file has more")));
    };
    let length = u64::from_le_bytes(*length);
    if json.first() != Some(&b'{') || length > LONGEST_HEADER {
        return Err(foreign::error(path, &first));
    }
    let data_start = LENGTH + length;
    if data_start > size {
        return Err(truncated(path, data_start, " or more", size));
    }
    let mut header = vec![0; length as usize];
    file.seek(SeekFrom::Start(LENGTH))
        .and_then(|_| file.read_exact(&mut header))
        .map_err(Error::io("read", path))?;
    let header: Metadata = serde_json::from_slice(&header)
        .map_err(|error| problem(format!("its safetensors header is damaged: {error}")))?;
    let expected = data_start.saturating_add(header.data_len() as u64);
    if expected > size {
        return Err(truncated(path, expected, "", size));
    }
    if expected < size {
        return Err(problem(format!("has {size} bytes; its header describes {expected}")));
    }
    for (name, info) in header.tensors() {
        let kind = match info.dtype {
            Dtype::F32 => Number::F32,
            Dtype::F16 => Number::F16,
            Dtype::BF16 => Number::Bf16,
            other => Number::Other(other.to_string()),
        };
        let start = data_start + info.data_offsets.0 as u64;
        let shape = info.shape.clone();
        let stored = Stored { file: number, start, number: kind, shape, transposed: false };
        weights.insert(&name, stored)?;
    }
    Ok(header.metadata().clone().unwrap_or_default())
}
