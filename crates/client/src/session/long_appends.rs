//! Appends that the kernel brings in several requests, since one has room for so many pages only. The file's
//! lock stays in use between them, so that no other mount's bytes come in between. Within a mount the kernel
//! lets nobody else write meanwhile. SEMANTICS: op.append

use std::collections::HashMap;
use std::time::Duration;

use base::{Fid, Tick};

/// A request that comes later than this is that of another append: its call was broken off.
const PATIENCE: Duration = Duration::from_secs(1);

/// Files to which more of an append is to come, and when the last of it came.
#[derive(Debug, Default)]
pub(crate) struct LongAppends(HashMap<Fid, Tick>);

impl LongAppends {
    /// More is to come of an append to the file. Returns whether it is the first that is said of it: then its
    /// lock is used once more.
    pub fn goes_on(&mut self, fid: Fid, now: Tick) -> bool {
        self.0.insert(fid, now).is_none()
    }

    /// More of an append to the file is to come.
    pub fn is_under_way(&self, fid: Fid) -> bool {
        self.0.contains_key(&fid)
    }

    /// No more comes. Returns whether it was under way: then its lock is used once less.
    pub fn end(&mut self, fid: Fid) -> bool {
        self.0.remove(&fid).is_some()
    }

    /// Those of which nothing more has come for long.
    pub fn broken_off(&self, now: Tick) -> Vec<Fid> {
        let late = |since: &Tick| now.since(*since) > PATIENCE;
        let files = self.0.iter().filter(|(_, since)| late(since));
        files.map(|(fid, _)| *fid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_is_under_way_until_its_end_or_until_it_is_broken_off() {
        let (file, begun) = (Fid(7), Tick::default());
        let mut appends = LongAppends::default();
        assert!(!appends.end(file) && appends.goes_on(file, begun));
        let later = begun.after(PATIENCE);
        assert!(!appends.goes_on(file, later) && appends.is_under_way(file));
        assert!(appends.broken_off(later.after(PATIENCE)).is_empty());
        let late = later.after(PATIENCE + Duration::from_millis(1));
        assert_eq!(appends.broken_off(late), [file]);
        assert!(appends.end(file) && !appends.is_under_way(file));
    }
}
