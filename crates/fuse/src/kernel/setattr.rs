//! What a SETATTR changes.

use base::Timestamp;

use super::abi::question::{Setattr, valid};
use super::request::body::Fault;

/// A new access or modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The file system's present time.
    Now,
    /// This time.
    At(Timestamp),
}

/// The attributes to change; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// The handle it was called on (ftruncate, or open with O_TRUNC).
    pub handle: Option<u64>,
    /// Permission bits, with the file's type above them as it was.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time; sent only by a kernel that keeps dirty pages.
    pub ctime: Option<Timestamp>,
    /// Who holds POSIX locks through this descriptor, for mandatory locking.
    pub lock_owner: Option<u64>,
    /// Clear setuid, and setgid where the group may execute.
    pub kill_suid_gid: bool,
}

impl SetAttributes {
    pub(super) fn parse(raw: &Setattr) -> Result<SetAttributes, Fault> {
        let has = |bit: u32| raw.valid & bit != 0;
        let atime = time(raw.atime, raw.atime_nanos);
        let mtime = time(raw.mtime, raw.mtime_nanos);
        let ctime = time(raw.ctime, raw.ctime_nanos);
        Ok(SetAttributes {
            handle: has(valid::FH).then_some(raw.fh),
            mode: has(valid::MODE).then_some(raw.mode),
            uid: has(valid::UID).then_some(raw.uid),
            gid: has(valid::GID).then_some(raw.gid),
            size: has(valid::SIZE).then_some(raw.size),
            atime: set_time(has(valid::ATIME), has(valid::ATIME_NOW), atime)?,
            mtime: set_time(has(valid::MTIME), has(valid::MTIME_NOW), mtime)?,
            ctime: if has(valid::CTIME) {
                Some(ctime?)
            } else {
                None
            },
            lock_owner: has(valid::LOCKOWNER).then_some(raw.lock_owner),
            kill_suid_gid: has(valid::KILL_SUIDGID),
        })
    }
}

fn set_time(set: bool, now: bool, at: Result<Timestamp, Fault>) -> Result<Option<SetTime>, Fault> {
    match (set, now) {
        (false, _) => Ok(None),
        (true, true) => Ok(Some(SetTime::Now)),
        (true, false) => Ok(Some(SetTime::At(at?))),
    }
}

/// Seconds travel as the 64 bits of a signed number.
fn time(secs: u64, nanos: u32) -> Result<Timestamp, Fault> {
    if nanos >= 1_000_000_000 {
        return Err(Fault::Time);
    }
    Ok(Timestamp {
        secs: secs as i64,
        nanos,
    })
}
