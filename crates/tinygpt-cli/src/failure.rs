//! How the program fails: one or two lines on standard error and an exit code.

use crate::out::tell;
use clap::error::{ContextKind, ErrorKind};
use std::process::ExitCode;
use tinygpt::Error;
use tinygpt::run::keys;

/// What to tell the user before leaving.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// Empty where everything was said already.
    problem: String,
    hint: Option<String>,
}

impl Failure {
    /// Something was asked for that cannot be: exit code 2.
    pub fn usage(problem: impl Into<String>) -> Self {
        Self { code: 2, problem: problem.into(), hint: None }
    }

    /// Something was tried and did not work: exit code 1.
    pub fn run(problem: impl Into<String>) -> Self {
        Self { code: 1, problem: problem.into(), hint: None }
    }

    /// Stopped by Ctrl-C or SIGTERM, and said so: exit code 130.
    pub fn interrupted() -> Self {
        Self { code: 130, problem: String::new(), hint: None }
    }

    /// The same with a way out.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with one more way out.
    pub fn and_hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        self.hint = Some(self.hint.map_or(hint.clone(), |first| format!("{hint}; {first}")));
        self
    }

    /// The same as a mistake in what was asked for.
    pub fn into_usage(self) -> Self {
        Self { code: 2, ..self }
    }

    /// Says it.
    pub fn report(&self) -> ExitCode {
        if !self.problem.is_empty() {
            tell(&format!("error: {}", self.problem));
        }
        if let Some(hint) = &self.hint {
            tell(&format!("hint: {hint}"));
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let asked = matches!(error, Error::Config { .. } | Error::Usage { .. });
        let code = if asked { 2 } else { 1 };
        Self { code, problem: error.to_string(), hint: error.hint().map(Into::into) }
    }
}

/// A mistake on the command line, in our words and with our hints.
pub fn usage(mistake: &clap::Error) -> Failure {
    let said = |kind| mistake.get(kind).map(|value| value.to_string());
    let did_you_mean = |kind| said(kind).map(|near| format!("did you mean {near}?"));
    let arg = said(ContextKind::InvalidArg).unwrap_or_default();
    // clap says `--top-k <K>`; the flag alone reads better before its value.
    let flag = match arg.strip_prefix('<') {
        Some(name) => name.trim_end_matches('.').trim_end_matches('>'),
        None => arg.split(' ').next().unwrap_or_default(),
    };
    let (problem, hint) = match mistake.kind() {
        ErrorKind::InvalidSubcommand => (
            format!("unknown verb `{}`", said(ContextKind::InvalidSubcommand).unwrap_or_default()),
            did_you_mean(ContextKind::SuggestedSubcommand)
                .or(Some("`tinygpt --help` lists the verbs".into())),
        ),
        ErrorKind::UnknownArgument if arg.starts_with('-') => (
            format!("unknown flag {arg}"),
            keys::elsewhere(arg.trim_start_matches('-'))
                .or(did_you_mean(ContextKind::SuggestedArg))
                .or(Some("--help lists every flag".into())),
        ),
        ErrorKind::UnknownArgument => (format!("unexpected argument `{arg}`"), None),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = said(ContextKind::InvalidValue).unwrap_or_default();
            let choices = said(ContextKind::ValidValue).unwrap_or_default();
            let problem = match std::error::Error::source(mistake) {
                Some(reason) => format!("{flag} {value}: {reason}"),
                None if value.is_empty() => format!("{flag} needs a value"),
                None => format!("{flag} {value}: must be one of {choices}"),
            };
            (problem, did_you_mean(ContextKind::SuggestedValue))
        }
        ErrorKind::MissingRequiredArgument => {
            (format!("{arg} is missing"), Some("--help shows the usage".into()))
        }
        _ => {
            let text = mistake.render().to_string();
            let line = text.lines().next().unwrap_or_default();
            (line.trim_start_matches("error: ").into(), Some("--help shows the usage".into()))
        }
    };
    Failure { code: 2, problem, hint }
}
