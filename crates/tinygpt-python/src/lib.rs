//! `tiny_gpt._engine`: what `python/tiny_gpt` asks of TinyGPT. Conversion only: tensors to slices,
//! errors to exceptions, settings as JSON.
//!
//! **The only `unsafe` is in `memory.rs`. No panic crosses to Python, and the interpreter's lock is
//! never held while the engine works** (`processor.rs`).

mod engine;
mod failure;
mod memory;
mod processor;
mod tokenizer;
mod training;

use pyo3::prelude::*;

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<engine::Engine>()?;
    module.add_class::<engine::ForwardPass>()?;
    module.add_class::<tokenizer::Tokenizer>()?;
    module.add_function(wrap_pyfunction!(engine::read_config, module)?)?;
    module.add_function(wrap_pyfunction!(engine::read_model, module)?)?;
    module.add_function(wrap_pyfunction!(tokenizer::tiny_shakespeare, module)?)?;
    module.add_function(wrap_pyfunction!(training::train, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
