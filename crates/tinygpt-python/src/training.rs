//! The program's trainer, told and heard from Python.

use crate::failure::exception;
use crate::processor::detached;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use serde_json::json;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tinygpt::checkpoint::{TrainState, check_finite};
use tinygpt::files::write_whole;
use tinygpt::model::{Params, Tensors};
use tinygpt::run::keys::Group;
use tinygpt::run::layers::Origin;
use tinygpt::run::{settings::diff, values::RunSettings};
use tinygpt::run::{self, Ending, Event, data_options, dataset, folder::RUNS};
use tinygpt::{Checkpoint, Dataset, Gpt, Input, Layers, Run, Settings, Trainer};
use tinygpt_kernels::{Cpu, Isa};

/// A training about to start.
struct Begun {
    run: Run,
    trainer: Trainer,
    settings: RunSettings,
    /// What the user should know of how it starts.
    notes: Vec<String>,
}

/// Trains a new run, or goes on with `resume`. Each event goes to `on_event` as JSON. Returns the
/// run's folder. Ctrl-C, or an exception of `on_event`, saves first.
#[pyfunction]
#[pyo3(signature = (text, preset, file, settings, resume, on_event))]
pub fn train(
    py: Python<'_>,
    text: Vec<PathBuf>,
    preset: Option<String>,
    file: Option<PathBuf>,
    settings: Vec<(String, String)>,
    resume: Option<PathBuf>,
    on_event: Py<PyAny>,
) -> PyResult<PathBuf> {
    let layers = Layers { preset, file, text, command_line: settings, ..Layers::default() };
    detached(py, || {
        let mut begun = match resume {
            Some(path) => again(&path, layers)?,
            None => anew(&layers)?,
        };
        let folder = begun.run.folder().to_owned();
        tell(&on_event, json!({ "event": "start", "folder": folder }).to_string())?;
        for note in &begun.notes {
            tell(&on_event, json!({ "event": "warning", "text": note }).to_string())?;
        }
        let progress = begun.trainer.progress();
        let (step, all) = (progress.step, begun.trainer.config().max_iters);
        // One that was stopped in its last evaluation has only that to do.
        if step >= all && progress.last_eval == Some(step) {
            let longer = format!("raise it with max_iters={}", 2 * step.max(1));
            let done = format!("already at {step} of {all} steps (max_iters); {longer}");
            tell(&on_event, json!({ "event": "warning", "text": done }).to_string())?;
            return Ok(folder);
        }
        let failed = RefCell::new(None);
        let keep = |result: PyResult<()>| {
            if let Err(error) = result {
                failed.borrow_mut().get_or_insert(error);
            }
        };
        let stop = || {
            keep(Python::attach(|py| py.check_signals()));
            failed.borrow().is_some()
        };
        let mut hear = |event: Event| {
            if let Some(json) = as_json(&event) {
                keep(tell(&on_event, json));
            }
        };
        let Begun { run, trainer, settings, .. } = &mut begun;
        let ending = run::train(run, trainer, settings, &stop, &mut hear);
        match (failed.take(), ending.map_err(exception)?) {
            (Some(error), _) => Err(error),
            (None, Ending::Stopped) => Err(PyKeyboardInterrupt::new_err(())),
            _ => Ok(folder),
        }
    })
}

fn tell(on_event: &Py<PyAny>, event: String) -> PyResult<()> {
    Python::attach(|py| on_event.call1(py, (event,)).map(drop))
}

/// An event with the keys and digits of metrics.jsonl; none for what only a progress bar needs.
fn as_json(event: &Event) -> Option<String> {
    let text = |text: &str| json!({ "text": text }).to_string();
    let (kind, json) = match event {
        Event::Step(step) => ("step", serde_json::to_string(step).expect("numbers")),
        Event::Evaluation(evaluation) => {
            ("evaluation", serde_json::to_string(evaluation).expect("numbers"))
        }
        Event::Sample(sample) => ("sample", text(sample)),
        Event::Failed(error) => ("warning", text(&error.to_string())),
        _ => return None,
    };
    Some(format!("{{\"event\":\"{kind}\",{}", &json[1..]))
}

/// A new run: its folder is made when its settings are known to work, and what is made is removed
/// again when its text is not.
fn anew(layers: &Layers) -> PyResult<Begun> {
    let mut settings = Settings::resolve(layers).map_err(exception)?;
    settings.check_from_scratch().map_err(exception)?;
    settings.settle_dtype(Isa::best());
    for origin in settings.origins.values_mut() {
        if *origin == Origin::CommandLine {
            *origin = Origin::Argument;
        }
    }
    let out_dir = Path::new(&settings.run.out_dir);
    let (named, made) = (!out_dir.as_os_str().is_empty(), !out_dir.exists());
    if named && Run::open(Path::new(""), Some(out_dir)).is_ok() {
        let problem = format!("{}: there is a run already", out_dir.display());
        let hint = "resume= goes on with it, another out_dir= keeps it";
        return Err(PyValueError::new_err(format!("{problem}\nhint: {hint}")));
    }
    let run = match named {
        false => Run::create(Path::new(RUNS), &settings.preset),
        true => Run::create_at(out_dir, false),
    }
    .map_err(exception)?;
    let trainer =
        first_trainer(&run, &mut settings).inspect_err(|_| run.take_back(!named || made))?;
    if !settings.train.eval_only {
        run.call_latest(Path::new(RUNS));
    }
    let notes = trainer.data().notices.clone();
    Ok(Begun { run, trainer, settings: settings.run, notes })
}

fn first_trainer(run: &Run, settings: &mut Settings) -> PyResult<Trainer> {
    let (data, options) = (run.data(), data_options(settings));
    let (input, folder) = match &settings.text[..] {
        [] => (Input::TinyShakespeare, None),
        paths => (Input::Paths(paths.to_vec()), Some(data.as_path())),
    };
    let data = Dataset::build(&input, &options, folder, &mut |_, _| {}).map_err(exception)?;
    settings.settle_vocab_size(data.tokenizer.vocab_size()).map_err(exception)?;
    settings.model.check().map_err(exception)?;
    let table = Arc::new(Tensors::of(&settings.model));
    let params = Params::init(table, settings.train.seed);
    write_whole(&run.config(), settings.to_toml()).map_err(exception)?;
    let gpt = Gpt::with_params(settings.model.clone(), params, cpu(settings)).map_err(exception)?;
    Trainer::new(gpt, data, settings.train.clone()).map_err(exception)
}

/// A run that stopped, with whatever settings are changed.
fn again(path: &Path, layers: Layers) -> PyResult<Begun> {
    if layers.preset.is_some() || layers.file.is_some() || !layers.text.is_empty() {
        let problem = "a resumed run keeps its text, preset and config; only settings can change";
        return Err(PyValueError::new_err(problem));
    }
    let run = Run::open(Path::new(RUNS), Some(path)).map_err(exception)?;
    let newest = run.newest().map_err(exception)?;
    let written = Layers { file: Some(run.config()), ..Layers::default() };
    let changed = Layers { command_line: layers.command_line, ..written.clone() };
    let written = Settings::resolve(&written).map_err(exception)?;
    let mut settings = Settings::resolve(&changed).map_err(exception)?;
    settings.settle_dtype(Isa::best());
    let mut notes = Vec::new();
    for change in diff(&written, &settings) {
        let fixed = matches!(change.key.group, Group::Model | Group::Data);
        if fixed || matches!(change.key.name, "seed" | "out_dir") {
            let problem = format!(
                "{0} = {1}: this run has {0} = {2}\nhint: what the model and its text are cannot \
                 change; start a new run",
                change.key.name, change.new, change.old
            );
            return Err(PyValueError::new_err(problem));
        }
        notes.push(format!("changed: {} {} -> {}", change.key.name, change.old, change.new));
    }
    let loaded = Checkpoint::load(&newest).map_err(exception)?;
    check_finite(&loaded.params, &newest).map_err(exception)?;
    let state = TrainState::load(&newest, &loaded.params).map_err(exception)?;
    let data = dataset(&run, &newest, &settings, &mut |_, _| {}).map_err(exception)?;
    let model = tinygpt::GptConfig { dropout: settings.model.dropout, ..loaded.config };
    let gpt = Gpt::with_params(model, loaded.params, cpu(&settings)).map_err(exception)?;
    let trainer = Trainer::resume(gpt, state, data, settings.train.clone()).map_err(exception)?;
    write_whole(&run.config(), settings.to_toml()).map_err(exception)?;
    Ok(Begun { run, trainer, settings: settings.run, notes })
}

fn cpu(settings: &Settings) -> Cpu {
    Cpu::new(settings.run.threads, Isa::best())
}
