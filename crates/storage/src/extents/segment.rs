//! A segment of an object, 4 MiB of it: which of its blocks lie where, and the sum of each. Pure.

use std::ops::Range;

use allocator::{Block, Extent};

use super::commit::Taken;

/// Blocks of a segment.
pub const SEGMENT_BLOCKS: u32 = 1024;

/// What blocks hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Zeros, whatever lies there.
    Unwritten,
    /// Bytes with these sums, one for each block.
    Written(Vec<u32>),
}

/// What the commits so far say of a piece's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// Nothing: they are free for all that a crash leaves.
    Not,
    /// That they are unwritten: bytes in them harm nobody.
    Unwritten,
    /// That they hold bytes. These stay until another commit is durable.
    Written,
}

/// Blocks of a segment that lie in a row on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The first of them, in the segment.
    pub first: u32,
    /// Where.
    pub place: Extent,
    /// What they hold.
    pub content: Content,
    /// What the commits so far say.
    pub named: Named,
}

impl Piece {
    /// The block of the segment behind the last one.
    pub fn end(&self) -> u32 {
        self.first + self.place.blocks
    }

    /// Where block `block` of the segment is, which the piece has.
    pub fn place_of(&self, block: u32) -> Block {
        self.place.start.after(block - self.first)
    }

    /// The sum of that block; `None`: it is unwritten.
    pub fn sum_of(&self, block: u32) -> Option<u32> {
        match &self.content {
            Content::Unwritten => None,
            Content::Written(sums) => sums.get((block - self.first) as usize).copied(),
        }
    }

    /// Bytes may be written in place: no commit says what they are.
    pub fn is_writable(&self) -> bool {
        self.named != Named::Written
    }

    /// The part of it in `range`, which shares a block with it.
    pub fn part(&self, range: &Range<u32>) -> Piece {
        let (first, end) = (self.first.max(range.start), self.end().min(range.end));
        let skipped = first - self.first;
        let content = match &self.content {
            Content::Unwritten => Content::Unwritten,
            Content::Written(sums) => {
                Content::Written(sums[skipped as usize..(end - self.first) as usize].to_vec())
            }
        };
        Piece {
            first,
            place: Extent::new(self.place.start.after(skipped), end - first),
            content,
            named: self.named,
        }
    }

    fn goes_on_as(&self, next: &Piece) -> bool {
        let same = matches!(
            (&self.content, &next.content),
            (Content::Unwritten, Content::Unwritten) | (Content::Written(_), Content::Written(_))
        );
        same && self.named == next.named
            && self.end() == next.first
            && self.place.end() == next.place.start
    }
}

/// The blocks of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Segment {
    /// Ascending, and no block twice.
    pieces: Vec<Piece>,
}

impl Segment {
    /// That of these pieces; `None` where a block is there twice, or outside.
    pub fn of(pieces: Vec<Piece>) -> Option<Segment> {
        let mut end = 0;
        for piece in &pieces {
            let sums = match &piece.content {
                Content::Unwritten => piece.place.blocks as usize,
                Content::Written(sums) => sums.len(),
            };
            let blocks = piece.place.blocks;
            let last = piece.first.checked_add(blocks)?;
            if blocks == 0 || piece.first < end || last > SEGMENT_BLOCKS || sums != blocks as usize
            {
                return None;
            }
            end = last;
        }
        Some(Segment { pieces })
    }

    /// All of it.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Blocks that it has.
    pub fn blocks(&self) -> u32 {
        self.pieces.iter().map(|piece| piece.place.blocks).sum()
    }

    /// The piece with block `block`.
    pub fn at(&self, block: u32) -> Option<&Piece> {
        let after = self.pieces.partition_point(|piece| piece.end() <= block);
        self.pieces.get(after).filter(|piece| piece.first <= block)
    }

    /// The parts of its pieces that are in `range`.
    pub fn parts(&self, range: &Range<u32>) -> Vec<Piece> {
        let first = self
            .pieces
            .partition_point(|piece| piece.end() <= range.start);
        let inside = self.pieces[first..].iter();
        let inside = inside.take_while(|piece| !range.is_empty() && piece.first < range.end);
        inside.map(|piece| piece.part(range)).collect()
    }

    /// The blocks of `range` that it does not have.
    pub fn holes(&self, range: &Range<u32>) -> Vec<Range<u32>> {
        let (mut holes, mut at) = (Vec::new(), range.start);
        for piece in self.parts(range) {
            if piece.first > at {
                holes.push(at..piece.first);
            }
            at = piece.end();
        }
        if at < range.end {
            holes.push(at..range.end);
        }
        holes
    }

    /// Takes the blocks of `range` out of it.
    pub fn take(&mut self, range: &Range<u32>) -> Vec<Piece> {
        let taken = self.parts(range);
        if taken.is_empty() {
            return taken;
        }
        let mut kept = Vec::with_capacity(self.pieces.len() + 1);
        for piece in self.pieces.drain(..) {
            let overlaps = piece.first < range.end && range.start < piece.end();
            if !overlaps {
                kept.push(piece);
                continue;
            }
            if piece.first < range.start {
                kept.push(piece.part(&(piece.first..range.start)));
            }
            if range.end < piece.end() {
                kept.push(piece.part(&(range.end..piece.end())));
            }
        }
        self.pieces = kept;
        taken
    }

    /// Puts a piece where nothing is.
    pub fn put(&mut self, piece: Piece) {
        let at = self
            .pieces
            .partition_point(|other| other.first < piece.first);
        self.pieces.insert(at, piece);
        self.join(at);
        if at > 0 {
            self.join(at - 1);
        }
    }

    /// Makes one of piece `at` and the next, where they are.
    fn join(&mut self, at: usize) {
        let [piece, next] = match self.pieces.get(at..at + 2) {
            Some([piece, next]) => [piece, next],
            _ => return,
        };
        if !piece.goes_on_as(next) {
            return;
        }
        let next = self.pieces.remove(at + 1);
        let piece = &mut self.pieces[at];
        piece.place.blocks += next.place.blocks;
        if let (Content::Written(sums), Content::Written(more)) = (&mut piece.content, next.content)
        {
            sums.extend(more);
        }
    }

    /// A commit names all of it: the blocks that it takes, and those that it calls written from now on.
    pub fn name(&mut self) -> (Vec<Taken>, Vec<Taken>) {
        let (mut taken, mut written) = (Vec::new(), Vec::new());
        for piece in &mut self.pieces {
            let (sums, now) = match &piece.content {
                Content::Unwritten => (None, Named::Unwritten),
                Content::Written(sums) => (Some(sums.clone()), Named::Written),
            };
            let place = piece.place;
            match (piece.named, sums) {
                (Named::Not, sums) => taken.push(Taken { place, sums }),
                (Named::Unwritten, Some(sums)) => written.push(Taken {
                    place,
                    sums: Some(sums),
                }),
                _ => {}
            }
            piece.named = now;
        }
        for at in (0..self.pieces.len()).rev() {
            self.join(at);
        }
        (taken, written)
    }
}

#[cfg(test)]
mod tests {
    use base::{Rng, SeededRng};

    use super::*;

    /// A block as a plain list has it.
    type Plain = Option<(u64, Option<u32>)>;

    fn listed(segment: &Segment) -> Vec<Plain> {
        let block = |block| {
            let piece = segment.at(block)?;
            Some((piece.place_of(block).0, piece.sum_of(block)))
        };
        (0..64).map(block).collect()
    }

    #[test]
    fn a_segment_is_like_a_list_of_blocks() {
        let (mut segment, mut rng) = (Segment::default(), SeededRng::new(3));
        let mut plain: Vec<Plain> = vec![None; 64];
        for step in 0..2_000_u64 {
            let first = rng.below(60) as u32;
            let range = first..first + rng.below(5) as u32;
            let indexes = range.start as usize..range.end as usize;
            let holes = segment.holes(&range);
            let missing: u32 = holes.iter().map(|hole| hole.end - hole.start).sum();
            let absent = plain[indexes.clone()]
                .iter()
                .filter(|block| block.is_none());
            assert_eq!(missing as usize, absent.count());
            let taken = segment.take(&range);
            let taken: u32 = taken.iter().map(|piece| piece.place.blocks).sum();
            assert_eq!(taken + missing, range.end - range.start);
            plain[indexes.clone()].fill(None);
            let place = Extent::new(Block(1000 + 10 * (step % 50)), range.end - range.start);
            if rng.below(3) > 0 && !range.is_empty() {
                let is_written = rng.below(2) == 0;
                let sums: Vec<u32> = range.clone().map(|block| block + step as u32).collect();
                for (at, block) in (0..).zip(range.clone()) {
                    let sum = is_written.then(|| sums[at as usize]);
                    plain[block as usize] = Some((place.start.0 + at, sum));
                }
                let content = match is_written {
                    true => Content::Written(sums),
                    false => Content::Unwritten,
                };
                segment.put(Piece {
                    first,
                    place,
                    content,
                    named: Named::Not,
                });
            }
            assert_eq!(listed(&segment), plain);
            let blocks = plain.iter().flatten().count();
            assert_eq!(segment.blocks() as usize, blocks);
            assert!(Segment::of(segment.pieces().to_vec()).is_some());
            if rng.below(10) == 0 {
                segment.name();
                assert_eq!(listed(&segment), plain);
            }
        }
    }

    #[test]
    fn a_commit_names_new_blocks_and_unwritten_ones_with_bytes_once() {
        let mut segment = Segment::default();
        let piece = |first, start, content| Piece {
            first,
            place: Extent::new(Block(start), 2),
            content,
            named: Named::Not,
        };
        segment.put(piece(0, 10, Content::Unwritten));
        segment.put(piece(2, 12, Content::Written(vec![1, 2])));
        let (taken, written) = segment.name();
        assert_eq!((taken.len(), written.len()), (2, 0));
        assert!(segment.at(0).unwrap().is_writable() && !segment.at(2).unwrap().is_writable());
        let mut half = segment.take(&(1..2)).remove(0);
        half.content = Content::Written(vec![3]);
        segment.put(half);
        let (taken, written) = segment.name();
        assert_eq!(taken, []);
        let place = Extent::new(Block(11), 1);
        assert_eq!(
            written,
            [Taken {
                place,
                sums: Some(vec![3])
            }]
        );
        assert_eq!(segment.pieces().len(), 2, "bytes in a row are one piece");
        assert_eq!(segment.name(), (vec![], vec![]));
    }
}
