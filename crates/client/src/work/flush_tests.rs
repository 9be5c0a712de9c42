//! What answers to writes on their way do to a file.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use wire::mdt::OpenHandle;
use wire::ost::ExtentGrant;

use super::*;
use crate::cache::registration::WriteOpen;
use crate::cache::write_size::BYTES_MIN;
use crate::journal::failures::Reported;
use crate::rig::attr_at;
use crate::session::locks::Locks;

const FILE: Fid = Fid(7);
const NOW: Tick = Tick(0);

/// A file written to, and open.
struct Written {
    state: State,
    reported: Reported,
}

impl Written {
    fn new(bytes: &[u8]) -> Written {
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        let reported = state.cache.file(FILE).errors.at_open();
        state.with_pages(FILE, |file| file.pages.write(0, bytes, NOW));
        Written { state, reported }
    }

    /// The MDT has it open for writing, with this ticket.
    fn opened(&mut self, open_epoch: u64) {
        let ticket = WriteTicket {
            open_epoch,
            ..WriteTicket::default()
        };
        let open = WriteOpen {
            handle: OpenHandle(open_epoch),
            ticket,
        };
        let registration = &mut self.state.cache.file(FILE).registration;
        registration.register_writers(open);
    }

    /// Sends `range`.
    fn send(&mut self, range: ByteRange) -> Sent {
        let take = |file: &mut FileState| file.pages.take_dirty(range, range.len(), 1);
        let mut outs = self.state.with_pages(FILE, take);
        assert_eq!(outs.len(), 1);
        let file = self.state.cache.file(FILE);
        file.durability.begin_write();
        Sent {
            fid: FILE,
            out: outs.remove(0),
            restarts: file.durability.restarts(),
            ticket: file.registration.ticket().unwrap_or_default(),
            under: None,
        }
    }

    fn answered(&mut self, sent: Sent, error: FsError) {
        written(&mut self.state, sent, Err(error), Transno(0));
    }

    /// Whether it lost anything.
    fn evicted(&mut self) -> bool {
        self.state.with_pages(FILE, FileState::lose_unwritten)
    }

    /// Nor does the MDT know it afterwards.
    fn unknown(&mut self, told: bool) {
        self.state.with_pages(FILE, |file| file.lose_open(told));
    }

    /// What `fsync` says.
    fn sync(&mut self) -> Result<(), FsError> {
        self.state
            .cache
            .file(FILE)
            .errors
            .sync(&mut self.reported, None)
    }
}

#[test]
fn a_late_answer_after_an_eviction_is_no_failure_of_its_own() {
    let mut file = Written::new(b"four");
    let one = file.send(ByteRange::new(0, 2));
    let two = file.send(ByteRange::new(2, 4));
    assert!(file.evicted());
    assert_eq!(file.sync(), Err(FsError::Io));
    file.answered(one, FsError::Stale);
    assert_eq!(file.sync(), Ok(()));
    file.answered(two, FsError::Io);
    assert_eq!(file.sync(), Ok(()));
    assert!(file.state.cache.file(FILE).is_idle());
}

#[test]
fn who_opens_after_an_eviction_was_told_is_not_told_of_a_late_answer() {
    let mut file = Written::new(b"four");
    let sent = file.send(ByteRange::new(0, 4));
    assert!(file.evicted());
    assert_eq!(file.sync(), Err(FsError::Io));
    file.answered(sent, FsError::Stale);
    file.reported = file.state.cache.file(FILE).errors.at_open();
    assert_eq!(file.sync(), Ok(()));
}

/// The MDT restarted while it was on its way, and the OST refuses older tickets than the file's newest.
#[test]
fn a_write_that_one_with_the_next_ticket_overtook_is_sent_again() {
    let mut file = Written::new(b"four");
    file.opened(1);
    let overtaken = file.send(ByteRange::new(0, 2));
    file.state.cache.file(FILE).registration.lose_writers();
    file.opened(2);
    file.answered(overtaken, FsError::Stale);
    assert_eq!(file.sync(), Ok(()));
    let again = file.send(ByteRange::new(0, 2));
    file.answered(again, FsError::Stale);
    assert_eq!(file.sync(), Err(FsError::Io), "once");
}

#[test]
fn what_is_written_after_an_eviction_and_fails_is_told() {
    let mut file = Written::new(b"four");
    let late = file.send(ByteRange::new(0, 4));
    assert!(file.evicted());
    assert_eq!(file.sync(), Err(FsError::Io));
    file.state
        .with_pages(FILE, |file| file.pages.write(8, b"new", NOW));
    let new = file.send(ByteRange::new(8, 11));
    file.answered(late, FsError::Stale);
    file.answered(new, FsError::NoSpace);
    assert_eq!(file.sync(), Err(FsError::NoSpace));
}

#[test]
fn a_file_that_is_gone_after_an_eviction_is_told_of_once() {
    let mut file = Written::new(b"four");
    let told = file.evicted();
    assert_eq!(file.sync(), Err(FsError::Io));
    file.unknown(told);
    assert_eq!(file.sync(), Ok(()));

    let told = file.evicted();
    assert!(!told);
    file.unknown(told);
    assert_eq!(file.sync(), Err(FsError::Io));

    file.state
        .with_pages(FILE, |file| file.pages.write(0, b"new", NOW));
    file.unknown(true);
    assert_eq!(file.sync(), Err(FsError::Io), "written since");
}

#[test]
fn a_write_of_which_a_part_was_cut_off_fails() {
    let mut file = Written::new(b"four");
    let sent = file.send(ByteRange::new(0, 4));
    file.state
        .with_pages(FILE, |file| file.pages.discard(ByteRange::from(1)));
    file.answered(sent, FsError::NoSpace);
    assert_eq!(file.sync(), Err(FsError::NoSpace));
}

/// And it takes few requests to find out.
#[test]
fn of_a_file_that_an_ost_has_no_space_for_it_gets_what_fits() {
    const LEN: u64 = 3 * BULK_BYTES_MAX as u64;
    for room in [0, 5_000, BULK_BYTES_MAX as u64 + 3_456_789, LEN - 1, LEN] {
        let mut file = Written::new(&vec![1; LEN as usize]);
        let (mut end, mut refused) = (0, 0);
        while file.sync().is_ok() && end < LEN {
            let sent = file.send(ByteRange::ALL);
            let len = sent.out.bytes.len() as u64;
            assert_eq!(sent.out.offset, end, "in order");
            if end + len > room {
                refused += 1;
                file.answered(sent, FsError::NoSpace);
            } else {
                end += len;
                let attr = ObjectAttr::default();
                let answer = Ok(Reply::Written {
                    attr,
                    unsent_max: 0,
                });
                written(&mut file.state, sent, answer, Transno(end));
            }
        }
        assert!(
            end <= room && room < end + BYTES_MIN || end == LEN,
            "{end} of {room}"
        );
        assert!(refused < 16, "{refused} for {room}");
    }
}

#[test]
fn what_another_ost_made_durable_says_nothing_of_this_files_bytes() {
    const HERE: TargetIndex = TargetIndex(1);
    let mut file = Written::new(b"four");
    file.state.cache.inode(FILE).attrs.take(attr_at(HERE));
    let sent = file.send(ByteRange::new(0, 4));
    let answer = Reply::Written {
        unsent_max: 0,
        attr: ObjectAttr::default(),
    };
    written(&mut file.state, sent, Ok(answer), Transno(5));
    file.state.committed(TargetIndex(0), Transno(9));
    assert!(
        !file.state.cache.file(FILE).durability.is_committed()
            && file.state.policies.writeback.may_lose(FILE)
    );
    file.state.committed(HERE, Transno(4));
    assert!(
        !file.state.cache.file(FILE).durability.is_committed()
            && file.state.policies.writeback.may_lose(FILE)
    );
    file.state.committed(HERE, Transno(5));
    assert!(
        file.state.cache.file(FILE).durability.is_committed()
            && file.state.policies.writeback.is_all_durable()
    );
}

#[test]
fn what_is_durable_before_its_answer_is_looked_at_is_durable() {
    let mut file = Written::new(b"four");
    file.state
        .cache
        .inode(FILE)
        .attrs
        .take(attr_at(TargetIndex(1)));
    let sent = file.send(ByteRange::new(0, 4));
    file.state.committed(TargetIndex(1), Transno(5));
    file.state.committed(TargetIndex(1), Transno(4));
    let answer = |transno| {
        let attr = ObjectAttr::default();
        (
            Ok(Reply::Written {
                attr,
                unsent_max: 0,
            }),
            Transno(transno),
        )
    };
    let (reply, transno) = answer(5);
    written(&mut file.state, sent, reply, transno);
    assert!(
        file.state.cache.file(FILE).durability.is_committed()
            && file.state.policies.writeback.is_all_durable()
    );
    let more = |file: &mut FileState| file.pages.write(0, b"more", NOW);
    file.state.with_pages(FILE, more);
    let sent = file.send(ByteRange::new(0, 4));
    let (reply, transno) = answer(6);
    written(&mut file.state, sent, reply, transno);
    assert!(
        !file.state.cache.file(FILE).durability.is_committed()
            && file.state.policies.writeback.may_lose(FILE)
    );
}

/// A file that is written to for hours is kept as far as it must be, not whole.
#[test]
fn of_a_file_written_without_an_end_only_what_is_not_durable_is_kept() {
    const HERE: TargetIndex = TargetIndex(1);
    let mut file = Written::new(b"four");
    file.state.cache.inode(FILE).attrs.take(attr_at(HERE));
    let answer = || {
        let attr = ObjectAttr::default();
        Ok(Reply::Written {
            attr,
            unsent_max: 0,
        })
    };
    for (transno, start) in [(5, 0), (6, 1), (7, 2)] {
        let sent = file.send(ByteRange::new(start, start + 1));
        written(&mut file.state, sent, answer(), Transno(transno));
    }
    let undurable = |file: &mut Written| file.state.cache.file(FILE).pages.undurable_bytes();
    file.state.committed(HERE, Transno(6));
    assert_eq!(undurable(&mut file), 1);
    assert!(
        !file.state.cache.file(FILE).durability.is_committed()
            && file.state.policies.writeback.may_lose(FILE)
    );
    let sent = file.send(ByteRange::new(3, 4));
    written(&mut file.state, sent, answer(), Transno(8));
    assert_eq!(undurable(&mut file), 2);
    file.state.committed(HERE, Transno(7));
    assert_eq!(undurable(&mut file), 1);
    file.state.committed(HERE, Transno(8));
    assert_eq!(undurable(&mut file), 0);
    assert!(
        file.state.cache.file(FILE).durability.is_committed()
            && file.state.policies.writeback.is_all_durable()
    );
}

#[test]
fn what_is_not_durable_when_an_eviction_comes_may_be_lost() {
    for (durable, lost) in [(4, true), (5, false)] {
        let mut file = Written::new(b"four");
        file.state
            .cache
            .inode(FILE)
            .attrs
            .take(attr_at(TargetIndex(1)));
        let sent = file.send(ByteRange::new(0, 4));
        let attr = ObjectAttr::default();
        written(
            &mut file.state,
            sent,
            Ok(Reply::Written {
                attr,
                unsent_max: 0,
            }),
            Transno(5),
        );
        file.state.committed(TargetIndex(1), Transno(durable));
        assert_eq!(file.evicted(), lost);
        assert_eq!(file.sync().is_err(), lost);
    }
}

#[test]
fn of_a_file_that_lost_bytes_the_mdt_is_told_no_size() {
    let mut file = Written::new(b"four");
    file.state
        .cache
        .file(FILE)
        .locks
        .grant_exclusive(LockHandle(1));
    assert!(file.state.size_to_report(FILE, true).is_some());
    let sent = file.send(ByteRange::new(0, 4));
    file.answered(sent, FsError::NoSpace);
    assert_eq!(file.state.size_to_report(FILE, true), None);
}

/// What is here is not what the OST has, nor is the size: who wants to know asks there.
#[test]
fn a_file_that_lost_bytes_gives_its_locks_back() {
    const HERE: TargetIndex = TargetIndex(1);
    let mut file = Written::new(b"four");
    file.state.locks = Locks::new([HERE]);
    let object = object_of(FILE);
    for (handle, range) in [(1, ByteRange::new(0, 9)), (2, ByteRange::from(9))] {
        let grant = ExtentGrant {
            handle: LockHandle(handle),
            object,
            mode: dlm::Mode::PW.index() as u8,
            range,
        };
        file.state.locks.extent_granted(HERE, &grant);
    }
    let other = file.send(ByteRange::new(0, 2));
    file.answered(other, FsError::TryAgain);
    assert!(file.state.locks.holds_to_eof(FILE), "it is sent again");
    let sent = file.send(ByteRange::new(0, 4));
    file.answered(sent, FsError::NoSpace);
    assert!(!file.state.locks.holds_to_eof(FILE));
    let start = ByteRange::new(0, 4);
    assert_eq!(file.state.locks.extent(FILE, dlm::Mode::PW, start), None);
}

/// So many files have bytes to send, or at their OST.
const MANY: u64 = 10_000;
const HOME: TargetIndex = TargetIndex(1);

/// Each with a byte, one second after the one before, and a use for writing.
fn many_dirty() -> State {
    let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
    for number in 0..MANY {
        let (fid, since) = (Fid(number), Tick(0).after(Duration::from_secs(number)));
        state.cache.inode(fid).attrs.take(attr_at(HOME));
        let registration = &mut state.cache.file(fid).registration;
        registration.register_writers(WriteOpen {
            handle: wire::mdt::OpenHandle(1),
            ticket: WriteTicket::default(),
        });
        state.with_pages(fid, |file| file.pages.write(0, b"x", since));
    }
    state
}

/// How many files `act` looks at.
fn looks<R>(state: &mut State, act: impl FnOnce(&mut State) -> R) -> (R, usize) {
    let before = state.cache.looked_at();
    let result = act(state);
    (result, state.cache.looked_at() - before)
}

#[test]
fn to_send_what_is_old_none_but_the_old_are_looked_at() {
    let mut state = many_dirty();
    let last = Tick(0).after(Duration::from_secs(MANY));
    let some = Duration::from_secs(MANY - 4);
    let (fids, looks_for_due) = looks(&mut state, |state| due(state, last, some));
    assert_eq!(fids, Some((0..5).map(Fid).collect()));
    assert!(looks_for_due <= 5 * 4, "{looks_for_due}");
    let (fids, looks_for_more) = looks(&mut state, |state| due(state, last, Duration::ZERO));
    assert_eq!(fids.map_or(0, |fids| fids.len()), WRITES_MAX);
    assert!(looks_for_more <= WRITES_MAX * 4, "{looks_for_more}");
    let then = Tick(0).after(Duration::from_secs(2));
    let (fids, looks_for_old) = looks(&mut state, |state| unwritten_since(state, HOME, then));
    assert_eq!(fids, [Fid(0), Fid(1), Fid(2)]);
    assert!(looks_for_old <= 3 * 4, "{looks_for_old}");
}

#[test]
fn bytes_that_are_younger_than_they_seemed_are_looked_at_once() {
    let mut state = many_dirty();
    let late = Tick(0).after(Duration::from_secs(MANY));
    for number in 0..100 {
        // What was old is on its way, what is left is young.
        state.with_pages(Fid(number), |file| {
            file.pages.write(4096, b"x", late);
            file.pages.take_dirty(ByteRange::new(0, 1), 1, 1);
        });
    }
    let age = Duration::from_secs(MANY - 99);
    let look = |state: &mut State| looks(state, |state| due(state, late, age));
    let (fids, first) = look(&mut state);
    assert!(fids.is_none() && first >= 100, "{fids:?}, {first}");
    let (fids, second) = look(&mut state);
    assert!(fids.is_none() && second == 0, "{fids:?}, {second}");
}

#[test]
fn when_something_is_durable_only_the_files_are_looked_at_of_which_it_is() {
    let mut state = many_dirty();
    for number in 0..MANY {
        let fid = Fid(number);
        state.with_pages(fid, |file| {
            let out = file.pages.take_dirty(ByteRange::ALL, 1, 1).remove(0);
            file.pages.written(out.id, Transno(number + 100));
            file.sent(Transno(number + 100));
        });
        state.answered(fid);
    }
    let (_, none) = looks(&mut state, |state| state.committed(HOME, Transno(99)));
    assert_eq!(none, 0);
    let (_, few) = looks(&mut state, |state| state.committed(HOME, Transno(102)));
    assert!(few <= 3 * 8, "{few}");
    assert_eq!(
        state.policies.writeback.uncommitted_count(),
        MANY as usize - 3
    );
    state.committed(HOME, Transno(MANY + 100));
    assert!(state.policies.writeback.is_all_durable());
}
