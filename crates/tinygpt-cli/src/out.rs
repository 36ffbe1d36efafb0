//! Standard output and standard error, in one place: a reader who has seen enough (`| head`) is no
//! failure.

use crate::{Outcome, failure::Failure};
use std::io::{ErrorKind, IsTerminal, Write};

/// Where results go.
pub struct Out {
    closed: bool,
}

impl Out {
    pub fn new() -> Self {
        Self { closed: false }
    }

    /// Writes and flushes; writes nothing once the reader has gone.
    pub fn write(&mut self, text: &str) -> Outcome {
        if self.closed {
            return Ok(());
        }
        let mut stdout = std::io::stdout();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            Err(error) => Err(Failure::run(format!("cannot write to standard output: {error}"))),
        }
    }

    /// Writes what a model wrote: to a terminal without characters that would command it.
    pub fn write_text(&mut self, text: &str) -> Outcome {
        self.write(&shown(text))
    }

    /// Whether the reader has gone, so that there is no point in making more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Help or the version, in colour where there is any.
    pub fn write_help(&mut self, message: &clap::Error) -> Outcome {
        let text = message.render();
        let coloured = std::io::stdout().is_terminal();
        self.write(&if coloured { text.ansi().to_string() } else { text.to_string() })
    }
}

/// A model's text as standard output may have it: a terminal without control characters.
pub fn shown(text: &str) -> String {
    match std::io::stdout().is_terminal() {
        true => harmless(text),
        false => text.into(),
    }
}

/// Every control character but those that move to another line or column, as U+FFFD.
fn harmless(text: &str) -> String {
    text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t'), "\u{fffd}")
}

/// A line on standard error. That nobody reads it is no reason to stop, or to panic as `eprintln!`.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_bytes_do_not_command_a_terminal() {
        let text = "a\u{1b}(0\u{7}b\u{9b}2J\n\tnaïve\r\n";
        assert_eq!(harmless(text), "a\u{fffd}(0\u{fffd}b\u{fffd}2J\n\tnaïve\r\n");
    }
}
