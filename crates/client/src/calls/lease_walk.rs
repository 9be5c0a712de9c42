//! Write leases ahead of a process that changes one directory of a tree after the other, as `rm -r` and
//! `chmod -R` do (docs/locks.md, section 11).

use base::Fid;
use wire::FileKind;

use super::leases::Fetched;
use crate::cache::stamps::Mark;
use crate::session::client::Client;
use crate::session::lease_wishes::Wish;
use crate::session::state::State;

/// So many directories above one are looked at.
const ABOVE_MAX: usize = 8;
/// So many names are looked at for directories.
const NAMES_MAX: usize = 1 << 14;

impl Client {
    /// The directories whose leases are asked for with that of `dir`. For each [`LeaseWishes::end`] is to be
    /// called.
    ///
    /// [`LeaseWishes::end`]: crate::session::lease_wishes::LeaseWishes::end
    pub(super) fn leases_ahead(&self, state: &mut State, dir: Fid, fetched: Fetched) -> Vec<Mark> {
        let now = self.0.clock.tick();
        let above = above(state, dir);
        let Some((tops, count)) = state.lease_wishes.walks(above, now) else {
            return Vec::new();
        };
        let mut ahead = Vec::new();
        // Below the nearest ones most is asked for already.
        for top in tops {
            for near in directories_below(state, top) {
                if ahead.len() == count {
                    return ahead;
                }
                if near != dir
                    && is_ready(state, near, fetched)
                    && matches!(state.lease_wishes.begin(near, now), Wish::Ask)
                {
                    ahead.push(state.cache.mark(near));
                }
            }
        }
        ahead
    }
}

fn above(state: &State, dir: Fid) -> Vec<Fid> {
    let next = |fid: &Fid| {
        let parent = state.cache.known(*fid)?.dir();
        (parent != Fid::NONE && parent != *fid).then_some(parent)
    };
    let all = std::iter::successors(next(&dir), next);
    all.take(ABOVE_MAX).collect()
}

/// The known directories below one, in the order in which programs come to them.
fn directories_below(state: &State, top: Fid) -> Vec<Fid> {
    let (mut found, mut next, mut names) = (Vec::new(), vec![top], 0);
    while let Some(dir) = next.pop() {
        if dir != top {
            found.push(dir);
        }
        let Some(directory) = state.cache.directory_of(dir) else {
            continue;
        };
        let (listed, _) = directory.after(0);
        let directories = listed
            .inspect(|_| names += 1)
            .filter(|(_, entry)| entry.kind == FileKind::Directory);
        let directories: Vec<Fid> = directories.map(|(_, entry)| entry.fid).collect();
        next.extend(directories.into_iter().rev());
        if names > NAMES_MAX {
            break;
        }
    }
    found
}

/// The lease of the directory is all that lacks for changes in it.
fn is_ready(state: &State, dir: Fid, fetched: Fetched) -> bool {
    let is_listed = || {
        let directory = state.cache.directory_of(dir);
        directory.is_some_and(|directory| directory.is_complete()) && state.attr_valid(dir)
    };
    !state.births.concern(dir)
        && !state.locks.may_change_names(dir)
        && (fetched == Fetched::Nothing || is_listed())
}
