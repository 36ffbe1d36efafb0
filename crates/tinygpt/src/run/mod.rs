//! A run: what it is told to do, and the folder it leaves behind.

pub mod keys;
pub mod layers;
pub mod read;
pub mod settings;
pub mod folder;
pub mod metrics;
pub mod samples;
pub mod chart;
pub mod dataset;
pub mod training;

pub use dataset::{data_options, dataset};
pub use folder::{Run, model_path};
pub use settings::{Layers, Settings};
pub use training::{Ending, Event, train};
