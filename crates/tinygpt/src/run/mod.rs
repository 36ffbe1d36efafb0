//! A run: what it is told to do, and the folder it leaves behind.

pub mod keys;
pub mod values;
pub mod read;
mod python_config;
pub mod layers;
pub mod settings;
mod latest;
pub mod folder;
mod find;
pub mod dataset;
pub mod memory;
pub mod processor;
pub mod model;
mod log;
pub mod metrics;
mod tensorboard;
pub mod samples;
pub mod chart;
mod event;
mod keeper;
pub mod training;
pub mod start;

pub use chart::thousands;
pub use dataset::{data_options, dataset};
pub use event::{Ending, Event};
pub use find::model_path;
pub use folder::Run;
pub use model::{open_model, read_model};
pub use processor::cpu;
pub use settings::{Layers, Settings};
pub use training::train;
