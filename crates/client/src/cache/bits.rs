//! Which bits of a lock cover what.

use dlm::Bits;
use wire::FileKind;

/// The bits that cover the attributes of a directory on its own lock.
pub(crate) const DIR_ATTR: Bits = Bits::PERM.union(Bits::LIST);
/// The bits that cover the attributes of another file on its own lock.
pub(crate) const FILE_ATTR: Bits = Bits::PERM.union(Bits::UPDATE);
/// The bits of the EX lock under which the maker of a file has it for itself.
pub(crate) const EXCLUSIVE: Bits = FILE_ATTR
    .union(Bits::XATTR)
    .union(Bits::DOM)
    .union(Bits::OPEN);
/// The bits of a directory's lease.
pub(crate) const LEASE: Bits = Bits::NAMES.union(Bits::LIST).union(Bits::CHILD);

/// The bits of a file's own lock that cover its attributes.
pub(crate) fn own_bits(kind: FileKind) -> Bits {
    match kind {
        FileKind::Directory => DIR_ATTR,
        _ => FILE_ATTR,
    }
}
