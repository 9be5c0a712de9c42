//! The wall around the engine: each call of it passes here, and a panic behind it is an error in front of it.
//! Blocks are checked below the engine, so this is for damage that no checksum shows, and for its faults.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use crate::error::{Result, StorageError};

/// The first error of the disk, or a panic of the engine: what follows from it says less.
pub(super) type FirstError = Arc<OnceLock<StorageError>>;

/// Calls the engine, and turns its errors into ours.
#[derive(Debug, Clone)]
pub(super) struct Wall {
    file: String,
    first: FirstError,
}

impl Wall {
    /// Around the engine of the store in `file`.
    pub(super) fn new(file: String) -> Wall {
        Wall {
            file,
            first: FirstError::default(),
        }
    }

    /// Once it is set, the engine is neither called nor served.
    pub(super) fn first(&self) -> FirstError {
        self.first.clone()
    }

    /// Does `call`, unless there was an error.
    pub(super) fn call<T, E: Into<redb::Error>>(
        &self,
        call: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<T> {
        if let Some(first) = self.first.get() {
            return Err(first.clone());
        }
        // Unwind safe: a panic may leave the engine half way in a change, but `first` keeps every later
        // call from the engine, and the engine from the disk.
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(done) => done.map_err(|error| self.explain(error.into())),
            Err(panic) => {
                let reason = format!("the engine panicked: {}", words(&*panic));
                let error = StorageError::damaged(&self.file, "database", reason);
                Err(self.first.get_or_init(|| error).clone())
            }
        }
    }

    fn explain(&self, error: redb::Error) -> StorageError {
        if let Some(first) = self.first.get() {
            return first.clone();
        }
        match error {
            redb::Error::Corrupted(reason) => StorageError::damaged(&self.file, "database", reason),
            // What it calls a file that it did not make: the making of this one was cut short.
            redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                StorageError::damaged(&self.file, "database", error.to_string())
            }
            redb::Error::ValueTooLarge(len) => {
                StorageError::refused(&self.file, format!("a value of {len} bytes"))
            }
            redb::Error::UpgradeRequired(found) => StorageError::ForeignVersion {
                at: self.file.clone(),
                found: u32::from(found),
                ours: 3,
            },
            error => {
                let error = io::Error::other(error.to_string());
                StorageError::from_io(&self.file, "run the engine", &error)
            }
        }
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a reason")
}

/// A part of the engine: used, and let go of, behind the wall.
pub(super) struct Walled<T> {
    /// None when it was let go of.
    part: Option<T>,
    wall: Wall,
}

impl<T> Walled<T> {
    /// The part that `make` makes.
    pub(super) fn new<E: Into<redb::Error>>(
        wall: &Wall,
        make: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<Walled<T>> {
        Ok(Walled {
            part: Some(wall.call(make)?),
            wall: wall.clone(),
        })
    }

    /// What `call` makes of it.
    pub(super) fn call<R, E: Into<redb::Error>>(
        &self,
        call: impl FnOnce(&T) -> std::result::Result<R, E>,
    ) -> Result<R> {
        self.wall.call(|| call(self.part.as_ref().expect(HELD)))
    }

    /// What `call` makes of it while changing it.
    pub(super) fn call_mut<R, E: Into<redb::Error>>(
        &mut self,
        call: impl FnOnce(&mut T) -> std::result::Result<R, E>,
    ) -> Result<R> {
        let part = &mut self.part;
        self.wall.call(|| call(part.as_mut().expect(HELD)))
    }

    /// Lets go of it by `end`.
    pub(super) fn end<R, E: Into<redb::Error>>(
        mut self,
        end: impl FnOnce(T) -> std::result::Result<R, E>,
    ) -> Result<R> {
        let part = &mut self.part;
        self.wall.call(|| end(part.take().expect(HELD)))
    }

    /// A further part, which `make` makes of it.
    pub(super) fn part<R, E: Into<redb::Error>>(
        &self,
        make: impl FnOnce(&T) -> std::result::Result<R, E>,
    ) -> Result<Walled<R>> {
        Ok(Walled {
            part: Some(self.call(make)?),
            wall: self.wall.clone(),
        })
    }
}

/// Only `end` and `drop` take it, and both are the last.
const HELD: &str = "the part is held until it is let go of";

impl<T> Drop for Walled<T> {
    fn drop(&mut self) {
        let part = self.part.take();
        // After a panic of the engine its locks are poisoned, and its own `drop` may panic too.
        if catch_unwind(AssertUnwindSafe(|| drop(part))).is_err() {
            tracing::error!(file = self.wall.file, "the engine panicked at its end");
        }
    }
}

impl<T> fmt::Debug for Walled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Walled({})", self.wall.file)
    }
}
