//! A process is stopped after each of its stores: what the next one finds is in order, and holds
//! everything that anybody was told of.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{BootEpoch, FsError, Name, TargetIndex, TargetName, Tick, Transno, Xid};
use handover::Death;
use rpc::{Answered, CallRecord, ClientSecret, ReplayRecord};
use wire::frame::{Payload, SessionId, Sub};
use wire::mdt::{Caller, Reply, Request};

use super::*;

#[path = "contents_tests.rs"]
mod contents;
#[path = "in_order_tests.rs"]
mod in_order;

use crate::executor::Origin;
use crate::journal::call_records::RequestRecord;
use crate::journal::record::encode;
use crate::policy::readahead::ReadAhead;
use crate::rig::attr_at;
use crate::session::handles::FileHandle;
use crate::session::locks::Locks;
use crate::session::state::State;

const FILE: Fid = Fid(0x100_0001);
/// More stores than any of these lives makes.
const STORES_MAX: u64 = 10_000;

/// One process in the memory, and what it has told others.
struct Life {
    state: State,
    records: Records,
    sessions: Sessions,
    death: Death,
    /// The last step that was through before the end.
    told: u32,
}

impl Life {
    fn begin(memory: &OwnedFd, death: &Death) -> Option<(Life, TakeoverState)> {
        let region = Region::mapped_until(memory, death).ok()?;
        let takeover = TakeoverState::open(region, ClientSecret([7; 16]))?;
        let records = takeover.records().clone();
        let targets = vec![TargetIndex(0)];
        let mut state = State::new(Locks::new(targets), Arc::new(AtomicU64::new(0)));
        state.journal.begin(records.clone());
        let life = Life {
            state,
            records,
            sessions: takeover.sessions().clone(),
            death: death.clone(),
            told: 0,
        };
        Some((life, takeover))
    }

    /// A step is through, and somebody hears of it.
    fn tell(&mut self, step: u32) {
        if !self.death.has_come() {
            self.told = step;
        }
    }

    fn open(&mut self) -> HandleId {
        let reported = self.state.cache.file(FILE).errors.at_open();
        self.state.add_file(FileHandle {
            fid: FILE,
            access: Access::default(),
            append: false,
            readahead: ReadAhead::new(),
            exec: None,
            reported,
        })
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

/// Runs `work` again and again, each time with one store more before its end, and has `check` look at
/// what is left and which step was told last.
fn at_every_store(work: impl Fn(&mut Life), check: impl Fn(&mut Next, u32)) {
    let mut most = 0;
    for stores in 0..STORES_MAX {
        let (memory, death) = (Region::create(8 << 20).unwrap(), Death::after(stores));
        let mut told = 0;
        if let Some((mut life, _takeover)) = Life::begin(&memory, &death) {
            work(&mut life);
            told = life.told;
            std::mem::forget(life);
        }
        check(&mut next_of(&memory), told);
        most = most.max(told);
        if !death.has_come() {
            assert!(most > 0 && told == most, "the work was done");
            return;
        }
    }
    panic!("the work has no end");
}

/// The same for the process after it: `work` is through, and `again`, which puts in order what was
/// left, ends after each of its stores.
fn at_every_store_of_the_next(
    work: impl Fn(&mut Life),
    again: impl Fn(&mut Life, &TakeoverState),
    check: impl Fn(&mut Next, u32),
) {
    let mut most = 0;
    for stores in 0..STORES_MAX {
        let memory = Region::create(8 << 20).unwrap();
        let (mut life, takeover) = Life::begin(&memory, &Death::after(u64::MAX)).unwrap();
        work(&mut life);
        std::mem::forget((life, takeover));
        let (death, mut told) = (Death::after(stores), 0);
        if let Some((mut life, takeover)) = Life::begin(&memory, &death) {
            again(&mut life, &takeover);
            told = life.told;
            std::mem::forget((life, takeover));
        }
        check(&mut next_of(&memory), told);
        most = most.max(told);
        if !death.has_come() {
            assert!(most > 0 && told == most, "the work was done");
            return;
        }
    }
    panic!("the work has no end");
}

/// What a process finds that lives on.
fn next_of(memory: &OwnedFd) -> Next {
    let (mut life, takeover) = Life::begin(memory, &Death::after(u64::MAX)).unwrap();
    Next {
        sessions: takeover.legacies(),
        asked: takeover.asked(&Redone::default()),
        taken_over: takeover.restore(&mut life.state),
        state: life.state,
    }
}

#[test]
fn files_that_the_kernel_knows() {
    let known = |life: &mut Life, lookups| {
        life.state.cache.inode(FILE).lookups = lookups;
        life.state.note_lookups(FILE);
    };
    at_every_store(
        |life| {
            for (step, lookups) in [(1, 1), (2, 2), (3, 0), (4, 1)] {
                known(life, lookups);
                life.tell(step);
            }
        },
        |next, told| {
            let found = next
                .state
                .cache
                .known(FILE)
                .map_or(0, |inode| inode.lookups);
            let right: &[u64] = match told {
                0 => &[0, 1],
                1 => &[1, 2],
                2 => &[2, 0],
                3 => &[0, 1],
                _ => &[1],
            };
            assert!(right.contains(&found), "{found} after step {told}");
        },
    );
}

#[test]
fn open_files() {
    at_every_store(
        |life| {
            let first = life.open();
            life.tell(1);
            let second = life.open();
            life.tell(2);
            life.state.handles.remove_file(first);
            life.tell(3);
            let _ = second;
        },
        |next, told| {
            let open = next.state.handles.counts().0;
            let right = match told {
                0 => 0..=1,
                1 => 1..=2,
                2 => 1..=2,
                _ => 1..=1,
            };
            assert!(right.contains(&open), "{open} after step {told}");
            let opens = &next.state.cache.file(FILE).opens;
            assert_eq!(opens.is_read(), open > 0);
        },
    );
}

#[test]
fn attributes_changed_under_a_lock() {
    at_every_store(
        |life| {
            for step in 1..=4 {
                let file = life.state.cache.file(FILE);
                file.locks.grant_exclusive(LockHandle(5));
                file.change
                    .merge(&mode(step as u16), &attr_at(TargetIndex(0)));
                life.state.journal_change(FILE, Tick(0));
                life.tell(step);
            }
            life.state.cache.file(FILE).change.keep_record(None);
            life.tell(5);
        },
        |next, told| {
            let changes = next.taken_over.changes.iter();
            let modes = changes.filter_map(|(body, _)| body.change.mode);
            let found: Vec<u32> = modes.map(u32::from).collect();
            let right: &[u32] = match told {
                0 => &[0, 1],
                4 => &[4, 0],
                5 => &[0],
                _ => &[told, told + 1],
            };
            let found = match found[..] {
                [] => 0,
                [mode] => mode,
                _ => panic!("{found:?}: one file has one state"),
            };
            assert!(right.contains(&found), "{found} after step {told}");
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
        |life| {
            for step in 1..=6 {
                life.sessions.remember(session(step));
                life.tell(step);
            }
        },
        |next, told| {
            let found = next.sessions.first();
            let found = found.map(|(_, legacy)| (legacy.epoch, legacy.session));
            let known = |step: u32| {
                let TargetBody { epoch, session, .. } = session(step);
                (step > 0).then_some((epoch, session))
            };
            assert!([known(told), known(told + 1)].contains(&found), "{found:?}");
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
        |life| {
            life.sessions.remember(session(1));
            life.tell(1);
            for step in 2..=6 {
                let committed = Transno(u64::from(step) * 10);
                life.sessions.committed(TargetName::ost(0), committed);
                life.tell(step);
                life.sessions.remember(session(step));
                // It may only grow.
                life.sessions.committed(TargetName::ost(0), Transno(1));
            }
        },
        |next, told| {
            let found = next.sessions.first();
            let found = found.map_or(0, |(_, legacy)| legacy.committed.0);
            let known = |step: u32| if step > 1 { u64::from(step) * 10 } else { 0 };
            assert!([known(told), known(told + 1)].contains(&found), "{found}");
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
fn ask(life: &mut Life, number: u8, steps: u32) -> Option<Box<dyn ReplayRecord>> {
    let request = create(number);
    let call_record = RequestRecord::new(&life.records, &request, &encode(&request)).unwrap();
    let place = (3, Xid(100 + u64::from(number)));
    call_record.launched(place.0, place.1);
    life.tell(steps);
    let done = Some((BootEpoch(1), Transno(10 + u64::from(number))));
    let replay_record = Box::new(call_record).answered(&Answered {
        place,
        request: &payload(encode(&request)),
        answer: &payload(encode(&Reply::Done)),
        done,
    });
    life.tell(steps + 1);
    replay_record
}

/// Two changes in one slot; the first becomes durable, the second is done again in a later life.
#[test]
fn changes_asked_of_the_mdt() {
    at_every_store(
        |life| {
            let first = ask(life, 0, 1);
            let second = ask(life, 1, 3);
            drop(first);
            life.tell(5);
            let second = second.inspect(|second| {
                second.done_again((BootEpoch(3), Transno(4)));
            });
            life.tell(6);
            drop(second);
            life.tell(7);
        },
        |next, told| {
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
            assert!(told != 1 || again(100) != kept.contains_key(&100));
            assert!(told != 3 || again(101) != kept.contains_key(&101));
            assert!(!(2..=4).contains(&told) || kept.contains_key(&100) || told == 4);
            assert!(!(4..=5).contains(&told) || kept.contains_key(&101));
            assert!(told < 2 || !again(100), "a slot is not used twice at once");
            assert!(told < 4 || !again(101));
            assert!(told < 5 || !kept.contains_key(&100));
            match (told, kept.get(&101)) {
                (0..=5, Some(done)) => assert!(done.1 == Transno(11) || told == 5),
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
    let (mut life, _takeover) = Life::begin(&memory, &death).unwrap();
    let found = |what: &str| {
        let (_, takeover) = Life::begin(&memory, &Death::after(0)).unwrap();
        let redone = Redone::default();
        let kept = takeover.asked(&redone).undurable.len();
        assert_eq!(format!("{kept} {}", redone.count()), what);
    };
    let origin = Origin::new(77);
    let replay_record = Origin::run(&origin, || ask(&mut life, 0, 1));
    found("1 1");
    drop(origin);
    found("1 0");
    drop(replay_record);
    found("0 0");
    let origin = Origin::new(78);
    let replay_record = Origin::run(&origin, || ask(&mut life, 1, 3));
    drop(replay_record);
    found("0 1");
    drop(origin);
    found("0 0");
}

#[test]
fn errors_that_nobody_was_told_of() {
    at_every_store(
        |life| {
            let (one, two) = (life.open(), life.open());
            life.tell(1);
            let fail = |file: &mut crate::cache::file::FileState| file.errors.add(FsError::NoSpace);
            life.state.with_pages(FILE, fail);
            life.tell(2);
            let _ = two;
            sync(&mut life.state, one).unwrap_err();
            life.tell(3);
        },
        |next, step| {
            let [one, two] = [1, 2].map(|id| {
                let found = next.state.handles.file(HandleId(id)).is_some();
                found.then(|| sync(&mut next.state, HandleId(id)))
            });
            match step {
                0 | 1 => {}
                // The caller that is just being told may be told again.
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
        |life| {
            let one = life.open();
            let fail = |file: &mut crate::cache::file::FileState| file.errors.add(FsError::NoSpace);
            life.state.with_pages(FILE, fail);
            life.tell(1);
            let told = life.state.handles.file(one).unwrap().reported;
            let file = life.state.cache.file(FILE);
            file.errors.close(told).unwrap_err();
            life.tell(2);
        },
        |next, step| {
            let one = next
                .state
                .handles
                .file(HandleId(1))
                .map(|open| open.reported);
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
    let errors = &mut state.cache.file(FILE).errors;
    errors.sync(&mut open.reported, record)
}
