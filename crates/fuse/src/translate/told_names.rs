//! The names that each thread was told of last. A rename that is told of one file by two names is no rename
//! for the kernel (docs/locks.md, section 10, "Two names of one file").

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base::Fid;

use super::nodes::Place;

/// Threads remembered at most; beyond, a rename may be taken for done that another mount has made.
const THREADS_MAX: usize = 4096;

/// The last two names that each thread was told of, and their files; NONE: no file. Of one name that it has
/// looked up more than once the last answer counts: the kernel does so where it had believed another one.
#[derive(Debug, Default)]
pub(super) struct ToldNames(Mutex<HashMap<u32, [(Place, Fid); 2]>>);

impl ToldNames {
    /// `thread` is about to be told that the name at `place` leads to `fid`. Whether it was told before that
    /// another name does.
    pub fn tell(&self, thread: u32, place: Place, fid: Fid) -> bool {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() >= THREADS_MAX && !threads.contains_key(&thread) {
            threads.clear();
        }
        let none = [(Place::default(), Fid::NONE); 2];
        let [last, before] = threads.entry(thread).or_insert(none);
        if last.0 != place {
            *before = *last;
        }
        *last = (place, fid);
        before.1 == fid && before.0 != place && fid != Fid::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_told_of_two_names_of_one_file() {
        let told = ToldNames::default();
        let [x, y] = ["x", "y"].map(|name| Place::new(7, name.as_bytes()));
        assert!(
            !told.tell(1, x, Fid(8)) && !told.tell(2, y, Fid(8)),
            "another thread"
        );
        assert!(
            !told.tell(1, y, Fid::NONE) && told.tell(1, y, Fid(8)),
            "asked twice"
        );
        assert!(!told.tell(1, y, Fid(9)) && told.tell(1, y, Fid(8)));
        assert!(told.tell(1, x, Fid(8)) && !told.tell(1, x, Fid(9)));
    }
}
