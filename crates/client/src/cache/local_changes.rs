//! Recent changes that this mount made to names. A long reply may be overtaken by the reply to a later
//! change, so these changes are applied to it before it is cached. Changes of other clients withdraw the
//! lease instead.

use std::collections::{BTreeMap, VecDeque};

use base::{Fid, Name};

use crate::cache::listed::Listed;

/// Changes remembered. A reply that misses more of them is used once and not cached.
const CHANGES_MAX: usize = 4096;

/// How a name changed.
#[derive(Debug, Clone)]
pub(crate) enum NameChange {
    /// It was made, or something was moved there.
    Made {
        /// Its place in the list.
        cookie: u64,
        /// What it leads to.
        entry: Listed,
    },
    /// It was removed, or moved away.
    Removed(Name),
}

impl NameChange {
    fn name(&self) -> &Name {
        match self {
            NameChange::Made { entry, .. } => &entry.name,
            NameChange::Removed(name) => name,
        }
    }
}

/// A change of a name in one directory, made by this mount.
#[derive(Debug, Clone)]
pub(crate) struct LocalChange {
    pub name_change: NameChange,
    /// A lease covered the name when the reply came.
    pub current: bool,
}

/// The latest local changes.
#[derive(Debug, Default)]
pub(crate) struct LocalChanges {
    /// By directory and number.
    recent: BTreeMap<(Fid, u64), LocalChange>,
    /// The directories of the latest, the oldest first.
    order: VecDeque<Fid>,
    /// All there ever were: the number of the next.
    count: u64,
}

impl LocalChanges {
    /// How many there were until now; to be kept with a question.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn push(&mut self, dir: Fid, change: LocalChange) {
        if self.order.len() == CHANGES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.recent
                .remove(&(oldest, self.count - CHANGES_MAX as u64));
        }
        self.recent.insert((dir, self.count), change);
        self.order.push_back(dir);
        self.count += 1;
    }

    /// Those in `dir` that came after the first `count` of all, in their order; `None`: there were
    /// more than is remembered.
    pub fn since(&self, dir: Fid, count: u64) -> Option<impl Iterator<Item = &LocalChange>> {
        let first = self.count - self.order.len() as u64;
        let newer = self.recent.range((dir, count)..=(dir, u64::MAX));
        (count >= first).then(|| newer.map(|(_, change)| change))
    }

    /// One of those is perhaps of `name`.
    pub fn may_name(&self, dir: Fid, count: u64, name: &Name) -> bool {
        let newer = self.since(dir, count);
        newer.is_none_or(|mut newer| newer.any(|change| change.name_change.name() == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.try_into().expect("valid")
    }

    fn removed(text: &str) -> LocalChange {
        LocalChange {
            name_change: NameChange::Removed(name(text)),
            current: true,
        }
    }

    fn names(changes: &LocalChanges, dir: u64, count: u64) -> Option<Vec<String>> {
        let newer = changes.since(Fid(dir), count)?;
        Some(
            newer
                .map(|change| change.name_change.name().to_string())
                .collect(),
        )
    }

    #[test]
    fn changes_of_one_directory_since_a_moment_are_found() {
        let mut changes = LocalChanges::default();
        for (dir, text) in [(1, "a"), (2, "b"), (1, "c"), (1, "a")] {
            changes.push(Fid(dir), removed(text));
        }
        assert_eq!(names(&changes, 1, 1).expect("known"), ["c", "a"]);
        assert_eq!(names(&changes, 2, 2).expect("known"), [""; 0]);
        assert!(changes.may_name(Fid(1), 3, &name("a")));
        assert!(!changes.may_name(Fid(1), 3, &name("c")));
    }

    #[test]
    fn what_is_too_long_ago_is_not_known() {
        let mut changes = LocalChanges::default();
        for number in 0..CHANGES_MAX as u64 + 2 {
            changes.push(Fid(number % 3), removed("a"));
        }
        assert_eq!(names(&changes, 7, 1), None);
        assert_eq!(names(&changes, 7, 2), Some(Vec::new()));
        assert!(changes.may_name(Fid(7), 1, &name("b")));
        let kept = (0..3).filter_map(|dir| names(&changes, dir, 2));
        assert_eq!(kept.map(|all| all.len()).sum::<usize>(), CHANGES_MAX);
    }
}
