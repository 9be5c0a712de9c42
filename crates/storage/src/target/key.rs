//! The secrets that peers prove: `DIR/key`, which clients have too, and `DIR/server-key`, which only
//! servers have. Readable by their owner alone. docs/disk.md, "A directory of targets", is normative.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::directory::UNFINISHED;
use super::error::TargetError;
use super::random::SystemRandom;
use crate::regular;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Bytes of its file: hexadecimal digits and a line end.
const FILE_BYTES: usize = 2 * KEY_BYTES + 1;

/// Whose secret a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Clients prove it, and servers prove it to clients.
    Client,
    /// Servers prove it to each other.
    Server,
}

impl KeyKind {
    /// Both.
    pub(super) const ALL: [KeyKind; 2] = [KeyKind::Client, KeyKind::Server];

    /// What its file is called.
    pub(super) fn file_name(self) -> &'static str {
        match self {
            KeyKind::Client => "key",
            KeyKind::Server => "server-key",
        }
    }

    /// The kind whose file is called `name`.
    pub(super) fn of_file(name: &str) -> Option<KeyKind> {
        KeyKind::ALL
            .into_iter()
            .find(|kind| kind.file_name() == name)
    }

    /// The same while the file is not whole.
    pub(super) fn of_unfinished(name: &str) -> Option<KeyKind> {
        KeyKind::of_file(name.strip_suffix(UNFINISHED)?)
    }

    /// Where the key of this kind is of the targets in `dir`.
    pub fn path_in(self, dir: &Path) -> PathBuf {
        dir.join(self.file_name())
    }
}

/// A shared secret. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetKey([u8; KEY_BYTES]);

impl fmt::Debug for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TargetKey(secret)")
    }
}

impl TargetKey {
    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> TargetKey {
        TargetKey(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Reads the key file at `path`; refuses one that others than its owner may read or write.
    pub fn load(path: &Path) -> Result<TargetKey, TargetError> {
        let (mode, key) = read(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => TargetError::KeyMissing {
                path: path.to_owned(),
            },
            _ => TargetError::io(path, "read the key", &error),
        })?;
        let path = || path.to_owned();
        match key {
            _ if mode & 0o077 != 0 => Err(TargetError::KeyExposed { path: path(), mode }),
            None => Err(TargetError::KeyMalformed { path: path() }),
            Some(key) => Ok(key),
        }
    }

    /// The file at `path` holds a key, no matter which client may read it.
    pub(super) fn is_at(path: &Path) -> bool {
        read(path).is_ok_and(|(_, key)| key.is_some())
    }

    /// A new one, for `dir`.
    pub(super) fn random(dir: &Path) -> Result<TargetKey, TargetError> {
        let random = SystemRandom::open().and_then(|mut random| random.bytes());
        let bytes = random.map_err(|e| TargetError::io(dir, "make a key for it", &e))?;
        Ok(TargetKey(bytes))
    }

    /// Makes this the key of that kind of the targets in `dir`, in one durable step.
    pub(super) fn install(&self, dir: &Path, kind: KeyKind) -> Result<(), TargetError> {
        let unfinished = dir.join(format!("{}{UNFINISHED}", kind.file_name()));
        let io = |error| TargetError::io(&unfinished, "write the key", &error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = regular::open(&unfinished, &mut options).map_err(io)?;
        // The mode above is for a new file; one may have been left behind.
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(io)?;
        file.write_all(self.to_text().as_bytes()).map_err(io)?;
        file.sync_all().map_err(io)?;
        fs::rename(&unfinished, kind.path_in(dir)).map_err(io)?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)
    }

    /// The file at `path` is the beginning of a key, as an interruption leaves it.
    pub(super) fn is_begun_at(path: &Path) -> bool {
        // One byte more than a key has, so that a longer file is noticed.
        regular::read(path, FILE_BYTES + 1).is_ok_and(|text| {
            let digits = text.trim_ascii_end();
            text.len() <= FILE_BYTES && digits.iter().all(u8::is_ascii_hexdigit)
        })
    }

    fn to_text(&self) -> String {
        let digits = self.0.iter().map(|byte| format!("{byte:02x}"));
        digits.chain(["\n".to_owned()]).collect()
    }
}

/// The permission bits of the file at `path`, and the key in it, if there is one.
fn read(path: &Path) -> io::Result<(u32, Option<TargetKey>)> {
    let file = regular::open(path, OpenOptions::new().read(true))?;
    let mode = file.metadata()?.mode() & 0o777;
    // One byte more than a key has, so that a longer file is noticed.
    let text = regular::read_opened(file, FILE_BYTES + 1)?;
    Ok((mode, std::str::from_utf8(&text).ok().and_then(parse)))
}

fn parse(text: &str) -> Option<TargetKey> {
    let digits = text.trim_end().as_bytes();
    if digits.len() != 2 * KEY_BYTES || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(TargetKey(key))
}
