//! A process ends while it puts in order what the one before it left. Nothing of that is lost by
//! it, whatever it had told the servers already.

use super::contents::{all_is_durable, resize, to_be_redone};
use super::*;
use wire::shape::Shape;

/// Something of every kind is left.
fn leave(process: &mut Process) {
    process.sessions.remember(session(1));
    process.state.refer(FILE);
    process.state.refer(FILE);
    let _ = process.open();
    let fail = |file: &mut crate::cache::file::FileState| file.errors.add(FsError::NoSpace);
    process.state.with_pages(FILE, fail);
    let file = process.state.cache.file(FILE);
    file.locks.grant_exclusive(LockHandle(5));
    file.change.merge(&mode(5), &attr_at(TargetIndex(0)));
    process.state.journal_change(FILE, Tick(0));
    let now = base::Timestamp::default();
    resize(process, Shape::Size(2));
    assert!(process.state.journal_bytes(FILE, now, 2, b"new"));
    // One change that was answered, one that was not.
    std::mem::forget(ask(process, 1, 1));
    let request = create(0);
    let call_record = RequestRecord::new(&process.records, &request, &encode(&request)).unwrap();
    call_record.launched(4, Xid(100));
    std::mem::forget(call_record);
}

fn session(process: u64) -> TargetBody {
    TargetBody {
        target: TargetName::mdt(0),
        session: SessionId(3),
        epoch: BootEpoch(process),
    }
}

const FOUND: u32 = 1;
const CONNECTED: u32 = 2;
const WRITTEN: u32 = 3;
const CHANGED: u32 = 4;
const ANSWERED: u32 = 5;
const REPLAYED: u32 = 6;
const DURABLE: u32 = 7;

/// What taking over does to the memory.
fn put_in_order(process: &mut Process, takeover: &TakeoverState) {
    let asked = takeover.asked(&Redone::default());
    let taken_over = takeover.restore(&mut process.state);
    process.report(FOUND);
    process.sessions.remember(session(2));
    process.report(CONNECTED);
    all_is_durable(&mut process.state);
    process.report(WRITTEN);
    drop(taken_over.changes);
    process.report(CHANGED);
    let mut kept: Vec<Box<dyn ReplayRecord>> = Vec::new();
    for undurable in asked.undurable {
        kept.push(undurable.replay_record);
    }
    for unanswered in asked.unanswered {
        let done = Some((BootEpoch(2), Transno(1)));
        kept.extend(unanswered.call_record.answered(&Answered {
            place: unanswered.place,
            request: &payload(encode(&create(0))),
            answer: &payload(encode(&Reply::Done)),
            done,
        }));
    }
    process.report(ANSWERED);
    let again = (BootEpoch(2), Transno(2));
    kept.iter().for_each(|kept| kept.done_again(again));
    process.report(REPLAYED);
    drop(kept);
    process.report(DURABLE);
}

#[test]
fn what_was_left_is_found_again_until_it_is_settled() {
    at_every_store_of_the_next(leave, put_in_order, |next, step| {
        let known = next.state.cache.known(FILE).map(Inode::lookups);
        assert_eq!(known, Some(2));
        assert_eq!(next.state.handles.counts().0, 1);
        let error = sync(&mut next.state, HandleId(1));
        assert_eq!(error, Err(FsError::NoSpace), "after step {step}");
        let epoch = next.sessions.first().map(|(_, legacy)| legacy.epoch.0);
        match step {
            0 => assert_eq!(epoch, Some(1)),
            FOUND => assert!([Some(1), Some(2)].contains(&epoch), "{epoch:?}"),
            _ => assert_eq!(epoch, Some(2)),
        }
        let all = (vec![Shape::Size(2)], vec![(2, b"new".to_vec())]);
        let (shapes, writes) = to_be_redone(&mut next.state);
        match step {
            0 | FOUND => assert_eq!((shapes, writes), all),
            // The OST has all: what is done once more of it changes nothing, in this order.
            CONNECTED => assert!(shapes.is_empty() || writes == all.1),
            _ => assert_eq!((shapes, writes), (vec![], vec![])),
        }
        let changes = next.taken_over.changes.iter();
        let modes: Vec<_> = changes.filter_map(|(body, _)| body.change.mode).collect();
        match step {
            WRITTEN => assert!(modes.is_empty() || modes == [5]),
            _ => assert_eq!(modes == [5], step < WRITTEN),
        }
        let again = next
            .asked
            .unanswered
            .iter()
            .any(|a| a.place == (4, Xid(100)));
        let kept = |xid| {
            next.asked
                .undurable
                .iter()
                .any(|kept| kept.place.1 == Xid(xid))
        };
        match step {
            0..CHANGED => assert!(again && !kept(100) && kept(101)),
            CHANGED => assert!(again != kept(100) && kept(101)),
            ANSWERED => assert!(!again && kept(100) && kept(101)),
            REPLAYED => assert!(!again),
            _ => assert!(!again && !kept(100) && !kept(101)),
        }
    });
}
