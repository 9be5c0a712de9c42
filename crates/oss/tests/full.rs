//! A full disk: what grows is refused above the floor, and everything else goes on.
// SEMANTICS: crash.full

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

mod rig;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use base::{BootEpoch, ByteRange, FsError, LockHandle};
use rig::{A, Rig, TICKET, object, range};
use wire::mdt::Space;
use wire::ost::{AllocateMode, Reply, Request};

const NO_LOCK: LockHandle = LockHandle(0);
const MIB: u64 = 1 << 20;
/// The disk; a sixteenth of it is the floor.
const DISK: u64 = 16 * MIB;

/// Writes as much as fits, in pieces of one MiB.
fn filled() -> Rig {
    let mut rig = Rig::with_room(DISK);
    let piece = vec![1; MIB as usize];
    for number in 0..15 {
        rig.write(A, NO_LOCK, number * MIB, &piece).unwrap();
    }
    let more = rig.write(A, NO_LOCK, 15 * MIB, &piece);
    assert_eq!(more, Err(FsError::NoSpace));
    rig
}

fn space(rig: &mut Rig) -> Space {
    match rig.ask(A, Request::StatFs, &[]).unwrap().reply {
        Reply::Space(space) => space,
        other => panic!("{other:?}"),
    }
}

fn allocate(rig: &mut Rig, range: ByteRange, mode: AllocateMode) -> Result<(), FsError> {
    let request = rig.allocation(range, mode, NO_LOCK);
    rig.ask(A, request, &[]).map(drop)
}

fn append(rig: &mut Rig, data: &[u8]) -> Result<(), FsError> {
    let request = Request::Append {
        object: object(1),
        bulk: (0, data.len() as u32),
        ticket: TICKET,
        mtime: rig.wall,
    };
    rig.ask(A, request, data).map(drop)
}

#[test]
fn what_grows_is_refused_and_the_floor_stays_free() {
    let mut rig = filled();
    let full = Err(FsError::NoSpace);
    assert_eq!(append(&mut rig, b"more"), full);
    let end = range(15 * MIB, 15 * MIB + 1);
    let modes = [
        AllocateMode::Extend,
        AllocateMode::KeepSize,
        AllocateMode::Zero,
        AllocateMode::ZeroKeepSize,
    ];
    for mode in modes {
        assert_eq!(allocate(&mut rig, end, mode), full, "{mode:?}");
    }
    let space = space(&mut rig);
    assert_eq!((space.bytes_free, space.bytes_available), (MIB, 0));
    assert!(rig.stopped.is_empty());
}

#[test]
fn what_needs_no_space_goes_on_and_frees_some() {
    let mut rig = filled();
    rig.write(A, NO_LOCK, 3 * MIB, b"in place").unwrap();
    assert_eq!(rig.read(A, NO_LOCK, 3 * MIB, 8), Ok(b"in place".to_vec()));
    allocate(&mut rig, range(0, 2 * MIB), AllocateMode::PunchHole).unwrap();
    append(&mut rig, b"where the hole was").unwrap();
    let truncate = Request::Truncate {
        object: object(1),
        size: 0,
        ticket: TICKET,
        mtime: rig.wall,
        under: NO_LOCK,
        boot_epoch: BootEpoch(0),
    };
    rig.ask(A, truncate, &[]).unwrap();
    assert_eq!(space(&mut rig).bytes_available, 15 * MIB);
    rig.write(A, NO_LOCK, 0, b"again").unwrap();
}
