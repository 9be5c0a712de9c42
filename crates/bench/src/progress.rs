//! Events of a long measurement, for a screen to show.

use crate::report::Column;

/// Something to show.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A line to keep.
    Line(String),
    /// A line that the next event replaces; for a terminal.
    Live(String),
    /// A new cell: one line about it, and its column so far.
    Measured {
        /// The system, the step and the result.
        line: String,
        /// Every cell of the system until now.
        column: Column,
    },
}

/// Takes events; called on the thread that measures, about twice a second for live ones.
pub type Progress<'a> = dyn FnMut(Event) + 'a;

/// Shows nothing.
pub fn silent(_event: Event) {}
