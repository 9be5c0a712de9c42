//! What was measured, as one table: aligned text, Markdown, or JSON. Several experiments make a
//! [`Document`] of tables and figures.

mod bitmap;
mod column;
mod comparison;
mod document;
mod dots;
mod figure;
mod grid;
mod machine;
mod plot;
mod spread;
mod statahead;
mod table;
mod verdict;

pub use bitmap::Bitmap;
pub use column::{Column, Sample, StepRuns};
pub use comparison::Report;
pub use document::{Document, Figures, Section};
pub use figure::{Axis, Figure, Point, Scale, Series};
pub use statahead::Statahead;
pub use table::{Cell, Table};
pub use verdict::{Bound, Line, Verdict};

#[cfg(test)]
mod tests;
