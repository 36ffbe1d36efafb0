//! A run: what it is told to do, and the folder it leaves behind.

pub mod keys;
pub mod layers;
pub mod read;
pub mod settings;

pub use settings::{Layers, Settings};
