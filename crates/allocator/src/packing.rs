//! Small objects lie one behind the other: a region that they share, and where the next one goes.

use crate::places::{Block, Extent};

/// The rest of the region that small objects are packed into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    rest: Extent,
}

impl Packing {
    /// No region yet: the next one is looked for behind `next`.
    pub fn new(next: Block) -> Packing {
        Packing {
            rest: Extent::new(next, 0),
        }
    }

    /// Where the next small object goes, or the region that it needs is looked for.
    pub fn next(&self) -> Block {
        self.rest.start
    }

    /// What is left of the region.
    pub fn rest(&self) -> Extent {
        self.rest
    }

    /// Takes `blocks` in a row, if there are so many.
    pub fn take(&mut self, blocks: u32) -> Option<Extent> {
        if blocks > self.rest.blocks {
            return None;
        }
        let (taken, rest) = self.rest.split(blocks);
        self.rest = rest;
        Some(taken)
    }

    /// A new region in place of the old one, whose rest is given back.
    #[must_use]
    pub fn replace(&mut self, region: Extent) -> Extent {
        std::mem::replace(&mut self.rest, region)
    }

    /// Gives the rest back; the next region is looked for there.
    #[must_use]
    pub fn release(&mut self) -> Extent {
        self.replace(Extent::new(self.rest.start, 0))
    }
}
