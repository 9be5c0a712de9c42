//! The right to change objects that comes with an open for writing: the ticket.

mod rig;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use std::time::Duration;

use base::{BootEpoch, ByteRange, FsError, LockHandle};
use rig::{A, B, PW, Rig, TICKET, object, range, second};
use wire::mdt::WriteTicket;
use wire::ost::{AllocateMode, Request, UNDER_MDT};

const NO_LOCK: LockHandle = LockHandle(0);

#[test]
fn an_object_comes_to_be_with_a_ticket_only() {
    let mut rig = Rig::new();
    let ticket = WriteTicket {
        open_epoch: 0,
        ..TICKET
    };
    let (mtime, boot_epoch) = (second(5), BootEpoch(0));
    for under in [NO_LOCK, UNDER_MDT] {
        let written = rig.write_to(A, object(1), under, 0, b"x", ticket);
        assert_eq!(written, Err(FsError::Stale));
    }
    let lock = rig.lock(A, PW, ByteRange::ALL).handle;
    let written = rig.write_to(A, object(1), lock, 0, b"x", ticket);
    assert_eq!(written, Err(FsError::Stale));
    rig.cancel(A, lock);
    let bulk = (0, 1);
    let others = [
        Request::Append {
            object: object(1),
            bulk,
            ticket,
            mtime,
        },
        Request::Truncate {
            object: object(1),
            size: 9,
            ticket,
            mtime,
            under: NO_LOCK,
            boot_epoch,
        },
        Request::Allocate {
            object: object(1),
            range: range(0, 9),
            mode: AllocateMode::PunchHole,
            ticket,
            mtime,
            under: NO_LOCK,
            boot_epoch,
        },
    ];
    for request in others {
        let shown = format!("{request:?}");
        let answer = rig.ask(A, request, b"x");
        assert_eq!(answer.err(), Some(FsError::Stale), "{shown}");
    }
    let listed = rig.disk.store.list(&mut |id| panic!("{id:?} is there"));
    listed.expect("memory");
    rig.write(A, NO_LOCK, 0, b"x").expect("of an open");
}

#[test]
fn a_write_of_an_older_layout_is_refused() {
    let mut rig = Rig::new();
    let newer = WriteTicket {
        layout_generation: 2,
        ..TICKET
    };
    rig.write_to(A, object(1), NO_LOCK, 0, b"new", newer)
        .expect("alone");
    assert_eq!(rig.write(A, NO_LOCK, 0, b"old"), Err(FsError::Stale));
    rig.pass(Duration::from_secs(1));
    rig.sync();
    let mut rig = rig.restart();
    assert_eq!(rig.write(A, NO_LOCK, 0, b"old"), Err(FsError::Stale));
}

#[test]
fn the_right_of_a_files_maker_ends_with_a_later_open() {
    let mut rig = Rig::new();
    let later = WriteTicket {
        open_epoch: TICKET.open_epoch + 1,
        ..TICKET
    };
    rig.write(A, UNDER_MDT, 0, b"first").expect("alone");
    let lock = rig.lock(B, PW, ByteRange::ALL).handle;
    rig.write_to(B, object(1), lock, 0, b"later", later)
        .expect("under a lock");
    assert_eq!(rig.write(A, UNDER_MDT, 0, b"late"), Err(FsError::Stale));
    rig.cancel(B, lock);
    assert_eq!(rig.write(A, UNDER_MDT, 0, b"late"), Err(FsError::Stale));
    rig.pass(Duration::from_secs(1));
    rig.sync();
    let mut rig = rig.restart();
    assert_eq!(rig.write(A, UNDER_MDT, 0, b"late"), Err(FsError::Stale));
    assert_eq!(rig.read(A, NO_LOCK, 0, 9), Ok(b"later".to_vec()));
}
