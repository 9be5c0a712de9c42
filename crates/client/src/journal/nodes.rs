//! Further nodes by which the kernel knows a directory, beside the one that is its FID. The kernel's rim
//! makes and counts them; a successor must know which directory each leads to.

use base::Fid;
use handover::{Record, Records};

use super::record::{FURTHER_NODE, decode, encode, put};

/// One further node of a directory.
#[derive(Debug)]
pub struct FurtherNode {
    node: u64,
    fid: Fid,
    /// None: no successor will go on with this mount.
    record: Option<Record>,
}

impl FurtherNode {
    /// Makes `node` of `fid` known to a successor, where there are `records` for one. None: there is no room.
    pub fn new(records: Option<&Records>, node: u64, fid: Fid) -> Option<FurtherNode> {
        let body = encode(&(node, fid));
        let record = match records {
            Some(records) => Some(put(records, FURTHER_NODE, 0, &body)?),
            None => None,
        };
        Some(FurtherNode { node, fid, record })
    }

    pub(crate) fn inherit(bytes: &[u8], record: Record) -> Option<FurtherNode> {
        let (node, fid) = decode(bytes)?;
        let record = Some(record);
        Some(FurtherNode { node, fid, record })
    }

    /// The kernel's number for it.
    pub fn node(&self) -> u64 {
        self.node
    }

    /// The directory.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// References of the kernel, as noted last.
    pub fn lookups(&self) -> u64 {
        self.record.as_ref().map_or(0, Record::mark)
    }

    /// The kernel holds so many references to it.
    pub fn note_lookups(&self, lookups: u64) {
        if let Some(record) = &self.record {
            record.set_mark(lookups);
        }
    }
}
