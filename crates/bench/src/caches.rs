//! The machine's own caches.

use crate::error::{During, Result};

/// Writing 3 drops clean pages, dentries and inodes of all file systems (proc_sys_vm(5)).
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Empties them, once everything is written. Root only.
pub fn drop_caches() -> Result<()> {
    nix::unistd::sync();
    std::fs::write(DROP_CACHES, "3")
        .during(|| format!("writing {DROP_CACHES} (run as root, or leave the caches alone)"))
}
