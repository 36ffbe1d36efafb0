//! The maths of a small GPT on plain slices, forward and backward. Knows nothing of GPT.
//!
//! This is the only crate of the project with `unsafe`.

pub mod buffer;
pub mod rng;

pub use buffer::Buffer;
