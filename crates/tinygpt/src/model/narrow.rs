//! The matrices as they are read when text is written: as trained, or in fewer bits.
//!
//! Whoever keeps them in fewer bits rounds the parameters too: every forward pass, with or without
//! a cache, is then that of the same numbers.

use super::params::Params;
use super::tensors::{Block, Spec, Tensors};
use crate::dtype::Dtype;
use std::ops::Range;
use tinygpt_kernels::Isa;
use tinygpt_kernels::decode::Weight;
use tinygpt_kernels::narrow::{GROUP, from_bf16, from_int8, to_bf16, to_int8};
use tinygpt_kernels::pages;

/// What the matrices of a model that writes are kept in.
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
/// the other in large pages.
pub(crate) struct Matrices {
    pub precision: Precision,
    kept: Tensors<Kept>,
    bf16: Vec<u16>,
    int8: Vec<i8>,
    scales: Vec<f32>,
}

impl Matrices {
    /// Rounds what is multiplied by: all matrices but the tables of which only rows are looked up.
    pub fn of(params: &mut Params, precision: Precision) -> Self {
        let table = params.table().clone();
        let multiplied = |spec: &Spec| spec.decays() && !looked_up(&table, spec);
        let matrices = || table.iter().filter(|spec| multiplied(spec));
        let all = matrices().map(|spec| spec.range.len()).sum();
        let groups = matrices().map(|spec| spec.shape[0] * spec.shape[1].div_ceil(GROUP)).sum();
        let (mut bf16, mut int8, mut scales) = (Vec::new(), Vec::new(), Vec::new());
        match precision {
            Precision::F32 => {}
            Precision::Bf16 => bf16 = pages::with_capacity(all),
            Precision::Int8 => {
                (int8, scales) = (pages::with_capacity(all), pages::with_capacity(groups));
            }
        }
        let kept = table.map(|spec| match precision {
            _ if !multiplied(spec) => Kept::F32(spec.range.clone()),
            Precision::F32 => Kept::F32(spec.range.clone()),
            Precision::Bf16 => {
                let from = bf16.len();
                round_to_bf16(&mut bf16, params.get_mut(spec));
                Kept::Bf16(from..bf16.len())
            }
            Precision::Int8 => {
                let from = (int8.len(), scales.len());
                round_to_int8(&mut int8, &mut scales, params.get_mut(spec), spec.shape[1]);
                Kept::Int8(from.0..int8.len(), from.1..scales.len())
            }
        });
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

/// Rounds the tensor `w` and appends what it was rounded to.
fn round_to_bf16(values: &mut Vec<u16>, w: &mut [f32]) {
    values.extend(w.iter_mut().map(|w| {
        let value = to_bf16(*w);
        *w = from_bf16(value);
        value
    }));
}

/// The same, with `i` inputs in a row.
fn round_to_int8(values: &mut Vec<i8>, scales: &mut Vec<f32>, w: &mut [f32], i: usize) {
    for w in w.chunks_exact_mut(i).flat_map(|row| row.chunks_mut(GROUP)) {
        let (mut group, mut scale) = ([0; GROUP], 0.0);
        let group = &mut group[..w.len()];
        to_int8(group, &mut scale, w);
        w.iter_mut().zip(&*group).for_each(|(w, value)| *w = from_int8(*value, scale));
        values.extend_from_slice(group);
        scales.push(scale);
    }
}
