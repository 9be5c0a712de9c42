//! mds
