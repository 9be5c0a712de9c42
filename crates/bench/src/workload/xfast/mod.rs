//! The experiments of the talk on Xfast (Qian and Liu, Extreme File Attribute Stat Acceleration, 2023), with
//! Glint. Drawing a table or a figure is pure: it reads the measured `Column`s.

mod appender;
mod experiment;
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

pub use experiment::Experiment;
pub use grid::Grid;
pub use harmless::Harmless;
pub use huge::Huge;
pub use listing::Listing;
pub use mode::Mode;
pub use round_trips::RoundTrips;
pub use trees::Trees;
pub use writers::Writers;

pub use super::flat::FILES_MAX;

#[cfg(test)]
mod tests;
