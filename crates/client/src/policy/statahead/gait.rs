//! Whether a walker goes depth first or breadth first, as its steps from directory to directory tell.
//!
//! To a directory below the last one: depth first. Elsewhere, when there were some below the last
//! one: breadth first. Any other step is one that both would take.

use base::Fid;

/// A walker that nothing is known of goes depth first.
#[derive(Debug, Default)]
pub(super) struct Gait {
    last: Option<Last>,
    is_breadth: bool,
}

/// Where the walker was last.
#[derive(Debug, Clone, Copy)]
struct Last {
    dir: Fid,
    has_subdirectories: bool,
}

impl Gait {
    /// The walker is at `dir`, which is in `parent`. May be told twice.
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

    /// The walker is where there are directories below.
    pub fn finds_subdirectories(&mut self) {
        if let Some(last) = &mut self.last {
            last.has_subdirectories = true;
        }
    }

    pub fn is_breadth(&self) -> bool {
        self.is_breadth
    }
}
