//! A Unix socket through which a running link is changed: one line in, one line out.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::emulated::Link;
use crate::error::{BenchError, During, Result};

/// Longest line either way.
const LINE_BYTES_MAX: u64 = 512;
/// How long a peer may take over its line.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a waiting [`Control::serve`] looks whether it should end.
const TURN: u16 = 100;

/// The listening socket; its file is removed on drop.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens at a path that does not exist yet. Every process that may open the file may change the link.
    pub fn bind(path: &Path) -> Result<Control> {
        let listener =
            UnixListener::bind(path).during(|| format!("listening at {}", path.display()))?;
        Ok(Control {
            listener,
            path: path.to_path_buf(),
        })
    }

    /// Answers until `done` says so, which is asked ten times a second.
    pub fn serve(&self, link: &Link, done: impl Fn() -> bool) {
        while !done() {
            let mut fds = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::from(TURN)).is_ok_and(|ready| ready > 0)
                && let Ok((stream, _)) = self.listener.accept()
            {
                // A peer that leaves before its answer loses nothing but the answer.
                let _ = answer(stream, link);
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The directory may have gone first, with the file in it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Sends one line to a running link and returns its answer.
pub fn send_control(path: &Path, line: &str) -> Result<String> {
    let doing = || format!("speaking to the link at {}", path.display());
    let mut stream = UnixStream::connect(path).during(doing)?;
    stream.set_read_timeout(Some(PATIENCE)).during(doing)?;
    stream
        .write_all(format!("{line}\n").as_bytes())
        .during(doing)?;
    let answer = read_line(&stream).during(doing)?;
    match answer.strip_prefix("error: ") {
        Some(why) => Err(BenchError::Invalid(why.to_string())),
        None => Ok(answer),
    }
}

/// `get` answers with the settings; `set rtt 20ms`, or several pairs in one line, changes them. The answer to
/// a bad line starts with `error: `, and nothing is changed.
fn answer(mut stream: UnixStream, link: &Link) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = read_line(&stream)?;
    match obey(&line, link) {
        Ok(()) => writeln!(stream, "{}", link.settings()),
        Err(error) => writeln!(stream, "error: {error}"),
    }
}

fn obey(line: &str, link: &Link) -> Result<()> {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("get") => Ok(()),
        Some("set") => {
            let mut settings = link.settings();
            while let Some(key) = words.next() {
                settings.set(key, words.next().unwrap_or(""))?;
            }
            link.set(settings)
        }
        _ => Err(BenchError::Invalid(
            "say \"get\", or \"set rtt 20ms\" (rtt, jitter, bandwidth, loss)".into(),
        )),
    }
}

/// One line, without its end.
fn read_line(stream: &UnixStream) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    line.truncate(line.trim_end().len());
    Ok(line)
}
