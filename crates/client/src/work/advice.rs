//! What programs say they will need (ADVISE). A range of numbered names, a list of names, or a
//! whole tree, on a directory that they have open. A hint: nothing waits for it, and nothing fails
//! by it.

use base::limits::{ADVISED_LIST_BYTES_MAX, ADVISED_RANGE_MAX, ADVISED_TREES_MAX};
use base::{Fid, FsError, Name};
use serde::{Deserialize, Serialize};
use wire::mdt::WalkLevel;

use crate::cache::handle::HandleId;
use crate::calls::lookup::{Cached, cached};
use crate::policy::statahead::names::{DIGITS_MAX, NameList, Numbering};
use crate::policy::statahead::sequences::{Advised, Refusal};
use crate::session::client::Client;
use crate::session::stats::bump;

/// Names that one call of [`Client::prefetch_range`] fetches at most.
pub const RANGE_PART_MAX: u64 = 4096;

/// What will be needed, of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// These names, in this order.
    Range(NameRange),
    /// These names, in this order.
    List {
        /// At least one.
        names: Vec<Name>,
        /// They go on where the list ends that was advised before.
        more: bool,
    },
    /// All names and attributes below it.
    Tree,
}

/// Numbered names: `prefix`, the number, `suffix`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRange {
    /// Before the number.
    pub prefix: Vec<u8>,
    /// After it.
    pub suffix: Vec<u8>,
    /// Digits of a number at least: shorter ones begin with zeros.
    pub width: usize,
    /// The first number.
    pub first: u64,
    /// No number is greater.
    pub last: u64,
    /// From one number to the next.
    pub step: u64,
}

/// What became of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It is followed, or fetching ahead is off.
    Taken,
    /// Another one of the same open directory is under way.
    UnderWay,
}

impl NameRange {
    /// How many names there are.
    ///
    /// # Errors
    /// `Invalid`: none or too many, or they are no names.
    pub fn check(&self) -> Result<u64, FsError> {
        let in_order = self.step > 0 && self.first <= self.last;
        if !in_order || self.width > DIGITS_MAX || self.step > self.last.max(1) {
            return Err(FsError::Invalid);
        }
        // The name of the last number is the longest.
        self.numbering().name(self.last).ok_or(FsError::Invalid)?;
        match (self.last - self.first) / self.step + 1 {
            count if count <= ADVISED_RANGE_MAX => Ok(count),
            _ => Err(FsError::Invalid),
        }
    }

    fn numbering(&self) -> Numbering {
        Numbering::new(&self.prefix, &self.suffix, self.width)
    }

    fn names(&self) -> Vec<Name> {
        let numbering = self.numbering();
        let numbers = (self.first..=self.last).step_by(self.step as usize);
        numbers
            .filter_map(|number| numbering.name(number))
            .collect()
    }
}

impl Client {
    /// A program that has a directory open says what it will need. Fetching goes on after this has
    /// returned: of names never more ahead than `statahead_fname_max`, as they are asked for, and
    /// until the directory is closed.
    ///
    /// # Errors
    /// `Invalid`: what it says makes no sense. `TryAgain`: it has said enough already. `BadHandle`.
    pub fn advise(&self, handle: HandleId, advice: Advice) -> Result<Heard, FsError> {
        let what = match advice {
            Advice::Range(range) => {
                range.check()?;
                Advised::Range(range.numbering(), [range.first, range.last], range.step)
            }
            Advice::List { names, more } => {
                let bytes = NameList::bytes_of(&names);
                if names.is_empty() || bytes > ADVISED_LIST_BYTES_MAX {
                    return Err(FsError::Invalid);
                }
                Advised::List { names, more }
            }
            Advice::Tree => return self.advise_tree(handle),
        };
        self.advise_names(handle, what)
    }

    fn advise_names(&self, handle: HandleId, what: Advised) -> Result<Heard, FsError> {
        let (_, window) = self.sequence_window();
        let mut state = self.lock();
        let open = state.handles.dir(handle).ok_or(FsError::BadHandle)?;
        let (dir, now) = (open.fid(), state.locks.now());
        if state.handles.fetches_tree(handle) {
            return Ok(Heard::UnderWay);
        }
        if window == 0 {
            return Ok(Heard::Taken);
        }
        match state
            .policies
            .sequences
            .advise(handle, dir, what, window, now)
        {
            Ok(guess) => {
                bump(&self.0.stats.statahead_advise_total);
                self.start_guess(&mut state, dir, guess);
                Ok(Heard::Taken)
            }
            Err(Refusal::UnderWay) => Ok(Heard::UnderWay),
            Err(Refusal::Full) => Err(FsError::TryAgain),
        }
    }

    fn advise_tree(&self, handle: HandleId) -> Result<Heard, FsError> {
        let params = &self.0.params;
        let is_off = params.statahead_max() == 0 || params.statahead_tree_max() == 0;
        let mut state = self.lock();
        let dir = state.handles.dir(handle).ok_or(FsError::BadHandle)?.fid();
        let fetches = state.handles.fetches_tree(handle);
        if fetches || state.policies.sequences.is_under_way_for(handle) {
            return Ok(Heard::UnderWay);
        }
        if is_off {
            return Ok(Heard::Taken);
        }
        if !state.handles.begin_tree(handle, ADVISED_TREES_MAX) {
            return Err(FsError::TryAgain);
        }
        bump(&self.0.stats.statahead_advise_total);
        let client = self.clone();
        crate::executor::spawn(async move { client.fetch_tree(handle, dir).await });
        Ok(Heard::Taken)
    }

    /// Fetches a tree while the directory stays open, and no more of it than the cache keeps.
    async fn fetch_tree(&self, handle: HandleId, dir: Fid) {
        let mut room = self.0.params.cache_entries_max();
        let mut levels = vec![WalkLevel {
            dir,
            cookie: 0,
            listed: false,
        }];
        while !levels.is_empty() && room > 0 && self.lock().handles.fetches_tree(handle) {
            // A call that needs what does not come asks for that.
            let Ok(part) = self.prefetch_tree(levels).await else {
                break;
            };
            room = room.saturating_sub(part.entries);
            levels = part.next;
        }
        self.lock().handles.end_tree(handle);
    }

    /// Fetches a range of names of `dir`, at most [`RANGE_PART_MAX`]. How many of them there are.
    ///
    /// # Errors
    /// `Invalid`: the range makes no sense, or is longer.
    pub async fn prefetch_range(&self, dir: Fid, range: &NameRange) -> Result<u64, FsError> {
        if range.check()? > RANGE_PART_MAX {
            return Err(FsError::Invalid);
        }
        let batch_max = self.0.params.batch_max() as usize;
        let names = range.names();
        let mut absent = 0;
        for names in names.chunks(batch_max) {
            let mark = self.lock().cache.mark(dir);
            absent += names
                .iter()
                .filter(|name| self.is_absent(dir, name))
                .count();
            let unknown = self.not_at_hand(dir, names, false);
            let asked = match unknown.is_empty() {
                true => Vec::new(),
                false => self.ask_names(mark, &unknown).await,
            };
            for found in asked {
                match found {
                    Ok(_) => {}
                    Err(FsError::NotFound) => absent += 1,
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok((names.len() - absent) as u64)
    }

    fn is_absent(&self, dir: Fid, name: &Name) -> bool {
        matches!(cached(&self.lock(), dir, name), Cached::Absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range() -> NameRange {
        NameRange {
            prefix: b"shot".to_vec(),
            suffix: b".mp4".to_vec(),
            width: 4,
            first: 8,
            last: 12,
            step: 2,
        }
    }

    #[test]
    fn a_range_is_its_names() {
        assert_eq!(range().check(), Ok(3));
        let names = range().names();
        let text: Vec<String> = names.iter().map(Name::to_string).collect();
        assert_eq!(text, ["shot0008.mp4", "shot0010.mp4", "shot0012.mp4"]);
        let one = NameRange {
            first: 0,
            last: 0,
            step: 1,
            ..range()
        };
        assert_eq!(one.check(), Ok(1));
    }

    #[test]
    fn what_is_no_range_of_names_is_refused() {
        let long = vec![b'x'; 250];
        let wrong: [fn(&mut NameRange); 8] = [
            |range| range.step = 0,
            |range| range.step = u64::MAX,
            |range| range.last = 7,
            |range| range.last = u64::MAX,
            |range| range.last = ADVISED_RANGE_MAX * 2 + 8,
            |range| range.width = 19,
            |range| range.prefix = b"a/b".to_vec(),
            |range| range.suffix = b"\0".to_vec(),
        ];
        for (number, change) in wrong.iter().enumerate() {
            let mut range = range();
            change(&mut range);
            assert_eq!(range.check(), Err(FsError::Invalid), "the {number}.");
        }
        let range = NameRange {
            prefix: long,
            ..range()
        };
        assert_eq!(range.check(), Err(FsError::Invalid));
    }
}
