//! Compares the committed maps with the extents that records name: the check of a store of extents.

use allocator::Extent;

use super::maps::Maps;

/// What is wrong with the use of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// Two records name these blocks.
    Twice(Extent),
    /// A record names these blocks, and the map calls one of them free.
    Free(Extent),
    /// The map calls these blocks used, and no record names them.
    Leaked(Extent),
}

/// Compares `maps` with the extents that records `named`.
pub fn audit(maps: &Maps, named: &[Extent]) -> Vec<Finding> {
    let mut named = named.to_vec();
    named.sort();
    let mut findings = Vec::new();
    let mut end = 0;
    for extent in &named {
        let (start, next) = (extent.start.0, extent.end().0);
        if start < end {
            let blocks = (end.min(next) - start) as u32;
            findings.push(Finding::Twice(Extent::new(extent.start, blocks)));
        }
        end = end.max(next);
        let mut blocks = start..next;
        if !blocks.all(|block| maps.is_used(allocator::Block(block))) {
            findings.push(Finding::Free(*extent));
        }
    }
    findings.extend(maps.runs().into_iter().flat_map(|run| leaks(run, &named)));
    findings
}

/// The parts of a used run that no extent names.
fn leaks(run: Extent, named: &[Extent]) -> Vec<Finding> {
    let (mut at, end) = (run.start, run.end());
    let mut found = Vec::new();
    let first = named.partition_point(|extent| extent.end() <= run.start);
    for extent in &named[first..] {
        if extent.start >= end {
            break;
        }
        if extent.start > at {
            found.push(Finding::Leaked(Extent::new(
                at,
                (extent.start.0 - at.0) as u32,
            )));
        }
        at = at.max(extent.end());
    }
    if at < end {
        found.push(Finding::Leaked(Extent::new(at, (end.0 - at.0) as u32)));
    }
    found
}
