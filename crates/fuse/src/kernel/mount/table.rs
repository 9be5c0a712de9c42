//! What is mounted where, from the kernel's list.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The number stat(2) gives as st_dev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// 0 for file systems without a block device.
    pub major: u32,
    /// Names the file system; for FUSE also the connection under /sys/fs/fuse/connections.
    pub minor: u32,
}

/// One mount in this mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The file system.
    pub number: DeviceNumber,
    /// Where it is.
    pub point: PathBuf,
    /// What it allows, in the words of mount(8), without those that say what is usual: `rw,nosuid,relatime`.
    pub options: String,
    /// `ext4`, `fuse.glint` …
    pub kind: String,
    /// What it was mounted from.
    pub source: OsString,
    /// Who mounted it, of a FUSE file system. None: the kernel does not say.
    pub user: Option<u32>,
}

impl MountEntry {
    /// Whether a FUSE server stands behind it.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.") || self.kind == "fuseblk"
    }
}

/// All mounts this process sees, in the order they were made.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    mounts_of(Path::new("/proc/self"))
}

/// Those that a `process` sees.
pub(super) fn mounts_of(process: &Path) -> io::Result<Vec<MountEntry>> {
    let text = std::fs::read(process.join("mountinfo"))?;
    Ok(text
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect())
}

/// The mount that is on top at exactly `point`.
pub fn at<'a>(mounts: &'a [MountEntry], point: &Path) -> Option<&'a MountEntry> {
    mounts.iter().rev().find(|entry| entry.point == point)
}

/// `id parent major:minor root point options [optional…] - kind source super-options`
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = number.split_once(':')?;
    let point = unescape(fields.nth(1)?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let source = OsString::from_vec(unescape(fields.next().unwrap_or_default()));
    let user = fields.next().and_then(user_in);
    Some(MountEntry {
        number: DeviceNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        },
        point: PathBuf::from(OsString::from_vec(point)),
        options,
        kind,
        source,
        user,
    })
}

/// As in `rw,user_id=1000,group_id=1000`.
fn user_in(options: &[u8]) -> Option<u32> {
    let mut options = options.split(|byte| *byte == b',');
    let digits = options.find_map(|option| option.strip_prefix(b"user_id="))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The kernel writes blanks, tabs, newlines and backslashes as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = match (byte, octal(tail)) {
            (b'\\', Some(escaped)) => {
                plain.push(escaped);
                &tail[3..]
            }
            _ => {
                plain.push(byte);
                tail
            }
        };
    }
    plain
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits.get(..3)?).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_with_escapes_and_optional_fields() {
        let line =
            br"36 35 0:42 / /mnt/a\040b\134 rw,nosuid shared:1 master:2 - fuse.glint a\040b rw,user_id=17";
        let entry = parse_line(line).unwrap();
        assert_eq!(
            entry.number,
            DeviceNumber {
                major: 0,
                minor: 42
            }
        );
        assert_eq!(entry.point, Path::new("/mnt/a b\\"));
        assert_eq!(entry.options, "rw,nosuid");
        assert_eq!(
            (entry.kind.as_str(), entry.source.to_str()),
            ("fuse.glint", Some("a b"))
        );
        assert_eq!(entry.user, Some(17));
        assert!(entry.is_fuse());
    }

    #[test]
    fn passes_over_lines_it_cannot_read() {
        for line in [
            &b""[..],
            b"36 35 x:42 / /mnt rw - fuse a rw",
            b"36 35 0:42 / /mnt rw",
        ] {
            assert_eq!(parse_line(line), None);
        }
        assert_eq!(unescape(br"a\04"), br"a\04");
    }

    #[test]
    fn sees_the_mounts_of_this_machine() {
        let all = mounts().unwrap();
        let proc = at(&all, Path::new("/proc")).unwrap();
        assert!(proc.kind == "proc" && !proc.is_fuse());
    }
}
