//! The matrices as they are read when text is written: as trained, or in fewer bits.
//!
//! Whoever keeps them in fewer bits rounds the parameters too: every forward pass, with or without
//! a cache, then multiplies by the same numbers. (The cache's own, keys and values, are rounded to bf16
//! beside them.)

use super::params::Params;
use super::tensors::{Block, Spec, Tensors};
use crate::dtype::Dtype;
use std::ops::Range;
use tinygpt_kernels::bulk::{round_to_bf16, round_to_int8};
use tinygpt_kernels::decode::Weight;
use tinygpt_kernels::narrow::GROUP;
use tinygpt_kernels::{Buffer, Cpu, Isa};

/// What the matrices of a model that writes are kept in; beside bf16 and int8 its keys and values are
/// in bf16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// As trained.
    #[default]
    F32,
    /// The upper 16 bits of an f32.
    Bf16,
    /// 8 bits, with a scale for every 64 inputs of an output.
    Int8,
}

impl Precision {
    /// `f32`, `bf16` or `int8`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// What a user named, with the instruction set `isa`.
    pub fn of(dtype: Dtype, isa: Isa) -> Self {
        match dtype.resolve(isa) {
            Dtype::Bf16 => Self::Bf16,
            _ => Self::F32,
        }
    }
}

/// Where one tensor lies.
enum Kept {
    /// Among the parameters.
    F32(Range<usize>),
    /// Among the 16 bits.
    Bf16(Range<usize>),
    /// Among the 8 bits, and its scales among theirs.
    Int8(Range<usize>, Range<usize>),
}

/// Every tensor as it is read; those in fewer bits are copies of the rounded parameters, one after
/// the other.
pub(crate) struct Matrices {
    pub precision: Precision,
    kept: Tensors<Kept>,
    bf16: Buffer<u16>,
    int8: Buffer<i8>,
    scales: Buffer,
}

impl Matrices {
    /// Rounds what is multiplied by: all matrices but the tables of which only rows are looked up.
    pub fn of(cpu: &Cpu, params: &mut Params, precision: Precision) -> Self {
        let table = params.table().clone();
        let (mut values, mut groups) = (0, 0);
        let kept = table.map(|spec| {
            if precision == Precision::F32 || !spec.decays() || looked_up(&table, spec) {
                return Kept::F32(spec.range.clone());
            }
            let (o, i) = (spec.shape[0], spec.shape[1]);
            let from = (values, groups);
            (values, groups) = (values + o * i, groups + o * i.div_ceil(GROUP));
            match precision {
                Precision::Bf16 => Kept::Bf16(from.0..values),
                _ => Kept::Int8(from.0..values, from.1..groups),
            }
        });
        let room = |wanted, len| if precision == wanted { len } else { 0 };
        let mut bf16 = Buffer::zeros(room(Precision::Bf16, values));
        let mut int8 = Buffer::zeros(room(Precision::Int8, values));
        let mut scales = Buffer::zeros(room(Precision::Int8, groups));
        for (kept, spec) in kept.iter().zip(table.iter()) {
            match kept {
                Kept::F32(_) => {}
                Kept::Bf16(to) => round_to_bf16(cpu, &mut bf16[to.clone()], params.get_mut(spec)),
                Kept::Int8(to, groups) => {
                    let (to, scales) = (&mut int8[to.clone()], &mut scales[groups.clone()]);
                    let dims = (spec.shape[0], spec.shape[1]);
                    round_to_int8(cpu, to, scales, params.get_mut(spec), dims);
                }
            }
        }
        Self { precision, kept, bf16, int8, scales }
    }

    /// The tensors of block `l`.
    pub fn block<'a>(&'a self, l: usize, params: &'a Params) -> Block<Weight<'a>> {
        self.kept.h[l].map(&mut |kept| self.read(kept, params))
    }

    /// The unembedding (V, C).
    pub fn unembedding<'a>(&'a self, params: &'a Params) -> Weight<'a> {
        self.read(self.kept.lm_head.as_ref().unwrap_or(&self.kept.wte), params)
    }

    fn read<'a>(&'a self, kept: &Kept, params: &'a Params) -> Weight<'a> {
        match kept {
            Kept::F32(range) => Weight::F32(params.at(range)),
            Kept::Bf16(range) => Weight::Bf16(&self.bf16[range.clone()]),
            Kept::Int8(values, scales) => Weight::Int8 {
                values: &self.int8[values.clone()],
                scales: &self.scales[scales.clone()],
            },
        }
    }

    /// Bytes that are read to write a token.
    pub fn bytes_read(&self, table: &Tensors<Spec>) -> usize {
        let read = self.kept.iter().zip(table.iter()).filter(|(_, spec)| !looked_up(table, spec));
        read.map(|(kept, _)| kept.bytes()).sum()
    }
}

/// Whether a token needs no more of it than one row.
fn looked_up(table: &Tensors<Spec>, spec: &Spec) -> bool {
    let wte = table.lm_head.is_some() && spec.range == table.wte.range;
    wte || spec.range == table.wpe.range
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::F32(range) => size_of::<f32>() * range.len(),
            Kept::Bf16(range) => size_of::<u16>() * range.len(),
            Kept::Int8(values, scales) => values.len() + size_of::<f32>() * scales.len(),
        }
    }
}
