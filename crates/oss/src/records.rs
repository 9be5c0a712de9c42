//! Rows that an OST stores beside the bytes of objects (docs/disk.md, "OST records").

use base::{Damage, Fid, Timestamp, TooManyNanos, Transno};
use layout::ObjectId;
use storage::TableId;
use storage::extents::ExtentTables;
use wire::handshake::ClientUuid;

/// Object -> [`ObjectRecord`].
pub const OBJECTS: TableId = TableId(0);
/// Object -> [`Tombstone`].
pub const TOMBSTONES: TableId = TableId(1);
/// The key [`HISTORY_KEY`] -> [`History`].
pub const META: TableId = TableId(2);
/// Uuid of a client (16 bytes) -> [`KnownClient`].
pub const CLIENTS: TableId = TableId(3);
/// Segment of an object -> its sums ([`storage::SealedObjects`]).
pub const SEALS: TableId = TableId(4);
/// Object or segment -> where its bytes are, and their sums ([`storage::extents::ExtentObjects`]).
pub const EXTENTS: ExtentTables = ExtentTables {
    extents: TableId(5),
    sums: TableId(6),
};
/// The tables and their names on disk.
pub const TABLES: [(TableId, &str); 7] = [
    (OBJECTS, "ost_objects"),
    (TOMBSTONES, "ost_tombstones"),
    (META, "ost_meta"),
    (CLIENTS, "ost_clients"),
    (SEALS, "ost_seals"),
    (EXTENTS.extents, "ost_extents"),
    (EXTENTS.sums, "ost_sums"),
];
/// Where the target's [`History`] is.
pub const HISTORY_KEY: &[u8] = b"history";

/// Where it is remembered how far the MDT had come: [`MdtWatermark`].
pub const WATERMARK_KEY: &[u8] = b"mdt";

/// The version of every value here.
const VERSION: u8 = 1;

/// What is known of an object beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectRecord {
    /// The last write, as its writer told it.
    pub mtime: Timestamp,
    /// The highest layout generation it was written under.
    pub layout_generation: u32,
    /// The highest open epoch it was written under.
    pub open_epoch: u64,
}

/// An object that was removed, so that a late write does not bring it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tombstone {
    /// Writes under a ticket of this epoch or an older one are refused.
    pub epoch: u64,
    /// When it was removed, in seconds of wall time.
    pub removed: i64,
    /// The removal of the bytes was not yet durable: it is done again at the start.
    pub pending: bool,
}

/// The target's modifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    /// Everything up to here is durable.
    pub committed: Transno,
    /// No modification of this boot got a number above this: the next boot starts there.
    pub reserved: Transno,
}

/// How far an MDT had come when it last asked for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MdtWatermark {
    /// When that boot of it began, by its clock.
    pub epoch_stamp: Timestamp,
    /// What it had durably then.
    pub committed: Transno,
}

/// A client that may have bytes which the target does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownClient {
    /// When the target gave it up, in seconds of wall time. None: it is waited for after a restart.
    pub given_up: Option<i64>,
}

/// The key of an object in both tables.
pub fn object_key(id: ObjectId) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.fid.0.to_be_bytes());
    key[8..].copy_from_slice(&id.stripe.to_be_bytes());
    key
}

/// The inverse of [`object_key`].
pub fn object_of_key(key: &[u8]) -> Result<ObjectId, Damage> {
    let mut fields = Fields::new("key of an object", key);
    let id = ObjectId {
        fid: Fid(u64::from_be_bytes(fields.take()?)),
        stripe: u32::from_be_bytes(fields.take()?),
    };
    fields.end(id)
}

impl ObjectRecord {
    /// Whether it may be stored, and so read.
    pub fn check(&self) -> Result<(), TooManyNanos> {
        self.mtime.checked().map(drop)
    }

    /// As stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.mtime.secs.to_le_bytes());
        bytes.extend(self.mtime.nanos.to_le_bytes());
        bytes.extend(self.layout_generation.to_le_bytes());
        bytes.extend(self.open_epoch.to_le_bytes());
        bytes
    }

    /// The record in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<ObjectRecord, Damage> {
        let mut fields = Fields::versioned("object record", bytes)?;
        let record = ObjectRecord {
            mtime: Timestamp {
                secs: i64::from_le_bytes(fields.take()?),
                nanos: u32::from_le_bytes(fields.take()?),
            },
            layout_generation: u32::from_le_bytes(fields.take()?),
            open_epoch: u64::from_le_bytes(fields.take()?),
        };
        let checked = record.check();
        checked.map_err(|error| fields.damage(&error.to_string()))?;
        fields.end(record)
    }
}

impl Tombstone {
    /// As stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.epoch.to_le_bytes());
        bytes.extend(self.removed.to_le_bytes());
        bytes.push(u8::from(self.pending));
        bytes
    }

    /// The record in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Tombstone, Damage> {
        let mut fields = Fields::versioned("tombstone", bytes)?;
        let (epoch, removed) = (
            u64::from_le_bytes(fields.take()?),
            i64::from_le_bytes(fields.take()?),
        );
        let pending = match fields.take()? {
            [0] => false,
            [1] => true,
            _ => return Err(fields.damage("a flag is 0 or 1")),
        };
        fields.end(Tombstone {
            epoch,
            removed,
            pending,
        })
    }
}

impl History {
    /// As stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.committed.0.to_le_bytes());
        bytes.extend(self.reserved.0.to_le_bytes());
        bytes
    }

    /// The record in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<History, Damage> {
        let mut fields = Fields::versioned("history", bytes)?;
        let (committed, reserved) = (
            u64::from_le_bytes(fields.take()?),
            u64::from_le_bytes(fields.take()?),
        );
        if reserved < committed {
            return Err(fields.damage("more is durable than was ever numbered"));
        }
        fields.end(History {
            committed: Transno(committed),
            reserved: Transno(reserved),
        })
    }
}

impl MdtWatermark {
    /// As stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.epoch_stamp.secs.to_le_bytes());
        bytes.extend(self.epoch_stamp.nanos.to_le_bytes());
        bytes.extend(self.committed.0.to_le_bytes());
        bytes
    }

    /// The record in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<MdtWatermark, Damage> {
        let mut fields = Fields::versioned("watermark of an MDT", bytes)?;
        let epoch_stamp = Timestamp {
            secs: i64::from_le_bytes(fields.take()?),
            nanos: u32::from_le_bytes(fields.take()?),
        };
        let checked = epoch_stamp.checked();
        checked.map_err(|error| fields.damage(&error.to_string()))?;
        let committed = Transno(u64::from_le_bytes(fields.take()?));
        fields.end(MdtWatermark {
            epoch_stamp,
            committed,
        })
    }
}

impl KnownClient {
    /// As stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.given_up.is_some())];
        bytes.extend(self.given_up.unwrap_or(0).to_le_bytes());
        bytes
    }

    /// The record in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<KnownClient, Damage> {
        let mut fields = Fields::versioned("client's record", bytes)?;
        let (flag, at) = (fields.take()?, i64::from_le_bytes(fields.take()?));
        let given_up = match flag {
            [0] => None,
            [1] => Some(at),
            _ => return Err(fields.damage("a flag is 0 or 1")),
        };
        fields.end(KnownClient { given_up })
    }
}

/// The uuid that is the key of a client.
pub fn client_of_key(key: &[u8]) -> Result<ClientUuid, Damage> {
    let mut fields = Fields::new("key of a client", key);
    let uuid = ClientUuid(fields.take()?);
    fields.end(uuid)
}

/// A stored value, read field by field.
struct Fields<'a> {
    record: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(record: &'static str, rest: &'a [u8]) -> Fields<'a> {
        Fields { record, rest }
    }

    fn versioned(record: &'static str, bytes: &'a [u8]) -> Result<Fields<'a>, Damage> {
        let mut fields = Fields::new(record, bytes);
        match fields.take::<1>()? {
            [VERSION] => Ok(fields),
            [found] => Err(fields.damage(&format!("version {found}, not {VERSION}"))),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let Some((field, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.damage("too short"));
        };
        self.rest = rest;
        Ok(*field)
    }

    fn end<T>(&self, value: T) -> Result<T, Damage> {
        match self.rest {
            [] => Ok(value),
            _ => Err(self.damage("too long")),
        }
    }

    fn damage(&self, reason: &str) -> Damage {
        Damage {
            record: self.record.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bytes_are_fixed() {
        let id = ObjectId {
            fid: Fid(0x0102),
            stripe: 3,
        };
        assert_eq!(object_key(id), [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3]);
        assert_eq!(object_of_key(&object_key(id)), Ok(id));
        let record = ObjectRecord {
            mtime: Timestamp { secs: -2, nanos: 5 },
            layout_generation: 7,
            open_epoch: 9,
        };
        let bytes = record.encode();
        assert_eq!(
            bytes,
            [
                &[1, 0xfe][..],
                &[0xff; 7],
                &[5, 0, 0, 0, 7, 0, 0, 0, 9],
                &[0; 7]
            ]
            .concat()
        );
        assert_eq!(ObjectRecord::decode(&bytes), Ok(record));
        let tombstone = Tombstone {
            epoch: 9,
            removed: 4,
            pending: true,
        };
        let bytes = tombstone.encode();
        assert_eq!(bytes, [&[1, 9][..], &[0; 7], &[4], &[0; 7], &[1]].concat());
        assert_eq!(Tombstone::decode(&bytes), Ok(tombstone));
        let history = History {
            committed: Transno(1),
            reserved: Transno(256),
        };
        assert_eq!(
            history.encode(),
            [&[1, 1][..], &[0; 7], &[0, 1], &[0; 6]].concat()
        );
        assert_eq!(History::decode(&history.encode()), Ok(history));
        let heard = MdtWatermark {
            epoch_stamp: Timestamp { secs: 3, nanos: 4 },
            committed: Transno(5),
        };
        let bytes = heard.encode();
        let expected = [&[1, 3][..], &[0; 7], &[4, 0, 0, 0, 5], &[0; 7]].concat();
        assert_eq!(bytes, expected);
        assert_eq!(MdtWatermark::decode(&bytes), Ok(heard));
        let known = KnownClient::default();
        assert_eq!(known.encode(), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(KnownClient::decode(&known.encode()), Ok(known));
        let given_up = KnownClient { given_up: Some(3) };
        assert_eq!(given_up.encode(), [1, 1, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(KnownClient::decode(&given_up.encode()), Ok(given_up));
        assert_eq!(client_of_key(&[7; 16]), Ok(ClientUuid([7; 16])));
    }

    #[test]
    fn what_was_not_written_by_us_is_damage() {
        let good = ObjectRecord::default().encode();
        assert!(ObjectRecord::decode(&good[..good.len() - 1]).is_err());
        assert!(ObjectRecord::decode(&[&good[..], &[0]].concat()).is_err());
        assert!(ObjectRecord::decode(&[&[2], &good[1..]].concat()).is_err());
        let mut nanos = good.clone();
        nanos[12] = 0xff;
        assert!(ObjectRecord::decode(&nanos).is_err());
        let mut flag = Tombstone {
            epoch: 0,
            removed: 0,
            pending: false,
        }
        .encode();
        *flag.last_mut().expect("not empty") = 2;
        assert!(Tombstone::decode(&flag).is_err() && Tombstone::decode(&[]).is_err());
        let swapped = History {
            committed: Transno(2),
            reserved: Transno(1),
        };
        assert!(History::decode(&swapped.encode()).is_err());
        assert!(MdtWatermark::decode(&[1; 20]).is_err() && MdtWatermark::decode(&[2; 21]).is_err());
        assert!(KnownClient::decode(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(client_of_key(&[0; 15]).is_err() && client_of_key(&[0; 17]).is_err());
        assert!(object_of_key(&[0; 11]).is_err() && object_of_key(&[0; 13]).is_err());
    }
}
