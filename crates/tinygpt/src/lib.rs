//! A decoder-only Transformer (GPT-2's architecture) from scratch, in the order the data flows:
//! text -> tokens -> batch -> forward -> loss -> backward -> optimizer -> checkpoint -> sample.
#![forbid(unsafe_code)]

pub mod error;
pub mod dtype;
pub mod config;
pub mod files;
pub mod tokenizer;
pub mod data;
pub mod model;
pub mod optim;
pub mod checkpoint;
pub mod formats;
pub mod sample;
pub mod train;
pub mod run;
pub mod check;

pub use checkpoint::Checkpoint;
pub use config::{Activation, GptConfig, TrainConfig};
pub use data::{DataOptions, Dataset, Input, Newline, Split, Tokens};
pub use dtype::Dtype;
pub use error::{Error, Result};
pub use model::{Gpt, Precision};
pub use run::{Layers, Run, Settings};
pub use sample::{Sampler, Sampling};
pub use tinygpt_kernels::{Cpu, Isa, narrow::Factors, peak, profile};
pub use tokenizer::{Tokenizer, TokenizerKind};
pub use train::{Evaluation, StepReport, Trainer};
