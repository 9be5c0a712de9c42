//! Whether the file system moves data past its page cache (`O_DIRECT`).

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of it. It is asked until it refuses.
#[derive(Debug, Default)]
pub(super) struct DirectIo {
    refused: AtomicBool,
}

impl DirectIo {
    /// It has refused.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// The result of something tried. None: it refuses such a thing, and need not be asked again.
    pub(super) fn tried<T>(&self, result: io::Result<T>) -> io::Result<Option<T>> {
        match result {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                tracing::info!("the file system moves no data past its page cache");
                self.refused.store(true, Ordering::Relaxed);
                Ok(None)
            }
            result => result.map(Some),
        }
    }
}
