//! Inode bits: which part of an inode a lock covers. Opaque to the algorithms of this crate.

use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};

/// A set of inode bits. docs/locks.md says what each covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bits(pub u32);

const NAMES: [(&str, Bits); 10] = [
    ("LOOKUP", Bits::LOOKUP),
    ("UPDATE", Bits::UPDATE),
    ("OPEN", Bits::OPEN),
    ("LAYOUT", Bits::LAYOUT),
    ("PERM", Bits::PERM),
    ("XATTR", Bits::XATTR),
    ("DOM", Bits::DOM),
    ("NAMES", Bits::NAMES),
    ("LIST", Bits::LIST),
    ("CHILD", Bits::CHILD),
];

impl Bits {
    /// No bit.
    pub const NONE: Bits = Bits(0);
    /// That the inode exists, and under which name it was found.
    pub const LOOKUP: Bits = Bits(1);
    /// Size, link count and times; for a directory what is in it.
    pub const UPDATE: Bits = Bits(2);
    /// Open handles.
    pub const OPEN: Bits = Bits(4);
    /// Where the file's data is.
    pub const LAYOUT: Bits = Bits(8);
    /// Owner, mode and ACL.
    pub const PERM: Bits = Bits(0x10);
    /// Extended attributes.
    pub const XATTR: Bits = Bits(0x20);
    /// Data kept on the metadata target.
    pub const DOM: Bits = Bits(0x40);
    /// Directory lease: each name's existence and what it leads to.
    pub const NAMES: Bits = Bits(0x80);
    /// Directory lease: the set of names, and the directory's own times, size and link count.
    pub const LIST: Bits = Bits(0x100);
    /// Directory lease: attributes of the children that it may cover.
    pub const CHILD: Bits = Bits(0x200);
    /// The whole directory lease.
    pub const LEASE: Bits = Bits(0x380);

    /// No bit is set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Shares a bit with `other`.
    pub fn overlaps(self, other: Bits) -> bool {
        self.0 & other.0 != 0
    }

    /// Has every bit of `other`.
    pub fn contains(self, other: Bits) -> bool {
        other.0 & !self.0 == 0
    }

    /// `self` less the bits of `other`.
    pub fn without(self, other: Bits) -> Bits {
        Bits(self.0 & !other.0)
    }

    /// Every bit of either.
    pub const fn union(self, other: Bits) -> Bits {
        Bits(self.0 | other.0)
    }

    /// The bit of that name, as [`Bits`] is displayed.
    pub fn named(name: &str) -> Option<Bits> {
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bit)| *bit)
    }

    /// The positions of the set bits, lowest first.
    pub(crate) fn positions(self) -> impl Iterator<Item = usize> {
        (0..32).filter(move |position| self.0 & (1 << position) != 0)
    }
}

impl BitOr for Bits {
    type Output = Bits;
    fn bitor(self, other: Bits) -> Bits {
        Bits(self.0 | other.0)
    }
}

impl BitAnd for Bits {
    type Output = Bits;
    fn bitand(self, other: Bits) -> Bits {
        Bits(self.0 & other.0)
    }
}

impl BitOrAssign for Bits {
    fn bitor_assign(&mut self, other: Bits) {
        self.0 |= other.0;
    }
}

impl BitAndAssign for Bits {
    fn bitand_assign(&mut self, other: Bits) {
        self.0 &= other.0;
    }
}

impl Not for Bits {
    type Output = Bits;
    fn not(self) -> Bits {
        Bits(!self.0)
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        let mut rest = *self;
        let mut separator = "";
        for (name, bit) in NAMES {
            if self.contains(bit) {
                write!(f, "{separator}{name}")?;
                separator = "|";
                rest = rest.without(bit);
            }
        }
        if !rest.is_empty() {
            write!(f, "{separator}{:#x}", rest.0)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_their_names() {
        let bits = Bits::LOOKUP | Bits::CHILD | Bits(0x8000);
        assert_eq!(bits.to_string(), "LOOKUP|CHILD|0x8000");
        assert_eq!(Bits::NONE.to_string(), "-");
        assert_eq!(Bits::named("DOM"), Some(Bits::DOM));
        assert_eq!(Bits::named("dom"), None);
        assert_eq!(Bits::LEASE, Bits::NAMES | Bits::LIST | Bits::CHILD);
        assert!(bits.overlaps(Bits::LEASE) && !bits.contains(Bits::LEASE));
        assert_eq!(bits.positions().collect::<Vec<_>>(), [0, 9, 15]);
    }
}
