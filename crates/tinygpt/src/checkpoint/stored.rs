//! Tensors where they lie: in which file, from which byte, in what shape and kind of number.
//!
//! A reader of a format says no more than that. Whether names and shapes are those of the table, and
//! reading into parameters that exist, is here, once for all of them.
//!
//! **Nothing is allocated on a file's word alone**: a tensor that its file is too short for is refused
//! when it is named, and values stream through a small buffer.

use crate::config::GptConfig;
use crate::error::{Error, Result};
use crate::files;
use crate::model::tensors::Spec;
use crate::model::{Params, Tensors};
use half::f16;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tinygpt_kernels::narrow::{from_bf16, from_int8};

/// The unembedding's name, for files that store it although it is the token embedding.
pub(crate) const HEAD: &str = "lm_head.weight";
/// Numbers on their way from a file: a multiple of [`Q8_BLOCK`].
const CHUNK: usize = 1 << 14;
/// Rows of a transposed matrix that are turned together: as many floats as a line of the cache has.
const ROWS: usize = 16;

/// Numbers that share a scale in GGUF's q8_0.
pub(crate) const Q8_BLOCK: usize = 32;
/// Bytes of such a block: its scale as f16, then an i8 for each number.
pub(crate) const Q8_BYTES: usize = 2 + Q8_BLOCK;

/// What a stored number is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    F32,
    F16,
    Bf16,
    /// 8 bits, in blocks of [`Q8_BLOCK`] with one scale.
    Q8,
    /// One that no weight is kept in, by its name.
    Other(String),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q8 => "Q8_0",
            Self::Other(name) => name,
        })
    }
}

impl Number {
    /// Bytes of `n` of them; none if they are of a kind that is not read, or too many to count.
    fn bytes(&self, n: usize) -> Option<u64> {
        let n = u64::try_from(n).ok()?;
        match self {
            Self::F32 => n.checked_mul(4),
            Self::F16 | Self::Bf16 => n.checked_mul(2),
            Self::Q8 if n.is_multiple_of(Q8_BLOCK as u64) => {
                (n / Q8_BLOCK as u64).checked_mul(Q8_BYTES as u64)
            }
            Self::Q8 | Self::Other(_) => None,
        }
    }

    /// The numbers of `bytes`, as f32.
    fn decode(&self, bytes: &[u8], values: &mut [f32]) {
        let pairs = || bytes.as_chunks::<2>().0.iter().map(|le| u16::from_le_bytes(*le));
        match self {
            Self::F32 => {
                let stored = bytes.as_chunks().0;
                values.iter_mut().zip(stored).for_each(|(x, le)| *x = f32::from_le_bytes(*le));
            }
            Self::F16 => {
                let stored = pairs().map(|bits| f16::from_bits(bits).to_f32());
                values.iter_mut().zip(stored).for_each(|(x, stored)| *x = stored);
            }
            Self::Bf16 => {
                values.iter_mut().zip(pairs()).for_each(|(x, bits)| *x = from_bf16(bits));
            }
            Self::Q8 => {
                let blocks = bytes.as_chunks::<Q8_BYTES>().0;
                for (values, block) in values.chunks_mut(Q8_BLOCK).zip(blocks) {
                    let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                    let stored = block[2..].iter().map(|&byte| from_int8(byte as i8, scale));
                    values.iter_mut().zip(stored).for_each(|(x, stored)| *x = stored);
                }
            }
            Self::Other(name) => unreachable!("{name} passed the check"),
        }
    }
}

/// Where one tensor lies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    /// Which of the files.
    pub file: usize,
    /// Its first byte there.
    pub start: u64,
    pub number: Number,
    /// As the file has it.
    pub shape: Vec<usize>,
    /// Whether a weight is stored as (in, out), which is ours as (out, in).
    pub transposed: bool,
}

impl Stored {
    /// Its bytes, of a kind that is read and in a number that can be counted.
    fn bytes(&self) -> Option<u64> {
        let n = self.shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim))?;
        self.number.bytes(n)
    }
}

/// The tensors of one model, in one file or several.
#[derive(Debug)]
pub(crate) struct Weights {
    /// What an error calls them: a file, or a folder of files.
    pub path: PathBuf,
    files: Vec<(PathBuf, File, u64)>,
    tensors: BTreeMap<String, Stored>,
}

impl Weights {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), files: Vec::new(), tensors: BTreeMap::new() }
    }

    /// Opens one more file, and says which it is and how long.
    pub fn open(&mut self, path: &Path) -> Result<(usize, u64)> {
        let file = files::open(path).map_err(|error| error.in_checkpoint(path))?;
        let size = file.metadata().map_err(Error::io("read", path))?.len();
        self.files.push((path.to_owned(), file, size));
        Ok((self.files.len() - 1, size))
    }

    /// One of the files.
    pub fn file(&self, file: usize) -> &File {
        &self.files[file].1
    }

    /// Adds a tensor, without the prefixes that PyTorch's wrappers put before a name; the causal
    /// masks of old GPT-2 files are left out.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if there is one of that name, or the file ends before it does.
    pub fn insert(&mut self, name: &str, stored: Stored) -> Result<()> {
        let name = our_name(name);
        if name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") {
            return Ok(());
        }
        let (path, _, size) = &self.files[stored.file];
        let end = stored.bytes().map(|bytes| stored.start.saturating_add(bytes));
        if let Some(end) = end.filter(|end| end > size) {
            return Err(truncated(path, end, "", *size));
        }
        match self.tensors.insert(name.clone(), stored) {
            None => Ok(()),
            Some(_) => Err(Error::checkpoint(
                path.clone(),
                format!("has {name} twice, under different prefixes"),
            )),
        }
    }

    /// How many tensors there are: a bound on what a table for them can be.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// How many numbers they have.
    pub fn elements(&self) -> u64 {
        let count = |stored: &Stored| stored.shape.iter().map(|&dim| dim as u64).product::<u64>();
        self.tensors.values().filter(|stored| stored.bytes().is_some()).map(count).sum()
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<&Stored> {
        self.tensors.get(name)
    }

    /// Whether there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Says of every tensor whose name is `linear` that it is stored as (in, out).
    pub fn transpose(&mut self, linear: impl Fn(&str) -> bool) {
        for (name, stored) in &mut self.tensors {
            stored.transposed = linear(name);
        }
    }

    /// Checks that the tensors are exactly those (name, shape), in numbers that are read.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] names the first few that are missing, wrong or unexpected.
    pub fn check(&self, expected: &[(String, &[usize])]) -> Result<()> {
        let mut unexpected: BTreeMap<&String, &Stored> = self.tensors.iter().collect();
        let mut problems = Vec::new();
        for (name, shape) in expected {
            let Some(found) = unexpected.remove(name) else {
                problems.push(format!("missing {name} {}", tuple(shape)));
                continue;
            };
            let mut shape = shape.to_vec();
            if found.transposed {
                shape.reverse();
            }
            if found.shape != shape {
                let (expected, found) = (tuple(&shape), tuple(&found.shape));
                problems.push(format!("{name}: expected {expected}, found {found}"));
            } else if found.bytes().is_none() {
                problems.push(format!("{name}: expected F32, F16 or BF16, found {}", found.number));
            }
        }
        let more = |(name, info): (&&String, &&Stored)| {
            format!("unexpected {name} {}", tuple(&info.shape))
        };
        problems.extend(unexpected.iter().map(more));
        const SHOWN: usize = 5;
        let more = problems.len().saturating_sub(SHOWN);
        if problems.is_empty() {
            return Ok(());
        }
        problems.truncate(SHOWN);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Err(Error::checkpoint(&self.path, problems.join("; ") + &more))
    }

    /// Reads one tensor that [`Self::check`] has found good, as the table has it: (out, in).
    ///
    /// # Panics
    /// If there is no tensor of that name and length.
    pub fn read(&self, name: &str, values: &mut [f32]) -> Result<()> {
        let stored = &self.tensors[name];
        let n: usize = stored.shape.iter().product();
        assert_eq!(n, values.len(), "{name}: numbers in the file, in memory");
        let (path, ..) = &self.files[stored.file];
        let read = match stored.transposed {
            true => self.read_turned(stored, values),
            false => self.reader(stored).and_then(|mut reader| reader.fill(values)),
        };
        read.map_err(Error::io("read", path))
    }

    fn read_turned(&self, stored: &Stored, values: &mut [f32]) -> io::Result<()> {
        let (inputs, outputs) = (stored.shape[0], stored.shape[1]);
        let mut reader = self.reader(stored)?;
        let mut rows = vec![0.0; ROWS.min(inputs) * outputs];
        for first in (0..inputs).step_by(ROWS) {
            let some = ROWS.min(inputs - first);
            let rows = &mut rows[..some * outputs];
            reader.fill(rows)?;
            for (o, turned) in values.chunks_exact_mut(inputs).enumerate() {
                for (i, value) in turned[first..first + some].iter_mut().enumerate() {
                    *value = rows[i * outputs + o];
                }
            }
        }
        Ok(())
    }

    fn reader<'a>(&'a self, stored: &'a Stored) -> io::Result<Reader<'a>> {
        let mut file = self.file(stored.file);
        file.seek(SeekFrom::Start(stored.start))?;
        Ok(Reader { file, number: &stored.number, bytes: Vec::new() })
    }

    /// Whether two tensors of the same length are the same, bit for bit.
    pub fn same(&self, a: &str, b: &str) -> Result<bool> {
        let (a, b) = (&self.tensors[a], &self.tensors[b]);
        if a == b {
            return Ok(true);
        }
        if a.shape != b.shape || a.bytes().is_none() || b.bytes().is_none() {
            return Ok(false);
        }
        let mut left: usize = a.shape.iter().product();
        let (mut x, mut y) = (vec![0.0; CHUNK.min(left)], vec![0.0; CHUNK.min(left)]);
        let mut at = 0;
        let compared = (|| {
            while left > 0 {
                let n = CHUNK.min(left);
                for (stored, values) in [(a, &mut x), (b, &mut y)] {
                    // Sought anew: the two may lie in one file.
                    let from = stored.start + stored.number.bytes(at).unwrap_or_default();
                    let from = Stored { start: from, ..stored.clone() };
                    self.reader(&from)?.fill(&mut values[..n])?;
                }
                // By bits, so that a NaN equals itself.
                if x[..n].iter().zip(&y[..n]).any(|(x, y)| x.to_bits() != y.to_bits()) {
                    return Ok(false);
                }
                (at, left) = (at + n, left - n);
            }
            Ok(true)
        })();
        compared.map_err(Error::io("read", &self.path))
    }

    /// The parameters of a model of that configuration.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the tensors are not those of its table.
    pub fn params(&self, config: &GptConfig) -> Result<Params> {
        // Before the table is built: a block has at least six tensors, so more blocks than tensors
        // cannot be, whatever a damaged configuration says.
        if config.n_layer > self.len() {
            let (n, m) = (config.n_layer, self.len());
            let problem = format!("has {m} tensors; n_layer = {n} needs more");
            return Err(Error::checkpoint(&self.path, problem));
        }
        let table = Arc::new(Tensors::of(config));
        let mut rows = rows(&table, "");
        let stored_tied_head = config.tied && self.has(HEAD);
        if stored_tied_head {
            rows.push((HEAD.to_owned(), &table.wte.shape));
        }
        self.check(&rows)?;
        if stored_tied_head && !self.same(HEAD, &table.wte.name)? {
            let wte = &table.wte.name;
            let problem = format!("{HEAD} differs from {wte}, though config.json says tied");
            return Err(Error::checkpoint(&self.path, problem).with_hint(
                "\"tied\": false in config.json (Hugging Face: \"tie_word_embeddings\") gives the \
                 model both",
            ));
        }
        self.read_all(table, "")
    }

    /// The tensors of a table under `prefix` + their names, once they are checked.
    pub fn read_all(&self, table: Arc<Tensors<Spec>>, prefix: &str) -> Result<Params> {
        let mut params = Params::zeros(table.clone());
        for spec in table.iter() {
            self.read(&format!("{prefix}{}", spec.name), params.get_mut(spec))?;
        }
        Ok(params)
    }
}

/// Numbers of a file, in order.
struct Reader<'a> {
    file: &'a File,
    number: &'a Number,
    bytes: Vec<u8>,
}

impl Reader<'_> {
    fn fill(&mut self, values: &mut [f32]) -> io::Result<()> {
        for chunk in values.chunks_mut(CHUNK) {
            let bytes = self.number.bytes(chunk.len()).expect("of a kind that is read");
            self.bytes.resize(bytes as usize, 0);
            self.file.read_exact(&mut self.bytes)?;
            self.number.decode(&self.bytes, chunk);
        }
        Ok(())
    }
}

/// The names (after `prefix`) and shapes that a file of that table has.
pub(crate) fn rows<'a>(table: &'a Tensors<Spec>, prefix: &str) -> Vec<(String, &'a [usize])> {
    table.iter().map(|spec| (format!("{prefix}{}", spec.name), &*spec.shape)).collect()
}

/// The error for a file that ends too soon.
pub(crate) fn truncated(path: &Path, expected: u64, more: &str, size: u64) -> Error {
    let problem = format!("file truncated: expected {expected} bytes{more}, have {size}");
    Error::checkpoint(path, problem).with_hint("copy or download it again")
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
pub(crate) fn tuple(shape: &[usize]) -> String {
    let dims: Vec<_> = shape.iter().map(usize::to_string).collect();
    format!("({})", dims.join(", "))
}
