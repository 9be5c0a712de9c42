//! Why a set of changes cannot be done, and by which of them.

use base::FsError;

use crate::store::Failure;

/// Why a set cannot be done, and by which of its changes.
#[derive(Debug)]
pub struct Wrong {
    pub change: usize,
    pub cause: Failure,
}

pub type Checked<T> = std::result::Result<T, Wrong>;

/// Names the change that a result is about.
pub trait Of<T> {
    fn of(self, change: usize) -> Checked<T>;
}

impl<T, E: Into<Failure>> Of<T> for std::result::Result<T, E> {
    fn of(self, change: usize) -> Checked<T> {
        self.map_err(|cause| Wrong {
            change,
            cause: cause.into(),
        })
    }
}

/// The change cannot be made.
pub fn refuse<T>(change: usize, error: FsError) -> Checked<T> {
    Err(error).of(change)
}
