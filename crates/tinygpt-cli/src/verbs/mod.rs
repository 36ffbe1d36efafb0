//! The verbs: `arguments` says what one takes, `run` does it.

pub mod bench;
pub mod check;
pub mod completions;
pub mod eval;
pub mod export;
pub mod info;
pub mod prepare;
pub mod sample;
pub mod tokenize;
pub mod train;
