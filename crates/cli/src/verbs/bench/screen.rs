//! Progress of a measurement, on standard error.

use std::io::{IsTerminal, Write, stderr};

use bench::Event;

/// On a terminal, a live line is replaced by the next; elsewhere it is left out.
pub struct Screen {
    terminal: bool,
    live: bool,
}

impl Screen {
    /// Of this process.
    pub fn new() -> Screen {
        Screen {
            terminal: stderr().is_terminal(),
            live: false,
        }
    }

    /// Shows it.
    pub fn show(&mut self, event: Event) {
        // Progress that nobody can read is no reason to stop.
        let _ = match event {
            Event::Line(line) => {
                self.clear();
                writeln!(stderr(), "{line}")
            }
            Event::Live(line) if self.terminal => {
                self.live = true;
                write!(stderr(), "\r\x1b[K{line}").and_then(|()| stderr().flush())
            }
            Event::Live(_) => Ok(()),
        };
    }

    /// Removes a live line.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.live) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear();
    }
}
