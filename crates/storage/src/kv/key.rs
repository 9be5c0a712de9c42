//! Keys as the overlay holds them: short ones inline, so that finding one among many follows no
//! pointers and making one allocates nothing.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

/// What fits beside the length and the tag in the place of a boxed slice and a tag.
const INLINE_BYTES: usize = 22;

/// A key, ordered as its bytes.
#[derive(Clone)]
pub(super) enum Key {
    /// The first `len` of these bytes.
    Short { len: u8, bytes: [u8; INLINE_BYTES] },
    /// More than fit inline.
    Long(Box<[u8]>),
}

impl Key {
    /// A copy of `key`.
    pub(super) fn new(key: &[u8]) -> Key {
        if key.len() > INLINE_BYTES {
            return Key::Long(key.into());
        }
        let mut bytes = [0; INLINE_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        let len = key.len() as u8;
        Key::Short { len, bytes }
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Key::Short { len, bytes } => &bytes[..usize::from(*len)],
            Key::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_keys_are_their_bytes_in_their_order() {
        let lengths = [0, 1, INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1, 300];
        let keys = lengths.map(|len| vec![7; len]);
        for pair in keys.windows(2) {
            let (low, high) = (Key::new(&pair[0]), Key::new(&pair[1]));
            assert_eq!(&*low, &pair[0][..]);
            assert!(low < high && low != high);
        }
        assert!(Key::new(&[8]) > Key::new(&[7; 300]));
        assert_eq!(size_of::<Key>(), 24, "no more than a boxed slice and a tag");
    }
}
