//! The log: one event a line, a bounded number of each kind, in a file of bounded size. Peers, users and file
//! names choose words of messages, so control characters are escaped: none of them makes a line of its own or
//! speaks to a terminal.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::stat::fstat;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use tracing::Metadata;
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::output::{complain, push_shown, shown};

/// In the environment of a daemon: the file that it logs to.
pub const LOG_FILE: &str = "GLINT_DAEMON_LOG";
/// Bytes of one line. Beyond: cut.
const LINE_BYTES_MAX: usize = 2000;
/// Lines of one kind at once, and how soon there may be one more.
const BURST: u32 = 200;
const EVERY: Duration = Duration::from_millis(50);
/// Bytes of a daemon's file. Beyond: it is kept under another name, and the one kept before goes.
const FILE_BYTES_MAX: i64 = 8 << 20;

/// Begins to log to standard error.
pub fn start(usual: &str) {
    let (wished, refused) = match std::env::var_os("GLINT_LOG").map(OsString::into_string) {
        None => (None, None),
        Some(Ok(wished)) if is_filter(&wished) => (Some(wished), None),
        Some(Ok(wished)) => (None, Some(wished)),
        Some(Err(wished)) => (None, Some(wished.to_string_lossy().into_owned())),
    };
    let filter = EnvFilter::new(wished.as_deref().unwrap_or(usual));
    let file = std::env::var_os(LOG_FILE).map(PathBuf::from);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Colours are control characters.
        .with_ansi(false)
        // That one cannot be written would be printed where it cannot be written, which panics.
        .log_internal_errors(false)
        .with_writer(Log {
            kinds: Mutex::default(),
            file,
        })
        .init();
    if let Some(refused) = refused {
        complain(format!(
            "GLINT_LOG is '{}', which says nothing of how much to log: use error, warn, info or debug",
            shown(&refused)
        ));
    }
}

/// A level, or several for parts of the program: `warn,rpc=debug`. Others the filter would take for names of
/// parts, and explain itself to programmers.
fn is_filter(text: &str) -> bool {
    let level = |word: &str| {
        let levels = ["off", "error", "warn", "info", "debug"];
        levels.iter().any(|level| word.eq_ignore_ascii_case(level))
    };
    let is_part = |part: &str| {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        !part.is_empty() && part.chars().all(is_of_name)
    };
    text.split(',')
        .all(|word| match word.trim().split_once('=') {
            None => level(word.trim()),
            Some((part, word)) => is_part(part) && level(word),
        })
}

/// Takes lines.
struct Log {
    kinds: Mutex<HashMap<Identifier, Kind>>,
    file: Option<PathBuf>,
}

/// Lines that come from one place of the program.
struct Kind {
    left: u32,
    /// Up to when lines have been made good.
    since: Instant,
    dropped: u64,
}

impl Kind {
    /// Another line comes. None: it is one too many; else how many were since the last.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let earned = now.duration_since(self.since).as_nanos() / EVERY.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(BURST);
            self.since = now;
        }
        if self.left == 0 {
            self.dropped += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

/// Where one line goes.
enum Line<'a> {
    Out { log: &'a Log, dropped: u64 },
    Nowhere,
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line::Out {
            log: self,
            dropped: 0,
        }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        // Who asks for more than the usual wants all of it.
        if *meta.level() > LevelFilter::INFO {
            return self.make_writer();
        }
        let now = Instant::now();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = kinds.entry(meta.callsite()).or_insert(Kind {
            left: BURST,
            since: now,
            dropped: 0,
        });
        match kind.admit(now) {
            Some(dropped) => Line::Out { log: self, dropped },
            None => Line::Nowhere,
        }
    }
}

impl Write for Line<'_> {
    /// A whole line: events are written at once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Line::Out { log, dropped } = self {
            let mut line = plain(bytes);
            if *dropped > 0 {
                line.pop();
                line.push_str(&format!(" (and {dropped} like it)\n"));
            }
            io::stderr().write_all(line.as_bytes())?;
            if let Some(file) = &log.file {
                let _turn = log.kinds.lock().unwrap_or_else(PoisonError::into_inner);
                rotate(file)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// One line of at most so many bytes, without control characters but for its end.
pub fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let mut line = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if line.len() >= LINE_BYTES_MAX {
            line.push_str(&format!("... ({} bytes)", bytes.len()));
            break;
        }
        push_shown(&mut line, c);
    }
    line.push('\n');
    line
}

/// Keeps a log that has grown too long under another name; standard error goes to a new file from then on.
fn rotate(path: &Path) -> io::Result<()> {
    let here = fstat(io::stderr())?;
    if here.st_size <= FILE_BYTES_MAX {
        return Ok(());
    }
    // Another process that logs there may have done it.
    let is_named = std::fs::metadata(path)
        .is_ok_and(|named| (named.dev(), named.ino()) == (here.st_dev, here.st_ino));
    if is_named {
        let mut before = path.as_os_str().to_owned();
        before.push(".1");
        std::fs::rename(path, before)?;
    }
    let new = open(path)?;
    let out = fstat(io::stdout())?;
    nix::unistd::dup2_stderr(&new)?;
    // Until a daemon is ready the process that started it listens there.
    if (out.st_dev, out.st_ino) == (here.st_dev, here.st_ino) {
        nix::unistd::dup2_stdout(&new)?;
    }
    Ok(())
}

/// A log file, at its end, or a device such as `/dev/null`. Nobody else reads it.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // The open of a FIFO would wait for a reader.
    options.custom_flags(nix::libc::O_NONBLOCK);
    let opened = options.create(true).append(true).mode(0o600).open(path);
    let takes_logs = |kind: FileType| kind.is_file() || kind.is_char_device();
    let refused = || {
        Err(io::Error::other(
            "no regular file and no device to write to",
        ))
    };
    match std::fs::metadata(path) {
        Ok(there) if !takes_logs(there.file_type()) => return refused(),
        _ => (),
    }
    let opened = opened?;
    // What the kernel shows as files there looks regular.
    match fstatfs(&opened)?.filesystem_type() {
        PROC_SUPER_MAGIC => refused(),
        _ => Ok(opened),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_stays_in_its_line() {
        let said = plain(b"peer says \x1b[2J\r\nERROR all is lost\x07 \xff\n");
        assert_eq!(
            said,
            "peer says \\u{1b}[2J\\r\\nERROR all is lost\\u{7} \u{fffd}\n"
        );
        assert_eq!(
            plain("a\u{202e}b\u{2028}c".as_bytes()),
            "a\\u{202e}b\\u{2028}c\n"
        );
        assert_eq!(plain("naïve 日本\n".as_bytes()), "naïve 日本\n");
        let long = plain(&[b'x'; 1 << 20]);
        assert!(long.len() < LINE_BYTES_MAX + 40, "{}", long.len());
        assert!(long.ends_with("x... (1048576 bytes)\n"));
    }

    #[test]
    fn a_filter_is_made_of_levels() {
        for filter in [
            "warn",
            "DEBUG",
            "off",
            "info,rpc=debug",
            "client::mount=debug, error",
        ] {
            assert!(is_filter(filter), "{filter}");
        }
        for other in [
            "", "bogus", "rpc", "trace", "warn,", "rpc=", "=warn", "rpc=loud", "a b=warn",
        ] {
            assert!(!is_filter(other), "{other}");
        }
    }

    #[test]
    fn neither_a_fifo_nor_a_file_of_the_kernel_is_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = open(&path).unwrap_err().to_string();
        assert!(refused.starts_with("no regular file"), "{refused}");
        let refused = open(Path::new("/proc/self/mem")).unwrap_err().to_string();
        assert!(refused.starts_with("no regular file"), "{refused}");
        assert!(open(&dir.path().join("new")).is_ok() && open(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let start = Instant::now();
        let mut kind = Kind {
            left: BURST,
            since: start,
            dropped: 0,
        };
        let first: Vec<_> = (0..1000).filter_map(|_| kind.admit(start)).collect();
        assert_eq!(first.len(), BURST as usize);
        assert_eq!(kind.admit(start + EVERY), Some(800));
        assert_eq!(kind.admit(start + EVERY), None);
        let later = start + EVERY * BURST * 2;
        let more = (0..1000).filter_map(|_| kind.admit(later)).count();
        assert_eq!(more, BURST as usize);
    }
}
