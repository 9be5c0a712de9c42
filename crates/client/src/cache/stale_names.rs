//! Names of one file that the kernel may still hold and believe, and that lead there no more, or that nothing
//! covers. Questions by path wait until the names are gone and are then answered `Stale`, so that the kernel
//! looks the name up again.

use crate::executor::{Oneshot, WaitList};

/// How a question came to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// By an open file, or by a name just looked up.
    Rightly,
    /// By its path, or for a directory something that can be asked again.
    ByPath,
    /// By a path or an open file: the kernel does not tell.
    Perhaps,
    /// The same of a question for attributes, which must not be answered with those of a file that
    /// its path has ceased to lead to.
    Stat,
    /// By its path, with a lock held in the kernel that forgetting a name may need.
    Held,
    /// By its path in a call's first attempt, with a lock held in the kernel. It may have waited for that
    /// since it looked the path up, so names that the kernel has forgotten count as well.
    HeldFirst,
}

/// By what a process may have come to a file, beside its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// By standing in the directory.
    Directory,
    /// By an open file.
    Open,
    /// By nothing else.
    NamesOnly,
}

/// The stale names of one file.
#[derive(Default)]
pub(crate) struct StaleNames {
    count: u32,
    /// The kernel cannot forget them at once.
    is_late: bool,
    /// One of them leads elsewhere for certain.
    is_misleading: bool,
    /// Calls that wait for the last of them to be gone.
    waiting: WaitList,
}

impl StaleNames {
    /// The kernel is about to forget one more.
    pub fn add(&mut self) {
        self.count += 1;
    }

    /// One of them, perhaps yet to be added, leads elsewhere for certain.
    pub fn mislead(&mut self) {
        self.is_misleading = true;
    }

    /// The kernel has forgotten one. Returns whether that was the last.
    pub fn forget(&mut self) -> bool {
        self.count -= 1;
        if self.count == 0 {
            self.waiting.wake_all();
        }
        self.count == 0
    }

    /// Forgetting one takes long: no call waits for that any more.
    pub fn is_forgotten_late(&mut self) {
        self.is_late = true;
        self.waiting.wake_all();
    }

    /// Resolves when all are gone, or are late. `None`: they are late.
    pub fn wait(&mut self) -> Option<Oneshot<()>> {
        (!self.is_late).then(|| self.waiting.wait())
    }

    /// The kernel must look the name up again, by which it may have come. A process that has the file open
    /// may have come by that, and one that stands in a directory without any name: those get their answer.
    pub fn lead_astray(&self, entrance: Entrance, reached: Reached) -> bool {
        match (entrance, reached) {
            (_, Reached::Rightly) | (Entrance::Directory, Reached::Perhaps) => false,
            // A client that changes the name waits until it is forgotten, so the question came
            // before.
            (
                Entrance::Directory,
                Reached::ByPath | Reached::Held | Reached::HeldFirst | Reached::Stat,
            ) => self.is_misleading && self.is_late,
            (_, Reached::ByPath | Reached::Held | Reached::HeldFirst) => true,
            (_, Reached::Perhaps) => entrance != Entrance::Open,
            // The same.
            (Entrance::Open, Reached::Stat) => !self.is_misleading || self.is_late,
            (Entrance::NamesOnly, Reached::Stat) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_answers_for_itself_while_a_name_of_it_goes() {
        let mut names = StaleNames::default();
        names.add();
        let is_answered = |names: &StaleNames| !names.lead_astray(Entrance::Open, Reached::Stat);
        assert!(
            !is_answered(&names),
            "the client that gives the name away does not wait"
        );
        names.mislead();
        assert!(is_answered(&names) && names.lead_astray(Entrance::Open, Reached::ByPath));
        names.is_forgotten_late();
        assert!(!is_answered(&names), "nor any longer");
        assert!(names.wait().is_none() && names.forget());
    }

    #[test]
    fn a_process_in_a_directory_is_answered_while_its_name_goes() {
        let mut names = StaleNames::default();
        let is_answered =
            |names: &StaleNames| !names.lead_astray(Entrance::Directory, Reached::Stat);
        names.add();
        assert!(is_answered(&names), "it may lead there still");
        names.mislead();
        assert!(
            is_answered(&names),
            "the client that takes the name away waits"
        );
        names.is_forgotten_late();
        assert!(!is_answered(&names), "nor any longer");
    }

    #[test]
    fn a_file_that_is_reached_by_names_only_is_looked_up_again_until_the_last_is_gone() {
        let mut names = StaleNames::default();
        names.add();
        names.add();
        let is_astray = |names: &StaleNames, how| names.lead_astray(Entrance::NamesOnly, how);
        assert!(!is_astray(&names, Reached::Rightly));
        for how in [
            Reached::ByPath,
            Reached::Perhaps,
            Reached::Stat,
            Reached::Held,
            Reached::HeldFirst,
        ] {
            assert!(is_astray(&names, how), "{how:?}");
        }
        assert!(names.wait().is_some() && !names.forget() && names.forget());
    }
}
