//! Statahead: what is fetched ahead of who will ask for it, as it goes or as it said.
//!
//! Attributes of one directory are [`flat`]'s affair, trees of directories [`tree`]'s, the bytes of
//! small files that of [`files`], sizes that only OSTs know that of [`sizes`], names asked for
//! without a listing that of [`series`] and [`sorted`].

pub(crate) mod files;
pub(crate) mod flat;
mod gait;
pub(crate) mod names;
pub(crate) mod order;
pub(crate) mod report;
pub(crate) mod series;
pub(crate) mod sizes;
pub(crate) mod sorted;
pub(crate) mod tree;
