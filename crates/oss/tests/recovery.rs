//! The first moments of a target's later boot: who had something here comes first.

mod rig;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use std::time::Duration;

use base::{BootEpoch, ByteRange, ClientId, FsError, LockHandle, Timestamp};
use oss::Output;
use rig::{A, B, C, PR, PW, Rig, object, uuid_of};
use rpc::window::RECOVERY_WINDOW;
use wire::ost::{AllocateMode, Reply, Request};

const NO_LOCK: LockHandle = LockHandle(0);

/// A target of which `clients` may have what it does not have.
fn joined(clients: &[ClientId]) -> Rig {
    let mut rig = Rig::new();
    join(&mut rig, clients);
    rig
}

fn join(rig: &mut Rig, clients: &[ClientId]) {
    for client in clients {
        rig.connect(*client);
        let tag = rig.join(*client);
        rig.sync();
        assert!(rig.reply(tag).expect("durable").is_ok());
    }
}

fn is_open(rig: &Rig) -> bool {
    rig.oss.recovery(rig.now).left.is_some()
}

#[test]
fn who_joins_hears_of_it_when_it_is_durable() {
    let mut rig = Rig::new();
    rig.connect(A);
    let tag = rig.join(A);
    assert!(rig.reply(tag).is_none());
    rig.sync();
    assert!(rig.reply(tag).expect("durable").is_ok());
    let tag = rig.join(A);
    assert!(rig.reply(tag).expect("known already").is_ok());
}

#[test]
fn nobody_reads_before_lost_bytes_are_there_again() {
    let mut rig = joined(&[A, B]);
    let lock = rig.lock(A, PW, ByteRange::ALL).handle;
    rig.write(A, lock, 0, b"old").expect("under a lock");
    let mut rig = rig.restart();
    assert!(is_open(&rig));
    rig.connect(B);
    let reader = rig.enqueue(B, PR, ByteRange::ALL);
    let tag = rig.join(B);
    rig.sync();
    assert!(rig.reply(tag).expect("at once").is_ok());
    assert!(rig.reply(reader).is_none(), "A is not back");
    rig.connect(A);
    rig.write(A, NO_LOCK, 0, b"new").expect("what was not sent");
    let writer = rig.enqueue(A, PW, ByteRange::ALL);
    assert!(rig.reply(writer).is_none(), "nobody gets a lock");
    let tag = rig.join(A);
    assert!(rig.reply(tag).expect("at once").is_ok());
    assert!(!is_open(&rig));
    let grant = rig.granted(reader).0;
    assert_eq!(rig.read(B, grant.handle, 0, 9), Ok(b"new".to_vec()));
    assert!(rig.reply(writer).is_none() && !rig.callbacks.is_empty());
}

#[test]
fn a_lost_change_of_shape_is_done_again_before_others_see_the_file() {
    let mut rig = joined(&[A, B]);
    let lock = rig.lock(A, PW, ByteRange::ALL).handle;
    rig.write(A, lock, 0, b"too long").expect("under a lock");
    rig.pass(Duration::from_secs(1));
    rig.sync();
    let mut rig = rig.restart();
    rig.connect(B);
    let reader = rig.enqueue(B, PR, ByteRange::ALL);
    rig.connect(A);
    let under_old = rig.truncate(A, 1, lock);
    let refused = rig.reply(under_old).expect("at once");
    assert_eq!(refused.err(), Some(FsError::Stale), "of the life before");
    let again = rig.truncate(A, 3, NO_LOCK);
    assert!(rig.reply(again).expect("at once").is_ok());
    let hole = rig.allocation(ByteRange::new(0, 1), AllocateMode::PunchHole, NO_LOCK);
    assert!(rig.ask(A, hole, &[]).is_ok());
    for client in [A, B] {
        let tag = rig.join(client);
        rig.sync();
        assert!(rig.reply(tag).expect("durable").is_ok());
    }
    let grant = rig.granted(reader).0;
    assert_eq!(rig.read(B, grant.handle, 0, 9), Ok(b"\0oo".to_vec()));
    // When all are back it waits for its turn as ever.
    let late = rig.truncate(A, 0, NO_LOCK);
    assert!(rig.reply(late).is_none() && !rig.callbacks.is_empty());
}

#[test]
fn guesses_do_not_wait_and_a_read_says_that_a_lock_is_needed() {
    let mut rig = joined(&[A]).restart();
    rig.connect(B);
    let guess = Request::Glimpse {
        object: object(1),
        speculative: true,
    };
    assert_eq!(rig.ask(B, guess, &[]).err(), Some(FsError::TryAgain));
    let read = Request::Read {
        object: object(1),
        offset: 0,
        len: 10,
        lock_mode: PR,
        under: NO_LOCK,
    };
    match rig.ask(B, read, &[]).expect("answered").reply {
        Reply::Read { grant, bulk, .. } => assert_eq!((grant, bulk.1), (None, 0)),
        other => panic!("{other:?}"),
    }
    let glimpse = Request::Glimpse {
        object: object(1),
        speculative: false,
    };
    let tag = rig.send(B, glimpse, &[]);
    let append = rig.append(B, b"later");
    assert!(rig.reply(tag).is_none() && rig.reply(append).is_none());
    join(&mut rig, &[A]);
    assert!(rig.reply(tag).expect("answered").is_ok());
    assert!(rig.reply(append).expect("done, bytes and all").is_ok());
    assert_eq!(rig.read(B, NO_LOCK, 0, 9), Ok(b"later".to_vec()));
}

#[test]
fn who_does_not_come_back_is_given_up_and_hears_of_it() {
    let mut rig = joined(&[A, B]).restart();
    join(&mut rig, &[B]);
    // It is here, but has not written what it had.
    rig.connect(A);
    let waiting = rig.enqueue(B, PR, ByteRange::ALL);
    rig.pass(RECOVERY_WINDOW / 2);
    assert!(rig.reply(waiting).is_none());
    rig.pass(RECOVERY_WINDOW / 2);
    assert!(rig.reply(waiting).expect("granted").is_ok());
    assert_eq!(rig.evicted, [A]);
    rig.evict(A);
    rig.sync();
    let mut rig = rig.restart();
    assert!(rig.oss.gave_up(uuid_of(A)).expect("readable"));
    join(&mut rig, &[B]);
    assert!(!is_open(&rig), "A is not waited for");
    join(&mut rig, &[A]);
    assert!(!rig.oss.gave_up(uuid_of(A)).expect("readable"));
}

#[test]
fn only_who_may_have_something_is_waited_for() {
    let mut rig = joined(&[A]);
    rig.connect(B);
    rig.goodbye(A);
    rig.oss.connected(C, uuid_of(C), true);
    let tag = rig.join(C);
    assert!(rig.reply(tag).expect("it dies with the target").is_ok());
    rig.sync();
    let rig = rig.restart();
    assert!(!is_open(&rig));
    assert!(!rig.oss.gave_up(uuid_of(A)).expect("readable"));
}

#[test]
fn what_is_said_to_an_earlier_boot_does_not_count() {
    let mut rig = joined(&[A]).restart();
    rig.connect(A);
    let boot_epoch = BootEpoch(1);
    assert!(rig.ask(A, Request::Join { boot_epoch }, &[]).is_ok());
    assert!(is_open(&rig));
    rig.goodbye(A);
    assert!(!is_open(&rig), "it has nothing more to say");
}

/// It was sent anew, perhaps with other bytes since, when the new boot was known.
#[test]
fn what_was_written_for_an_earlier_boot_is_refused() {
    let mut rig = joined(&[A]).restart();
    rig.connect(A);
    let write = |boot_epoch| Request::Write {
        object: object(1),
        offset: 0,
        bulk: (0, 3),
        ticket: rig::TICKET,
        mtime: Timestamp::default(),
        under: NO_LOCK,
        boot_epoch: BootEpoch(boot_epoch),
    };
    assert!(rig.ask(A, write(2), b"new").is_ok());
    let late = rig.ask(A, write(1), b"old");
    assert_eq!(late.err(), Some(FsError::Stale));
    join(&mut rig, &[A]);
    assert_eq!(rig.read(A, NO_LOCK, 0, 9), Ok(b"new".to_vec()));
}

#[test]
fn an_operator_ends_it() {
    let mut rig = joined(&[A]).restart();
    let waiting = rig.enqueue(B, PR, ByteRange::ALL);
    let mut out: Vec<Output> = Vec::new();
    rig.oss.give_up_waiting(rig.now, rig.wall, &mut out);
    assert!(
        out.iter()
            .any(|output| matches!(output, Output::Reply { tag, .. } if *tag == waiting))
    );
    assert!(!is_open(&rig));
}

#[test]
fn a_process_that_goes_on_writes_and_cuts_under_locks_whose_names_it_does_not_know() {
    let mut rig = joined(&[A, B]);
    let lock = rig.lock(A, PW, ByteRange::ALL).handle;
    rig.write(A, lock, 0, b"of the process before")
        .expect("under a lock");
    let reader = rig.enqueue(B, PR, ByteRange::ALL);
    rig.succeed(A);
    let cut = rig.truncate(A, 3, NO_LOCK);
    assert!(rig.reply(cut).expect("at once").is_ok());
    rig.write(A, NO_LOCK, 3, b"now")
        .expect("under the old lock");
    assert!(rig.reply(reader).is_none(), "the old lock stands");
    rig.settle(A);
    let grant = rig.granted(reader).0;
    assert_eq!(rig.read(B, grant.handle, 0, 99), Ok(b"of now".to_vec()));
    // As everybody it waits for its turn from now on.
    let late = rig.truncate(A, 0, NO_LOCK);
    assert!(rig.reply(late).is_none() && !rig.callbacks.is_empty());
}

/// What was made under a lock of the MDT alone has none here.
#[test]
fn a_process_that_goes_on_cuts_what_nobody_has_locked() {
    let mut rig = joined(&[A, B]);
    rig.succeed(A);
    rig.write(A, NO_LOCK, 0, b"too long")
        .expect("nobody else is there");
    let cut = rig.truncate(A, 3, NO_LOCK);
    assert!(rig.reply(cut).expect("at once").is_ok());
    let grant = rig.lock(B, PW, ByteRange::ALL);
    let late = rig.truncate(A, 0, NO_LOCK);
    assert!(rig.reply(late).is_none(), "another's lock stands");
    assert_eq!(rig.read(B, grant.handle, 0, 9), Ok(b"too".to_vec()));
}

#[test]
fn what_waits_for_the_end_of_the_window_goes_with_its_process() {
    let mut rig = joined(&[A, B]).restart();
    rig.connect(A);
    rig.connect(B);
    let dead = rig.enqueue(B, PW, ByteRange::ALL);
    rig.succeed(B);
    rig.settle(B);
    for client in [A, B] {
        rig.join(client);
    }
    assert!(!is_open(&rig) && rig.reply(dead).is_none());
    rig.lock(A, PW, ByteRange::ALL);
    assert!(rig.callbacks.is_empty(), "nobody has a lock");
}

/// What the kernel writes back late was stored under the lock of the process before.
#[test]
fn a_lock_that_is_inherited_stays_until_it_is_given_back() {
    let mut rig = joined(&[A, B]);
    let lock = rig.lock(A, PW, ByteRange::ALL).handle;
    let reader = rig.enqueue(B, PR, ByteRange::ALL);
    let object = object(1);
    let inherit = |rig: &mut Rig| {
        let answer = rig.ask(A, Request::Inherit { object }, &[])?;
        match answer.reply {
            Reply::Locked { grant, .. } => Ok(grant.handle),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(inherit(&mut rig), Err(FsError::Stale), "nobody went on");
    rig.succeed(A);
    assert_eq!(inherit(&mut rig), Ok(lock));
    assert_eq!(inherit(&mut rig), Err(FsError::Stale), "B waits for it");
    rig.settle(A);
    rig.write(A, lock, 0, b"late").expect("it stands");
    assert!(rig.reply(reader).is_none());
    rig.cancel(A, lock);
    let grant = rig.granted(reader).0;
    assert_eq!(rig.read(B, grant.handle, 0, 9), Ok(b"late".to_vec()));
}

/// What its maker had for itself has no lock here.
#[test]
fn where_there_was_no_lock_one_is_inherited_that_nobody_has() {
    let mut rig = joined(&[A, B]);
    rig.succeed(A);
    let object = object(1);
    let asked = rig.send(A, Request::Inherit { object }, &[]);
    let handle = rig.granted(asked).0.handle;
    rig.settle(A);
    let reader = rig.enqueue(B, PR, ByteRange::ALL);
    assert!(rig.reply(reader).is_none(), "it stands");
    rig.cancel(A, handle);
    rig.granted(reader);
}
