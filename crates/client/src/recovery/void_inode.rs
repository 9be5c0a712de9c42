//! What is known of one file, and is void.

use base::{ByteRange, Fid};

use crate::coherence::invalidation::{Invalidation, KernelName};
use crate::session::kernel::Forget;
use crate::session::state::State;

/// Attributes and names of the old boot; what the kernel has of them.
pub(crate) fn void_inode(
    state: &mut State,
    fid: Fid,
    forget: &mut Invalidation,
) -> Vec<KernelName> {
    let inode = state.cache.inode(fid);
    inode.void();
    if inode.is_in_kernel() {
        forget.forget(Forget::Attributes {
            fid,
            dir: inode.dir(),
        });
    }
    if inode.as_directory().is_none() {
        return Vec::new();
    }
    let directory = state.cache.withdraw_from(fid);
    let names = directory
        .names()
        .map(|(name, named)| KernelName {
            dir: fid,
            name: name.clone(),
            fid: named.fid,
        })
        .collect();
    directory.forget_all();
    forget.forget(Forget::Pages {
        fid,
        range: ByteRange::ALL,
    });
    names
}
