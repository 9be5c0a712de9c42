//! Statahead: fetching ahead of a reader. [`flat`]: attributes of one directory. [`tree`]: trees. [`files`]:
//! bytes of small files. [`sizes`]: sizes that only OSTs know. [`series`], [`sorted`]: names without a
//! listing.

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
