//! Directory listings. SEMANTICS: op.readdir

use base::limits::PAGE_BYTES_MAX;
use base::{Fid, FsError, Name};
use dlm::Bits;
use wire::FileKind;
use wire::mdt::{DirEntry, Page, Reply, Request};

use crate::cache::bits::DIR_ATTR;
use crate::cache::handle::HandleId;
use crate::cache::known::END;
use crate::cache::listed::Listed;
use crate::cache::stamps::Mark;
use crate::calls::lookup::cached_name;
use crate::policy::statahead::flat::Fetch;
use crate::policy::statahead::tree::Step;
use crate::session::client::{Client, Entry, unexpected};
use crate::session::dir_handle::DirHandle;
use crate::session::stalls;
use crate::session::state::State;
use crate::session::stats::bump;

/// How often one call waits for a walk of a tree to bring what it needs.
const STEPS_MAX: u32 = 8;

/// One entry of a page.
#[derive(Debug, Clone)]
pub struct PageEntry {
    /// Where to go on after it.
    pub cookie: u64,
    /// Its name.
    pub name: Name,
    /// The file.
    pub fid: Fid,
    /// Its kind.
    pub kind: FileKind,
    /// Its attributes, where they are at hand and covered. The kernel is *not* yet counted to hold
    /// it: see [`Client::remember`].
    pub entry: Option<Entry>,
}

/// Some entries of a directory.
#[derive(Debug, Clone)]
pub struct DirPage {
    /// In cookie order.
    pub entries: Vec<PageEntry>,
    /// When this was put together; see [`Client::stamp`].
    pub stamp: u64,
}

impl Client {
    /// Opens a directory. True: the kernel may keep the pages it has of it.
    pub fn opendir(&self, fid: Fid) -> (HandleId, bool) {
        let mut state = self.lock();
        let held = state.locks.holds(fid, Bits::LIST);
        let directory = state.cache.inode(fid).directory();
        let keep = directory.in_kernel.opened(held);
        state.cache.file(fid).opens.add_reader();
        (state.add_dir(DirHandle::new(fid)), keep)
    }

    /// Closes it; whatever was being fetched ahead for it ends here.
    pub fn releasedir(&self, handle: HandleId) {
        let mut state = self.lock();
        let Some(mut dir) = state.handles.remove_dir(handle) else {
            return;
        };
        dir.statahead.close();
        state.policies.sequences.close(handle);
        if dir.statahead.has_fetched() {
            bump(&self.0.stats.statahead_total);
        }
        let ended = state.cache.file(dir.fid()).reader_gone();
        state.drop_if_idle(dir.fid());
        drop(state);
        self.end_uses(dir.fid(), ended);
    }

    /// Up to `entries_max` entries after `cookie` (zero: from the start); none at the end.
    pub async fn readdir(
        &self,
        handle: HandleId,
        cookie: u64,
        entries_max: usize,
    ) -> Result<DirPage, FsError> {
        bump(&self.0.stats.readdir);
        let page = self.next_page(handle, cookie, entries_max);
        stalls::counted(&self.0.stats.walk_stalls, page).await
    }

    async fn next_page(
        &self,
        handle: HandleId,
        cookie: u64,
        entries_max: usize,
    ) -> Result<DirPage, FsError> {
        let (mut first, mut steps) = (true, 0);
        loop {
            let step = {
                let mut state = self.lock();
                let fid = state.handles.dir(handle).ok_or(FsError::BadHandle)?.fid();
                let wanted = (cookie, entries_max);
                if let Some(page) = from_cache(&mut state, fid, wanted, first && cookie == 0) {
                    if first {
                        bump(&self.0.stats.readdir_hit);
                    }
                    state.locks.used(fid);
                    if let (Some(open), Some(last)) =
                        (state.handles.dir(handle), page.entries.last())
                    {
                        open.read_to(last.cookie);
                    }
                    self.sizes_listed(&mut state, fid, &page);
                    let stretch = self.step_through(&mut state, fid);
                    let stretch = stretch.or_else(|| self.step_within(&mut state, fid, &page));
                    let more = self.read_on(&mut state, handle, fid, &page);
                    drop(state);
                    self.start_stretch(stretch);
                    self.start(more);
                    return Ok(page);
                }
                let dir = state.handles.dir(handle).ok_or(FsError::BadHandle)?;
                match dir.statahead.wait_for_page() {
                    Some(wait) => Step::Wait(wait),
                    None if steps >= STEPS_MAX => Step::Alone,
                    None => {
                        steps += 1;
                        self.step_to(&mut state, fid, cookie)
                    }
                }
            };
            match step {
                Step::Wait(wait) => {
                    wait.await;
                    continue;
                }
                Step::Ask(asked) => {
                    first = false;
                    self.fetch_asked(asked).await;
                    continue;
                }
                Step::Alone => {}
            }
            first = false;
            if let Some(page) = self.fetch_page(handle, cookie, entries_max).await? {
                return Ok(page);
            }
        }
    }

    /// Fetches the page after `cookie`. `Some`: a page for one use, since no lease came with it, or the list
    /// before it was withdrawn meanwhile.
    async fn fetch_page(
        &self,
        handle: HandleId,
        cookie: u64,
        entries_max: usize,
    ) -> Result<Option<DirPage>, FsError> {
        let (fid, fetch, mark) = {
            let mut state = self.lock();
            let window = self.0.params.statahead_max() as u32;
            let dir = state.handles.dir(handle).ok_or(FsError::BadHandle)?;
            let fid = dir.fid();
            let fetch = dir
                .statahead
                .page_wanted(cookie, window, entries_max as u32);
            (fid, fetch, state.cache.mark(fid))
        };
        let reply = self.0.mdt(page_request(fid, &fetch)).await;
        self.page_came(handle, &fetch);
        let reply = match reply {
            Err(FsError::Stale) if self.outlives_removal(fid) => {
                return Ok(Some(self.nothing()));
            }
            reply => reply?,
        };
        let Reply::Page(page) = reply else {
            return Err(unexpected(&reply));
        };
        if self.take_page(mark, cookie, &page) {
            return Ok(None);
        }
        if let Some(dir) = self.lock().handles.dir(handle) {
            dir.statahead.page_lost();
        }
        Ok(Some(self.use_once(page, entries_max)))
    }

    /// Keeps what a page told; false where it did not become part of the list.
    pub(crate) fn take_page(&self, mark: Mark, from: u64, page: &Page) -> bool {
        let Page { entries, end, .. } = page;
        let mut state = self.lock();
        let cover = state.take_page_lease(page, mark);
        let lists = cover.as_ref().is_some_and(|cover| cover.list);
        let has_attr = state.locks.holds(mark.dir, DIR_ATTR);
        let attr_covered = lists && (has_attr || state.locks.may_change_names(mark.dir));
        state.take_leased_dir(&page.dir, attr_covered);
        // What covers the children is counted there.
        state.cache.inode(mark.dir).directory();
        for entry in entries {
            if let Some(node) = &entry.node {
                state.take_node(node, mark);
            } else if lists {
                state.take_listed(entry, mark);
            }
        }
        let newer = state.cache.changes_since(mark);
        let newer = newer.map(|newer| newer.cloned().collect::<Vec<_>>());
        let (Some(cover), Some(newer)) = (cover, newer) else {
            return false;
        };
        let State { cache, births, .. } = &mut *state;
        let directory = cache.inode(mark.dir).directory();
        // A walk brings pages of directories of which the MDT has not heard everything.
        let is_current = |entry: &&DirEntry| {
            let has_gone = births.edits().has_gone(mark.dir, &entry.name, entry.fid);
            !has_gone && !cover.outside.contains(&entry.name)
        };
        let covered = entries.iter().filter(is_current);
        let listed = covered.map(|entry| (entry.cookie, listed(entry)));
        match cover.list {
            true => directory.extend(from, listed, *end),
            false => listed.for_each(|(cookie, entry)| directory.insert(cookie, entry)),
        }
        newer
            .into_iter()
            .for_each(|change| directory.changed(change));
        directory.note_sizes(entries);
        let is_known = cover.list && directory.knows_after(from);
        state.cache.has_grown(mark.dir);
        is_known
    }

    /// The end of the directory.
    fn nothing(&self) -> DirPage {
        DirPage {
            entries: Vec::new(),
            stamp: self.stamp(),
        }
    }

    /// A page that is no part of the list: names as they were, with attributes where both are covered.
    fn use_once(&self, page: Page, entries_max: usize) -> DirPage {
        let mut state = self.lock();
        let (dir, stamp) = (page.dir.fid, state.cache.stamp());
        state.cache.inode(dir).directory().in_kernel.spoil();
        let page_entry = |entry: DirEntry| {
            let is_covered = cached_name(&state, dir, &entry.name) == Some(entry.fid);
            let covered = is_covered.then(|| covered_entry(&state, entry.fid, stamp));
            PageEntry {
                cookie: entry.cookie,
                name: entry.name,
                fid: entry.fid,
                kind: entry.kind,
                entry: covered.flatten(),
            }
        };
        let entries = page.entries.into_iter().take(entries_max);
        let entries = entries.map(page_entry).collect();
        DirPage { entries, stamp }
    }

    /// The reader took `page`: what to fetch before it asks for the next.
    fn read_on(
        &self,
        state: &mut State,
        handle: HandleId,
        fid: Fid,
        page: &DirPage,
    ) -> Option<(HandleId, Fid, Fetch, Mark)> {
        if state.policies.trees.lists(fid) {
            return None;
        }
        let window = self.0.params.statahead_max() as u32;
        let last = page.entries.last()?.cookie;
        let directory = state.cache.inode(fid).directory();
        let covered = directory.known_until(last);
        let complete = covered == END;
        let left = directory.after(last).0.take(window as usize + 1).count();
        if complete && left == 0 {
            directory.prefetch.read_to_end();
        }
        if directory.prefetch.is_in_vain() {
            return None;
        }
        let dir = state.handles.dir(handle)?;
        let fetch = dir
            .statahead
            .page_taken(covered, complete, left as u32, window)?;
        Some((handle, fid, fetch, state.cache.mark(fid)))
    }

    /// Fetches a page ahead of the reader.
    fn start(&self, ahead: Option<(HandleId, Fid, Fetch, Mark)>) {
        let Some((handle, fid, fetch, mark)) = ahead else {
            return;
        };
        let client = self.clone();
        crate::executor::spawn(async move {
            let reply = client.0.mdt(page_request(fid, &fetch)).await;
            if let Ok(Reply::Page(page)) = &reply {
                client.take_page(mark, fetch.cookie, page);
            }
            client.page_came(handle, &fetch);
        });
    }

    fn page_came(&self, handle: HandleId, fetch: &Fetch) {
        let mut state = self.lock();
        if let Some(dir) = state.handles.dir(handle) {
            dir.statahead.page_came(fetch);
        }
    }
}

pub(crate) fn page_request(dir: Fid, fetch: &Fetch) -> Request {
    Request::ReadDir {
        dir,
        cookie: fetch.cookie,
        attrs_max: fetch.attrs,
        entries_max: fetch.entries,
        bytes_max: PAGE_BYTES_MAX as u32,
    }
}

fn listed(entry: &DirEntry) -> Listed {
    Listed {
        name: entry.name.clone(),
        fid: entry.fid,
        kind: entry.kind,
    }
}

/// The next entries, where the list is known and covered. `whole`: rather none than what is known up
/// to a name that was withdrawn. That may be moving to before it, and would be in no part of the list.
fn from_cache(
    state: &mut State,
    fid: Fid,
    (cookie, entries_max): (u64, usize),
    whole: bool,
) -> Option<DirPage> {
    if !state.locks.holds(fid, Bits::LIST.union(Bits::NAMES)) {
        return None;
    }
    let stamp = state.cache.stamp();
    let directory = state.cache.directory_of(fid)?;
    let is_torn = || {
        let count = || directory.after(cookie).0.take(entries_max).count();
        directory.is_torn_after(cookie) && count() < entries_max
    };
    if !directory.knows_after(cookie) || (whole && is_torn()) {
        return None;
    }
    let entries = directory.after(cookie).0.take(entries_max);
    let entries: Vec<PageEntry> = entries
        .map(|(cookie, listed)| PageEntry {
            cookie,
            name: listed.name.clone(),
            fid: listed.fid,
            kind: listed.kind,
            entry: covered_entry(state, listed.fid, stamp),
        })
        .collect();
    // What was known to follow was removed since: more may come behind it.
    if entries.is_empty() && directory.known_until(cookie) != END {
        return None;
    }
    // Whether the kernel may keep what it makes of this is decided when the directory is opened.
    state
        .cache
        .inode(fid)
        .directory()
        .in_kernel
        .answered(cookie);
    Some(DirPage { entries, stamp })
}

fn covered_entry(state: &State, fid: Fid, stamp: u64) -> Option<Entry> {
    if !state.stat_valid(fid) {
        return None;
    }
    let attr = state.seen(fid)?;
    Some(Entry {
        fid,
        attr,
        attr_valid: state.stat_stays(fid),
        name_valid: true,
        stamp,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use base::LockHandle;
    use dlm::Mode;
    use wire::Grant;

    use super::*;
    use crate::session::locks::Locks;

    const DIR: Fid = Fid(7);

    /// A directory of the names `a` to `e`, of which all is known.
    fn listed_whole() -> State {
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        assert!(state.locks.take_grant(&Grant {
            handle: LockHandle(1),
            fid: DIR,
            mode: Mode::PR.index() as u8,
            bits: Bits::LIST.union(Bits::NAMES).0,
            version: 0,
        }));
        let entries = (1_u64..).zip("abcde".chars()).map(|(number, letter)| {
            let listed = Listed {
                name: Name::try_from(&*letter.to_string()).expect("valid"),
                fid: Fid(number),
                kind: FileKind::Regular,
            };
            (10 * number, listed)
        });
        state.cache.inode(DIR).directory().extend(0, entries, true);
        state
    }

    fn count(state: &mut State, wanted: (u64, usize), whole: bool) -> Option<usize> {
        from_cache(state, DIR, wanted, whole).map(|page| page.entries.len())
    }

    #[test]
    fn a_list_in_which_a_name_was_withdrawn_is_asked_for_anew() {
        let mut state = listed_whole();
        assert_eq!(count(&mut state, (0, 100), true), Some(5));
        let name = Name::try_from("d").expect("valid");
        state.cache.inode(DIR).directory().forget_name(&name);
        assert_eq!(count(&mut state, (0, 100), true), None);
        assert_eq!(count(&mut state, (0, 3), true), Some(3), "a whole page");
        assert_eq!(count(&mut state, (0, 100), false), Some(3), "asked before");
        assert_eq!(count(&mut state, (40, 100), false), Some(1));
    }

    #[test]
    fn a_list_that_is_not_read_to_its_end_is_shown_as_far_as_it_is_known() {
        let mut state = listed_whole();
        let cookies = [40, 50];
        let directory = state.cache.inode(DIR).directory();
        directory.forget_list();
        let first: Vec<(u64, Listed)> = directory
            .placed_after(0)
            .take(3)
            .map(|(cookie, listed)| (cookie, listed.clone()))
            .collect();
        directory.forget_entries(&cookies);
        directory.extend(0, first.into_iter(), false);
        assert_eq!(count(&mut state, (0, 100), true), Some(3));
    }
}
