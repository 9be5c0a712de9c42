//! The directories, processes and links of a cluster, for tests that need other ones than usual.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Of one directory that one process serves, beside the mounts, unless it says otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// Directories with targets: where, if not beside the mounts, and their roles. The first has the
    /// MGS.
    pub places: &'a [(Option<&'a Path>, &'a str)],
    /// What holds the bytes of objects, as `glint format --store` calls it, if not the usual.
    pub store: Option<&'a str>,
    /// Each directory is served by a process of its own.
    pub is_apart: bool,
    /// After this a mount that does not answer is evicted, if not after the usual time.
    pub timeout: Option<Duration>,
    /// Each mount has a link of its own to the servers, which can be cut. For networks that are the
    /// test's own.
    pub has_links: bool,
    /// All mounts are at the client's end of this one, which takes its time. The servers are at its
    /// other end, in the test's own network.
    pub far: Option<&'a Arc<bench::Link>>,
}

impl Default for Layout<'_> {
    fn default() -> Self {
        Layout {
            places: &[(None, "mgs,mdt,ost")],
            store: None,
            is_apart: false,
            timeout: None,
            has_links: false,
            far: None,
        }
    }
}
