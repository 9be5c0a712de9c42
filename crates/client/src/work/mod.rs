//! What goes on behind the calls: what policies want is asked for, and what was written is sent.

pub(crate) mod advice;
mod batch;
mod by_name;
pub(crate) mod close;
mod cut;
pub(crate) mod flush;
pub(crate) mod losses;
pub(crate) mod reading;
pub(crate) mod reports;
pub(crate) mod reshapes;
mod room;
mod sizing;
pub(crate) mod untold;
pub(crate) mod walking;
