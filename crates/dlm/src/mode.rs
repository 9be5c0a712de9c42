//! Lock modes and the matrix that says which may be held together.

use std::fmt;

/// What a holder may do, and what it lets others do meanwhile. The six modes of VMS and Lustre.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Null: conflicts with nothing.
    NL,
    /// Concurrent read: others may read and write.
    CR,
    /// Concurrent write: others may write beside us, nobody may rely on what they read.
    CW,
    /// Protected read: others may read, nobody writes.
    PR,
    /// Protected write: we alone write, only concurrent readers beside us.
    PW,
    /// Exclusive: nobody else at all.
    EX,
}

/// Number of modes; the length of arrays indexed by [`Mode::index`].
pub const MODES: usize = 6;

impl Mode {
    /// Every mode, weakest first.
    pub const ALL: [Mode; MODES] = [Mode::NL, Mode::CR, Mode::CW, Mode::PR, Mode::PW, Mode::EX];

    /// A dense number, `0..MODES`; also the mode's number on the wire.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The mode with that number, if there is one.
    pub fn from_index(index: u8) -> Option<Mode> {
        Mode::ALL.get(usize::from(index)).copied()
    }

    /// The modes that may not be held beside this one.
    pub fn conflicts(self) -> ModeSet {
        ModeSet(match self {
            Mode::NL => 0,
            Mode::CR => 0b10_0000,
            Mode::CW => 0b11_1000,
            Mode::PR => 0b11_0100,
            Mode::PW => 0b11_1100,
            Mode::EX => 0b11_1110,
        })
    }

    /// Two parties may hold `self` and `other` at once.
    pub fn compatible(self, other: Mode) -> bool {
        !self.conflicts().has(other)
    }

    /// Holding `self` allows everything that holding `asked` would.
    pub fn covers(self, asked: Mode) -> bool {
        asked.conflicts().0 & !self.conflicts().0 == 0
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A set of modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModeSet(u8);

impl ModeSet {
    /// Holds `mode`.
    pub fn has(self, mode: Mode) -> bool {
        self.0 & (1 << mode.index()) != 0
    }

    /// Adds `mode`.
    pub fn insert(&mut self, mode: Mode) {
        self.0 |= 1 << mode.index();
    }

    /// The members, weakest first.
    pub fn iter(self) -> impl Iterator<Item = Mode> {
        Mode::ALL.into_iter().filter(move |mode| self.has(*mode))
    }

    /// A lock that gives way to the members gives way to `mode` too.
    pub fn implies(self, mode: Mode) -> bool {
        self.iter().any(|member| member.covers(mode))
    }

    /// A holder in `mode` is in nobody's way.
    pub fn all_compatible_with(self, mode: Mode) -> bool {
        self.0 & mode.conflicts().0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows held, columns asked, weakest first; 1 where both may be held.
    const MATRIX: [&str; MODES] = ["111111", "111110", "111000", "110100", "110000", "100000"];

    #[test]
    fn the_matrix_is_the_standard_one() {
        for (held, row) in Mode::ALL.into_iter().zip(MATRIX) {
            for (asked, cell) in Mode::ALL.into_iter().zip(row.chars()) {
                assert_eq!(held.compatible(asked), cell == '1', "{held} {asked}");
                assert_eq!(held.compatible(asked), asked.compatible(held));
            }
        }
    }

    #[test]
    fn a_mode_covers_the_weaker_ones_only() {
        assert!(
            Mode::EX.covers(Mode::PW) && Mode::PW.covers(Mode::PR) && Mode::PW.covers(Mode::CW)
        );
        assert!(!Mode::PR.covers(Mode::CW) && !Mode::CW.covers(Mode::PR));
        assert!(
            Mode::ALL
                .into_iter()
                .all(|mode| mode.covers(mode) && mode.covers(Mode::NL))
        );
        assert!(
            Mode::ALL
                .into_iter()
                .enumerate()
                .all(|(i, m)| Mode::from_index(i as u8) == Some(m))
        );
        assert_eq!(Mode::from_index(6), None);
    }
}
