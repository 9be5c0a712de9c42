//! Names of directory entries.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::limits::NAME_BYTES_MAX;

/// One valid path component: 1 to 255 bytes, no `/`, no NUL, not `.` and not `..`.
///
/// A mount keeps millions of them: what is not longer than 22 bytes, as nearly all are, takes no
/// memory beyond the 24 bytes of this type.
#[derive(Clone)]
pub struct Name(Bytes);

/// Bytes that fit here without an allocation of their own.
const SHORT_MAX: usize = 22;

#[derive(Clone)]
enum Bytes {
    /// The first `length` of `bytes`.
    Short { length: u8, bytes: [u8; SHORT_MAX] },
    /// More than [`SHORT_MAX`].
    Long(Box<[u8]>),
}

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
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Name, NameError> {
        let bytes = bytes.as_ref();
        if bytes.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        if matches!(bytes, b"" | b"." | b"..") || bytes.iter().any(|b| matches!(b, 0 | b'/')) {
            return Err(NameError::Invalid);
        }
        let mut short = [0; SHORT_MAX];
        Ok(Name(match short.get_mut(..bytes.len()) {
            Some(start) => {
                start.copy_from_slice(bytes);
                Bytes::Short {
                    length: bytes.len() as u8,
                    bytes: short,
                }
            }
            None => Bytes::Long(bytes.into()),
        }))
    }

    /// The bytes, as the application gave them.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short { length, bytes } => &bytes[..usize::from(*length)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_bytes(NameVisitor)
    }
}

struct NameVisitor;

impl Visitor<'_> for NameVisitor {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a name")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Name, E> {
        Name::new(bytes).map_err(E::custom)
    }
}

impl TryFrom<&str> for Name {
    type Error = NameError;

    fn try_from(text: &str) -> Result<Name, NameError> {
        Name::new(text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
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

    #[test]
    fn short_and_long_are_alike_and_small() {
        assert!(size_of::<Name>() <= 24);
        let of_length = |length| Name::new(vec![b'x'; length]).expect("valid");
        for length in [1, SHORT_MAX, SHORT_MAX + 1, NAME_BYTES_MAX] {
            let name = of_length(length);
            assert_eq!(name.as_bytes(), vec![b'x'; length]);
            assert_eq!(name, name.clone());
            assert!(length == 1 || of_length(length - 1) < name);
        }
    }
}
