//! Statahead: fetching ahead of a reader. [`flat`]: attributes of one directory. [`tree`]: trees. [`files`]:
//! bytes of small files. [`sizes`]: sizes that only OSTs know. [`sequences`], [`name_order`]: names without a
//! listing.

mod access_pattern;
pub(crate) mod files;
pub(crate) mod flat;
pub(crate) mod name_order;
pub(crate) mod names;
pub(crate) mod order;
pub(crate) mod report;
pub(crate) mod sequences;
pub(crate) mod sizes;
pub(crate) mod tree;
