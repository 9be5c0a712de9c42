//! Freed blocks on their way to be free. They wait until the commit that frees them is durable, and until all
//! reads and writes begun before that have ended.

use std::collections::{BTreeSet, VecDeque};

use crate::places::Extent;

/// A read, write or move that is under way: it pins all that is freed meanwhile.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub struct Io(u64);

/// Extents that were freed and may not be used yet. Their commits come in the order of their tickets.
#[derive(Debug, Default)]
pub struct Reuse {
    /// The number of the next read or write.
    next: u64,
    under_way: BTreeSet<u64>,
    uncommitted: VecDeque<(u64, Vec<Extent>)>,
    /// With the first read or write that no longer matters to them.
    pinned: VecDeque<(u64, Vec<Extent>)>,
    blocks: u64,
}

impl Reuse {
    /// A read or write begins.
    pub fn begin(&mut self) -> Io {
        let io = self.next;
        self.next += 1;
        self.under_way.insert(io);
        Io(io)
    }

    /// It has ended.
    pub fn end(&mut self, io: Io) {
        self.under_way.remove(&io.0);
    }

    /// The commit `ticket`, the latest so far, frees `extents`.
    pub fn freed(&mut self, ticket: u64, extents: Vec<Extent>) {
        self.blocks += extents
            .iter()
            .map(|extent| u64::from(extent.blocks))
            .sum::<u64>();
        self.uncommitted.push_back((ticket, extents));
    }

    /// No commit names these: only what reads and writes now matters to them.
    pub fn unnamed(&mut self, extents: Vec<Extent>) {
        let blocks = extents.iter().map(|extent| u64::from(extent.blocks));
        self.blocks += blocks.sum::<u64>();
        self.pinned.push_back((self.next, extents));
    }

    /// All commits up to `ticket` are durable.
    pub fn durable(&mut self, ticket: u64) {
        while let Some((_, extents)) = self.uncommitted.pop_front_if(|(of, _)| *of <= ticket) {
            self.pinned.push_back((self.next, extents));
        }
    }

    /// The next extents that may be used again.
    pub fn ready(&mut self) -> Option<Vec<Extent>> {
        let oldest = self.under_way.first().copied().unwrap_or(u64::MAX);
        let (_, extents) = self.pinned.pop_front_if(|(until, _)| *until <= oldest)?;
        self.blocks -= extents
            .iter()
            .map(|extent| u64::from(extent.blocks))
            .sum::<u64>();
        Some(extents)
    }

    /// Blocks that are on their way.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Block;

    fn extent(start: u64) -> Vec<Extent> {
        vec![Extent::new(Block(start), 1)]
    }

    #[test]
    fn freed_blocks_wait_for_their_commit_and_for_all_that_began_before_it_was_durable() {
        let mut reuse = Reuse::default();
        let early = reuse.begin();
        reuse.freed(1, extent(10));
        let beside = reuse.begin();
        reuse.freed(2, extent(20));
        assert_eq!((reuse.ready(), reuse.blocks()), (None, 2));
        reuse.durable(1);
        let late = reuse.begin();
        reuse.end(early);
        assert_eq!(reuse.ready(), None);
        reuse.end(beside);
        assert_eq!(reuse.ready(), Some(extent(10)));
        // The second commit is durable only now, while the late one is under way.
        reuse.durable(2);
        assert_eq!(reuse.ready(), None);
        reuse.end(late);
        assert_eq!(reuse.ready(), Some(extent(20)));
        assert_eq!((reuse.ready(), reuse.blocks()), (None, 0));
        let reading = reuse.begin();
        reuse.unnamed(extent(30));
        assert_eq!((reuse.ready(), reuse.blocks()), (None, 1));
        reuse.end(reading);
        assert_eq!(reuse.ready(), Some(extent(30)));
    }
}
