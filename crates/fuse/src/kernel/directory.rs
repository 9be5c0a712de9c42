//! Packs directory entries the way READDIR and READDIRPLUS want them.

use zerocopy::IntoBytes;

use super::abi::answer;
use super::attributes::Entry;

/// Entries start at multiples of this.
const ALIGN: usize = 8;

/// One name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode number shown (d_ino).
    pub ino: u64,
    /// What READDIR is to send as offset to go on after this entry. Never 0.
    pub next: u64,
    /// The file's type as in the upper four bits of its mode (d_type, `DT_DIR` …).
    pub kind: u8,
    /// The name, without NUL.
    pub name: &'a [u8],
}

impl DirEntry<'_> {
    /// The `kind` that belongs to a mode.
    pub fn kind_of(mode: u32) -> u8 {
        ((mode >> 12) & 0xf) as u8
    }
}

/// Entries on their way to the kernel, never more bytes than it asked for.
#[derive(Debug)]
pub struct DirectoryBuffer {
    bytes: Vec<u8>,
    limit: usize,
}

impl DirectoryBuffer {
    /// Room for `size` bytes: what the READDIR asked for.
    pub fn new(size: u32) -> DirectoryBuffer {
        DirectoryBuffer {
            bytes: Vec::with_capacity(size as usize),
            limit: size as usize,
        }
    }

    /// Adds a READDIR entry; `false`, and nothing added, where it does not fit.
    #[must_use]
    pub fn push(&mut self, entry: &DirEntry<'_>) -> bool {
        self.fits(size_of::<answer::Dirent>(), entry) && {
            self.append(entry);
            true
        }
    }

    /// Adds a READDIRPLUS entry; `false`, and nothing added, where it does not fit.
    ///
    /// Each one with a nodeid other than 0 counts as a lookup of that inode. `.` and `..` must
    /// have nodeid 0: the kernel ignores theirs and never forgets them.
    #[must_use]
    pub fn push_plus(&mut self, entry: &DirEntry<'_>, attributes: &Entry) -> bool {
        debug_assert!(!matches!(entry.name, b"." | b"..") || attributes.nodeid == 0);
        self.fits(
            size_of::<answer::Entry>() + size_of::<answer::Dirent>(),
            entry,
        ) && {
            self.bytes.extend_from_slice(attributes.encode().as_bytes());
            self.append(entry);
            true
        }
    }

    /// No entry so far. An empty answer ends the directory.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What goes into the answer.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn fits(&self, head: usize, entry: &DirEntry<'_>) -> bool {
        let size = (head + entry.name.len()).next_multiple_of(ALIGN);
        self.bytes.len() + size <= self.limit
    }

    fn append(&mut self, entry: &DirEntry<'_>) {
        let head = answer::Dirent {
            ino: entry.ino,
            next: entry.next,
            name_len: entry.name.len() as u32,
            kind: u32::from(entry.kind),
        };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(entry.name);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(name: &[u8]) -> DirEntry<'_> {
        DirEntry {
            ino: 7,
            next: 9,
            kind: DirEntry::kind_of(0o040755),
            name,
        }
    }

    #[test]
    fn packs_to_eight_bytes() {
        for (name, size) in [(&b"a"[..], 32), (b"12345678", 32), (b"123456789", 40)] {
            let mut buffer = DirectoryBuffer::new(4096);
            assert!(buffer.push(&entry(name)));
            assert_eq!(buffer.as_bytes().len(), size);
            let mut plus = DirectoryBuffer::new(4096);
            assert!(plus.push_plus(&entry(name), &Entry::negative(Duration::ZERO)));
            assert_eq!(plus.as_bytes().len(), size + 128);
        }
    }

    #[test]
    fn lays_out_header_name_and_padding() {
        let mut buffer = DirectoryBuffer::new(64);
        assert!(buffer.push(&entry(b"ab")));
        let mut expected = Vec::new();
        expected.extend_from_slice(&7u64.to_ne_bytes());
        expected.extend_from_slice(&9u64.to_ne_bytes());
        expected.extend_from_slice(&2u32.to_ne_bytes());
        expected.extend_from_slice(&4u32.to_ne_bytes());
        expected.extend_from_slice(b"ab\0\0\0\0\0\0");
        assert_eq!(buffer.as_bytes(), expected);
    }

    #[test]
    fn refuses_what_does_not_fit_and_takes_what_just_does() {
        let mut buffer = DirectoryBuffer::new(64);
        assert!(buffer.push(&entry(b"a")));
        assert!(!buffer.push(&entry(b"123456789")));
        assert!(buffer.push(&entry(b"12345678")));
        assert!(!buffer.push(&entry(b"a")));
        assert_eq!(buffer.as_bytes().len(), 64);
    }
}
