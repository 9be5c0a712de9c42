//! Why an operation failed: the caller's fault, or the target's.

use base::{Damage, FsError};
use storage::StorageError;

/// What an operation inside the target gives.
pub type Outcome<T> = Result<T, Failure>;

/// Why there is no result.
#[derive(Debug)]
pub enum Failure {
    /// The request cannot be done; the target is well.
    Refused(FsError),
    /// The store below did not do as asked.
    Storage(StorageError),
    /// A record is not what was written.
    Damaged(Damage),
}

impl Failure {
    /// What the caller is told.
    pub fn told(&self) -> FsError {
        match self {
            Failure::Refused(error) => *error,
            Failure::Storage(error) => FsError::from(error),
            Failure::Damaged(_) => FsError::Io,
        }
    }

    /// Why the target must not go on, where that is so: something is damaged, or the store below
    /// has stopped.
    pub fn stops(&self) -> Option<String> {
        match self {
            Failure::Refused(_) => None,
            Failure::Storage(error) => {
                let stopped = matches!(error, StorageError::Stopped { .. });
                (stopped || error.damage().is_some()).then(|| error.to_string())
            }
            Failure::Damaged(damage) => Some(damage.to_string()),
        }
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Failure {
        Failure::Refused(error)
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Failure {
        Failure::Storage(error)
    }
}

impl From<Damage> for Failure {
    fn from(damage: Damage) -> Failure {
        Failure::Damaged(damage)
    }
}
