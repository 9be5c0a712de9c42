//! `GLINT_IOC_PREFETCH`, as a program would say it that has only docs/advise.md.
#![allow(unsafe_code, reason = "an ioctl has no safe wrapper")]

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

const BYTES: usize = 4096;

nix::ioctl_write_ptr!(
    /// The command.
    glint_prefetch,
    b'G',
    1,
    [u8; BYTES]
);
nix::ioctl_write_ptr!(
    /// One that nobody knows.
    unknown,
    b'G',
    2,
    [u8; BYTES]
);

/// What a program says of a directory that it has open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hint<'a> {
    /// 1: range, 2: list, 3: tree.
    pub kind: u32,
    /// 1: more of a list.
    pub flags: u32,
    /// Of a range: the least number of digits.
    pub width: u32,
    /// Of a range: first number, last number, step.
    pub numbers: [u64; 3],
    /// Of a range: prefix, zero, suffix. Of a list: names with zeros between.
    pub text: &'a [u8],
}

impl Hint<'_> {
    /// Says it.
    pub fn give(&self, dir: &File) -> Result<(), Errno> {
        give(dir, &self.bytes())
    }

    /// The structure.
    pub fn bytes(&self) -> [u8; BYTES] {
        let words = [1, self.kind, self.flags, self.width].map(u32::to_ne_bytes);
        let numbers = self.numbers.map(u64::to_ne_bytes);
        let text_bytes = (self.text.len() as u32).to_ne_bytes();
        let head = [
            &words.concat()[..],
            &numbers.concat(),
            &text_bytes,
            &[0; 20],
        ];
        let mut bytes = head.concat();
        bytes.extend_from_slice(self.text);
        bytes.resize(BYTES, 0);
        bytes.try_into().expect("just made as long")
    }
}

/// Says these bytes.
pub fn give(dir: &File, bytes: &[u8; BYTES]) -> Result<(), Errno> {
    // SAFETY: the command reads as many bytes as the array has, which lives across the call.
    unsafe { glint_prefetch(dir.as_raw_fd(), bytes) }.map(drop)
}

/// Says them with a command that nobody knows.
pub fn give_unknown(file: &File, bytes: &[u8; BYTES]) -> Result<(), Errno> {
    // SAFETY: as above.
    unsafe { unknown(file.as_raw_fd(), bytes) }.map(drop)
}
