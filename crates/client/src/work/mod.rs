//! What goes on behind the calls: what policies want is asked for, and what was written is sent.

pub(crate) mod advice;
mod batch;
mod births;
pub(crate) mod close;
mod close_sets;
mod cut;
mod edits;
pub(crate) mod flush;
mod name_order;
pub(crate) mod pending_update;
pub(crate) mod reading;
pub(crate) mod reports;
pub(crate) mod resizes;
mod room;
mod sets;
mod sizing;
pub(crate) mod through;
pub(crate) mod walking;
pub(crate) mod write_errors;
