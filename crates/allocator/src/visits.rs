//! How far apart lies what is read together: whether to move it to one place, and whether a place is better.

use crate::places::Extent;

/// So many blocks between two extents are passed by faster than a disk seeks.
const GAP_BLOCKS_MAX: u64 = 8;
/// Objects that are read together may lie in one run for each so many of their blocks.
const RUN_BLOCKS: u64 = 1024;

/// Places that a reader of all these extents visits: near ones are one.
pub fn visits(extents: &[Extent]) -> u64 {
    let mut sorted = extents.to_vec();
    sorted.sort();
    let (mut count, mut end) = (0, None);
    for extent in sorted {
        let is_near = end.is_some_and(|end| extent.start.0 <= end + GAP_BLOCKS_MAX);
        count += u64::from(!is_near);
        end = end.max(Some(extent.end().0));
    }
    count
}

/// They lie so far apart that moving them together is worth its work.
pub fn is_scattered(extents: &[Extent]) -> bool {
    let blocks: u64 = extents.iter().map(|extent| u64::from(extent.blocks)).sum();
    visits(extents) > 1 + blocks.div_ceil(RUN_BLOCKS)
}

/// `new` is so much better a place than `old` that they should be there.
pub fn is_better(new: &[Extent], old: &[Extent]) -> bool {
    visits(new) * 4 <= visits(old) * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Block;

    fn extents(starts: impl Iterator<Item = u64>) -> Vec<Extent> {
        starts.map(|start| Extent::new(Block(start), 4)).collect()
    }

    #[test]
    fn what_lies_near_is_one_visit_and_what_lies_apart_is_scattered() {
        let dense = extents((0..100).map(|n| n * 10));
        let sparse = extents((0..100).map(|n| 99_000 - n * 100));
        assert_eq!((visits(&[]), visits(&dense), visits(&sparse)), (0, 1, 100));
        assert!(is_scattered(&sparse) && !is_scattered(&dense) && !is_scattered(&sparse[..2]));
        assert!(is_better(&dense, &sparse) && !is_better(&sparse, &sparse));
    }
}
