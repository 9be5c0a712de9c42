//! Losses that outages excuse, and losses that they do not. Times are in tenths of a second.

use super::*;
use crate::outage::{Cause, Outage};

const TENTH: u64 = 100_000_000;
/// The mount that has the outage, from 100 to 200, and another.
const OUT: u32 = 0;
const OTHER: u32 = 1;

impl History {
    /// The last call is on this mount.
    fn on(mut self, mount: u32) -> History {
        self.0.last_mut().expect("a call").mount = mount;
        self
    }

    /// The last call is made like this, by a process that uses one open file all the time.
    fn how(mut self, how: &str) -> History {
        let last = self.0.last_mut().expect("a call");
        (last.how, last.file) = (how.to_owned(), 1);
        self
    }

    fn failing(mut self, errno: i32) -> History {
        self.0.last_mut().expect("a call").outcome = Outcome::Failed(errno);
        self
    }

    fn found(&self, cause: Cause) -> Vec<Violation> {
        let mut history = self.0.clone();
        for event in &mut history {
            event.begin *= TENTH;
            event.end = event.end.saturating_mul(TENTH);
        }
        let outage = Outage {
            mount: OUT,
            begin: 100 * TENTH,
            end: 200 * TENTH,
            cause,
        };
        let policy = Policy {
            outages: vec![outage],
            ..Policy::default()
        };
        check(&history, &policy)
    }

    #[track_caller]
    fn excused(self) {
        assert_eq!(self.found(Cause::Evicted), []);
    }

    #[track_caller]
    fn found_as(self, what: &str) {
        let found = self.found(Cause::Evicted);
        let one = found.first().expect("a violation");
        assert!(one.what.contains(what), "{}", one.what);
    }
}

const GONE: &str = "acknowledged write is gone";

/// Written at 95, gone at 210.
fn unsynced() -> History {
    History::new().write(95, 96, 7).on(OUT).how("pwrite")
}

#[test]
fn what_was_written_just_before_and_not_synced_may_be_gone_as_a_whole() {
    let gone = |history: History| history.read(210, 211, 0).on(OTHER);
    gone(unsynced()).excused();
    gone(unsynced().read(97, 98, 7).on(OUT)).excused();
    gone(unsynced().read(150, 151, 7).on(OUT)).excused();
    unsynced().read(210, 211, 7).on(OTHER).excused();
    // Others, or its own mount once it was told, have seen it.
    gone(unsynced().read(97, 98, 7).on(OTHER)).found_as(GONE);
    gone(unsynced().read(201, 202, 7).on(OUT)).found_as(GONE);
    gone(History::new().write(95, 96, 7).on(OTHER)).found_as(GONE);
    gone(History::new().write(20, 21, 7).on(OUT).how("pwrite")).found_as(GONE);
    gone(History::new().write(201, 202, 7).on(OUT)).found_as(GONE);
}

#[test]
fn what_was_synced_is_never_gone() {
    let gone = |history: History| history.read(210, 211, 0).on(OTHER);
    let synced = History::new().write(95, 96, 7).on(OUT).how("pwrite+fsync");
    gone(synced).found_as(GONE);
    // By another process, or through the same open file, be it after the outage.
    let part = Object {
        part: 1,
        ..REGISTER
    };
    let sync = |history: History, times| {
        let call = history.call(part, times, Call::Write(8), Outcome::Done);
        call.on(OUT).how("pwrite+fsync")
    };
    gone(sync(unsynced(), (97, 98))).found_as(GONE);
    gone(sync(unsynced(), (205, 206))).excused();
    gone(sync(unsynced().by(9), (205, 206)).by(9)).found_as(GONE);
    let told = sync(unsynced().by(9), (202, 203)).by(9).failing(libc::EIO);
    gone(sync(told, (205, 206)).by(9)).excused();
}

#[test]
fn stores_are_lost_at_any_age_and_renames_and_sizes_never() {
    let of_kind = |kind, how| {
        let object = Object::whole(kind, 0);
        let write = History::new().call(object, (20, 21), Call::Write(7), Outcome::Done);
        let write = write.on(OUT).how(how);
        let read = write.call(object, (210, 211), Call::Read, Outcome::Value(0));
        read.on(OTHER)
    };
    of_kind(Kind::Word, "store").excused();
    of_kind(Kind::Word, "store+msync").found_as(GONE);
    of_kind(Kind::Word, "pwrite").found_as(GONE);
    of_kind(Kind::Replaced, "write+rename").found_as(GONE);
    of_kind(Kind::Size, "ftruncate").found_as(GONE);
}

#[test]
fn only_the_mount_itself_and_only_until_it_is_told_sees_what_was() {
    let replaced = || {
        let old = History::new().write(10, 11, 6).on(OTHER);
        old.write(150, 151, 7).on(OTHER)
    };
    replaced().read(160, 161, 6).on(OUT).excused();
    replaced().read(199, 210, 6).on(OUT).excused();
    replaced().read(201, 202, 6).on(OUT).found_as("two values");
    replaced()
        .read(160, 161, 6)
        .on(OTHER)
        .found_as("two values");
    replaced().read(160, 161, 0).on(OUT).found_as(GONE);
    let torn = Outcome::Flawed("torn".to_owned());
    let torn = replaced().call(REGISTER, (160, 161), Call::Read, torn);
    torn.on(OUT).found_as("torn");
}

#[test]
fn what_failed_is_done_by_the_end_or_never() {
    let failed = || {
        let write = History::new().write(150, 190, 7).on(OUT);
        write.failing(libc::EIO)
    };
    failed().read(210, 211, 0).on(OTHER).excused();
    failed().read(210, 211, 7).on(OTHER).excused();
    failed()
        .read(160, 161, 7)
        .on(OUT)
        .read(210, 211, 0)
        .excused();
    let late = failed().write(210, 211, 8).on(OTHER);
    late.read(220, 221, 7).on(OTHER).found_as("two values");
}

#[test]
fn errors_are_excused_on_the_mount_until_it_is_told_and_by_the_first_fsync_after() {
    let synced = |begin, how: &str| {
        let write = History::new().write(begin, begin + 1, 7).on(OUT).by(9);
        write.how(how).failing(libc::EIO)
    };
    synced(150, "pwrite").excused();
    synced(210, "pwrite").found_as("Input/output");
    synced(150, "pwrite").on(OTHER).found_as("Input/output");
    synced(90, "pwrite+fsync").found_as("Input/output");
    let first = || synced(210, "pwrite+fsync");
    first().excused();
    let again = first().write(220, 221, 8).on(OUT).by(9);
    again
        .how("pwrite+fsync")
        .failing(libc::EIO)
        .found_as("Input/output");
    let never = Outcome::Nothing;
    let never = History::new().call(REGISTER, (150, NEVER), Call::Write(7), never);
    never.excused();
    let gone = |errno| synced(150, "pwrite").failing(errno);
    gone(libc::ENOTCONN).found_as("not connected");
    assert_eq!(gone(libc::ENOTCONN).found(Cause::Died), []);
    assert_eq!(gone(libc::ESTALE).found(Cause::Died).len(), 1);
}

#[test]
fn a_log_lacks_what_was_not_sent_and_nothing_else() {
    let gap = |ids: &[u64]| Outcome::Gapped(ids.to_vec(), "NULs".to_owned());
    let log = |how: &str| {
        let log = History::new().append(10, 11, 1).on(OTHER);
        let log = log.append(95, 96, 2).on(OUT).how(how);
        log.append(150, 151, 3).on(OTHER)
    };
    let seen = |log: History, outcome| log.call(LOG, (210, 211), Call::ReadAll, outcome).on(OTHER);
    seen(log("append"), gap(&[1, 3])).excused();
    log("append").records(210, 211, &[1, 3]).on(OTHER).excused();
    log("append")
        .records(97, 98, &[1, 2])
        .records(210, 211, &[1, 3])
        .on(OTHER)
        .excused();
    log("append")
        .records(210, 211, &[1, 2, 3])
        .on(OTHER)
        .excused();
    // What others appended, or what was synced, stays; and so does what others have seen.
    log("append")
        .records(210, 211, &[1])
        .on(OTHER)
        .found_as("in no read");
    seen(log("append+fsync"), gap(&[1, 3])).found_as("NULs");
    let without = log("append+fsync").records(210, 211, &[1, 3]);
    without.on(OTHER).found_as("in no read");
    let seen_before = log("append").records(97, 98, &[1, 2]).on(OTHER);
    seen_before
        .records(210, 211, &[1, 3])
        .on(OTHER)
        .found_as("same place");
}

#[test]
fn names_are_never_lost() {
    let made = History::new().made(150, 151, 2).on(OUT);
    made.listed(210, 211, &[]).on(OTHER).found_as("lacks");
    let made = History::new().made(150, 151, 2).on(OTHER);
    made.listed(160, 161, &[]).on(OUT).excused();
    let made = History::new().made(150, 151, 2).on(OTHER);
    made.listed(205, 206, &[]).on(OUT).found_as("lacks");
    let held = History::new().held(1, (90, 91), (150, 151)).busy(160, 161);
    held.on(OUT).excused();
}
