//! Newtypes for every other id, so that no signature has two bare integers of one meaning.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

id! {
    /// One mount (or one target speaking to another), unique per target and boot; given at connect.
    ClientId
}
id! {
    /// A request of one client. Grows by one; never reused inside a session.
    Xid
}
id! {
    /// A modification's place in a target's history. Zero: changed nothing.
    Transno
}
id! {
    /// One boot of a server process on a target. A new epoch voids every lock and cache of the old.
    BootEpoch
}
id! {
    /// A granted or waiting lock, as the server names it. Never reused inside a boot epoch.
    LockHandle
}

impl LockHandle {
    /// Some lock that has ended with the boot of its target.
    pub const ENDED: LockHandle = LockHandle(u64::MAX);
}

/// A target's number among those of its kind.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct TargetIndex(pub u16);

/// What a target stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TargetKind {
    /// Configuration: who is where.
    Mgs,
    /// Names, attributes, locks.
    Mdt,
    /// File data, its sizes and locks.
    Ost,
}

/// A target, as people read and write it: `MGS`, `MDT0`, `OST12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TargetName {
    /// What it stores.
    pub kind: TargetKind,
    /// Which of its kind.
    pub index: TargetIndex,
}

impl TargetName {
    /// The one management service.
    pub const MGS: TargetName = TargetName {
        kind: TargetKind::Mgs,
        index: TargetIndex(0),
    };

    /// The metadata target numbered `index`.
    pub fn mdt(index: u16) -> TargetName {
        TargetName {
            kind: TargetKind::Mdt,
            index: TargetIndex(index),
        }
    }

    /// The object storage target numbered `index`.
    pub fn ost(index: u16) -> TargetName {
        TargetName {
            kind: TargetKind::Ost,
            index: TargetIndex(index),
        }
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TargetKind::Mgs => write!(f, "MGS"),
            TargetKind::Mdt => write!(f, "MDT{}", self.index.0),
            TargetKind::Ost => write!(f, "OST{}", self.index.0),
        }
    }
}
