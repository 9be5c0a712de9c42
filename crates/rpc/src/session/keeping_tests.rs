//! What a session keeps until it is durable, and what it sends a later boot of its target.

use base::FsError;

use super::*;
use crate::replier::{Room, Stored};
use crate::requester::{ReplayRecord, Urgency};
use crate::server_session::{Event as Heard, ServerSession};

fn welcome(epoch: u64, survived: u64, evicted: bool) -> Welcome {
    Welcome {
        version: 1,
        session: SessionId(epoch as u32),
        resumed: false,
        client: ClientId(1),
        boot_epoch: BootEpoch(epoch),
        slots: 8,
        last_committed: Transno(survived),
        survived: Transno(survived),
        evicted,
        now: base::Timestamp::default(),
    }
}

fn ask(session: &mut Session<u64>, number: u64) {
    submit(session, (number, 1), Urgency::Ordinary);
}

fn submit(session: &mut Session<u64>, (number, bytes): (u64, usize), urgency: Urgency) {
    let message = Message {
        opcode: 1,
        body: vec![number as u8; bytes],
    };
    let call = Call {
        payload: Arc::new(message.into()),
        lane: Lane::Control,
        urgency,
        deadline: None,
        token: number,
        call_record: None,
    };
    session.submit(call).unwrap();
}

/// What is sent next: kind, xid, whether resent, whether a replay.
fn next(session: &mut Session<u64>) -> Option<(FrameKind, u64, bool, bool)> {
    let header = session.poll_send(Lane::Control)?.header;
    Some((header.kind, header.xid.0, header.resent, header.replay))
}

fn answer(session: &mut Session<u64>, of: (u16, u64), transno: u64) -> Event<u64> {
    answer_with(session, of, transno, Payload::from(Message::default()))
}

fn answer_with(
    session: &mut Session<u64>,
    (slot, xid): (u16, u64),
    transno: u64,
    payload: Payload,
) -> Event<u64> {
    let header = Header {
        slot,
        xid: Xid(xid),
        transno: Transno(transno),
        session: session.id(),
        epoch: session.epoch().0 as u32,
        ..Header::new(FrameKind::Reply)
    };
    let frame = Frame {
        header,
        payload: Arc::new(payload),
    };
    session.handle(frame).unwrap()
}

/// Two changes, one request that changed nothing, and one without an answer.
fn with_changes() -> Session<u64> {
    let mut session = Session::new(Keeping::Changes);
    session.begin(&welcome(1, 0, false));
    session.lane_up(Lane::Control);
    (1..=4).for_each(|number| ask(&mut session, number));
    while next(&mut session).is_some() {}
    for (slot, transno) in [(0, 11), (1, 12), (2, 0)] {
        let xid = u64::from(slot) + 1;
        let event = answer(&mut session, (slot, xid), transno);
        assert!(matches!(event, Event::Replied(..)));
    }
    session.lane_down(Lane::Control);
    session
}

#[test]
fn what_is_kept_is_bounded_and_only_urgent_requests_go_beyond() {
    let mut session = Session::new(Keeping::Changes);
    session.begin(&welcome(1, 0, false));
    session.lane_up(Lane::Control);
    assert_eq!(next(&mut session).unwrap().0, FrameKind::Ready);
    let large = 4 << 20;
    let mut number = 0;
    let sent = loop {
        number += 1;
        submit(&mut session, (number, large), Urgency::Ordinary);
        let Some((_, xid, ..)) = next(&mut session) else {
            break number - 1;
        };
        answer(&mut session, (0, xid), 10 + number);
    };
    let kept = session.kept().1;
    assert!((REPLAY_BYTES_MAX..REPLAY_BYTES_MAX + large + 1000).contains(&kept));
    submit(&mut session, (100, 1), Urgency::Urgent);
    assert_eq!(next(&mut session).map(|sent| sent.1), Some(sent + 1));
    assert_eq!(next(&mut session), None);
    let header = Header {
        session: session.id(),
        epoch: 1,
        last_committed: Transno(11),
        ..Header::new(FrameKind::Committed)
    };
    session.handle(Frame::bare(header)).unwrap();
    assert_eq!(next(&mut session).map(|sent| sent.1), Some(sent + 2));
}

#[test]
fn what_a_target_lost_goes_first_and_then_what_it_did_not_answer() {
    let mut session = with_changes();
    assert_eq!(session.kept().0, 2);
    let begun = session.begin(&welcome(2, 11, false));
    assert!(matches!(begun, Begun::NewEpoch { .. }));
    session.lane_up(Lane::Control);
    ask(&mut session, 5);
    assert_eq!(
        next(&mut session),
        Some((FrameKind::Request, 2, false, true))
    );
    assert_eq!(next(&mut session), None, "not before it is answered");
    assert!(session.poll_send(Lane::Bulk).is_none());
    let event = answer(&mut session, (1, 2), 12);
    assert!(matches!(event, Event::Replayed { refused: false }));
    assert_eq!(
        next(&mut session),
        Some((FrameKind::Request, 4, true, false))
    );
    assert_eq!(
        next(&mut session),
        Some((FrameKind::Ready, 0, false, false))
    );
    assert_eq!(
        next(&mut session),
        Some((FrameKind::Request, 5, false, false))
    );
    assert_eq!(session.kept().0, 1, "until it is durable here, too");
}

#[test]
fn a_refusal_of_what_is_done_again_is_told_and_it_goes_on() {
    let mut session = with_changes();
    session.begin(&welcome(2, 11, false));
    session.lane_up(Lane::Control);
    assert!(matches!(
        next(&mut session),
        Some((FrameKind::Request, 2, _, true))
    ));
    let mut payload = Payload::from(Message::default());
    payload.subs[0].status = wire::status_of(Err(FsError::NotFound));
    let event = answer_with(&mut session, (1, 2), 0, payload);
    assert!(matches!(event, Event::Replayed { refused: true }));
    assert!(matches!(
        next(&mut session),
        Some((FrameKind::Request, 4, ..))
    ));
    assert_eq!(session.kept().0, 0);
}

/// The connection breaks before the answer is there, and again before it has come.
#[test]
fn what_is_sent_to_be_done_again_twice_is_handed_out_once() {
    let mut session = with_changes();
    session.begin(&welcome(2, 11, false));
    session.lane_up(Lane::Control);
    let mut server = ServerSession::<u64>::new(SessionId(2), BootEpoch(2));
    let frame = session.poll_send(Lane::Control).unwrap();
    let Ok(Heard::Request(request, _)) = server.handle(frame, Transno(11)) else {
        panic!("it is new to this life");
    };
    assert!(request.answered.is_some());
    let send_again = |session: &mut Session<u64>| {
        session.lane_down(Lane::Control);
        let resumed = Welcome {
            resumed: true,
            ..welcome(2, 11, false)
        };
        assert!(matches!(session.begin(&resumed), Begun::Resumed));
        session.lane_up(Lane::Control);
        let frame = session.poll_send(Lane::Control).unwrap();
        assert_eq!((frame.header.xid, frame.header.replay), (request.xid, true));
        frame
    };
    let again = send_again(&mut session);
    let heard = server.handle(again, Transno(11));
    assert!(matches!(heard, Ok(Heard::Nothing)), "it runs: {heard:?}");
    let stored = Stored {
        payload: Arc::new(Message::default().into()),
        transno: Transno(12),
    };
    server
        .reply(&request, stored, Room::ForAll, Transno(11))
        .unwrap();
    let again = send_again(&mut session);
    let Ok(Heard::Send(answer)) = server.handle(again, Transno(11)) else {
        panic!("it was done");
    };
    let event = session.handle(answer).unwrap();
    assert!(matches!(event, Event::Replayed { refused: false }));
    assert_eq!(
        next(&mut session),
        Some((FrameKind::Request, 4, true, false)),
        "what was not answered comes after that"
    );
}

#[test]
fn who_was_given_up_does_nothing_again() {
    let mut session = with_changes();
    let begun = session.begin(&welcome(2, 11, true));
    assert!(matches!(begun, Begun::Evicted(lost) if lost == [4]));
    session.lane_up(Lane::Control);
    assert_eq!(session.kept(), (0, 0));
    assert_eq!(
        next(&mut session),
        Some((FrameKind::Ready, 0, false, false))
    );
}

/// What the next process finds of what this one had done: shared, as memory is that outlives both.
type Found = Arc<std::sync::Mutex<Vec<(u64, u64)>>>;

/// Notes the boot and the number of what was done last.
#[derive(Debug)]
struct Note(Found);

impl ReplayRecord for Note {
    fn done_again(&self, (boot_epoch, transno): (BootEpoch, Transno)) {
        self.0.lock().unwrap().push((boot_epoch.0, transno.0));
    }
}

#[derive(Debug)]
struct NoteMemo(Found);

impl CallRecord for NoteMemo {
    fn launched(&self, _slot: u16, _xid: Xid) {}

    fn answered(self: Box<Self>, answered: &Answered<'_>) -> Option<Box<dyn ReplayRecord>> {
        let (boot_epoch, transno) = answered.done?;
        self.0.lock().unwrap().push((boot_epoch.0, transno.0));
        Some(Box::new(Note(self.0)))
    }
}

fn undurable(slot: u16, xid: u64, transno: u64, found: &Found) -> Undurable {
    let done = (BootEpoch(1), Transno(transno));
    let payload = Arc::new(Payload::from(Message::default()));
    Undurable {
        place: (slot, Xid(xid)),
        first: done,
        done,
        request: payload.clone(),
        answer: payload,
        replay_record: Box::new(Note(found.clone())),
    }
}

/// A process that goes on for one that had four changes done, of which the first is durable.
fn successor(found: &Found) -> Session<u64> {
    let legacy = Legacy {
        session: SessionId(1),
        epoch: BootEpoch(1),
        first_xid: 1000,
        committed: Transno(0),
    };
    let mut session = Session::succeed(Keeping::Changes, legacy);
    // As they are found: in no order.
    for (slot, xid, transno) in [(1, 4, 13), (0, 2, 12), (0, 3, 14), (0, 1, 11)] {
        session.adopt(undurable(slot, xid, transno, found));
    }
    session
}

#[test]
fn what_is_kept_is_remembered_with_its_number_until_it_is_durable() {
    let found = Found::default();
    let mut session = Session::new(Keeping::Changes);
    session.begin(&welcome(1, 0, false));
    session.lane_up(Lane::Control);
    for (number, transno) in [(1, 11), (2, 0)] {
        let call = Call {
            payload: Arc::new(Message::default().into()),
            lane: Lane::Control,
            urgency: Urgency::Ordinary,
            deadline: None,
            token: number,
            call_record: Some(Box::new(NoteMemo(found.clone())) as Box<dyn CallRecord>),
        };
        session.submit(call).unwrap();
        while next(&mut session).is_some() {}
        answer(&mut session, (0, number), transno);
    }
    assert_eq!(*found.lock().unwrap(), [(1, 11)]);
    assert_eq!(Arc::strong_count(&found), 2);
    session.begin(&welcome(2, 11, false));
    assert_eq!(Arc::strong_count(&found), 1, "durable, and forgotten");
}

#[test]
fn the_next_process_tells_a_later_boot_what_the_one_before_had_done() {
    let found = Found::default();
    let mut session = successor(&found);
    assert_eq!(session.kept().0, 4);
    assert!(matches!(
        session.begin(&welcome(2, 11, false)),
        Begun::NewEpoch { .. }
    ));
    session.lane_up(Lane::Control);
    let sent: Vec<_> = std::iter::from_fn(|| next(&mut session)).collect();
    let replay = |xid| (FrameKind::Request, xid, false, true);
    assert_eq!(sent, [replay(2), replay(4)], "in their order, a slot once");
    answer(&mut session, (1, 4), 13);
    answer(&mut session, (0, 2), 12);
    assert_eq!(next(&mut session), Some(replay(3)));
    answer(&mut session, (0, 3), 14);
    assert_eq!(*found.lock().unwrap(), [(2, 13), (2, 12), (2, 14)]);
    assert_eq!(
        next(&mut session),
        None,
        "others wait until the kernel forgot"
    );
    session.withdrawn();
    let ready = (FrameKind::Ready, 0, false, false);
    assert_eq!(next(&mut session), Some(ready));
}

#[test]
fn a_target_that_lives_on_is_told_nothing_again_and_waits_until_all_is_in_order() {
    let found = Found::default();
    let mut session = successor(&found);
    let resumed = Welcome {
        resumed: true,
        last_committed: Transno(13),
        ..welcome(1, 0, false)
    };
    assert!(matches!(session.begin(&resumed), Begun::Resumed));
    assert_eq!(session.kept().0, 1, "the rest is durable");
    session.lane_up(Lane::Control);
    session.withdrawn();
    assert_eq!(next(&mut session), None);
    session.settled();
    assert_eq!(next(&mut session).unwrap().0, FrameKind::Ready);
    session.begin(&welcome(2, 13, false));
    session.lane_up(Lane::Control);
    assert_eq!(next(&mut session).map(|sent| sent.1), Some(3));
}

/// The process before was telling a later boot what it had lost when it was killed itself.
#[test]
fn what_was_done_again_by_the_process_before_is_not_done_by_the_next() {
    let found = Found::default();
    let legacy = Legacy {
        session: SessionId(2),
        epoch: BootEpoch(2),
        first_xid: 2000,
        committed: Transno(0),
    };
    let mut session: Session<u64> = Session::succeed(Keeping::Changes, legacy);
    session.adopt(undurable(1, 4, 13, &found));
    session.adopt(Undurable {
        done: (BootEpoch(2), Transno(12)),
        ..undurable(0, 2, 12, &found)
    });
    let resumed = Welcome {
        resumed: true,
        ..welcome(2, 11, false)
    };
    assert!(matches!(session.begin(&resumed), Begun::Resumed));
    session.lane_up(Lane::Control);
    assert_eq!(next(&mut session).map(|sent| sent.1), Some(4));
    answer(&mut session, (1, 4), 13);
    // Both are lost with that boot, and done again in the order of their effects.
    session.begin(&welcome(3, 11, false));
    session.lane_up(Lane::Control);
    let again: Vec<u64> = std::iter::from_fn(|| next(&mut session).map(|sent| sent.1)).collect();
    assert_eq!(again, [2, 4]);
}
