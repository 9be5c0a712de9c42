//! What a long measurement says while it runs.

/// Something to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A line to keep.
    Line(String),
    /// A line that the next event replaces; for a terminal.
    Live(String),
}

/// Takes events; called on the thread that measures, about twice a second for live ones.
pub type Progress<'a> = dyn FnMut(Event) + 'a;

/// Shows nothing.
pub fn silent(_event: Event) {}
