//! Who grants locks.

use base::TargetIndex;

/// Whose lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Mdt,
    Ost(TargetIndex),
}
