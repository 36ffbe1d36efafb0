//! What a training starts from, as the command line says it, and what a start tells.

use super::signals::Signals;
use crate::args::typed_settings;
use crate::failure::Failure;
use crate::out::tell;
use crate::progress::{Bar, unless_soon};
use crate::trained;
use clap::ArgMatches;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use tinygpt::formats::Model;
use tinygpt::run::read::is_python;
use tinygpt::run::start::{self, Begun, New, Starting, is_foreign};
use tinygpt::{Layers, Settings};

/// The model that a new run starts from, if it does: that of `--init-from`, or another program's
/// whose training `--resume` goes on with.
pub fn model(matches: &ArgMatches) -> Result<Option<Model>, Failure> {
    let path = |name| matches.try_get_one::<PathBuf>(name).ok().flatten();
    let theirs = path("resume").filter(|path| is_foreign(path));
    path("init-from").or(theirs).map(|path| trained::named(Some(path))).transpose()
}

/// The settings of a new run.
pub fn settings(matches: &ArgMatches, model: Option<&Model>) -> Result<Settings, Failure> {
    let (file, text) = file_and_text(matches)?;
    let layers = Layers {
        preset: matches.get_one::<String>("preset").cloned(),
        file,
        text,
        dataset: matches.get_one::<String>("dataset").cloned(),
        command_line: typed_settings(matches),
        ..Layers::default()
    };
    let settings = start::settings(layers, model, matches.contains_id("resume"));
    let settings = settings.map_err(|error| Failure::from(error).into_usage())?;
    settings.notices.iter().for_each(|notice| tell(&format!("note: {notice}")));
    Ok(settings)
}

/// The config file and the texts: one of the words may be a config of nanoGPT's.
fn file_and_text(matches: &ArgMatches) -> Result<(Option<PathBuf>, Vec<PathBuf>), Failure> {
    let texts = matches.get_many::<PathBuf>("text").into_iter().flatten().cloned();
    let (configs, text): (Vec<_>, Vec<_>) = texts.partition(|path| is_python(path));
    let named = matches.get_one::<PathBuf>("config").cloned();
    let mut configs: Vec<PathBuf> = named.into_iter().chain(configs).collect();
    if let [one, another, ..] = &configs[..] {
        let problem = format!("{} and {}: two config files", one.display(), another.display());
        return Err(Failure::usage(problem).with_hint(
            "the text of Python files goes through a pipe: cat *.py | tinygpt train -",
        ));
    }
    Ok((configs.pop(), text))
}

/// A new run, from new weights or from those of `model`.
pub fn anew(
    matches: &ArgMatches,
    settings: Settings,
    model: Option<Model>,
    signals: &Signals,
) -> Result<Begun, Failure> {
    let goes_on = matches.contains_id("resume");
    let new = New { settings, model, goes_on, overwrite: matches.get_flag("overwrite") };
    let mut heard = Heard { signals, waiting: None, bar: None };
    Ok(start::anew(new, &mut |starting| heard.tell(starting))?)
}

/// The run that stopped, with whatever settings were changed on the command line.
pub fn again(matches: &ArgMatches, signals: &Signals) -> Result<Begun, Failure> {
    let typed = matches.get_one::<PathBuf>("resume").map(PathBuf::as_path);
    let text = matches.get_many::<PathBuf>("text").into_iter().flatten().cloned().collect();
    let changed = Layers {
        text,
        dataset: matches.get_one::<String>("dataset").cloned(),
        command_line: typed_settings(matches),
        ..Layers::default()
    };
    let mut heard = Heard { signals, waiting: None, bar: None };
    Ok(start::again(typed, changed, &mut |starting| heard.tell(starting))?)
}

/// What shows how a start goes on.
struct Heard<'a> {
    signals: &'a Signals,
    /// Dropped when what takes a while is done.
    waiting: Option<Sender<()>>,
    bar: Option<Bar>,
}

impl Heard<'_> {
    /// Never breaks it off: a signal ends the program, or has it save.
    fn tell(&mut self, starting: Starting) -> ControlFlow<()> {
        self.waiting = None;
        if let Starting::Reading { done, total } = starting {
            self.bar.get_or_insert_with(|| Bar::new("reading the text")).at(done, total);
            return ControlFlow::Continue(());
        }
        self.bar = None;
        match starting {
            Starting::Note(note) => tell(&format!("note: {note}")),
            Starting::Changed(change) => {
                tell(&format!("changed: {} {} -> {}", change.key.name, change.old, change.new));
            }
            Starting::Doing(doing) => self.waiting = Some(unless_soon(doing.into())),
            Starting::Room(folder) => self.signals.preparing(folder),
            Starting::Folder => self.signals.training(),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
