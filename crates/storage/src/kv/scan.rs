//! Merging what the overlay says with the engine's rows.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::batch::KeyRange;
use super::engine::Snapshot;
use super::overlay::View;
use crate::error::Result;

/// Items of the overlay copied for the first run of a scan, and for the largest.
pub(super) const FIRST_RUN: usize = 32;
pub(super) const LARGEST_RUN: usize = 4096;

/// Calls `visit` with the rows of `range` of the engine's table number `table`, as `view` changes
/// them, ascending.
pub(super) fn merge(
    snapshot: &Snapshot,
    table: usize,
    range: &KeyRange,
    view: View,
    visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let mut rows = snapshot.rows(table, range)?;
    let mut row = rows.next()?;
    for (key, change) in &view.points {
        while let Some((below, value)) = &row {
            let order = below.value().cmp(&**key);
            if order == Ordering::Greater {
                break;
            }
            let shown = order == Ordering::Less && !view.cleared.contains(below.value());
            if shown && visit(below.value(), value.value()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            row = rows.next()?;
        }
        if let Some(value) = change
            && visit(key, value).is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    while let Some((key, value)) = &row {
        if !view.cleared.contains(key.value()) && visit(key.value(), value.value()).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        row = rows.next()?;
    }
    Ok(ControlFlow::Continue(()))
}
