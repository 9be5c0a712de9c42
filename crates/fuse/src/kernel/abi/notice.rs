//! Fixed parts of notices, after the header. Names and data follow.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! notices {
    ($($(#[$meta:meta])* $name:ident, $size:literal { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub struct $name { $(pub $field: $type),* }

        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

notices! {
    /// INVAL_INODE. A negative offset drops attributes only; a length of 0 reaches the end.
    InvalInode, 24 { nodeid: u64, offset: i64, length: i64 }
    /// INVAL_ENTRY.
    InvalEntry, 16 { parent: u64, name_len: u32, flags: u32 }
    /// DELETE.
    Delete, 24 { parent: u64, child: u64, name_len: u32, padding: u32 }
    /// STORE.
    Store, 24 { nodeid: u64, offset: u64, size: u32, padding: u32 }
    /// RETRIEVE.
    Retrieve, 32 { unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32 }
    /// PRUNE; `count` nodeids follow.
    Prune, 16 { count: u32, padding: u32, spare: u64 }
    /// POLL.
    PollWakeup, 8 { kernel_handle: u64 }
}

/// INVAL_ENTRY: let the entry expire instead of dropping it.
pub const EXPIRE_ONLY: u32 = 1 << 0;

/// What a notice's header carries in place of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Poll = 1,
    InvalInode = 2,
    InvalEntry = 3,
    Store = 4,
    Retrieve = 5,
    Delete = 6,
    Resend = 7,
    IncEpoch = 8,
    Prune = 9,
}

/// Minor version that brought INC_EPOCH.
pub const MINOR_INC_EPOCH: u32 = 44;
/// Minor version that brought PRUNE.
pub const MINOR_PRUNE: u32 = 45;
