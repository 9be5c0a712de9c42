//! The access pattern of a process that reads a directory tree: depth first or breadth first. A step to a
//! directory below the last one is depth first. A step elsewhere, past directories below the last one, is
//! breadth first. Any other step fits both.

use base::Fid;

/// An access pattern. Depth first, until a step shows otherwise.
#[derive(Debug, Default)]
pub(super) struct AccessPattern {
    last: Option<Last>,
    is_breadth: bool,
}

/// Where the reader was last.
#[derive(Debug, Clone, Copy)]
struct Last {
    dir: Fid,
    has_subdirectories: bool,
}

impl AccessPattern {
    /// The reader is at `dir`, which is in `parent`. May be called twice.
    pub fn step(&mut self, dir: Fid, parent: Fid) {
        match self.last {
            Some(last) if last.dir == dir => return,
            Some(last) if last.dir == parent => self.is_breadth = false,
            Some(last) if last.has_subdirectories => self.is_breadth = true,
            _ => {}
        }
        self.last = Some(Last {
            dir,
            has_subdirectories: false,
        });
    }

    /// The reader is where there are directories below.
    pub fn finds_subdirectories(&mut self) {
        if let Some(last) = &mut self.last {
            last.has_subdirectories = true;
        }
    }

    pub fn is_breadth(&self) -> bool {
        self.is_breadth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Fid = Fid(1);

    #[test]
    fn a_step_past_directories_below_is_breadth_first_until_one_goes_below() {
        let mut pattern = AccessPattern::default();
        pattern.step(Fid(2), ROOT);
        pattern.step(Fid(3), ROOT);
        assert!(!pattern.is_breadth(), "there was nothing below");
        pattern.finds_subdirectories();
        pattern.step(Fid(3), ROOT);
        assert!(!pattern.is_breadth(), "the same step twice");
        pattern.step(Fid(4), ROOT);
        assert!(pattern.is_breadth());
        pattern.step(Fid(5), Fid(4));
        assert!(!pattern.is_breadth());
    }
}
