//! Progress of a measurement, on standard error. It never holds the measurement up: output that would
//! wait (a terminal stopped by Ctrl-S, a full pipe) is dropped, as its thread watches time limits too.

use std::io::{IsTerminal, Stderr, Write, stderr};
use std::os::fd::AsFd;

use bench::{Event, Report};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A pipe that says it can be written to takes this much without waiting (pipe(7)), a terminal a
/// line.
const AT_ONCE: usize = nix::libc::PIPE_BUF;

/// On a terminal, a live line is replaced by the next, and a table by the table with a cell more.
/// Elsewhere there are neither, only lines.
pub struct Screen<W: Write + AsFd = Stderr> {
    out: W,
    terminal: bool,
    live: bool,
    table: Option<Report>,
    /// Lines of the table that are on the screen now.
    shown: usize,
}

impl Screen {
    /// The standard error of this process.
    pub fn new() -> Screen {
        Screen::on(stderr())
    }

    /// With a table of these rows, which grows as cells are measured.
    pub fn with_table(rows: impl Iterator<Item = &'static str>) -> Screen {
        Screen::new().showing(Report::new("", rows))
    }
}

impl<W: Write + AsFd> Screen<W> {
    /// `out` keeps nothing back that is written to it.
    fn on(out: W) -> Screen<W> {
        Screen {
            terminal: out.as_fd().is_terminal(),
            out,
            live: false,
            table: None,
            shown: 0,
        }
    }

    fn showing(mut self, table: Report) -> Screen<W> {
        self.table = self.terminal.then_some(table);
        self
    }

    /// Shows it.
    pub fn show(&mut self, event: Event) {
        match event {
            Event::Line(text) => {
                self.clear();
                for line in text.lines() {
                    self.put(&format!("{line}\n"));
                }
                self.draw_table();
            }
            Event::Measured { line, column } => match &mut self.table {
                Some(table) => {
                    table.replace(column);
                    self.clear();
                    self.draw_table();
                }
                None => self.show(Event::Line(line)),
            },
            Event::Live(line) if self.terminal => {
                self.live |= self.put(&format!("\r\x1b[K{line}"));
            }
            Event::Live(_) => {}
        }
    }

    /// Removes a live line and the table.
    pub fn clear(&mut self) {
        if self.live {
            self.live = !self.put("\r\x1b[K");
        }
        if self.shown > 0 && self.put(&format!("\x1b[{}A\x1b[J", self.shown)) {
            self.shown = 0;
        }
    }

    /// Lines too long for the terminal are cut off: if they wrapped, the table could not be removed.
    fn draw_table(&mut self) {
        let columns = |table: &&Report| !table.columns.is_empty();
        let Some(text) = self.table.as_ref().filter(columns).map(Report::table) else {
            return;
        };
        if self.put(&format!("\x1b[?7l{text}\x1b[?7h")) {
            self.shown = text.lines().count();
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

    use bench::{Column, Sample};
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

    /// The column's cells so far, the last of which took `seconds`.
    fn measured(column: &mut Column, step: &str, seconds: f64) -> Event {
        let sample = Sample {
            seconds,
            ..Sample::default()
        };
        column.add(step, sample);
        let line = format!("{}: {step}", column.name);
        let column = column.clone();
        Event::Measured { line, column }
    }

    #[test]
    fn a_table_is_drawn_anew_with_each_cell() {
        let pty = openpty(None, None).unwrap();
        let screen = Screen::on(File::from(pty.slave.try_clone().unwrap()));
        let mut screen = screen.showing(Report::new("", ["tar", "find"]));
        let mut column = Column::new("Glint");
        screen.show(measured(&mut column, "tar", 1.5));
        screen.show(line("a note"));
        screen.show(measured(&mut column, "find", 0.25));
        drop(screen);
        let (first, removed) = (
            "\x1b[?7lstep  Glint s\ntar      1.50\n",
            "\x1b[?7h\x1b[2A\x1b[J",
        );
        let last = "\x1b[?7lstep  Glint s\ntar      1.50\nfind    0.250\n\x1b[?7h\x1b[3A\x1b[J";
        let expected = format!("{first}{removed}a note\n{first}{removed}{last}");
        let expected = expected.replace('\n', "\r\n");
        let mut shown = vec![0; expected.len()];
        File::from(pty.master).read_exact(&mut shown).unwrap();
        assert_eq!(String::from_utf8_lossy(&shown), expected);
    }

    #[test]
    fn a_pipe_gets_lines_alone() {
        let (mut reader, writer) = pipe().unwrap();
        let mut screen = Screen::on(writer).showing(Report::new("", ["tar"]));
        screen.show(Event::Live("never seen".into()));
        screen.show(line("kept"));
        screen.show(measured(&mut Column::new("Glint"), "tar", 1.0));
        drop(screen);
        let mut shown = String::new();
        reader.read_to_string(&mut shown).unwrap();
        assert_eq!(shown, "kept\nGlint: tar\n");
    }
}
