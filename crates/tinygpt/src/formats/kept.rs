//! What exported weights are kept in, and the way from f32 to it.

use crate::checkpoint::stored::{Number, Q8_BLOCK, Q8_BYTES};
use crate::error::{Error, Result};
use crate::model::Params;
use half::f16;
use std::io::{self, Write};
use tinygpt_kernels::narrow::{from_bf16, to_bf16, to_int8};

/// What the weights of an exported model are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// 32 bits, as trained.
    #[default]
    F32,
    /// IEEE's 16 bits: 11 of precision, up to 65504.
    F16,
    /// The upper 16 bits of an f32: 8 of precision, as large as an f32.
    Bf16,
    /// 8 bits, and an f16 scale for every 32 of a row: GGUF's.
    Q8,
}

/// Numbers on their way to a file: a multiple of a block of q8_0.
const CHUNK: usize = 1 << 14;
/// Columns that are turned together.
const COLUMNS: usize = 16;

impl Kept {
    /// The names, as they are typed.
    pub const NAMES: [&str; 4] = ["f32", "f16", "bf16", "q8_0"];

    /// The one called `name`.
    pub fn named(name: &str) -> Option<Self> {
        [Self::F32, Self::F16, Self::Bf16, Self::Q8].into_iter().find(|kept| kept.name() == name)
    }

    /// One of [`NAMES`](Self::NAMES).
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8 => "q8_0",
        }
    }

    pub(super) fn number(self) -> Number {
        match self {
            Self::F32 => Number::F32,
            Self::F16 => Number::F16,
            Self::Bf16 => Number::Bf16,
            Self::Q8 => Number::Q8,
        }
    }

    /// Bytes of `n` numbers: whole blocks where there are blocks.
    pub(super) fn bytes(self, n: usize) -> usize {
        match self {
            Self::F32 => 4 * n,
            Self::F16 | Self::Bf16 => 2 * n,
            Self::Q8 => n / Q8_BLOCK * Q8_BYTES,
        }
    }

    fn encode(self, values: &[f32], bytes: &mut Vec<u8>) {
        match self {
            Self::F32 => bytes.extend(values.iter().flat_map(|x| x.to_le_bytes())),
            Self::F16 => bytes.extend(values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes())),
            Self::Bf16 => bytes.extend(values.iter().flat_map(|&x| to_bf16(x).to_le_bytes())),
            Self::Q8 => {
                for block in values.chunks_exact(Q8_BLOCK) {
                    let (mut kept, mut scale) = ([0; Q8_BLOCK], 0.0);
                    to_int8(&mut kept, &mut scale, block);
                    bytes.extend(f16::from_f32(scale).to_le_bytes());
                    bytes.extend(kept.map(|x| x as u8));
                }
            }
        }
    }

    /// Writes a tensor as it lies in memory.
    pub(super) fn write(self, to: &mut dyn Write, values: &[f32]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for chunk in values.chunks(CHUNK) {
            bytes.clear();
            self.encode(chunk, &mut bytes);
            to.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Writes a matrix (out, in) as (in, out).
    pub(super) fn write_turned(
        self,
        to: &mut dyn Write,
        values: &[f32],
        inputs: usize,
    ) -> io::Result<()> {
        let outputs = values.len() / inputs;
        let (mut turned, mut bytes) = (vec![0.0; COLUMNS.min(inputs) * outputs], Vec::new());
        for first in (0..inputs).step_by(COLUMNS) {
            let some = COLUMNS.min(inputs - first);
            for (o, row) in values.chunks_exact(inputs).enumerate() {
                for (i, &value) in row[first..first + some].iter().enumerate() {
                    turned[i * outputs + o] = value;
                }
            }
            bytes.clear();
            self.encode(&turned[..some * outputs], &mut bytes);
            to.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Whether every weight is a number, and has a value in it.
    ///
    /// # Errors
    /// [`Error::Data`] names the first weight that is not finite, [`Error::Config`] the first that
    /// is too large for what it would be kept in.
    pub(super) fn check(self, params: &Params) -> Result<()> {
        let holds = |x: f32, is_matrix: bool| match self {
            Self::F16 => f16::from_f32(x).is_finite(),
            Self::Bf16 => from_bf16(to_bf16(x)).is_finite(),
            // The scale of a block overflows; vectors stay in f32.
            Self::Q8 if is_matrix => f16::from_f32(x / 127.0).is_finite(),
            Self::F32 | Self::Q8 => true,
        };
        for (spec, values) in params.iter() {
            if let Some(value) = values.iter().find(|x| !x.is_finite()) {
                let problem = format!("{} has {value}; nothing was written", spec.name);
                return Err(Error::data("the model", problem)
                    .with_hint("its training diverged: export an earlier checkpoint"));
            }
            let is_matrix = spec.shape.len() == 2;
            if let Some(value) = values.iter().find(|&&x| !holds(x, is_matrix)) {
                let expected = format!("{} has {value}, too large for it", spec.name);
                return Err(Error::config("dtype", self.name(), expected).with_hint(match self {
                    Self::F16 => "bf16 is as small and as large as f32",
                    _ => "f32 keeps it as it is",
                }));
            }
        }
        Ok(())
    }
}
