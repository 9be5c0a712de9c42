//! Appends that the kernel brings in several requests, since one has room for so many pages only. The file's
//! lock stays in use between them, so that no other mount's bytes come in between. Within a mount the kernel
//! lets nobody else write meanwhile. SEMANTICS: op.append

use std::collections::HashMap;
use std::time::Duration;

use base::{Fid, Tick};

/// Where nothing has come for so long, it is asked whether the call goes on.
const PATIENCE: Duration = Duration::from_secs(1);
/// A request that comes later than this is not waited for. Far less than the time after which a mount that
/// does not give a lock back is evicted.
const PATIENCE_MAX: Duration = Duration::from_secs(20);

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

    /// Those of which nothing more has come for a while.
    pub fn late(&self, now: Tick) -> Vec<Fid> {
        self.silent_for(PATIENCE, now).collect()
    }

    /// Of the late ones those that are broken off: their calls do not go on, or are waited for no longer.
    pub fn broken_off(&self, late: &[Fid], going_on: &[Fid], now: Tick) -> Vec<Fid> {
        let is_late: Vec<Fid> = self.late(now);
        let is_over: Vec<Fid> = self.silent_for(PATIENCE_MAX, now).collect();
        let is_broken = |fid: &&Fid| {
            is_late.contains(fid) && (!going_on.contains(fid) || is_over.contains(fid))
        };
        late.iter().filter(is_broken).copied().collect()
    }

    fn silent_for(&self, time: Duration, now: Tick) -> impl Iterator<Item = Fid> {
        let files = self.0.iter();
        let silent = files.filter(move |(_, since)| now.since(**since) > time);
        silent.map(|(fid, _)| *fid)
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
        assert!(appends.late(later.after(PATIENCE)).is_empty());
        let late = later.after(PATIENCE + Duration::from_millis(1));
        assert_eq!(appends.late(late), [file]);
        assert!(appends.broken_off(&[file], &[file], late).is_empty());
        assert_eq!(appends.broken_off(&[file], &[], late), [file]);
        let over = later.after(PATIENCE_MAX + Duration::from_millis(1));
        assert_eq!(appends.broken_off(&[file], &[file], over), [file]);
        assert!(appends.end(file) && !appends.is_under_way(file));
    }

    #[test]
    fn more_that_comes_while_its_call_is_asked_about_is_not_late() {
        let (file, begun) = (Fid(7), Tick::default());
        let mut appends = LongAppends::default();
        appends.goes_on(file, begun);
        let late = begun.after(PATIENCE * 2);
        assert_eq!(appends.late(late), [file]);
        appends.goes_on(file, late);
        assert!(appends.broken_off(&[file], &[], late).is_empty());
    }
}
