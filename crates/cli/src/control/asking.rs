//! Asking a process at its control socket. The process that listens there may be anybody: the
//! kernel says which user it is, the answer has an end in time and in bytes, and what it says is
//! text and nothing that a terminal would carry out.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{Uid, geteuid};
use serde_json::Value;

use super::listening::{connect, listens};
use super::whereabouts::is_of_others;
use super::{ANSWER_AT_ONCE, Answer, Endpoint, Question};
use crate::output::{shown, shown_lines};

/// Bytes of a question, and of an answer of another user's process. Beyond: no longer listened to.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes of an answer of root's or one's own: a server lists all its clients.
const TRUSTED_BYTES_MAX: usize = 64 << 20;
/// Read at once.
const PART_BYTES: usize = 64 << 10;

/// Asks the mount at (or above) `path`.
pub fn ask(path: &Path, question: &Question) -> Result<Answer, String> {
    Endpoint::of_mount(path)?.ask(question)
}

/// The mount's process is there: a dead one is told of with what to do about it, one that stands still after
/// some seconds.
pub fn is_served(path: &Path) -> Result<(), String> {
    ask(path, &Question::Status).map(drop)
}

impl Endpoint {
    /// Asks it. Fails where the process does not answer in time.
    pub fn ask(&self, question: &Question) -> Result<Answer, String> {
        match self.begin(question)?.answer()? {
            Answer::Failed(reason) => Err(reason),
            answer => Ok(answer),
        }
    }

    /// Asks it, and leaves the answer for later.
    pub fn begin(&self, question: &Question) -> Result<Asked<'_>, String> {
        let failed = |error: std::io::Error| self.failed(&error);
        let began = Instant::now();
        let stream = connect(&self.socket, ANSWER_AT_ONCE).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => self.busy(),
            _ => failed(error),
        })?;
        let peer = getsockopt(&stream, sockopt::PeerCredentials);
        let peer = peer.map_err(|errno| failed(errno.into()))?;
        let listens = Uid::from_raw(peer.uid());
        if !listens.is_root() && listens != self.owner {
            return Err(format!(
                "{}: a process of uid {listens} listens at {}, and not one of uid {} or root: it is \
                 not asked",
                self.name,
                shown(&self.socket.to_string_lossy()),
                self.owner
            ));
        }
        let deadline = question.deadline();
        stream.set_write_timeout(deadline).map_err(failed)?;
        let line = serde_json::to_string(question).map_err(|error| error.to_string())?;
        match writeln!(&stream, "{line}") {
            // It was refused before it was asked; the answer says why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written.map_err(failed)?,
        }
        let is_trusted = listens.is_root() || listens == geteuid();
        Ok(Asked {
            of: self,
            stream,
            process: u32::try_from(peer.pid()).ok().filter(|pid| *pid != 0),
            until: deadline.map(|time| began + time),
            bytes_max: if is_trusted {
                TRUSTED_BYTES_MAX
            } else {
                LINE_BYTES_MAX
            },
        })
    }

    /// Its queue is full, be it that its process stands still.
    fn busy(&self) -> String {
        format!(
            "{} is busy: for {} s more have asked its process than it could answer ({})",
            self.name,
            ANSWER_AT_ONCE.as_secs(),
            shown(&self.socket.to_string_lossy())
        )
    }

    fn failed(&self, error: &std::io::Error) -> String {
        let (name, socket) = (&self.name, shown(&self.socket.to_string_lossy()));
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                "{name} has not answered for {} s: its process stands still ({socket})",
                ANSWER_AT_ONCE.as_secs(),
            ),
            ErrorKind::ConnectionRefused | ErrorKind::NotFound | ErrorKind::PermissionDenied
                if self.is_of_others() =>
            {
                format!(
                    "{name} belongs to uid {}: only that user and root may ask its process",
                    self.owner
                )
            }
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                format!("{name} does not answer ({socket}): {}", self.why_silent())
            }
            _ => format!("{name} does not answer ({socket}): {error}"),
        }
    }

    /// It belongs to another user, whose processes need not answer.
    pub fn is_of_others(&self) -> bool {
        is_of_others(self.owner)
    }

    /// The user whose process it is.
    pub fn owner(&self) -> u32 {
        self.owner.as_raw()
    }

    /// Somebody listens there.
    pub fn is_there(&self) -> bool {
        listens(&self.socket)
    }
}

/// A question on its way.
pub struct Asked<'a> {
    of: &'a Endpoint,
    stream: UnixStream,
    process: Option<u32>,
    until: Option<Instant>,
    bytes_max: usize,
}

impl Asked<'_> {
    /// The process that listens there, as the kernel says. None: it has no number here.
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// Waits no longer than this, or than it would have.
    pub fn within(mut self, time: Duration) -> Self {
        let end = Instant::now() + time;
        self.until = Some(self.until.map_or(end, |until| until.min(end)));
        self
    }

    /// Waits for what it says, be it that it failed.
    pub fn answer(self) -> Result<Answer, String> {
        let reply = read_line(&self.stream, self.until, self.bytes_max);
        let reply = reply.map_err(|error| self.of.failed(&error))?;
        let name = &self.of.name;
        let unreadable = |error: serde_json::Error| {
            let error = shown(&error.to_string());
            format!("{name} gave an answer that can't be read: {error}")
        };
        let mut answer: Value = serde_json::from_slice(&reply).map_err(unreadable)?;
        tame(&mut answer, None);
        serde_json::from_value(answer).map_err(unreadable)
    }
}

/// Makes text of what came. Values of tunables have lines; where a mount is says only its bytes.
fn tame(value: &mut Value, named: Option<&str>) {
    match value {
        Value::String(text) => match named {
            Some("mounted_at") => {}
            Some("value" | "default") => *text = shown_lines(text),
            _ => *text = shown(text),
        },
        Value::Array(all) => all.iter_mut().for_each(|one| tame(one, named)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            fields.extend(old.into_iter().map(|(name, mut value)| {
                tame(&mut value, Some(&name));
                (shown(&name), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Up to the first end of a line, which is not part of it, or the end of what comes. All of it comes
/// until `until`, and is no more than `bytes_max`.
pub fn read_line(
    mut stream: &UnixStream,
    until: Option<Instant>,
    bytes_max: usize,
) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut part = vec![0; PART_BYTES];
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(left)?;
        let came = match stream.read(&mut part) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            came => &part[..came?],
        };
        let end = came.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&came[..end.unwrap_or(came.len())]);
        if line.len() > bytes_max {
            let text = format!("more than {bytes_max} bytes came, which is no answer");
            return Err(std::io::Error::new(ErrorKind::InvalidData, text));
        }
        if end.is_some() || came.is_empty() {
            return Ok(line);
        }
    }
}

/// Asks all of them at once, so that silent ones cost one deadline together.
pub fn ask_all(endpoints: &[Endpoint], question: &Question) -> Vec<Result<Answer, String>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = endpoints
            .iter()
            .map(|endpoint| scope.spawn(|| endpoint.ask(question)))
            .collect();
        let answered = asked.into_iter().map(|asked| {
            let answer = asked.join();
            answer.unwrap_or_else(|_| Err("asking it panicked".to_owned()))
        });
        answered.collect()
    })
}

/// Paths in questions and answers: text where they are that, their bytes where not.
pub mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Spelt {
        Text(String),
        Bytes(Vec<u8>),
    }

    /// For `serde`.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        let spelt = match path.to_str() {
            Some(text) => Spelt::Text(text.to_owned()),
            None => Spelt::Bytes(path.as_os_str().as_bytes().to_vec()),
        };
        spelt.serialize(serializer)
    }

    /// For `serde`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(match Spelt::deserialize(deserializer)? {
            Spelt::Text(text) => text.into(),
            Spelt::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_an_end_in_time_and_in_bytes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(b"words\nmore").unwrap();
        let soon = || Some(Instant::now() + Duration::from_millis(50));
        assert_eq!(read_line(&ours, soon(), 100).unwrap(), b"words");
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(&[b'x'; 101]).unwrap();
        let error = read_line(&ours, soon(), 100).unwrap_err();
        assert!(error.to_string().contains("more than 100 bytes"), "{error}");
        // A byte now and then is not an answer.
        let dripping = std::thread::spawn(move || {
            while (&theirs).write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let error = read_line(&ours, soon(), 1 << 20).unwrap_err();
        assert!(matches!(
            error.kind(),
            ErrorKind::TimedOut | ErrorKind::WouldBlock
        ));
        drop(ours);
        dripping.join().unwrap();
    }

    #[test]
    fn what_comes_is_text_and_lines_are_where_they_belong() {
        let mut answer = serde_json::json!({
            "fsname": "a\u{1b}[2Jb\nc",
            "targets": { "M\u{7}": "x\ty" },
            "value": "one\ntwo\u{1b}",
            "mounted_at": "/mnt/\u{1b}",
        });
        tame(&mut answer, None);
        assert_eq!(
            answer,
            serde_json::json!({
                "fsname": "a\\u{1b}[2Jb\\nc",
                "targets": { "M\\u{7}": "x\\ty" },
                "value": "one\ntwo\\u{1b}",
                "mounted_at": "/mnt/\u{1b}",
            })
        );
    }
}
