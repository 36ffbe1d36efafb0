//! PyTorch's archive: a pickle, and the storages that its tensors are views of.

use crate::checkpoint::stored::{Number, Stored};
use crate::error::{Error, Result};
use crate::files;
use crate::formats::pickle::{self, Pickle, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

/// The storages of an archive: where each one's bytes lie.
pub(super) struct Archive {
    pub pickle: Pickle,
    /// First byte and length of each storage, by key.
    storages: BTreeMap<String, (u64, u64)>,
}

impl Archive {
    pub fn open(path: &Path, file: &File) -> Result<Self> {
        let wrong = |problem: String| Error::checkpoint(path, problem);
        let damaged = |error: zip::result::ZipError| {
            wrong(format!("is a zip archive that is damaged or cut short: {error}"))
                .with_hint("copy or download it again")
        };
        let mut zip = ZipArchive::new(file).map_err(damaged)?;
        let (mut pickled, mut storages) = (None, BTreeMap::new());
        for i in 0..zip.len() {
            let mut member = zip.by_index_raw(i).map_err(damaged)?;
            let name = member.name().map_err(damaged)?.into_owned();
            if member.compression() != CompressionMethod::Stored {
                return Err(wrong(format!("has {name} compressed, which torch.save never does")));
            }
            // The folder is named after the file as it was first saved.
            let Some((_, inside)) = name.split_once('/') else { continue };
            if inside == "data.pkl" {
                let mut bytes = Vec::new();
                (&mut member)
                    .take(pickle::LONGEST + 1)
                    .read_to_end(&mut bytes)
                    .map_err(Error::io("read", path))?;
                if bytes.len() as u64 > pickle::LONGEST {
                    return Err(wrong(format!("has a data.pkl of over {} bytes", pickle::LONGEST)));
                }
                pickled = Some(bytes);
            } else if inside == "byteorder" {
                let mut order = String::new();
                (&mut member)
                    .take(16)
                    .read_to_string(&mut order)
                    .map_err(Error::io("read", path))?;
                if order.trim() != "little" {
                    return Err(wrong(format!(
                        "has numbers in {order:.10} byte order, not little"
                    )));
                }
            } else if let Some(key) = inside.strip_prefix("data/") {
                let start = member.data_start().unwrap_or(u64::MAX);
                storages.insert(key.to_owned(), (start, member.size()));
            }
        }
        let Some(bytes) = pickled else {
            return Err(wrong("is a zip archive without data.pkl: not one of torch.save's".into()));
        };
        let pickle = Pickle::read(&bytes).map_err(|problem| {
            wrong(format!("its pickle {problem}"))
                .with_hint("TinyGPT reads what nanoGPT saves, and runs nothing")
        })?;
        Ok(Self { pickle, storages })
    }

    /// Where the tensor lies; `name` is what an error calls it.
    pub fn stored(&self, path: &Path, name: &str, value: &Value) -> Result<Stored> {
        let wrong = |what: &str| Error::checkpoint(path, format!("{name} {what}"));
        let Value::Tensor(tensor) = value else {
            return Err(wrong(&format!("is {}, not a tensor", pickle::kind(value))));
        };
        let Value::Storage { of, key } = self.pickle.at(tensor.storage) else {
            return Err(wrong("has no storage"));
        };
        let (number, width) = match *of {
            "Float" => (Number::F32, 4),
            "Half" => (Number::F16, 2),
            "BFloat16" => (Number::Bf16, 2),
            other => (Number::Other(other.to_owned()), 1),
        };
        // A dimension of one element may have any stride.
        let mut expected = 1usize;
        for (&dim, &stride) in tensor.shape.iter().zip(&tensor.strides).rev() {
            if dim > 1 && stride != expected {
                return Err(wrong("is a view with gaps or turned; only whole tensors are read"));
            }
            expected = expected.saturating_mul(dim);
        }
        let Some(&(start, size)) = self.storages.get(key) else {
            return Err(wrong(&format!("is kept in data/{key}, which the archive lacks")));
        };
        let offset = (tensor.offset as u64).saturating_mul(width);
        let end = offset.saturating_add((expected as u64).saturating_mul(width));
        if end > size && !matches!(number, Number::Other(_)) {
            return Err(wrong(&format!("needs {end} bytes, and data/{key} has {size}")));
        }
        let start = start.saturating_add(offset);
        Ok(Stored { file: 0, start, number, shape: tensor.shape.clone(), transposed: false })
    }
}

/// Reads the whole archive at `path` and compares the checksum of each part.
///
/// # Errors
/// [`Error::Checkpoint`] names the part that is not what was written.
pub(in crate::formats) fn check_sums(path: &Path) -> Result<()> {
    let file = files::open(path).map_err(|error| error.in_checkpoint(path))?;
    let damaged =
        |what: String| Error::checkpoint(path, what).with_hint("copy or download it again");
    let mut zip = ZipArchive::new(io::BufReader::new(file))
        .map_err(|error| damaged(format!("is a damaged zip archive: {error}")))?;
    for i in 0..zip.len() {
        let mut part = zip
            .by_index(i)
            .map_err(|error| damaged(format!("is a damaged zip archive: {error}")))?;
        // PyTorch can be told to write none.
        if part.crc32() == 0 {
            continue;
        }
        let read = io::copy(&mut part, &mut io::sink());
        read.map_err(|error| damaged(format!("part {i} of its archive is damaged: {error}")))?;
    }
    Ok(())
}
