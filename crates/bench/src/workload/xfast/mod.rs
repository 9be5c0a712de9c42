//! The experiments of the talk on Xfast (Qian and Liu, Extreme File Attribute Stat Acceleration, 2023), with
//! Glint. Drawing a table or a figure is pure: it reads the measured [`Column`]s.

mod appender;
mod grid;
mod harmless;
mod huge;
mod lab;
mod listing;
mod mode;
mod pairs;
mod round_trips;
mod sizes;
mod trees;
mod writers;

use std::path::Path;
use std::time::Duration;

pub use grid::Grid;
pub use harmless::Harmless;
pub use huge::Huge;
pub use listing::Listing;
pub use mode::Mode;
pub use round_trips::RoundTrips;
pub use trees::Trees;
pub use writers::Writers;

use self::lab::{Lab, conduct};
use super::System;
pub use super::flat::FILES_MAX;
use crate::error::Result;
use crate::interrupt::StopFlag;
use crate::link::LinkSettings;
use crate::progress::Progress;
use crate::report::{Column, Section};

/// How much is done for each cell.
#[derive(Debug, Clone)]
pub struct Effort {
    /// How often it is measured.
    pub runs: u32,
    /// How long a run may take.
    pub cap: Duration,
    /// Set to end early.
    pub stop: StopFlag,
}

/// One experiment of the talk. It makes its files once through the file system, then measures cells: a
/// [`Mode`] of prefetch, and what the experiment varies.
///
/// A cell is measured several times with empty caches, by the program that the talk uses (`ls -l`,
/// `find -uid 0`), and the median counts. A run that reaches the time limit is stopped, shown as longer than
/// that, and not repeated.
///
/// | experiment | the talk's | varies |
/// |---|---|---|
/// | [`Listing`] | client-side caching, FLAT(1,1) | files in a directory; cold and warm; prefetch off and on |
/// | [`Writers`] | statahead with write conflicts | programs that write in the directory through another mount |
/// | [`Grid`] | impact of statahead_max and batch_max | both |
/// | [`Trees`] | find using FLAT and DFS | modes, on several source trees |
/// | [`RoundTrips`] | FLAT and DFS at latencies | round trips, and modes |
/// | [`Harmless`] | | work that prefetch cannot help; pairs of runs with it off and on |
/// | [`Huge`] | | files in one very large directory |
pub trait Experiment {
    /// In one word.
    fn name(&self) -> &'static str;

    /// Between the mount and its server.
    fn link(&self) -> LinkSettings {
        LinkSettings::default()
    }

    /// How often each cell is measured, and for how long.
    fn effort(&self) -> &Effort;

    /// Measures every cell, in a new directory.
    fn run(&self, lab: &mut Lab<'_, '_, '_>, directory: &Path) -> Result<()>;

    /// Fills a column with every cell. The system must be [`Tunable`](super::Tunable). What goes wrong
    /// is noted in the column; only an interrupt ends it without one.
    fn measure(&self, system: &mut dyn System, progress: &mut Progress) -> Result<Column> {
        conduct(system, self.effort(), progress, &|lab, directory| {
            self.run(lab, directory)
        })
    }

    /// Draws what was measured.
    fn section(&self, runs: Column) -> Section;
}

#[cfg(test)]
mod tests;
