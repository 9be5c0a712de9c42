//! The cache within its bounds. Bytes of files go first come, first served. Of one list that is too long, the
//! part that its readers have passed goes; of many lists, what nobody needs, then the locks of least use with
//! what they cover.

use std::ops::RangeInclusive;

use base::Fid;
use dlm::CacheInput;

use crate::cache::directory::Directory;
use crate::cache::holder::Holder;
use crate::session::state::State;

/// Entries of a long list before and behind each reader that stay. Programs read names of 100,000
/// files before they ask for the attributes of the first.
const NEAR: usize = 1 << 17;
/// Entries looked at in one step: nobody else has the state meanwhile.
const STEP_MAX: usize = 1 << 14;
/// Steps in a row.
pub(crate) const STEPS_MAX: usize = 8;

/// What came of a step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shrunk {
    /// What the kernel shall let go, if nobody uses it: then it can go here too.
    pub let_go: Vec<Fid>,
    /// Entries that went.
    gone: usize,
    /// There is more to look at.
    pub more: bool,
}

/// Who needs a file.
enum Need {
    Nobody,
    /// The kernel may have it for nobody.
    Kernel,
    Somebody,
}

impl State {
    /// Keeps within `max` bytes of file data, as far as what is unsent allows.
    pub fn shrink_bytes(&mut self, max: u64) {
        if self.cache.cached_bytes() <= max {
            return;
        }
        let with_data = self.cache.files().map(|(fid, _)| fid);
        let fids: Vec<Fid> = with_data.collect();
        for fid in fids {
            let surplus = self.cache.cached_bytes().saturating_sub(max);
            if surplus == 0 {
                break;
            }
            self.with_pages(fid, |file| file.pages.evict_clean(surplus));
        }
    }

    /// A step towards no more than `max` files, `asked` of which the kernel was asked to let go just
    /// now.
    pub fn shrink(&mut self, max: usize, asked: usize) -> Shrunk {
        let mut shrunk = Shrunk::default();
        let surplus = self.cache.len().saturating_sub(max + asked);
        if surplus == 0 {
            self.cache.sweep_anew();
            return shrunk;
        }
        for dir in self.cache.long_lists() {
            let done = shrunk.gone + shrunk.let_go.len();
            if done < surplus.min(STEP_MAX) {
                self.sweep(dir, surplus.min(STEP_MAX) - done, &mut shrunk);
            }
        }
        let has_done = shrunk.gone + shrunk.let_go.len() + asked > 0;
        if !has_done {
            self.thin_out(max + 2 * NEAR * self.readers_of_long());
        }
        shrunk
    }

    fn readers_of_long(&self) -> usize {
        let readers = |dir: &Fid| self.handles.readers(*dir).count();
        self.cache.long_lists().iter().map(readers).sum()
    }

    /// Drops up to `count` entries that readers of a long list have passed, or says which of them
    /// the kernel has.
    fn sweep(&mut self, dir: Fid, count: usize, shrunk: &mut Shrunk) {
        let Some(directory) = self.cache.directory_of(dir) else {
            return;
        };
        let readers = self.handles.readers(dir);
        let near: Vec<_> = readers.map(|at| directory.around(at, NEAR)).collect();
        let (mut evicted, mut asked, mut last) = (Vec::new(), 0, directory.swept());
        let mut more = false;
        for _ in 0..STEP_MAX {
            let Some((cookie, fid)) = next_far(directory, &near, last) else {
                more = false;
                last = 0;
                break;
            };
            if evicted.len() + asked >= count {
                break;
            }
            (more, last) = (true, cookie);
            match self.need(fid) {
                Need::Nobody => evicted.push((cookie, fid)),
                Need::Kernel => {
                    asked += 1;
                    shrunk.let_go.push(fid);
                }
                Need::Somebody => {}
            }
        }
        shrunk.more |= more;
        shrunk.gone += evicted.len();
        self.cache.drop_entries(dir, &evicted, last);
    }

    fn need(&self, fid: Fid) -> Need {
        let Some(inode) = self.cache.known(fid) else {
            return Need::Nobody;
        };
        let locked = self.locks.holds_any(fid) || self.locks.has_extents(fid);
        match () {
            () if locked => Need::Somebody,
            () if inode.is_idle() => Need::Nobody,
            () if inode.is_only_in_kernel() && inode.as_directory().is_none() => Need::Kernel,
            () => Need::Somebody,
        }
    }

    /// Leaves `max` files, as far as nobody needs the others. If there are not so many of those, locks
    /// that were of no use for long go, and with them what they cover.
    fn thin_out(&mut self, max: usize) {
        let surplus = self.cache.len().saturating_sub(max);
        if surplus == 0 || !self.cache.is_crowded() {
            return;
        }
        let idle = self
            .cache
            .fids()
            .filter(|fid| matches!(self.need(*fid), Need::Nobody));
        let idle: Vec<Fid> = idle.take(surplus).collect();
        idle.iter().for_each(|fid| self.cache.drop_inode(*fid));
        self.cache.is_crowded_no_more();
        if idle.len() < surplus {
            self.locks.step(Holder::Mdt, CacheInput::Shrink);
            self.cache.is_crowded_with(max / 16);
        }
    }
}

/// The first entry after `cookie` that is near no reader.
fn next_far(
    directory: &Directory,
    near: &[RangeInclusive<u64>],
    cookie: u64,
) -> Option<(u64, Fid)> {
    let mut last = cookie;
    loop {
        let (cookie, entry) = directory.placed_after(last).next()?;
        match near.iter().find(|zone| zone.contains(&cookie)) {
            Some(zone) => last = *zone.end(),
            None => return Some((cookie, entry.fid)),
        }
    }
}

#[cfg(test)]
#[path = "bound_tests.rs"]
mod tests;
