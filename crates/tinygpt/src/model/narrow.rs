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

/// One tensor.
enum Kept {
    /// Where it lies among the parameters.
    F32(Range<usize>),
    Bf16(Vec<u16>),
    Int8 {
        values: Vec<i8>,
        scales: Vec<f32>,
    },
}

/// Every tensor as it is read; those in fewer bits are copies of the rounded parameters.
pub(crate) struct Matrices {
    pub precision: Precision,
    kept: Tensors<Kept>,
}

impl Matrices {
    /// Rounds what is multiplied by: all matrices but the tables of which only rows are looked up.
    pub fn of(params: &mut Params, precision: Precision) -> Self {
        let table = params.table().clone();
        let kept = table.map(|spec| match precision {
            _ if !spec.decays() || looked_up(&table, spec) => Kept::F32(spec.range.clone()),
            Precision::F32 => Kept::F32(spec.range.clone()),
            Precision::Bf16 => bf16(params.get_mut(spec)),
            Precision::Int8 => int8(params.get_mut(spec), spec.shape[1]),
        });
        Self { precision, kept }
    }

    /// The tensors of block `l`.
    pub fn block<'a>(&'a self, l: usize, params: &'a Params) -> Block<Weight<'a>> {
        self.kept.h[l].map(&mut |kept| kept.read(params))
    }

    /// Bytes that are read to write a token.
    pub fn bytes_read(&self, table: &Tensors<Spec>) -> usize {
        let read = self.kept.iter().zip(table.iter()).filter(|(_, spec)| !looked_up(table, spec));
        read.map(|(kept, _)| kept.bytes()).sum()
    }

    /// The unembedding (V, C).
    pub fn unembedding<'a>(&'a self, params: &'a Params) -> Weight<'a> {
        self.kept.lm_head.as_ref().unwrap_or(&self.kept.wte).read(params)
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
            Kept::Bf16(values) => size_of_val(&values[..]),
            Kept::Int8 { values, scales } => size_of_val(&values[..]) + size_of_val(&scales[..]),
        }
    }

    fn read<'a>(&'a self, params: &'a Params) -> Weight<'a> {
        match self {
            Kept::F32(range) => Weight::F32(params.at(range)),
            Kept::Bf16(values) => Weight::Bf16(values),
            Kept::Int8 { values, scales } => Weight::Int8 { values, scales },
        }
    }
}

/// Rounds the tensor `w`.
fn bf16(w: &mut [f32]) -> Kept {
    let values: Vec<u16> = w.iter().map(|&x| to_bf16(x)).collect();
    w.iter_mut().zip(&values).for_each(|(w, &value)| *w = from_bf16(value));
    Kept::Bf16(values)
}

/// The same, with `i` inputs in a row.
fn int8(w: &mut [f32], i: usize) -> Kept {
    let mut values = vec![0; w.len()];
    let mut scales = Vec::with_capacity(w.len() / i * i.div_ceil(GROUP));
    for (w, values) in w.chunks_exact_mut(i).zip(values.chunks_exact_mut(i)) {
        for (w, values) in w.chunks_mut(GROUP).zip(values.chunks_mut(GROUP)) {
            let mut scale = 0.0;
            to_int8(values, &mut scale, w);
            w.iter_mut().zip(values).for_each(|(w, value)| *w = from_int8(*value, scale));
            scales.push(scale);
        }
    }
    Kept::Int8 { values, scales }
}
