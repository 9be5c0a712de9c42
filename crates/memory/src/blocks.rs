//! Blocks of a cache, side by side in huge pages.

#![allow(unsafe_code)] // The parts of one mapping belong to different owners.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::mapping::{Mapping, PAGE_BYTES};

/// Pages that nobody uses and that are kept all the same.
const SPARE_KEPT: usize = 4;
/// Of the others one in so many goes at a time. By and by, as what was used a moment ago is often
/// wanted again, and new memory costs more than all else that is done with it.
const SPARE_SHARE: usize = 64;
/// Bytes that pages may have beyond the blocks in use, before no new page is taken. A page stays as
/// long as one of its blocks does, and a few blocks must not keep many pages.
const UNUSED_BYTES_MAX: usize = 64 << 20;
/// Bytes of all pages. Each is two or three of the 65,530 mappings that the system allows a process
/// unless told otherwise, and the allocator needs some, too: without any the process ends.
const PAGE_BYTES_MAX: usize = 32 << 30;

/// A source of blocks.
#[derive(Debug, Default)]
pub struct Blocks {
    home: Arc<Home>,
    cut: Mutex<Option<Cut>>,
}

/// The page that blocks are being cut from.
#[derive(Debug)]
struct Cut {
    page: Arc<Page>,
    /// Bytes of it that have been given out.
    given: usize,
}

/// What pages come from and go back to.
#[derive(Debug, Default)]
struct Home {
    spare: Mutex<Vec<Mapping>>,
    /// Bytes of all pages but the spare ones.
    page_bytes: AtomicUsize,
    /// Bytes of the blocks in use.
    block_bytes: AtomicUsize,
}

/// A page with blocks.
#[derive(Debug)]
struct Page {
    /// None: it has gone home.
    mapping: Option<Mapping>,
    home: Arc<Home>,
}

/// A block: a part of a page that nothing else has.
#[derive(Debug)]
struct Block {
    page: Arc<Page>,
    part: Range<usize>,
}

impl Blocks {
    /// A source that has no memory yet.
    pub fn new() -> Blocks {
        Blocks::default()
    }

    /// A block with a copy of `data`. None: it does not fit a page, there is no memory, too few
    /// blocks would keep too much of it, or there are as many pages as may be.
    pub fn copy(&self, data: &[u8]) -> Option<Bytes> {
        let block = self.cut(data.len())?;
        // SAFETY: `cut` gives every part of a page to one block only, and this one is not shared.
        unsafe { block.page.mapping()?.fill(block.part.start, data) };
        Some(Bytes::from_owner(block))
    }

    /// Gives some of the memory back that no block uses. To be called at a steady pace: at ten times
    /// a second half of it is gone after four to five seconds.
    pub fn give_back_some(&self) {
        let mut spare = lock(&self.home.spare);
        let count = spare.len().saturating_sub(SPARE_KEPT).div_ceil(SPARE_SHARE);
        // What was used last is used next.
        let given: Vec<Mapping> = spare.drain(..count).collect();
        drop(spare);
        drop(given);
    }

    fn cut(&self, len: usize) -> Option<Block> {
        if len == 0 || len > PAGE_BYTES {
            return None;
        }
        let mut cut = lock(&self.cut);
        if cut.as_ref().is_none_or(|cut| cut.given + len > PAGE_BYTES) {
            // The page before belongs to its blocks now.
            *cut = None;
            *cut = Some(Cut {
                page: self.home.page()?,
                given: 0,
            });
        }
        let Cut { page, given } = cut.as_mut()?;
        let part = *given..*given + len;
        *given = part.end;
        self.home.block_bytes.fetch_add(len, Ordering::Relaxed);
        let page = page.clone();
        Some(Block { page, part })
    }
}

impl Home {
    fn page(self: &Arc<Home>) -> Option<Arc<Page>> {
        let pages = self.page_bytes.load(Ordering::Relaxed);
        let blocks = self.block_bytes.load(Ordering::Relaxed);
        if pages > blocks + UNUSED_BYTES_MAX || pages + PAGE_BYTES > PAGE_BYTES_MAX {
            return None;
        }
        let spare = lock(&self.spare).pop();
        let mapping = match spare {
            Some(mapping) => mapping,
            None => Mapping::new()
                .inspect_err(|error| tracing::debug!(%error, "no memory for blocks"))
                .ok()?,
        };
        self.page_bytes.fetch_add(PAGE_BYTES, Ordering::Relaxed);
        Some(Arc::new(Page {
            mapping: Some(mapping),
            home: self.clone(),
        }))
    }
}

impl Page {
    /// Always there before the page is dropped.
    fn mapping(&self) -> Option<&Mapping> {
        self.mapping.as_ref()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.home
            .page_bytes
            .fetch_sub(PAGE_BYTES, Ordering::Relaxed);
        lock(&self.home.spare).extend(self.mapping.take());
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        let mapping = self.page.mapping();
        mapping.map_or(&[], |mapping| mapping.part(self.part.clone()))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let blocks = &self.page.home.block_bytes;
        blocks.fetch_sub(self.part.len(), Ordering::Relaxed);
    }
}

// Changed in one step each time: poisoning adds nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const BLOCK_BYTES: usize = 128 << 10;
    const IN_A_PAGE: usize = PAGE_BYTES / BLOCK_BYTES;

    fn block(blocks: &Blocks, byte: u8) -> Bytes {
        blocks.copy(&[byte; BLOCK_BYTES]).unwrap()
    }

    fn pages(blocks: &Blocks) -> usize {
        blocks.home.page_bytes.load(Ordering::Relaxed) / PAGE_BYTES
    }

    #[test]
    fn blocks_lie_side_by_side_and_keep_their_bytes() {
        let blocks = Blocks::new();
        let all: Vec<Bytes> = (0..=40).map(|byte| block(&blocks, byte)).collect();
        assert_eq!(pages(&blocks), 41_usize.div_ceil(IN_A_PAGE));
        assert_eq!(
            all[1].as_ptr() as usize - all[0].as_ptr() as usize,
            BLOCK_BYTES
        );
        for (byte, one) in (0..).zip(&all) {
            assert!(one.len() == BLOCK_BYTES && one.iter().all(|held| *held == byte));
        }
        let odd = blocks.copy(b"odd").unwrap();
        assert_eq!(odd, &b"odd"[..]);
        assert!(blocks.copy(&vec![1; PAGE_BYTES + 1]).is_none());
        assert!(blocks.copy(b"").is_none());
    }

    #[test]
    fn pages_whose_blocks_are_gone_are_used_again() {
        let (blocks, mut places) = (Blocks::new(), BTreeSet::new());
        for byte in 0..200 {
            let all: Vec<Bytes> = (0..IN_A_PAGE).map(|_| block(&blocks, byte)).collect();
            assert!(all.iter().all(|one| one.iter().all(|held| *held == byte)));
            places.insert(all[0].as_ptr() as usize);
        }
        assert_eq!(places.len(), 1, "the same page again and again");
        assert_eq!(pages(&blocks), 1, "the one that is being cut");
        assert_eq!(blocks.home.block_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_nobody_uses_is_given_back_by_and_by() {
        let blocks = Blocks::new();
        let all: Vec<Bytes> = (0..100 * IN_A_PAGE).map(|_| block(&blocks, 1)).collect();
        drop(all);
        let spare = || lock(&blocks.home.spare).len();
        assert_eq!(spare(), 99, "all but the one that is being cut");
        blocks.give_back_some();
        assert_eq!(spare(), 97);
        let mut calls = 1;
        while spare() > SPARE_KEPT {
            blocks.give_back_some();
            calls += 1;
        }
        assert!(calls < 150, "{calls}");
        blocks.give_back_some();
        assert_eq!(spare(), SPARE_KEPT);
    }

    #[test]
    fn a_few_blocks_do_not_keep_many_pages() {
        let blocks = Blocks::new();
        let mut kept = Vec::new();
        // One block of each page stays.
        while let Some(one) = blocks.copy(&[1; BLOCK_BYTES]) {
            kept.push(one);
            (1..IN_A_PAGE).for_each(|_| drop(blocks.copy(&[2; BLOCK_BYTES])));
            assert!(kept.len() < 100, "there is a bound");
        }
        assert!(pages(&blocks) * PAGE_BYTES <= 2 * UNUSED_BYTES_MAX);
        drop(kept);
        assert!(blocks.copy(&[3; BLOCK_BYTES]).is_some());
    }

    #[test]
    fn there_is_a_bound_on_pages() {
        let blocks = Blocks::new();
        blocks
            .home
            .block_bytes
            .store(PAGE_BYTES_MAX, Ordering::Relaxed);
        blocks
            .home
            .page_bytes
            .store(PAGE_BYTES_MAX - PAGE_BYTES, Ordering::Relaxed);
        let last: Vec<Bytes> = (0..IN_A_PAGE).map(|_| block(&blocks, 1)).collect();
        assert!(blocks.copy(&[2; BLOCK_BYTES]).is_none());
        drop(last);
        assert!(blocks.copy(&[3; BLOCK_BYTES]).is_some(), "one has gone");
    }

    #[test]
    fn a_block_may_outlive_its_source() {
        let one = block(&Blocks::new(), 9);
        assert!(one.iter().all(|held| *held == 9));
    }
}
