//! Write leases that outlive a boot of the target: their holders claim them before anybody is served.

mod support;

use base::{ClientId, Fid, FsError, LockHandle, Xid};
use support::sets::*;
use support::*;
use wire::FileKind;
use wire::mdt::{Callback, OpenIntent, Reply, Request};
use wire::update::{LeasedDir, Replacement, UpdateNote};

/// A holder of the write lease of a directory, and a visitor.
struct Held {
    world: World,
    holder: ClientId,
    visitor: ClientId,
    dir: Fid,
    /// In the directory.
    file: Fid,
    lease: LockHandle,
}

impl Held {
    fn new() -> Held {
        let mut world = World::new();
        let (holder, visitor) = (world.connect(1), world.connect(2));
        let dir = world.mkdir(holder, Fid::ROOT, "d");
        let file = world.touch(holder, dir, "f");
        let _ = [holder, visitor].map(|client| world.fid(client));
        world.flush();
        [holder, visitor]
            .into_iter()
            .for_each(|client| give_all_back(&mut world, client));
        let lease = world.leased(holder, &[dir])[0].lease;
        assert_ne!(lease, LockHandle(0));
        world.client(holder).manners = Manners::Silent;
        Held {
            world,
            holder,
            visitor,
            dir,
            file,
            lease,
        }
    }

    fn claim(&mut self, client: ClientId) -> Result<Option<LockHandle>, FsError> {
        let request = Request::ReclaimLease { dir: self.dir };
        match self.world.call(client, request)? {
            Reply::WriteLease { grant, .. } => Ok(grant.map(|grant| grant.handle)),
            other => panic!("{other:?}"),
        }
    }

    fn set(&self, dir: Fid, lease: LockHandle, changes: Vec<wire::update::Change>) -> Request {
        let dirs = vec![LeasedDir {
            dir,
            lease,
            changed: NOW,
        }];
        Request::Update { dirs, changes }
    }

    fn ready(&mut self) {
        [self.holder, self.visitor]
            .into_iter()
            .for_each(|client| self.world.ready(client));
        assert!(!self.world.mds.recovery().is_open());
    }

    fn is_called_back(&mut self, lease: LockHandle) -> bool {
        let holder = self.holder;
        self.world.answer_questions();
        let asked = &self.world.client(holder).asked;
        asked
            .iter()
            .any(|asked| matches!(asked, Callback::Blocking { handle, .. } if *handle == lease))
    }

    fn lookup(&mut self, text: &str) -> u64 {
        let (visitor, dir, name) = (self.visitor, self.dir, name(text));
        self.world.send(visitor, Request::Lookup { dir, name })
    }
}

fn notes_of(answer: Answer) -> Vec<UpdateNote> {
    match answer.0 {
        Ok(Reply::Updated { notes, .. }) => notes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn write_leases_are_claimed_before_anybody_is_served() {
    let mut held = Held::new();
    held.world.crash_awaiting();
    let looked = held.lookup("f");
    let lease = held.claim(held.holder).expect("its own").expect("free");
    assert_ne!(lease, held.lease, "of this boot");
    assert_eq!(held.claim(held.visitor), Ok(None), "one has it");
    held.ready();
    assert_eq!(held.world.poll(looked), None);
    assert!(held.is_called_back(lease));
    let holder = held.holder;
    give_all_back(&mut held.world, holder);
    assert!(held.world.poll(looked).is_some());
}

#[test]
fn nobody_claims_what_it_may_have_lost() {
    let mut held = Held::new();
    assert_eq!(held.claim(held.holder), Err(FsError::Stale));
    held.world.crash_awaiting();
    held.world.ready(held.holder);
    assert_eq!(held.claim(held.holder), Err(FsError::Stale), "it is ready");
    let stranger = held.world.connect(3);
    assert_eq!(
        held.claim(stranger),
        Err(FsError::Stale),
        "nobody awaits it"
    );
    held.world.ready(held.visitor);
    assert_eq!(held.claim(held.visitor), Err(FsError::Stale));
    held.dir = Fid::new(Fid::SEQUENCE_FIRST, 77);
    held.world.crash_awaiting();
    assert_eq!(held.claim(held.holder), Err(FsError::Stale));
}

#[test]
fn sets_of_the_boot_before_count_under_claimed_leases_and_come_first() {
    for durable in [false, true] {
        let mut held = Held::new();
        let (holder, dir) = (held.holder, held.dir);
        held.world.auto_flush = false;
        let (sub, below, written_file) = (
            held.world.fid(holder),
            held.world.fid(holder),
            held.world.fid(holder),
        );
        let frame = [
            held.set(
                dir,
                held.lease,
                vec![
                    make(0, "sub", made(sub, FileKind::Directory)),
                    make(0, "w", written(written_file, 0, Some(WRITE))),
                ],
            ),
            held.set(
                sub,
                LockHandle(0),
                vec![make(0, "x", made(below, FileKind::Regular))],
            ),
        ];
        let send = |world: &mut World, index: usize| {
            let request = frame[index].clone();
            world.send_in(holder, 7, Xid(1000), index as u16, request)
        };
        if durable {
            // The second one the boot before has not done.
            send(&mut held.world, 0);
            held.world.flush();
        }
        held.world.crash_awaiting();
        let looked = held.lookup("sub");
        let tags = [0, 1].map(|index| send(&mut held.world, index));
        assert!(tags.iter().all(|tag| held.world.poll(*tag).is_none()));
        held.claim(holder).expect("its own").expect("free");
        let [first, second] = tags.map(|tag| {
            let answer = held.world.poll(tag);
            answer.unwrap_or_else(|| {
                // That the file is written is to be durable first.
                held.world.flush();
                held.world.poll(tag).expect("it does not wait for others")
            })
        });
        held.ready();
        let notes = notes_of(first);
        assert_eq!(lease_of(&notes_of(second), 0), None, "durable: {durable}");
        let lease = lease_of(&notes, 0).expect("of this boot");
        assert!(held.world.mds.locks().holds_write_lease(holder, sub));
        let (_, ticket, is_locked) = opened(&notes);
        assert!(is_locked && ticket.open_epoch > 0);
        // The visitor enters both.
        assert_eq!(held.world.poll(looked), None);
        give_all_back(&mut held.world, holder);
        assert!(held.is_called_back(lease) || held.world.poll(looked).is_some());
        held.world.auto_flush = true;
        let visitor = held.visitor;
        assert_eq!(held.world.names(visitor, sub), ["x"]);
        held.world.flush();
        held.world.check();
    }
}

#[test]
fn a_set_that_removes_a_directory_does_not_overtake_the_one_that_empties_it() {
    for is_claimed_first in [false, true] {
        let mut held = Held::new();
        let (holder, dir) = (held.holder, held.dir);
        let sub = held.world.mkdir(holder, dir, "sub");
        let inside = held.world.touch(holder, sub, "x");
        held.world.flush();
        give_all_back(&mut held.world, holder);
        let leases: Vec<LockHandle> = held
            .world
            .leased(holder, &[dir, sub])
            .iter()
            .map(|leased| leased.lease)
            .collect();
        let frame = [
            held.set(sub, leases[1], vec![remove(0, "x", inside)]),
            held.set(dir, leases[0], vec![remove(0, "sub", sub)]),
        ];
        held.world.crash_awaiting();
        if is_claimed_first {
            held.claim(holder).expect("its own").expect("free");
        }
        let tags = [0, 1].map(|index| {
            let request = frame[usize::from(index)].clone();
            held.world.send_in(holder, 7, Xid(1000), index, request)
        });
        if !is_claimed_first {
            held.claim(holder).expect("its own").expect("free");
        }
        assert!(tags.iter().all(|tag| held.world.poll(*tag).is_none()));
        held.dir = sub;
        held.claim(holder).expect("its own").expect("free");
        for tag in tags {
            let answer = held.world.poll(tag).expect("it waits for nobody");
            assert!(matches!(answer.0, Ok(Reply::Updated { .. })), "{answer:?}");
        }
        held.ready();
        held.world.check();
    }
}

/// Their client is ready when they are answered, and claims no lease for them.
#[test]
fn closes_of_the_boot_before_are_answered_while_nobody_is_served() {
    for is_done in [false, true] {
        let mut held = Held::new();
        let (holder, dir, file) = (held.holder, held.dir, held.file);
        let handle = held.world.open(holder, file, WRITE).expect("it may");
        let close = held.set(dir, held.lease, vec![sized(file, 7, handle)]);
        let send = |world: &mut World, request: &Request, xid: u64| {
            world.send_in(holder, 7, Xid(xid), 0, request.clone())
        };
        if is_done {
            let done = send(&mut held.world, &close, 1000);
            assert!(held.world.wait(done).0.is_ok());
            held.world.flush();
        }
        held.world.crash_awaiting();
        let closed = send(&mut held.world, &close, 1000);
        let answer = held.world.poll(closed).expect("it waits for nobody").0;
        match is_done {
            true => assert!(matches!(answer, Ok(Reply::Updated { .. })), "{answer:?}"),
            false => assert_eq!(answer, Err(FsError::Stale)),
        }
        let changes = vec![sized(file, 7, handle), remove(0, "other", file)];
        let more = held.set(dir, held.lease, changes);
        let waits = send(&mut held.world, &more, 1001);
        assert_eq!(
            held.world.poll(waits),
            None,
            "a lease may be claimed for it"
        );
        held.ready();
        held.world.check();
    }
}

#[test]
fn a_set_of_a_directory_that_is_gone_is_answered_by_its_record() {
    let mut held = Held::new();
    let (holder, dir) = (held.holder, held.dir);
    let sub = held.world.mkdir(holder, dir, "sub");
    let inside = held.world.touch(holder, sub, "x");
    held.world.flush();
    give_all_back(&mut held.world, holder);
    let leases = held.world.leased(holder, &[dir, sub]);
    let frame = [
        held.set(sub, leases[1].lease, vec![remove(0, "x", inside)]),
        held.set(dir, leases[0].lease, vec![remove(0, "sub", sub)]),
    ];
    let send = |world: &mut World| {
        [0, 1].map(|index| {
            let request = frame[usize::from(index)].clone();
            world.send_in(holder, 7, Xid(1000), index, request)
        })
    };
    for tag in send(&mut held.world) {
        assert!(held.world.wait(tag).0.is_ok());
    }
    held.world.flush();
    held.world.crash_awaiting();
    let tags = send(&mut held.world);
    held.claim(holder).expect("its own").expect("free");
    held.dir = sub;
    assert_eq!(held.claim(holder), Err(FsError::Stale));
    for tag in tags {
        let answer = held.world.poll(tag).expect("it waits for nobody").0;
        assert!(matches!(answer, Ok(Reply::Updated { .. })), "{answer:?}");
    }
    held.ready();
    held.world.check();
}

/// A process that takes over is ready when its sets are answered.
#[test]
fn a_set_whose_lease_is_refused_is_refused_at_once() {
    let mut held = Held::new();
    let (holder, visitor, dir) = (held.holder, held.visitor, held.dir);
    let set = held.set(dir, LockHandle(0), vec![remove(0, "f", held.file)]);
    held.world.crash_awaiting();
    let before = held.world.send(holder, set.clone());
    assert_eq!(held.world.poll(before), None, "a claim may come");
    held.claim(visitor).expect("the first").expect("free");
    assert_eq!(held.claim(holder), Ok(None));
    let after = held.world.send(holder, set);
    for tag in [before, after] {
        let answer = held.world.poll(tag).expect("it waits for nobody").0;
        assert_eq!(answer, Err(FsError::Stale));
    }
    held.ready();
    assert_eq!(held.world.names(holder, dir), ["f"]);
    held.world.check();
}

#[test]
fn a_set_under_a_claimed_lease_is_done_while_nobody_is_served() {
    let mut held = Held::new();
    let (holder, dir, old) = (held.holder, held.dir, held.lease);
    let fid = held.world.fid(holder);
    held.world.crash_awaiting();
    let lease = held.claim(holder).expect("its own").expect("free");
    let changes = vec![make(0, "new", made(fid, FileKind::Regular))];
    for lease in [lease, old, LockHandle(0)] {
        let set = held.set(dir, lease, changes.clone());
        let answer = held.world.call(holder, set);
        // Nobody else was in the directory: what is in its place was made by this client.
        assert!(matches!(answer, Ok(Reply::Updated { .. })), "{answer:?}");
    }
    held.ready();
    let set = held.set(dir, lease, changes);
    let again = held.world.call(holder, set);
    assert!(
        matches!(again, Ok(Reply::UpdateRefused { .. })),
        "{again:?}"
    );
    let fid = held.world.fid(holder);
    let changes = vec![make(0, "later", made(fid, FileKind::Regular))];
    let set = held.set(dir, old, changes);
    assert_eq!(
        held.world.call(holder, set),
        Err(FsError::Stale),
        "of the boot before"
    );
    held.world.check();
}

#[test]
fn a_set_under_a_lease_that_is_not_the_clients_does_nothing() {
    let mut held = Held::new();
    let (holder, visitor, dir) = (held.holder, held.visitor, held.dir);
    let other = held.world.mkdir(holder, Fid::ROOT, "e");
    let fid = held.world.fid(visitor);
    let changes = vec![make(0, "new", made(fid, FileKind::Regular))];
    let foreign = [
        (dir, LockHandle(0)),
        (dir, held.lease),
        (dir, LockHandle(u64::MAX)),
        (other, LockHandle(0)),
        (other, held.lease),
    ];
    for (dir, lease) in foreign {
        let set = held.set(dir, lease, changes.clone());
        assert_eq!(held.world.call(visitor, set), Err(FsError::Stale));
    }
    let own = held.world.fid(holder);
    let changes = vec![make(0, "new", made(own, FileKind::Regular))];
    let set = held.set(dir, held.lease, changes);
    assert!(held.world.call(holder, set).is_ok(), "its own goes on");
}

#[test]
fn nobody_is_answered_before_the_end_of_a_holder_that_did_not_come_is_durable() {
    let mut held = Held::new();
    held.world.crash_awaiting();
    held.world.auto_flush = false;
    let looked = held.lookup("f");
    held.world.ready(held.visitor);
    let (tick, wall) = (held.world.tick, held.world.wall);
    let mut out = Vec::new();
    held.world.mds.give_up_waiting(tick, wall, &mut out);
    let is_answer = |output: &mds::Output| matches!(output, mds::Output::Reply { .. });
    assert!(!out.iter().any(is_answer), "{out:?}");
    let later = held.lookup("none");
    assert_eq!(held.world.poll(later), None);
    held.world.flush();
    assert!(held.world.poll(looked).is_some() && held.world.poll(later).is_some());
}

#[test]
fn a_child_that_others_used_before_the_restart_is_not_covered() {
    for claims_first in [false, true] {
        let mut held = Held::new();
        let (holder, visitor, dir, fid) = (held.holder, held.visitor, held.dir, held.file);
        held.world.crash_awaiting();
        if claims_first {
            held.claim(holder).expect("its own").expect("free");
        }
        let again = Request::Open {
            fid,
            dir: Fid::NONE,
            access: READ,
            intent: OpenIntent::Reopen,
        };
        held.world.call(visitor, again).expect("told again");
        if !claims_first {
            held.claim(holder).expect("its own").expect("free");
        }
        held.ready();
        let locks = held.world.mds.locks();
        assert!(locks.is_closed(visitor, dir) && locks.is_outside(holder, dir, fid));
        held.world.getattr(visitor, fid).expect("it need not enter");
        let set = held.set(dir, LockHandle(0), vec![remove(0, "f", fid)]);
        let refused = held.world.call(holder, set);
        let is_busy = |reply: &Reply| {
            matches!(
                reply,
                Reply::UpdateRefused {
                    error: FsError::Busy,
                    ..
                }
            )
        };
        assert!(refused.as_ref().is_ok_and(is_busy), "{refused:?}");
    }
}

#[test]
fn what_the_process_before_has_made_is_not_made_twice() {
    let mut held = Held::new();
    let (holder, dir) = (held.holder, held.dir);
    let (sub, f) = (held.world.fid(holder), held.world.fid(holder));
    let made_before = vec![make(0, "sub", made(sub, FileKind::Directory))];
    let set = held.set(dir, held.lease, made_before.clone());
    held.world.call(holder, set).expect("made");
    let mut out = Vec::new();
    let (tick, wall) = (held.world.tick, held.world.wall);
    held.world.mds.succeeded(tick, wall, holder, &mut out);
    let mut all = made_before;
    all.push(make(0, "g", made(f, FileKind::Regular)));
    let set = held.set(dir, held.lease, all.clone());
    let (_, notes) = match held.world.call(holder, set) {
        Ok(Reply::Updated { transno, notes, .. }) => (transno, notes),
        other => panic!("{other:?}"),
    };
    assert!(lease_of(&notes, 0).is_some());
    let elsewhere = vec![make(0, "other", made(sub, FileKind::Directory))];
    let set = held.set(dir, held.lease, elsewhere);
    let moved = held.world.call(holder, set);
    assert!(
        matches!(moved, Ok(Reply::UpdateRefused { .. })),
        "{moved:?}"
    );
    held.world.flush();
    held.world.check();
}

#[test]
fn names_that_the_process_before_has_taken_away_go_once() {
    let mut held = Held::new();
    let (holder, dir, file) = (held.holder, held.dir, held.file);
    let (g, new) = (held.world.fid(holder), held.world.fid(holder));
    let before = vec![
        remove(0, "f", file),
        make(0, "g", made(g, FileKind::Regular)),
    ];
    let set = held.set(dir, held.lease, before);
    held.world.call(holder, set).expect("done");
    let replaced = Replacement::Made(made(new, FileKind::Regular));
    let replaced = vec![replace_by(0, "g", g, replaced)];
    let again = vec![remove(0, "f", file), replaced[0].clone()];
    let set = held.set(dir, held.lease, replaced);
    held.world.call(holder, set).expect("done");
    let set = held.set(dir, held.lease, again.clone());
    let refused = held.world.call(holder, set.clone());
    assert!(
        matches!(refused, Ok(Reply::UpdateRefused { .. })),
        "{refused:?}"
    );
    let mut out = Vec::new();
    let (tick, wall) = (held.world.tick, held.world.wall);
    held.world.mds.succeeded(tick, wall, holder, &mut out);
    let answer = held.world.call(holder, set);
    assert!(matches!(answer, Ok(Reply::Updated { .. })), "{answer:?}");
    // It leads to another file than the one that was to lose it.
    let set = held.set(dir, held.lease, vec![remove(0, "g", g)]);
    let refused = held.world.call(holder, set);
    assert!(
        matches!(refused, Ok(Reply::UpdateRefused { .. })),
        "{refused:?}"
    );
    assert_eq!(held.world.names(holder, dir), ["g"]);
    held.world.flush();
    held.world.check();
}
