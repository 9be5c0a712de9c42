//! The cache within its bounds. Bytes of files go first come, first served. Of one list that is too long, the
//! part that its readers have passed goes; of many lists, what nobody needs, then the locks of least use with
//! what they cover.

use std::ops::RangeInclusive;

use base::Fid;
use dlm::CacheInput;

use crate::cache::directory::Directory;
use crate::cache::holder::Holder;
use crate::session::state::State;

/// A list with more entries is long.
const LONG_LIST: u64 = 1 << 14;
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
        if self.cached_bytes <= max {
            return;
        }
        let with_data = self.inodes.iter().filter(|(_, inode)| inode.file.is_some());
        let fids: Vec<Fid> = with_data.map(|(fid, _)| *fid).collect();
        for fid in fids {
            let surplus = self.cached_bytes.saturating_sub(max);
            if surplus == 0 {
                break;
            }
            self.with_pages(fid, |file| file.pages.evict_clean(surplus));
        }
    }

    /// The list of `dir` has grown.
    pub fn has_grown(&mut self, dir: Fid) {
        let directory = self.known(dir).and_then(|inode| inode.directory.as_ref());
        if directory.is_some_and(|directory| directory.listed() > LONG_LIST) {
            self.long.insert(dir);
        }
    }

    /// A step towards no more than `max` files, `asked` of which the kernel was asked to let go just
    /// now.
    pub fn shrink(&mut self, max: usize, asked: usize) -> Shrunk {
        let mut shrunk = Shrunk::default();
        let surplus = self.len().saturating_sub(max + asked);
        if surplus == 0 {
            self.sweep_anew();
            return shrunk;
        }
        for dir in self.long.clone() {
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
        self.long.iter().map(readers).sum()
    }

    /// What was let go lately is at the beginning of lists.
    fn sweep_anew(&mut self) {
        for dir in self.long.clone() {
            if let Some(directory) = self.directory_mut(dir) {
                directory.swept = 0;
            }
        }
    }

    fn directory_mut(&mut self, dir: Fid) -> Option<&mut Directory> {
        self.known_mut(dir)?.directory.as_deref_mut()
    }

    /// Drops up to `count` entries that readers of a long list have passed, or says which of them
    /// the kernel has.
    fn sweep(&mut self, dir: Fid, count: usize, shrunk: &mut Shrunk) {
        let Some(directory) = self.known(dir).and_then(|inode| inode.directory.as_ref()) else {
            return;
        };
        let readers = self.handles.readers(dir);
        let near: Vec<_> = readers.map(|at| directory.around(at, NEAR)).collect();
        let (mut evicted, mut asked, mut last) = (Vec::new(), 0, directory.swept);
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
        self.drop_entries(dir, &evicted, last);
    }

    fn drop_entries(&mut self, dir: Fid, evicted: &[(u64, Fid)], swept: u64) {
        if !evicted.is_empty() {
            // The caller that was just told of one of these must not believe it for longer.
            self.withdraw();
        }
        evicted.iter().for_each(|(_, fid)| self.drop_inode(*fid));
        let cookies: Vec<u64> = evicted.iter().map(|(cookie, _)| *cookie).collect();
        if let Some(directory) = self.directory_mut(dir) {
            directory.swept = swept;
            directory.forget_entries(&cookies);
        }
    }

    fn need(&self, fid: Fid) -> Need {
        let Some(inode) = self.known(fid) else {
            return Need::Nobody;
        };
        let locked = self.locks.holds_any(fid) || self.locks.has_extents(fid);
        match () {
            () if locked => Need::Somebody,
            () if inode.is_idle() => Need::Nobody,
            () if inode.is_only_in_kernel() && inode.directory.is_none() => Need::Kernel,
            () => Need::Somebody,
        }
    }

    /// Leaves `max` files, as far as nobody needs the others. If there are not so many of those, locks
    /// that were of no use for long go, and with them what they cover.
    fn thin_out(&mut self, max: usize) {
        let surplus = self.len().saturating_sub(max);
        if surplus == 0 || self.len() <= self.crowded_at {
            return;
        }
        let all = self.inodes.keys().copied();
        let idle = all.filter(|fid| matches!(self.need(*fid), Need::Nobody));
        let idle: Vec<Fid> = idle.take(surplus).collect();
        idle.iter().for_each(|fid| self.drop_inode(*fid));
        self.crowded_at = 0;
        if idle.len() < surplus {
            self.locks.step(Holder::Mdt, CacheInput::Shrink);
            self.crowded_at = self.len() + max / 16;
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
