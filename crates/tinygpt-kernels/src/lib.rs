//! The maths of a small GPT on plain slices, forward and backward. Knows nothing of GPT.
//!
//! This is the only crate of the project with `unsafe`.

pub mod pages;
pub mod buffer;
mod lent;
pub mod rng;
pub mod narrow;
mod simd;
mod kept;
pub mod profile;
mod par;
pub mod bulk;
pub mod peak;
pub mod gemm;
mod sum;
pub mod embedding;
pub mod layernorm;
pub mod linear;
pub mod dropout;
pub mod attention;
pub mod activation;
pub mod decode;
pub mod cross_entropy;
pub mod adamw;
pub mod reference;

pub use buffer::Buffer;
pub use lent::Lent;
pub use par::{Cpu, available_threads};
pub use profile::Op;
pub use simd::Isa;
