//! The program's trainer, told and heard from Python.

use crate::failure::{exception, in_python};
use crate::processor::{detached, fault};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use serde_json::json;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tinygpt::run::start::{self, Begun, New, Starting, is_foreign};
use tinygpt::run::{Ending, Event, folder::RUNS, model_path, open_model};
use tinygpt::{Error, Layers};

/// How often a start is asked whether the user still wants it.
const MOMENT: Duration = Duration::from_millis(50);
/// How long one that is to stop may take to put away what it has made.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a training starts from.
struct Asked {
    layers: Layers,
    init_from: Option<PathBuf>,
    /// A run, the newest if there is no path, or a training of nanoGPT's.
    resume: Option<Option<PathBuf>>,
    overwrite: bool,
}

/// Trains a new run, from new weights or `init_from`, or goes on with `resume`, `newest` without a
/// path. Each event goes to `on_event` as JSON. Returns the run's folder. From the event "start" on,
/// Ctrl-C or an exception of `on_event` saves first; before, it leaves nothing.
#[pyfunction]
#[pyo3(signature = (
    text, preset, file, settings, on_event, *, init_from, resume, newest, overwrite
))]
pub fn train(
    py: Python<'_>,
    text: Vec<PathBuf>,
    preset: Option<String>,
    file: Option<PathBuf>,
    settings: Vec<(String, String)>,
    on_event: Py<PyAny>,
    init_from: Option<PathBuf>,
    resume: Option<PathBuf>,
    newest: bool,
    overwrite: bool,
) -> PyResult<PathBuf> {
    let (dataset, settings): (Vec<_>, Vec<_>) =
        settings.into_iter().partition(|(key, _)| key == "dataset");
    let layers = Layers {
        preset,
        file,
        text,
        dataset: dataset.into_iter().next_back().map(|(_, name)| name),
        command_line: settings,
        are_arguments: true,
        ..Layers::default()
    };
    let resume = (newest || resume.is_some()).then_some(resume);
    let goes_on = resume.is_some();
    let begun = begun(py, Asked { layers, init_from, resume, overwrite }, &on_event)?;
    let folder = begun.run.folder().to_owned();
    detached(py, || {
        if goes_on && begun.is_done() {
            opening(&begun, &on_event)?;
            let (step, all) = (begun.trainer.progress().step, begun.trainer.config().max_iters);
            let longer = format!("raise it with max_iters={}", 2 * step.max(1));
            let done = format!("already at {step} of {all} steps (max_iters); {longer}");
            return tell(&on_event, warning(&done));
        }
        run_to_its_end(begun, &on_event)
    })?;
    Ok(folder)
}

fn opening(begun: &Begun, on_event: &Py<PyAny>) -> PyResult<()> {
    tell(on_event, json!({ "event": "start", "folder": begun.run.folder() }).to_string())?;
    begun.trainer.data().notices.iter().try_for_each(|note| tell(on_event, warning(note)))
}

fn run_to_its_end(mut begun: Begun, on_event: &Py<PyAny>) -> PyResult<()> {
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
            keep(tell(on_event, json));
        }
    };
    // What is raised here stops it before its first step: with a checkpoint, to go on from.
    keep(opening(&begun, on_event));
    let ending = begun.train(&stop, &mut hear);
    match (failed.take(), ending.map_err(exception)?) {
        (Some(error), _) => Err(error),
        (None, Ending::Stopped) => Err(PyKeyboardInterrupt::new_err(())),
        _ => Ok(()),
    }
}

fn tell(on_event: &Py<PyAny>, event: String) -> PyResult<()> {
    Python::attach(|py| on_event.call1(py, (event,)).map(drop))
}

fn warning(text: &str) -> String {
    json!({ "event": "warning", "text": text }).to_string()
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
        Event::Note(note) => ("warning", text(note)),
        Event::Failed(error) => ("warning", text(&error.to_string())),
        _ => return None,
    };
    Some(format!("{{\"event\":\"{kind}\",{}", &json[1..]))
}

/// What a start says to whoever waits for it.
enum Said {
    /// A whole sentence.
    Note(String),
    /// A folder to remove when it is left alone.
    Room(PathBuf),
    Begun(Box<tinygpt::Result<Begun>>),
    /// A panic's words.
    Fault(PyErr),
}

/// Begins on a thread of its own: a text may take minutes to become tokens, and a pipe for ever to be
/// written, and Python's signals come to the thread that called. When one does, the start is told to
/// stop; one that hears nothing, because it waits for a pipe, is left to itself, without its folder.
fn begun(py: Python<'_>, asked: Asked, on_event: &Py<PyAny>) -> PyResult<Begun> {
    let (say, mut heard) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        let said = say.clone();
        let mut hear = move |starting: Starting| {
            if told.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            pass_on(starting, &said);
            ControlFlow::Continue(())
        };
        let begun = catch_unwind(AssertUnwindSafe(|| begin(asked, &mut hear)));
        // Nobody hears it when it was stopped; dropped, it takes back what it made.
        let _ = say.send(match begun {
            Ok(begun) => Said::Begun(Box::new(begun)),
            Err(panic) => Said::Fault(fault(&*panic)),
        });
    });
    let mut room = None;
    let result = waited_for(py, &mut heard, &mut room, on_event);
    if result.is_err() && !stop.swap(true, Ordering::Relaxed) {
        py.detach(move || put_away(&heard, room.as_deref()));
    }
    result
}

fn pass_on(starting: Starting, say: &Sender<Said>) {
    let said = match starting {
        Starting::Note(note) => Said::Note(note.into()),
        Starting::Changed(change) => {
            Said::Note(format!("changed: {} {} -> {}", change.key.name, change.old, change.new))
        }
        Starting::Room(folder) => Said::Room(folder.to_owned()),
        _ => return,
    };
    let _ = say.send(said);
}

fn waited_for(
    py: Python<'_>,
    heard: &mut Receiver<Said>,
    room: &mut Option<PathBuf>,
    on_event: &Py<PyAny>,
) -> PyResult<Begun> {
    loop {
        py.check_signals()?;
        // Mutably, because a channel's end may not be shared with whoever holds the lock meanwhile.
        let end = &mut *heard;
        match py.detach(move || end.recv_timeout(MOMENT)) {
            Ok(Said::Note(note)) => tell(on_event, warning(&in_python(&note)))?,
            Ok(Said::Room(folder)) => *room = Some(folder),
            Ok(Said::Begun(begun)) => return begun.map_err(exception),
            Ok(Said::Fault(fault)) => return Err(fault),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(fault(&"a thread ended")),
        }
    }
}

/// Waits a moment for a start that is to stop to end, and then removes the folder that it works in.
fn put_away(heard: &Receiver<Said>, room: Option<&Path>) {
    let until = Instant::now() + PATIENCE;
    while let Ok(said) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
        // What has begun is dropped here, and takes back what it made.
        if matches!(said, Said::Begun(_) | Said::Fault(_)) {
            return;
        }
    }
    if let Some(room) = room {
        let _ = std::fs::remove_dir_all(room);
    }
}

fn begin(asked: Asked, hear: start::Hear) -> tinygpt::Result<Begun> {
    let Asked { layers, init_from, resume, overwrite } = asked;
    let theirs = resume.clone().flatten().filter(|path| is_foreign(path));
    let goes_on = theirs.is_some();
    if let Some(path) = resume.filter(|_| !goes_on) {
        return start::again(path.as_deref(), layers, hear);
    }
    let open = |path: PathBuf| open_model(&model_path(Path::new(RUNS), Some(&path))?);
    let model = init_from.or(theirs).map(open).transpose()?;
    let settings = start::settings(layers, model.as_ref(), goes_on)?;
    let notices = model.iter().flat_map(|model| &model.notices).chain(&settings.notices);
    for notice in notices {
        if hear(Starting::Note(notice)).is_break() {
            return Err(Error::Stopped);
        }
    }
    start::anew(New { settings, model, goes_on, overwrite }, hear)
}
