//! Changes whose caller was told that it is interrupted before they were made. The kernel moves names and
//! sizes by itself where a call succeeds, and knows nothing of these. SEMANTICS: wait.interrupt

use base::{ByteRange, Fid, Name};

use super::links::Moved;
use crate::coherence::invalidation::{Invalidation, KernelName, Leads};
use crate::executor::spawn;
use crate::session::client::Client;
use crate::session::kernel::Forget;

/// What such a call has changed.
#[derive(Debug, Default)]
pub struct Unheard {
    /// Names, and the files that the kernel may believe them to lead to.
    names: Vec<(Fid, Name, Option<Fid>)>,
    files: Vec<Fid>,
}

impl Unheard {
    /// The file.
    pub fn file(fid: Fid) -> Unheard {
        Unheard {
            files: vec![fid],
            ..Unheard::default()
        }
    }

    /// The name in `dir` was made, and leads to the file.
    pub fn made(dir: Fid, name: Name, fid: Fid) -> Unheard {
        Unheard {
            names: vec![(dir, name, None)],
            files: vec![fid],
        }
    }

    /// The name in `dir` led to the file, and is gone.
    pub fn removed(dir: Fid, name: Name, fid: Fid) -> Unheard {
        Unheard {
            names: vec![(dir, name, Some(fid))],
            files: vec![fid],
        }
    }

    /// The first name, in its directory, was moved to the second.
    pub fn renamed(dirs: [Fid; 2], [from, to]: [Name; 2], moved: Moved) -> Unheard {
        let replaced = moved.back.or(moved.over);
        let mut files = vec![moved.there];
        files.extend(replaced);
        Unheard {
            names: vec![(dirs[0], from, Some(moved.there)), (dirs[1], to, replaced)],
            files,
        }
    }
}

impl Client {
    /// The kernel forgets what is not so any more, as after a change by another mount.
    pub fn unheard(&self, changed: Unheard) {
        let mut invalidation = Invalidation::default();
        {
            let mut state = self.lock();
            for (dir, name, fid) in changed.names {
                state.cache.withdraw_from(dir).in_kernel.spoil();
                let range = ByteRange::ALL;
                invalidation.forget(Forget::Pages { fid: dir, range });
                if let Some(fid) = fid {
                    let name = KernelName { dir, name, fid };
                    self.forget_name(&mut state, name, Leads::Elsewhere, &mut invalidation);
                }
            }
            for fid in &changed.files {
                state.cache.withdraw();
                let dir = state
                    .cache
                    .known(*fid)
                    .map_or(Fid::NONE, |inode| inode.dir());
                invalidation.forget(Forget::Attributes { fid: *fid, dir });
            }
        }
        let client = self.clone();
        spawn(async move {
            invalidation.done(&client).await;
            for fid in changed.files {
                client.raise_known(fid).await;
            }
        });
    }
}
