//! What all experiments have in common.

use std::path::Path;

use super::lab::{Lab, conduct};
use crate::error::Result;
use crate::link::LinkSettings;
use crate::progress::Progress;
use crate::report::{Column, Section};
use crate::workload::effort::Effort;
use crate::workload::system::System;

/// One experiment of the talk. It makes its files once through the file system, then measures cells: a
/// [`Mode`] of prefetch, and what the experiment varies.
///
/// A cell is measured several times with empty caches, by the program that the talk uses (`ls -l`,
/// `find -uid 0`), and the median counts. A run that reaches the time limit is stopped, shown as longer than
/// that, and not repeated.
///
/// | experiment | the talk's | varies |
/// |---|---|---|
/// | [`Listing`] | client-side caching, FLAT(1,1) | files in a directory; cold, warm; prefetch off, on |
/// | [`Writers`] | statahead with write conflicts | programs that write there through another mount |
/// | [`Grid`] | impact of statahead_max and batch_max | both |
/// | [`Trees`] | find using FLAT and DFS | modes, on several source trees |
/// | [`RoundTrips`] | FLAT and DFS at latencies | round trips, and modes |
/// | [`Harmless`] | | work that prefetch cannot help; pairs of runs with it off and on |
/// | [`Huge`] | | files in one very large directory |
///
/// [`Mode`]: super::Mode
/// [`Listing`]: super::Listing
/// [`Writers`]: super::Writers
/// [`Grid`]: super::Grid
/// [`Trees`]: super::Trees
/// [`RoundTrips`]: super::RoundTrips
/// [`Harmless`]: super::Harmless
/// [`Huge`]: super::Huge
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

    /// Fills a column with every cell. The system must be [`Tunable`](crate::workload::Tunable). What goes
    /// wrong is noted in the column; only an interrupt ends it without one.
    fn measure(&self, system: &mut dyn System, progress: &mut Progress) -> Result<Column> {
        conduct(system, self.effort(), progress, &|lab, directory| {
            self.run(lab, directory)
        })
    }

    /// Draws what was measured.
    fn section(&self, runs: Column) -> Section;
}
