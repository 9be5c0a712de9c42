//! A process is stopped after each of its stores: what the next one finds is in order, and holds
//! everything that anybody was told of.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{BootEpoch, FsError, Name, TargetIndex, TargetName, Tick, Timestamp, Transno, Xid};
use handover::Death;
use rpc::{Answered, CallRecord, ClientSecret, ReplayRecord};
use wire::FileKind;
use wire::frame::{Payload, SessionId, Sub};
use wire::mdt::{Caller, Reply, Request};

use super::*;

#[path = "contents_tests.rs"]
mod contents;
#[path = "in_order_tests.rs"]
mod in_order;

use crate::cache::edits::{Edit, Removal};
use crate::executor::Origin;
use crate::journal::attempts::AttemptBody;
use crate::journal::call_records::RequestRecord;
use crate::journal::record::encode;
use crate::rig::attr_at;
use crate::session::file_handle::{FileHandle, OpenWish};
use crate::session::locks::Locks;
use crate::session::state::State;

const FILE: Fid = Fid(0x100_0001);
/// More stores than any of these lives makes.
const STORES_MAX: u64 = 10_000;

/// One process in the memory, and what it has told others.
struct Process {
    state: State,
    records: Records,
    sessions: Sessions,
    death: Death,
    /// The last step that was through before the end.
    reported: u32,
}

impl Process {
    fn begin(memory: &OwnedFd, death: &Death) -> Option<(Process, TakeoverState)> {
        let region = Region::mapped_until(memory, death).ok()?;
        let takeover = TakeoverState::open(region, ClientSecret([7; 16]))?;
        let records = takeover.records().clone();
        let targets = vec![TargetIndex(0)];
        let mut state = State::new(Locks::new(targets), Arc::new(AtomicU64::new(0)));
        state.journal.begin(records.clone());
        let process = Process {
            state,
            records,
            sessions: takeover.sessions().clone(),
            death: death.clone(),
            reported: 0,
        };
        Some((process, takeover))
    }

    /// A step is through, and somebody hears of it.
    fn report(&mut self, step: u32) {
        if !self.death.has_come() {
            self.reported = step;
        }
    }

    fn open(&mut self) -> HandleId {
        let reported = self.state.cache.file(FILE).errors.at_open();
        self.state
            .add_file(FileHandle::new(FILE, OpenWish::default(), reported))
    }
}

/// A change of the mode.
fn mode(mode: u16) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    }
}

/// What the next process finds.
struct Next {
    state: State,
    taken_over: TakenOver,
    asked: rpc::Left,
    sessions: Vec<(TargetName, rpc::Legacy)>,
}

/// Runs `work` again and again, each time with one store more before its end. Then `check` looks at what is
/// left, and which step was reported last.
fn at_every_store(work: impl Fn(&mut Process), check: impl Fn(&mut Next, u32)) {
    let untouched = || Region::create(8 << 20).unwrap();
    at_every_store_in(untouched, |process, _| work(process), check);
}

/// The same for the process after it, when `work` is through. What ends after each of its stores is `again`,
/// which puts in order what was left.
fn at_every_store_of_the_next(
    work: impl Fn(&mut Process),
    again: impl Fn(&mut Process, &TakeoverState),
    check: impl Fn(&mut Next, u32),
) {
    let left = || {
        let memory = Region::create(8 << 20).unwrap();
        let (mut process, takeover) = Process::begin(&memory, &Death::after(u64::MAX)).unwrap();
        work(&mut process);
        std::mem::forget((process, takeover));
        memory
    };
    at_every_store_in(left, again, check);
}

/// Runs `work` again and again, each time in memory made anew and with one store more before its end.
fn at_every_store_in(
    memory: impl Fn() -> OwnedFd,
    work: impl Fn(&mut Process, &TakeoverState),
    check: impl Fn(&mut Next, u32),
) {
    let mut most = 0;
    for stores in 0..STORES_MAX {
        let (memory, death, mut reported) = (memory(), Death::after(stores), 0);
        if let Some((mut process, takeover)) = Process::begin(&memory, &death) {
            work(&mut process, &takeover);
            reported = process.reported;
            std::mem::forget((process, takeover));
        }
        check(&mut next_of(&memory), reported);
        most = most.max(reported);
        if !death.has_come() {
            assert!(most > 0 && reported == most, "the work was done");
            return;
        }
    }
    panic!("the work has no end");
}

/// What a process finds that lives on.
fn next_of(memory: &OwnedFd) -> Next {
    let (mut process, takeover) = Process::begin(memory, &Death::after(u64::MAX)).unwrap();
    Next {
        sessions: takeover.legacies(),
        asked: takeover.asked(&Redone::default()),
        taken_over: takeover.restore(&mut process.state),
        state: process.state,
    }
}

#[test]
fn files_that_the_kernel_knows() {
    at_every_store(
        |process| {
            process.state.refer(FILE);
            process.report(1);
            process.state.refer(FILE);
            process.report(2);
            process.state.unrefer(FILE, 2);
            process.report(3);
            process.state.refer(FILE);
            process.report(4);
        },
        |next, reported| {
            let found = next.state.cache.known(FILE).map_or(0, Inode::lookups);
            let right: &[u64] = match reported {
                0 => &[0, 1],
                1 => &[1, 2],
                2 => &[2, 0],
                3 => &[0, 1],
                _ => &[1],
            };
            assert!(right.contains(&found), "{found} after step {reported}");
        },
    );
}

#[test]
fn open_files() {
    at_every_store(
        |process| {
            let first = process.open();
            process.report(1);
            let second = process.open();
            process.report(2);
            process.state.handles.remove_file(first);
            process.report(3);
            let _ = second;
        },
        |next, reported| {
            let open = next.state.handles.counts().0;
            let right = match reported {
                0 => 0..=1,
                1 => 1..=2,
                2 => 1..=2,
                _ => 1..=1,
            };
            assert!(right.contains(&open), "{open} after step {reported}");
            let opens = &next.state.cache.file(FILE).opens;
            assert_eq!(opens.is_kept(), open > 0);
        },
    );
}

#[test]
fn second_attempts_of_calls() {
    let attempt = |found: u64| AttemptBody {
        thread: 7,
        request: Some(3),
        call: Some("257 0x1".into()),
        found: (0..found)
            .map(|file| (Fid(file), FileKind::Regular))
            .collect(),
        has_missed: false,
        led_astray: vec![(FILE, 1)],
    };
    at_every_store(
        |process| {
            let (journal, _) = process.state.journal.take_attempts();
            let mut record = None;
            for found in 1..=3 {
                drop(record.replace(journal.put(&attempt(found))));
                process.report(found as u32);
            }
            drop(record);
            process.report(4);
        },
        |next, reported| {
            let (_, attempts) = next.state.journal.take_attempts();
            let last = attempts.last().map(|(body, _)| body.clone());
            let right: &[u64] = match reported {
                0 => &[0, 1],
                1 => &[1, 2],
                2 => &[2, 3],
                3 => &[3, 0],
                _ => &[0],
            };
            let is_right = |found: &u64| last == (*found > 0).then(|| attempt(*found));
            assert!(right.iter().any(is_right), "{last:?} after step {reported}");
        },
    );
}

#[test]
fn files_that_a_second_attempt_has_found() {
    let age = Duration::from_secs(1);
    at_every_store(
        |process| {
            let record = process.state.journal.put_pinned(FILE);
            let handles = &mut process.state.handles;
            handles.keep_pinned(Tick(0), FILE, record);
            process.report(1);
            let handles = &mut process.state.handles;
            assert_eq!(handles.take_pinned(Tick(0).after(age), age), [FILE]);
            process.report(2);
        },
        |next, reported| {
            let is_kept = next.state.cache.file(FILE).opens.is_kept();
            assert_eq!(is_kept, next.taken_over.files.contains(&FILE));
            match reported {
                0 => {}
                1 if is_kept => {}
                1 => assert_eq!(next.state.handles.pinned_count(), 0),
                _ => assert!(!is_kept),
            }
        },
    );
}

#[test]
fn attributes_changed_under_a_lock() {
    at_every_store(
        |process| {
            for step in 1..=4 {
                let file = process.state.cache.file(FILE);
                file.locks.grant_exclusive(LockHandle(5));
                file.change
                    .merge(&mode(step as u16), &attr_at(TargetIndex(0)));
                process.state.journal_change(FILE, Tick(0));
                process.report(step);
            }
            process.state.cache.file(FILE).change.keep_record(None);
            process.report(5);
        },
        |next, reported| {
            let changes = next.taken_over.changes.iter();
            let modes = changes.filter_map(|(body, _)| body.change.mode);
            let found: Vec<u32> = modes.map(u32::from).collect();
            let right: &[u32] = match reported {
                0 => &[0, 1],
                4 => &[4, 0],
                5 => &[0],
                _ => &[reported, reported + 1],
            };
            let found = match found[..] {
                [] => 0,
                [mode] => mode,
                _ => panic!("{found:?}: one file has one state"),
            };
            assert!(right.contains(&found), "{found} after step {reported}");
        },
    );
}

#[test]
fn changes_of_a_file_that_the_mdt_knows() {
    const DIR: Fid = Fid(0x100_0002);
    let removal = Removal {
        dir: DIR,
        name: Name::new(b"f").unwrap(),
        fid: FILE,
        cookie: 7,
        ctime: Timestamp::default(),
    };
    at_every_store(
        |process| {
            let state = &mut process.state;
            let attr = attr_at(TargetIndex(0));
            state.cache.inode(FILE).attrs.take(attr);
            for step in 1..=2 {
                let now = (Timestamp::default(), Tick(0));
                let is_changed = state.amend((FILE, DIR), &mode(step as u16), now);
                assert!(is_changed || process.death.has_come());
                if !process.death.has_come() {
                    process.reported = step;
                }
            }
            if state.record_removal(&removal) {
                state.remove_known(removal.clone(), Tick(0));
            }
            process.report(3);
            let state = &mut process.state;
            let number = state.births.edits().removal_of(DIR, &removal.name);
            number.map(|number| state.end_edit(number));
            process.report(4);
        },
        |next, reported| {
            let edits = next.state.births.edits();
            let found: Vec<u32> = edits
                .all()
                .map(|(number, _)| match edits.get(number) {
                    Some(Edit::Amendment(amendment)) => {
                        u32::from(amendment.attr.mode.unwrap_or_default())
                    }
                    Some(Edit::Removal(found)) if *found == removal => 3,
                    other => panic!("{other:?}"),
                })
                .collect();
            let right: &[&[u32]] = match reported {
                0 => &[&[], &[1]],
                1 => &[&[1], &[2]],
                2 => &[&[2], &[3]],
                3 => &[&[3], &[]],
                _ => &[&[]],
            };
            assert!(
                right.contains(&&found[..]),
                "{found:?} after step {reported}"
            );
        },
    );
}

#[test]
fn sessions_with_targets() {
    let session = |number: u32| TargetBody {
        target: TargetName::mdt(0),
        session: SessionId(number % 2 + 1),
        epoch: BootEpoch(u64::from(number / 2)),
    };
    at_every_store(
        |process| {
            for step in 1..=6 {
                process.sessions.remember(session(step));
                process.report(step);
            }
        },
        |next, reported| {
            let found = next.sessions.first();
            let found = found.map(|(_, legacy)| (legacy.epoch, legacy.session));
            let known = |step: u32| {
                let TargetBody { epoch, session, .. } = session(step);
                (step > 0).then_some((epoch, session))
            };
            assert!(
                [known(reported), known(reported + 1)].contains(&found),
                "{found:?}"
            );
        },
    );
}

/// Whichever session it is, the next process knows of no less, or an older copy of the target would be
/// welcome to it.
#[test]
fn how_far_a_target_had_come() {
    let session = |number: u32| TargetBody {
        target: TargetName::ost(0),
        session: SessionId(number),
        epoch: BootEpoch(1),
    };
    at_every_store(
        |process| {
            process.sessions.remember(session(1));
            process.report(1);
            for step in 2..=6 {
                let committed = Transno(u64::from(step) * 10);
                process.sessions.committed(TargetName::ost(0), committed);
                process.report(step);
                process.sessions.remember(session(step));
                // It may only grow.
                process.sessions.committed(TargetName::ost(0), Transno(1));
            }
        },
        |next, reported| {
            let found = next.sessions.first();
            let found = found.map_or(0, |(_, legacy)| legacy.committed.0);
            let known = |step: u32| if step > 1 { u64::from(step) * 10 } else { 0 };
            assert!(
                [known(reported), known(reported + 1)].contains(&found),
                "{found}"
            );
        },
    );
}

fn create(number: u8) -> Request {
    Request::Unlink {
        dir: Fid::ROOT,
        name: Name::new(vec![b'a' + number]).unwrap(),
        directory: false,
        caller: Caller::default(),
    }
}

fn payload(body: Vec<u8>) -> Payload {
    let sub = Sub {
        opcode: wire::opcode::MDT,
        status: 0,
        body,
    };
    Payload {
        subs: vec![sub],
        ..Payload::default()
    }
}

/// Asks for a change in slot 3, and gets the answer.
fn ask(process: &mut Process, number: u8, steps: u32) -> Option<Box<dyn ReplayRecord>> {
    let request = create(number);
    let call_record = RequestRecord::new(&process.records, &request, &encode(&request)).unwrap();
    let place = (3, Xid(100 + u64::from(number)));
    call_record.launched(place.0, place.1);
    process.report(steps);
    let done = Some((BootEpoch(1), Transno(10 + u64::from(number))));
    let replay_record = Box::new(call_record).answered(&Answered {
        place,
        request: &payload(encode(&request)),
        answer: &payload(encode(&Reply::Done)),
        done,
    });
    process.report(steps + 1);
    replay_record
}

/// Two changes in one slot; the first becomes durable, the second is done again in a later process.
#[test]
fn changes_asked_of_the_mdt() {
    at_every_store(
        |process| {
            let first = ask(process, 0, 1);
            let second = ask(process, 1, 3);
            drop(first);
            process.report(5);
            let second = second.inspect(|second| {
                second.done_again((BootEpoch(3), Transno(4)));
            });
            process.report(6);
            drop(second);
            process.report(7);
        },
        |next, reported| {
            let again = |xid| {
                let mut asked = next.asked.unanswered.iter();
                asked.any(|asked| asked.place == (3, Xid(xid)))
            };
            let kept: BTreeMap<u64, (BootEpoch, Transno)> = next
                .asked
                .undurable
                .iter()
                .map(|kept| (kept.place.1.0, kept.done))
                .collect();
            // Sent, it is asked again until it is answered; answered, it is kept until it is durable.
            assert!(reported != 1 || again(100) != kept.contains_key(&100));
            assert!(reported != 3 || again(101) != kept.contains_key(&101));
            assert!(!(2..=4).contains(&reported) || kept.contains_key(&100) || reported == 4);
            assert!(!(4..=5).contains(&reported) || kept.contains_key(&101));
            assert!(
                reported < 2 || !again(100),
                "a slot is not used twice at once"
            );
            assert!(reported < 4 || !again(101));
            assert!(reported < 5 || !kept.contains_key(&100));
            match (reported, kept.get(&101)) {
                (0..=5, Some(done)) => assert!(done.1 == Transno(11) || reported == 5),
                (6, Some(done)) => assert_eq!(*done, (BootEpoch(3), Transno(4))),
                (7, found) => assert_eq!(found, None),
                _ => {}
            }
        },
    );
}

/// A change for a request of the kernel is found until that is answered, durable or not.
#[test]
fn an_answer_stays_for_the_kernel_and_for_the_mdt() {
    let memory = Region::create(8 << 20).unwrap();
    let death = Death::after(u64::MAX);
    let (mut process, _takeover) = Process::begin(&memory, &death).unwrap();
    let found = |what: &str| {
        let (_, takeover) = Process::begin(&memory, &Death::after(0)).unwrap();
        let redone = Redone::default();
        let kept = takeover.asked(&redone).undurable.len();
        assert_eq!(format!("{kept} {}", redone.count()), what);
    };
    let origin = Origin::new(77);
    let replay_record = Origin::run(&origin, || ask(&mut process, 0, 1));
    found("1 1");
    drop(origin);
    found("1 0");
    drop(replay_record);
    found("0 0");
    let origin = Origin::new(78);
    let replay_record = Origin::run(&origin, || ask(&mut process, 1, 3));
    drop(replay_record);
    found("0 1");
    drop(origin);
    found("0 0");
}

#[test]
fn errors_that_nobody_was_told_of() {
    at_every_store(
        |process| {
            let (one, two) = (process.open(), process.open());
            process.report(1);
            let fail = |file: &mut crate::cache::file::FileState| file.errors.add(FsError::NoSpace);
            process.state.with_pages(FILE, fail);
            process.report(2);
            let _ = two;
            sync(&mut process.state, one).unwrap_err();
            process.report(3);
        },
        |next, step| {
            let [one, two] = [1, 2].map(|id| {
                let found = next.state.handles.file(HandleId(id)).is_some();
                found.then(|| sync(&mut next.state, HandleId(id)))
            });
            match step {
                0 | 1 => {}
                // An error that was just being reported may be reported again.
                2 => assert_eq!(two, Some(Err(FsError::NoSpace)), "{one:?}"),
                _ => assert_eq!((one, two), (Some(Ok(())), Some(Err(FsError::NoSpace)))),
            }
            let once = [1, 2].map(|id| {
                let found = next.state.handles.file(HandleId(id)).is_some();
                found.then(|| sync(&mut next.state, HandleId(id)))
            });
            assert!(once.iter().flatten().all(Result::is_ok), "told once");
        },
    );
}

/// Nobody who opens the file in the next process is told by close what one has said in this.
#[test]
fn what_a_close_has_said() {
    at_every_store(
        |process| {
            let one = process.open();
            let fail = |file: &mut crate::cache::file::FileState| file.errors.add(FsError::NoSpace);
            process.state.with_pages(FILE, fail);
            process.report(1);
            let reported = process.state.handles.file(one).unwrap().reported();
            let file = process.state.cache.file(FILE);
            file.errors.close(reported).unwrap_err();
            process.report(2);
        },
        |next, step| {
            let one = next
                .state
                .handles
                .file(HandleId(1))
                .map(|open| open.reported());
            let errors = &mut next.state.cache.file(FILE).errors;
            let mut later = errors.at_open();
            match step {
                0 => {}
                1 => assert_eq!(errors.close(one.unwrap()), Err(FsError::NoSpace)),
                _ => assert_eq!(errors.close(later), Ok(())),
            }
            if step > 0 {
                assert_eq!(errors.close(one.unwrap()), Err(FsError::NoSpace));
                assert_eq!(errors.sync(&mut later, None), Err(FsError::NoSpace));
            }
        },
    );
}

/// What an fsync says.
fn sync(state: &mut State, handle: HandleId) -> Result<(), FsError> {
    let record = state.handles.record(handle);
    let open = state.handles.file(handle).unwrap();
    open.sync(&mut state.cache.file(FILE).errors, record)
}
