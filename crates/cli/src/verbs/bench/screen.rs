//! Progress of a measurement, on standard error.
//!
//! It never holds the measurement up: what cannot be written at once (a terminal stopped by Ctrl-S,
//! a pipe that nobody reads) is dropped, for the thread that shows it also watches the time limit.

use std::io::{IsTerminal, Stderr, Write, stderr};
use std::os::fd::AsFd;

use bench::Event;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A pipe that says it can be written to takes this much without waiting (pipe(7)), a terminal a
/// line.
const AT_ONCE: usize = nix::libc::PIPE_BUF;

/// On a terminal, a live line is replaced by the next; elsewhere it is left out.
pub struct Screen<W: Write + AsFd = Stderr> {
    out: W,
    terminal: bool,
    live: bool,
}

impl Screen {
    /// Of this process.
    pub fn new() -> Screen {
        Screen::on(stderr())
    }
}

impl<W: Write + AsFd> Screen<W> {
    /// `out` keeps nothing back that is written to it.
    fn on(out: W) -> Screen<W> {
        Screen {
            terminal: out.as_fd().is_terminal(),
            out,
            live: false,
        }
    }

    /// Shows it.
    pub fn show(&mut self, event: Event) {
        match event {
            Event::Line(text) => {
                self.clear();
                for line in text.lines() {
                    self.put(&format!("{line}\n"));
                }
            }
            Event::Live(line) if self.terminal => {
                self.live |= self.put(&format!("\r\x1b[K{line}"));
            }
            Event::Live(_) => {}
        }
    }

    /// Removes a live line.
    pub fn clear(&mut self) {
        if self.live {
            self.live = !self.put("\r\x1b[K");
        }
    }

    /// Writes what is taken at once. Returns whether that was all.
    fn put(&mut self, text: &str) -> bool {
        // Progress that nobody can read is no reason to stop.
        let mut parts = text.as_bytes().chunks(AT_ONCE);
        parts.all(|part| takes_some(&self.out) && self.out.write_all(part).is_ok())
    }
}

impl<W: Write + AsFd> Drop for Screen<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

fn takes_some(out: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
    let asked = poll(&mut fds, PollTimeout::ZERO);
    asked.is_ok()
        && fds[0]
            .revents()
            .is_some_and(|ready| ready.contains(PollFlags::POLLOUT))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{PipeReader, PipeWriter, Read, pipe};

    use nix::pty::openpty;
    use nix::sys::termios::{FlowArg, tcflow};

    use super::*;

    fn line(text: &str) -> Event {
        Event::Line(text.into())
    }

    /// Nobody reads it, and it takes nothing more.
    fn full_pipe() -> (PipeReader, PipeWriter, usize) {
        let (reader, mut writer) = pipe().unwrap();
        let mut bytes = 0;
        while takes_some(&writer) {
            bytes += writer.write(&[b'x'; AT_ONCE]).unwrap();
        }
        (reader, writer, bytes)
    }

    #[test]
    fn a_full_pipe_holds_nothing_up() {
        let (mut reader, writer, mut bytes) = full_pipe();
        let mut screen = Screen::on(writer);
        screen.show(line("dropped"));
        let mut filling = vec![0; bytes];
        reader.read_exact(&mut filling).unwrap();
        screen.show(line("two\nlines"));
        // More than a pipe takes.
        screen.show(line(&"long ".repeat(bytes)));
        drop(screen);
        let mut shown = String::new();
        bytes = reader.read_to_string(&mut shown).unwrap();
        assert!(shown.starts_with("two\nlines\nlong long "), "{bytes} bytes");
    }

    #[test]
    fn a_stopped_terminal_holds_nothing_up() {
        let pty = openpty(None, None).unwrap();
        let mut screen = Screen::on(File::from(pty.slave.try_clone().unwrap()));
        screen.show(Event::Live("one".into()));
        tcflow(&pty.slave, FlowArg::TCOOFF).unwrap();
        screen.show(Event::Live("dropped".into()));
        screen.show(line("dropped too"));
        tcflow(&pty.slave, FlowArg::TCOON).unwrap();
        screen.show(line("two"));
        let expected = "\r\x1b[Kone\r\x1b[Ktwo\r\n";
        let mut shown = vec![0; expected.len()];
        File::from(pty.master).read_exact(&mut shown).unwrap();
        assert_eq!(String::from_utf8_lossy(&shown), expected);
    }

    #[test]
    fn a_pipe_gets_no_live_lines() {
        let (mut reader, writer) = pipe().unwrap();
        let mut screen = Screen::on(writer);
        screen.show(Event::Live("never seen".into()));
        screen.show(line("kept"));
        drop(screen);
        let mut shown = String::new();
        reader.read_to_string(&mut shown).unwrap();
        assert_eq!(shown, "kept\n");
    }
}
