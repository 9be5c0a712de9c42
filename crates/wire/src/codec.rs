//! One codec for every message body: postcard (its 1.x byte format is stable and documented).
//!
//! A body is one value; bytes left over are an error, so that a version mismatch shows at once.

use std::fmt;

use base::FsError;
use serde::{Deserialize, Serialize};

/// Bytes that are not the message they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// The message expected.
    pub message: &'static str,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a {}: {}", self.message, self.reason)
    }
}

impl std::error::Error for DecodeError {}

/// The bytes of a message. Total: every message of ours can be encoded.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_allocvec(message).expect("messages hold no maps of unknown length")
}

/// The message in `bytes`, all of them.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let error = |reason: String| DecodeError {
        message: std::any::type_name::<T>(),
        reason,
    };
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(error(format!("{} bytes left over", rest.len()))),
        Err(cause) => Err(error(cause.to_string())),
    }
}

/// The status of a request that went well and changed nothing. In a replay it is not done again, as
/// it might do something by then.
pub const UNCHANGED: u16 = u16::MAX;

/// Zero for success, else one plus the error's place in [`ERRORS`].
pub fn status_of(result: Result<(), FsError>) -> u16 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            1 + ERRORS
                .iter()
                .position(|e| *e == error)
                .expect("every error is listed") as u16
        }
    }
}

/// The inverse of [`status_of`], and [`UNCHANGED`]; a number from a newer peer reads as `Io`.
pub fn status_from(status: u16) -> Result<(), FsError> {
    match status {
        0 | UNCHANGED => Ok(()),
        n => Err(ERRORS
            .get(usize::from(n) - 1)
            .copied()
            .unwrap_or(FsError::Io)),
    }
}

/// The errors' numbers on the wire: only ever appended to.
pub const ERRORS: [FsError; 28] = [
    FsError::NotFound,
    FsError::Exists,
    FsError::NotDirectory,
    FsError::IsDirectory,
    FsError::NotEmpty,
    FsError::AccessDenied,
    FsError::NotPermitted,
    FsError::Invalid,
    FsError::NameTooLong,
    FsError::FileTooBig,
    FsError::NoSpace,
    FsError::TooManyLinks,
    FsError::Loop,
    FsError::CrossDevice,
    FsError::NoAttribute,
    FsError::NotSupported,
    FsError::Range,
    FsError::TooLarge,
    FsError::Busy,
    FsError::TextBusy,
    FsError::Stale,
    FsError::BadHandle,
    FsError::ReadOnly,
    FsError::TryAgain,
    FsError::Interrupted,
    FsError::Io,
    FsError::NoDevice,
    FsError::NoData,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::{Request, WalkOrder};
    use base::{Fid, TargetIndex};
    use layout::{Layout, Stripes};
    use proptest::prelude::*;

    #[test]
    fn every_error_travels() {
        assert_eq!(status_from(status_of(Ok(()))), Ok(()));
        for error in ERRORS {
            assert_eq!(status_from(status_of(Err(error))), Err(error));
        }
        assert_eq!(status_from(UNCHANGED), Ok(()));
        assert_eq!(status_from(60_000), Err(FsError::Io));
    }

    #[test]
    fn a_name_with_a_slash_is_no_message() {
        let name = base::Name::try_from("ab").expect("valid");
        let mut bytes = encode(&Request::Lookup {
            dir: Fid::ROOT,
            name,
        });
        assert!(decode::<Request>(&bytes).is_ok());
        *bytes.last_mut().expect("not empty") = b'/';
        assert!(decode::<Request>(&bytes).is_err());
    }

    #[test]
    fn names_and_layouts_have_these_bytes() {
        let name = base::Name::try_from("ab").expect("valid");
        assert_eq!(encode(&name), [2, b'a', b'b']);
        let mut layout = Layout::single(TargetIndex(300));
        let bytes = [1, 0x80, 0x80, 0x40, 1, 0xac, 2];
        assert_eq!(encode(&layout), bytes);
        assert_eq!(decode(&bytes).as_ref(), Ok(&layout));
        layout.stripes = Stripes::new(&[1, 2, 3, 4].map(TargetIndex));
        let bytes = [1, 0x80, 0x80, 0x40, 4, 1, 2, 3, 4];
        assert_eq!(encode(&layout), bytes);
        assert_eq!(decode(&bytes).as_ref(), Ok(&layout));
        let no_power_of_two = [1, 0, 1, 1];
        assert!(decode::<Layout>(&no_power_of_two).is_err());
    }

    #[test]
    fn the_orders_of_walks_have_these_bytes() {
        let (depth, deeper) = (127, true);
        let orders = [
            (WalkOrder::Cookie, &[0][..]),
            (WalkOrder::Name, &[1]),
            (WalkOrder::Breadth { depth, deeper }, &[2, 127, 1]),
        ];
        for (order, bytes) in orders {
            assert_eq!(encode(&order), bytes);
            assert_eq!(decode(bytes), Ok(order));
        }
        for bytes in [&[3][..], &[2, 127], &[2, 127, 2]] {
            assert!(decode::<WalkOrder>(bytes).is_err());
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Request>(&bytes);
            let _ = decode::<crate::mdt::Reply>(&bytes);
            let _ = decode::<crate::ost::Request>(&bytes);
            let _ = decode::<crate::mgs::Request>(&bytes);
        }
    }
}
