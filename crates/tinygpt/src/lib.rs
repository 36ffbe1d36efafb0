//! A decoder-only Transformer (GPT-2's architecture) from scratch, in the order the data flows:
//! text -> tokens -> batch -> forward -> loss -> backward -> optimizer -> checkpoint -> sample.
#![forbid(unsafe_code)]

pub mod error;
pub mod config;
pub mod model;
pub mod run;

pub use config::{Activation, GptConfig, TrainConfig};
pub use error::{Error, Result};
pub use run::{Layers, Settings};
