//! The model: its parameters, its activations, its two mirror pages.

pub mod tensors;

pub use tensors::{Params, Spec, Tensors};

/// Random streams, one a purpose: no draw for one can move another.
pub(crate) const INIT_STREAM: u32 = 1;
