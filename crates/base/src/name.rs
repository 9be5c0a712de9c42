//! Names of directory entries.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::NAME_BYTES_MAX;

/// One valid path component: 1 to 255 bytes, no `/`, no NUL, not `.` and not `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Name(Box<[u8]>);

/// Why bytes are not a [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// Longer than 255 bytes.
    TooLong,
    /// Empty, `.`, `..`, or holding `/` or NUL.
    Invalid,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::TooLong => "name longer than 255 bytes",
            NameError::Invalid => "name is empty, '.', '..', or holds '/' or NUL",
        })
    }
}

impl std::error::Error for NameError {}

impl Name {
    /// Checks `bytes`.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Result<Name, NameError> {
        let bytes = bytes.into();
        if bytes.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        if matches!(&*bytes, b"" | b"." | b"..") || bytes.iter().any(|b| matches!(b, 0 | b'/')) {
            return Err(NameError::Invalid);
        }
        Ok(Name(bytes))
    }

    /// The bytes, as the application gave them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for Name {
    type Error = NameError;

    fn try_from(bytes: Vec<u8>) -> Result<Name, NameError> {
        Name::new(bytes)
    }
}

impl From<Name> for Vec<u8> {
    fn from(name: Name) -> Vec<u8> {
        name.0.into_vec()
    }
}

impl TryFrom<&str> for Name {
    type Error = NameError;

    fn try_from(text: &str) -> Result<Name, NameError> {
        Name::new(text.as_bytes())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_any_byte_but_slash_and_nul() {
        assert!(Name::new(&b"\xff\x01 ..."[..]).is_ok());
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(Name::new(bad), Err(NameError::Invalid));
        }
        assert!(Name::new(vec![b'x'; 255]).is_ok());
        assert_eq!(Name::new(vec![b'x'; 256]), Err(NameError::TooLong));
    }
}
