//! The machine's own caches.

use std::fs::File;
use std::path::Path;

use crate::error::{During, Result};

/// Writing 3 drops clean pages, dentries and inodes of all file systems (proc_sys_vm(5)).
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Empties them, once everything on the file system of `path` is written. What other file systems
/// have not written stays, and nobody waits for one that hangs. Root only.
pub fn drop_caches(path: &Path) -> Result<()> {
    let doing = || format!("syncing {}", path.display());
    nix::unistd::syncfs(&File::open(path).during(doing)?).during(doing)?;
    std::fs::write(DROP_CACHES, "3")
        .during(|| format!("writing {DROP_CACHES} (run as root, or leave the caches alone)"))
}
