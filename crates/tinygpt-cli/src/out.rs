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

/// A line on standard error. That nobody reads it is no reason to stop, or to panic as `eprintln!`.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
