//! What is on of prefetch.

use std::fmt;

use crate::workload::system::Setting;

/// As the talk writes it: `FLAT(i, j)` prefetches directories one by one with `statahead_max` i and
/// `batch_max` j, `SAS(i, j)` goes ahead over subdirectories too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is fetched ahead, each stat is a request; the talk's baseline, FLAT(1, 1).
    Off,
    /// One directory at a time; with these two set, or as they are by default.
    Flat(Option<Window>),
    /// Whole trees; the same.
    Sas(Option<Window>),
}

/// How much is fetched ahead, and in what pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Entries.
    pub statahead_max: u64,
    /// Requests in one message; what comes in pages or stretches is no batch.
    pub batch_max: u64,
}

impl Window {
    /// With these two.
    pub const fn new(statahead_max: u64, batch_max: u64) -> Window {
        Window {
            statahead_max,
            batch_max,
        }
    }

    fn settings(self) -> [Setting; 2] {
        [
            ("statahead_max", self.statahead_max),
            ("batch_max", self.batch_max),
        ]
    }
}

impl Mode {
    /// The talk's table of FLAT and DFS, with both ends: nothing, and everything as it comes.
    pub const OF_TREES: [Mode; 6] = [
        Mode::Off,
        Mode::Flat(Some(Window::new(1024, 1))),
        Mode::Flat(Some(Window::new(1024, 256))),
        Mode::Sas(Some(Window::new(1024, 1))),
        Mode::Sas(Some(Window::new(1024, 256))),
        Mode::Sas(None),
    ];

    /// What a mount is told.
    pub fn settings(self) -> Vec<Setting> {
        let (own, window): (&[Setting], _) = match self {
            Mode::Off => (&[("statahead_max", 0)], None),
            Mode::Flat(window) => (&[("statahead_tree_max", 0)], window),
            Mode::Sas(window) => (&[], window),
        };
        let window = window.map(Window::settings).into_iter().flatten();
        own.iter().copied().chain(window).collect()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, window) = match self {
            Mode::Off => return f.write_str("off"),
            Mode::Flat(window) => ("FLAT", window),
            Mode::Sas(window) => ("SAS", window),
        };
        f.write_str(name)?;
        match window {
            Some(window) => write!(f, "({}, {})", window.statahead_max, window.batch_max),
            None => Ok(()),
        }
    }
}
