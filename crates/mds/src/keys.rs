//! The tables of a metadata target and the shape of their keys (docs/disk.md, "MDT records").

use base::{BootEpoch, Fid, TargetIndex};

/// A client's own id: the same over reconnects and restarts of the server.
pub type ClientUuid = [u8; 16];

/// The tables. Each value is a version byte and a postcard body (see [`crate::records`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// (directory, cookie) -> [`crate::records::Dirent`].
    Dirents,
    /// FID -> [`crate::records::Inode`] of directories, files with several names, orphans.
    Inodes,
    /// FID -> [`crate::records::Place`].
    Places,
    /// (FID, directory, cookie) -> nothing: the names of a file that has several.
    Links,
    /// (FID, name) -> value.
    Xattrs,
    /// FID -> target of a symlink.
    Targets,
    /// FID -> [`crate::records::Orphan`].
    Orphans,
    /// (OST, FID, stripe) -> [`crate::records::Destroy`].
    Destroys,
    /// (client, slot, index) -> [`crate::records::StoredReply`].
    Replies,
    /// Sequence -> [`crate::records::SequenceOwner`].
    Sequences,
    /// One record: [`crate::records::State`].
    State,
    /// Who may have changed something that is not durable: key the client's id.
    Clients,
    /// Where each boot of the target began: key its boot epoch.
    Boots,
    /// Sequence whose objects are searched for -> the [`crate::records::SequenceOwner`] it had.
    LeakSearches,
    /// OST -> [`crate::records::SeenOst`].
    Osts,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 15] = [
        Table::Dirents,
        Table::Inodes,
        Table::Places,
        Table::Links,
        Table::Xattrs,
        Table::Targets,
        Table::Orphans,
        Table::Destroys,
        Table::Replies,
        Table::Sequences,
        Table::State,
        Table::Clients,
        Table::Boots,
        Table::LeakSearches,
        Table::Osts,
    ];

    /// Its name in the store.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Dirents => "dirents",
            Table::Inodes => "inodes",
            Table::Places => "places",
            Table::Links => "links",
            Table::Xattrs => "xattrs",
            Table::Targets => "targets",
            Table::Orphans => "orphans",
            Table::Destroys => "destroys",
            Table::Replies => "replies",
            Table::Sequences => "sequences",
            Table::State => "state",
            Table::Clients => "clients",
            Table::Boots => "boots",
            Table::LeakSearches => "leak_searches",
            Table::Osts => "osts",
        }
    }
}

/// Where a directory entry is: its directory and its cookie there.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Spot {
    /// The directory.
    pub dir: Fid,
    /// The entry's cookie.
    pub cookie: u64,
}

/// The key of the one record in [`Table::State`].
pub const STATE: &[u8] = b"state";

/// Of [`Table::Inodes`], [`Table::Places`], [`Table::Targets`], [`Table::Orphans`].
pub fn fid(fid: Fid) -> [u8; 8] {
    fid.0.to_be_bytes()
}

/// Of [`Table::Sequences`] and [`Table::LeakSearches`].
pub fn sequence(sequence: u64) -> [u8; 8] {
    sequence.to_be_bytes()
}

/// Of [`Table::Dirents`].
pub fn dirent(spot: Spot) -> [u8; 16] {
    join(spot.dir.0.to_be_bytes(), spot.cookie.to_be_bytes())
}

/// Of [`Table::Links`].
pub fn link(file: Fid, spot: Spot) -> Vec<u8> {
    [&fid(file)[..], &dirent(spot)].concat()
}

/// Of [`Table::Xattrs`].
pub fn xattr(file: Fid, name: &[u8]) -> Vec<u8> {
    [&fid(file)[..], name].concat()
}

/// Of [`Table::Destroys`].
pub fn destroy(ost: TargetIndex, file: Fid, stripe: u32) -> Vec<u8> {
    [&ost.0.to_be_bytes()[..], &fid(file), &stripe.to_be_bytes()].concat()
}

/// Of [`Table::Replies`].
pub fn reply(client: &ClientUuid, slot: u16, index: u16) -> Vec<u8> {
    [&replies(client, slot)[..], &index.to_be_bytes()].concat()
}

/// What all keys of a slot's answers begin with.
pub fn replies(client: &ClientUuid, slot: u16) -> Vec<u8> {
    [&client[..], &slot.to_be_bytes()].concat()
}

/// Which request of the slot's frame a key of [`Table::Replies`] is about.
pub fn parse_reply_index(key: &[u8]) -> Option<u16> {
    key.last_chunk().map(|index| u16::from_be_bytes(*index))
}

/// Of [`Table::Boots`].
pub fn boot_epoch(boot_epoch: BootEpoch) -> [u8; 8] {
    boot_epoch.0.to_be_bytes()
}

/// Of [`Table::Osts`].
pub fn ost(ost: TargetIndex) -> [u8; 2] {
    ost.0.to_be_bytes()
}

/// What a key of [`Table::Osts`] says.
pub fn parse_ost(key: &[u8]) -> Option<TargetIndex> {
    Some(TargetIndex(u16::from_be_bytes(key.try_into().ok()?)))
}

/// What a key of [`Table::Sequences`] or [`Table::LeakSearches`] says.
pub fn parse_sequence(key: &[u8]) -> Option<u64> {
    let sequence = u64::from_be_bytes(key.try_into().ok()?);
    (sequence <= Fid::SEQUENCE_MAX).then_some(sequence)
}

/// What a key of [`Table::Boots`] says.
pub fn parse_boot_epoch(key: &[u8]) -> Option<BootEpoch> {
    Some(BootEpoch(u64::from_be_bytes(key.try_into().ok()?)))
}

/// What a key of [`Table::Clients`] says.
pub fn parse_client(key: &[u8]) -> Option<ClientUuid> {
    key.try_into().ok()
}

/// What a FID key says.
pub fn parse_fid(key: &[u8]) -> Option<Fid> {
    Some(Fid(u64::from_be_bytes(key.try_into().ok()?)))
}

/// What a directory entry's key says.
pub fn parse_dirent(key: &[u8]) -> Option<Spot> {
    let (dir, cookie) = key.split_at_checked(8)?;
    Some(Spot {
        dir: parse_fid(dir)?,
        cookie: parse_fid(cookie)?.0,
    })
}

/// What a link's key says.
pub fn parse_link(key: &[u8]) -> Option<(Fid, Spot)> {
    let (file, spot) = key.split_at_checked(8)?;
    Some((parse_fid(file)?, parse_dirent(spot)?))
}

/// What an extended attribute's key says.
pub fn parse_xattr(key: &[u8]) -> Option<(Fid, &[u8])> {
    let (file, name) = key.split_at_checked(8)?;
    Some((parse_fid(file)?, name))
}

/// What a destroy record's key says.
pub fn parse_destroy(key: &[u8]) -> Option<(TargetIndex, Fid, u32)> {
    let (ost, rest) = key.split_at_checked(2)?;
    let (file, stripe) = rest.split_at_checked(8)?;
    let ost = TargetIndex(u16::from_be_bytes(ost.try_into().ok()?));
    Some((
        ost,
        parse_fid(file)?,
        u32::from_be_bytes(stripe.try_into().ok()?),
    ))
}

fn join(high: [u8; 8], low: [u8; 8]) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&high);
    key[8..].copy_from_slice(&low);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_sort_by_number() {
        let spot = |cookie| Spot {
            dir: Fid(7),
            cookie,
        };
        assert_eq!(parse_dirent(&dirent(spot(9))), Some(spot(9)));
        assert_eq!(parse_link(&link(Fid(3), spot(9))), Some((Fid(3), spot(9))));
        assert_eq!(
            parse_xattr(&xattr(Fid(3), b"user.a")),
            Some((Fid(3), &b"user.a"[..]))
        );
        assert_eq!(
            parse_destroy(&destroy(TargetIndex(2), Fid(3), 4)),
            Some((TargetIndex(2), Fid(3), 4))
        );
        assert!(dirent(spot(255)) < dirent(spot(256)));
        for short in [&b""[..], b"1234567", b"123456789"] {
            assert_eq!(parse_dirent(short), None);
            assert_eq!(parse_link(short), None);
            assert_eq!(parse_destroy(short), None);
        }
    }

    #[test]
    fn bytes_are_as_documented() {
        let spot = Spot {
            dir: Fid(0x0102),
            cookie: 0x0304,
        };
        assert_eq!(
            dirent(spot),
            [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]
        );
        let mut expected = [9_u8; 16].to_vec();
        expected.extend([0, 5, 1, 0]);
        assert_eq!(reply(&[9; 16], 5, 256), expected);
        assert_eq!(parse_reply_index(&expected), Some(256));
        assert_eq!(
            destroy(TargetIndex(1), Fid(2), 3),
            [0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3]
        );
    }
}
