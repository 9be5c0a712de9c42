//! Takes a request's bytes apart, front to back.

use std::fmt;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Why a request could not be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Fewer bytes than its fixed part, or than it announces.
    Short,
    /// A name without its closing NUL.
    Unterminated,
    /// The header's length is not the number of bytes read.
    Length,
    /// The extensions are longer than the request, or contradict themselves.
    Extension,
    /// Nanoseconds of a second or more.
    Time,
    /// An operation this layer does not know.
    Opcode,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Short => "shorter than it must be",
            Fault::Unterminated => "a name does not end",
            Fault::Length => "its length is not the number of bytes read",
            Fault::Extension => "its extensions do not add up",
            Fault::Time => "a time has a second or more of nanoseconds",
            Fault::Opcode => "unknown operation",
        })
    }
}

/// What is left of a request's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Body<'a> {
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    pub fn new(bytes: &'a [u8]) -> Body<'a> {
        Body { bytes }
    }

    /// The next fixed structure.
    pub fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Fault> {
        let (value, rest) = T::read_from_prefix(self.bytes).map_err(|_| Fault::Short)?;
        self.bytes = rest;
        Ok(value)
    }

    /// The next NUL-terminated name, without the NUL.
    pub fn name(&mut self) -> Result<&'a [u8], Fault> {
        let end = self
            .bytes
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(Fault::Unterminated)?;
        let (name, rest) = self.bytes.split_at(end);
        self.bytes = &rest[1..];
        Ok(name)
    }

    /// The next `len` bytes.
    pub fn data(&mut self, len: u32) -> Result<&'a [u8], Fault> {
        let (data, rest) = self
            .bytes
            .split_at_checked(len as usize)
            .ok_or(Fault::Short)?;
        self.bytes = rest;
        Ok(data)
    }
}
