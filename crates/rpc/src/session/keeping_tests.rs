//! What a session keeps until it is durable, and what it sends a later life of its target.

use super::*;
use crate::requester::Urgency;

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
        memo: None,
    };
    session.submit(call).unwrap();
}

/// What is sent next: kind, xid, whether resent, whether a replay.
fn next(session: &mut Session<u64>) -> Option<(FrameKind, u64, bool, bool)> {
    let header = session.poll_send(Lane::Control)?.header;
    Some((header.kind, header.xid.0, header.resent, header.replay))
}

fn answer(session: &mut Session<u64>, (slot, xid): (u16, u64), transno: u64) -> Event<u64> {
    let header = Header {
        slot,
        xid: Xid(xid),
        transno: Transno(transno),
        session: session.id(),
        epoch: session.epoch().0 as u32,
        ..Header::new(FrameKind::Reply)
    };
    let payload = Payload::from(Message::default());
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
    assert!(matches!(event, Event::Replayed));
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
