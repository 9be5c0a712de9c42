//! Memory that a disk reads into by itself. Aligned, in one piece for the device where the system
//! gives huge pages, and used again and again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mapping::Mapping;
pub use crate::mapping::PAGE_BYTES as BUFFER_BYTES;

/// A bounded set of buffers, made when they are first needed.
#[derive(Debug)]
pub struct Buffers {
    state: Mutex<State>,
    bound: usize,
}

#[derive(Debug, Default)]
struct State {
    /// The one used last is used next: what nobody needs any more is never touched.
    free: Vec<Mapping>,
    made: usize,
}

impl Buffers {
    /// At most `bound` buffers.
    pub fn new(bound: usize) -> Arc<Buffers> {
        Arc::new(Buffers {
            state: Mutex::default(),
            bound,
        })
    }

    // Changed in one step each time: poisoning adds nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer, which comes back when it is dropped. None: all are in use, or there is no memory.
    pub fn take(self: &Arc<Self>) -> Option<Buffer> {
        let mut state = self.state();
        if let Some(mapping) = state.free.pop() {
            return Some(self.lend(mapping));
        }
        if state.made >= self.bound {
            return None;
        }
        match Mapping::new() {
            Ok(mapping) => {
                state.made += 1;
                Some(self.lend(mapping))
            }
            Err(error) => {
                tracing::warn!(%error, "no memory for a buffer to read into");
                None
            }
        }
    }

    fn lend(self: &Arc<Self>, mapping: Mapping) -> Buffer {
        Buffer {
            mapping: Some(mapping),
            home: self.clone(),
        }
    }
}

/// [`BUFFER_BYTES`] bytes, with what was last read into them.
#[derive(Debug)]
pub struct Buffer {
    /// None: it has gone home.
    mapping: Option<Mapping>,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.mapping.as_ref().map_or(&[], Mapping::bytes)
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.mapping.as_mut().map_or(&mut [], Mapping::bytes_mut)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.state().free.extend(self.mapping.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_bounded_and_come_back() {
        let buffers = Buffers::new(2);
        let (mut one, two) = (buffers.take().unwrap(), buffers.take().unwrap());
        assert!(buffers.take().is_none());
        assert_eq!(one.as_ref().len(), BUFFER_BYTES);
        assert_eq!(one.as_ref().as_ptr() as usize % BUFFER_BYTES, 0);
        one.as_mut().fill(7);
        assert!(two.as_ref().iter().all(|byte| *byte == 0));
        drop(one);
        let again = buffers.take().unwrap();
        assert!(again.as_ref().iter().all(|byte| *byte == 7), "the same one");
    }

    #[test]
    fn a_buffer_may_outlive_its_pool() {
        let buffers = Buffers::new(1);
        let shared = bytes::Bytes::from_owner(buffers.take().unwrap());
        drop(buffers);
        assert_eq!(shared.slice(5..9), &[0; 4][..]);
    }
}
