//! One suite over every transport.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should panic")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Disrupted, Transno, VirtualClock};
use rpc::{
    Batch, ClientSecret, Message, PeerConfig, PeerState, Policy, RefusalReason, ReplyBatch, Urgency,
};
use support::*;
use wire::frame::Bulk;
use wire::handshake::Lane;

macro_rules! over_every_transport {
    ($($name:ident)*) => {
        mod tcp { $(#[test] fn $name() { super::$name(super::Place::new(super::Over::Tcp)); })* }
        mod unix { $(#[test] fn $name() { super::$name(super::Place::new(super::Over::Unix)); })* }
        mod mem { $(#[test] fn $name() { super::$name(super::Place::new(super::Over::Mem)); })* }
        mod delayed_tcp {
            $(#[test] fn $name() { super::$name(super::Place::new(super::Over::DelayedTcp)); })*
        }
        mod delayed_mem {
            $(#[test] fn $name() { super::$name(super::Place::new(super::Over::DelayedMem)); })*
        }
    };
}

over_every_transport! {
    a_batch_comes_back_in_order
    bulk_data_goes_both_ways_on_both_lanes
    data_goes_over_more_lanes_where_the_target_is_far_away
    a_parked_request_keeps_nobody_waiting
    more_calls_than_slots
    a_callback_comes_after_the_reply_before_it
    a_dropped_responder_answers_with_nothing
    a_panic_in_the_service_hits_one_request
    answers_never_come_on_the_callers_stack
    calls_wait_for_a_server_that_starts_late
    a_broken_connection_loses_and_repeats_nothing
    a_callback_survives_a_broken_connection
    a_restart_is_told_before_calls_are_sent_again
    an_eviction_fails_what_is_under_way
    two_peers_that_flood_each_other_go_on
    a_soft_mount_times_out
    close_says_goodbye_and_fails_what_is_under_way
    a_later_incarnation_replaces_the_earlier
    one_that_fails_while_it_takes_over_says_no_goodbye
    what_became_durable_is_told_to_an_idle_client
    a_service_may_refuse
    calls_wait_for_the_target_that_an_older_copy_stands_for
    a_target_of_an_earlier_start_is_an_older_copy
    frames_and_messages_are_counted
    who_is_awake_receives_for_the_reader
}

fn a_batch_comes_back_in_order(mut place: Place) {
    let (_server, _) = place.serve(1);
    let (peer, _) = place.peer();
    let bodies: Vec<Vec<u8>> = (0..256u32).map(|n| format!("message {n}").into()).collect();
    let messages = bodies.iter().map(|body| Message {
        opcode: ECHO,
        body: body.clone(),
    });
    let batch = Batch {
        messages: messages.collect(),
        bulk: Bulk::default(),
    };
    let reply = peer.call(batch).wait().unwrap();
    let returned: Vec<Vec<u8>> = reply.replies.into_iter().map(|reply| reply.body).collect();
    assert_eq!(returned, bodies);
    assert_eq!(peer.counters().rpcs_sent(), 1);
    assert_eq!(peer.state(), PeerState::Connected);
}

fn bulk_data_goes_both_ways_on_both_lanes(mut place: Place) {
    let (_server, _) = place.serve(1);
    let (peer, _) = place.peer();
    let bytes: Vec<u8> = (0..4 << 20).map(|n: u32| (n >> 3) as u8).collect();
    // Uneven pieces, and more of them than one call of the system takes.
    let mut bulk = Bulk::default();
    let (small, large) = bytes.split_at(1 << 20);
    let pieces = small.chunks(777).chain(large.chunks(100_001));
    pieces.for_each(|piece| bulk.push(piece.to_vec().into()));
    let batch = || Batch {
        bulk: bulk.clone(),
        ..Batch::of(ECHO, b"data".to_vec())
    };
    for future in [peer.call_bulk(batch()), peer.call(batch())] {
        let reply = future.wait().unwrap();
        assert_eq!(reply.replies[0].body, b"data");
        assert!(reply.bulk.joined() == bytes);
    }
}

fn data_goes_over_more_lanes_where_the_target_is_far_away(mut place: Place) {
    let (_server, _) = place.serve(1);
    place.link = rpc::Link::new(Duration::from_millis(30), None);
    let lanes = Lane::COUNT as u8;
    let (peer, _) = place.peer_with(PeerConfig {
        lanes,
        ..place.config()
    });
    let is_far = matches!(place.over, Over::DelayedTcp | Over::DelayedMem);
    let expected = if is_far { Lane::COUNT } else { 2 };
    // A machine that does much else may be taken for a distance.
    let has_lanes = || match is_far {
        true => peer.connections() == expected,
        false => peer.connections() >= expected,
    };
    until("its lanes", has_lanes);
    for round in 0..4u8 {
        let echo = |n: u8| {
            peer.call_any_bulk(Batch {
                bulk: vec![n; 100_000].into(),
                ..Batch::of(ECHO, Vec::new())
            })
        };
        let calls: Vec<_> = (0..12).map(echo).collect();
        if round % 2 == 1 {
            peer.disconnect();
        }
        for (n, call) in (0..).zip(calls) {
            assert!(call.wait().unwrap().bulk.joined() == vec![n; 100_000]);
        }
        until("its lanes again", has_lanes);
    }
    peer.close();
    assert_eq!(peer.connections(), 0);
}

fn a_parked_request_keeps_nobody_waiting(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (peer, _) = place.peer();
    let parked = peer.call(Batch::of(PARK, Vec::new()));
    echo(&peer, "goes by");
    service
        .wait_for_parked()
        .reply(reply_of([b"at last".to_vec()]));
    assert_eq!(parked.wait().unwrap().replies[0].body, b"at last");
}

fn more_calls_than_slots(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (peer, _) = place.peer();
    let parked: Vec<_> = (0..100)
        .map(|_| peer.call(Batch::of(PARK, Vec::new())))
        .collect();
    // Slots are left for what the parked ones wait for.
    let urgent = peer
        .call_urgent(Batch::of(ECHO, b"cancel".to_vec()))
        .wait()
        .unwrap();
    assert_eq!(urgent.replies[0].body, b"cancel");
    assert_eq!(peer.outstanding(), 100);
    for future in parked {
        service.wait_for_parked().reply(reply_of([Vec::new()]));
        drop(future);
    }
    until("every call is answered", || peer.outstanding() == 0);
}

fn a_callback_comes_after_the_reply_before_it(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (peer, handler) = place.peer();
    for round in 0..50u8 {
        let noted = handler.clone();
        peer.call_then(
            Batch::of(CALL_BACK, vec![round]),
            Urgency::Ordinary,
            move |reply| {
                assert_eq!(reply.unwrap().replies[0].body, b"soon");
                noted
                    .heard
                    .change(|heard| heard.callbacks.push(vec![100 + round]));
            },
        );
        service.log.wait_for("the callback's answer", |log| {
            (log.callback_answers.len() > usize::from(round)).then_some(())
        });
    }
    let order: Vec<Vec<u8>> = (0..50).flat_map(|n| [vec![100 + n], vec![n]]).collect();
    handler
        .heard
        .change(|heard| assert_eq!(heard.callbacks, order));
    service
        .log
        .change(|log| assert_eq!(log.callback_answers[3], Ok(vec![3])));
}

fn a_dropped_responder_answers_with_nothing(mut place: Place) {
    let (_server, _) = place.serve(1);
    let (peer, _) = place.peer();
    let reply = peer.call(Batch::of(DROP, Vec::new())).wait();
    assert_eq!(reply, Ok(ReplyBatch::default()));
}

fn a_panic_in_the_service_hits_one_request(mut place: Place) {
    let (_server, _) = place.serve(1);
    let (peer, _) = place.peer();
    let reply = peer.call(Batch::of(PANIC, Vec::new())).wait();
    assert_eq!(reply, Ok(ReplyBatch::default()));
    echo(&peer, "goes on");
}

fn answers_never_come_on_the_callers_stack(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (peer, _) = place.peer();
    echo(&peer, "connected");
    // Each answer's taker wants a lock that the caller holds.
    let wanted = Arc::new(std::sync::Mutex::new(0));
    let take = |wanted: &Arc<std::sync::Mutex<i32>>| {
        let wanted = wanted.clone();
        move || *wanted.lock().unwrap() += 1
    };
    let session = service.session();
    {
        let _held = wanted.lock().unwrap();
        let count = take(&wanted);
        let big = Batch {
            bulk: vec![0; 8 << 20].into(),
            ..Batch::of(ECHO, Vec::new())
        };
        peer.call_then(big, Urgency::Ordinary, move |answer| {
            assert_eq!(answer, Err(Disrupted::Refused));
            count();
        });
        let count = take(&wanted);
        session.callback(
            Message {
                opcode: 9,
                body: Vec::new(),
            },
            Box::new(move |_| count()),
        );
        let count = take(&wanted);
        peer.call_then(Batch::of(PARK, Vec::new()), Urgency::Ordinary, move |_| {
            count()
        });
        session.evict();
        let count = take(&wanted);
        session.callback(
            Message::default(),
            Box::new(move |answer| {
                assert_eq!(answer, Err(Disrupted::Evicted));
                count();
            }),
        );
    }
    // The parked call may have come too late for the eviction: it waits in the new session then.
    until("every answer", || {
        service.log.change(|log| log.parked.clear());
        *wanted.lock().unwrap() == 4
    });
}

fn calls_wait_for_a_server_that_starts_late(mut place: Place) {
    // The port must be known before the server is there.
    drop(place.serve(1));
    let (peer, _) = place.peer();
    let early = peer.call(Batch::of(ECHO, b"early".to_vec()));
    assert!(matches!(peer.state(), PeerState::WaitingSince(_)));
    let (_server, _) = place.serve(2);
    assert_eq!(early.wait().unwrap().replies[0].body, b"early");
    assert_eq!(peer.state(), PeerState::Connected);
}

fn a_broken_connection_loses_and_repeats_nothing(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (peer, handler) = place.peer();
    let parked = peer.call(Batch::of(PARK, Vec::new()));
    service.wait_for_line("parked");
    let mut last = 0;
    for _ in 0..10 {
        let changes: Vec<_> = (0..20)
            .map(|_| peer.call(Batch::of(CHANGE, Vec::new())))
            .collect();
        let bulk: Vec<_> = (0..4)
            .map(|_| {
                peer.call_bulk(Batch {
                    bulk: vec![5; 300_000].into(),
                    ..Batch::of(ECHO, Vec::new())
                })
            })
            .collect();
        peer.disconnect();
        for change in changes {
            let transno = change.wait().unwrap().transno.0;
            assert_eq!(transno, last + 1, "each change happens once, in order");
            last = transno;
        }
        for bulk in bulk {
            assert_eq!(bulk.wait().unwrap().bulk.len(), 300_000);
        }
    }
    service
        .wait_for_parked()
        .reply(reply_of([b"still here".to_vec()]));
    assert_eq!(parked.wait().unwrap().replies[0].body, b"still here");
    service.log.change(|log| {
        assert!(
            log.executed.values().all(|&count| count == 1),
            "{:?}",
            log.executed
        );
        assert_eq!(log.sessions.len(), 1, "the session was resumed");
    });
    handler
        .heard
        .change(|heard| assert!(heard.lines.is_empty(), "{:?}", heard.lines));
}

fn a_callback_survives_a_broken_connection(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (peer, handler) = place.peer();
    handler.heard.change(|heard| heard.keep = true);
    peer.call(Batch::of(CALL_BACK, b"mine".to_vec()))
        .wait()
        .unwrap();
    let responder = handler
        .heard
        .wait_for("the callback", |heard| heard.kept.pop());
    peer.disconnect();
    echo(&peer, "back again");
    responder.reply(Message {
        opcode: 0,
        body: b"late".to_vec(),
    });
    service.log.wait_for("the answer", |log| {
        (log.callback_answers == [Ok(b"late".to_vec())]).then_some(())
    });
    handler
        .heard
        .change(|heard| assert_eq!(heard.callbacks.len(), 1, "called back once"));
}

fn a_restart_is_told_before_calls_are_sent_again(mut place: Place) {
    let (server, service) = place.serve(1);
    let (peer, handler) = place.peer();
    let change = peer.call(Batch::of(CHANGE, Vec::new())).wait().unwrap();
    let parked = peer.call(Batch::of(PARK, Vec::new()));
    let noted = handler.clone();
    peer.call_then(
        Batch::of(PARK, Vec::new()),
        Urgency::Ordinary,
        move |reply| {
            assert!(reply.is_ok());
            noted
                .heard
                .change(|heard| heard.lines.push("answered".into()));
        },
    );
    service
        .log
        .wait_for("both parked", |log| (log.parked.len() == 2).then_some(()));
    drop(server);
    let (_server, service) = place.serve(2);
    for _ in 0..2 {
        service.wait_for_line("parked, resent");
        service
            .wait_for_parked()
            .reply(reply_of([b"from the new one".to_vec()]));
    }
    assert_eq!(parked.wait().unwrap().replies[0].body, b"from the new one");
    handler.wait_for_line("answered");
    handler
        .heard
        .change(|heard| assert_eq!(heard.lines, ["epoch 0x1 to 0x2", "answered"]));
    assert_eq!(peer.epoch().0, 2);
    let next = peer.call(Batch::of(CHANGE, Vec::new())).wait().unwrap();
    assert_eq!(next.transno.0, change.transno.0 + 1);
}

fn an_eviction_fails_what_is_under_way(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (peer, handler) = place.peer();
    let parked = peer.call(Batch::of(PARK, Vec::new()));
    service.wait_for_line("parked");
    let first = service.session();
    first.evict();
    assert_eq!(parked.wait(), Err(Disrupted::Evicted));
    handler.wait_for_line("evicted");
    echo(&peer, "a new session");
    assert_ne!(service.session().client(), first.client());
    // An answer to the old session goes nowhere.
    service.wait_for_parked().reply(reply_of([Vec::new()]));
    first.callback(
        Message::default(),
        Box::new(|answer| {
            assert_eq!(answer, Err(Disrupted::Evicted));
        }),
    );
    echo(&peer, "still well");
    handler
        .heard
        .change(|heard| assert_eq!(heard.lines, ["evicted"]));
}

fn two_peers_that_flood_each_other_go_on(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (peer, _) = place.peer();
    echo(&peer, "connect");
    let session = service.session();
    let callbacks = 24;
    for n in 0..callbacks {
        let service = service.clone();
        let message = Message {
            opcode: 9,
            body: vec![n; 2 << 20],
        };
        session.callback(
            message,
            Box::new(move |answer| {
                let length = answer.map(|message| message.body.len().to_le_bytes().to_vec());
                service.log.change(|log| log.callback_answers.push(length));
            }),
        );
    }
    let calls: Vec<_> = (0..24u8)
        .map(|n| {
            peer.call(Batch {
                bulk: vec![n; 3 << 20].into(),
                ..Batch::of(ECHO, Vec::new())
            })
        })
        .collect();
    for (n, call) in (0..).zip(calls) {
        assert!(call.wait().unwrap().bulk.joined() == vec![n; 3 << 20]);
    }
    service.log.wait_for("every callback", |log| {
        (log.callback_answers.len() == usize::from(callbacks)).then_some(())
    });
}

fn a_soft_mount_times_out(mut place: Place) {
    let clock = Arc::new(VirtualClock::default());
    place.clock = clock.clone();
    let (_server, service) = place.serve(1);
    let policy = Policy::Soft {
        timeout: Duration::from_secs(5),
    };
    let (peer, _) = place.peer_with(rpc::PeerConfig {
        policy,
        ..place.config()
    });
    let parked = peer.call(Batch::of(PARK, Vec::new()));
    service.wait_for_line("parked");
    clock.advance(Duration::from_secs(6));
    assert_eq!(parked.wait(), Err(Disrupted::Timeout));
    service.wait_for_parked().reply(reply_of([Vec::new()]));
    echo(&peer, "the next call is well");
}

fn close_says_goodbye_and_fails_what_is_under_way(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (peer, _) = place.peer();
    let parked = peer.call(Batch::of(PARK, Vec::new()));
    service.wait_for_line("parked");
    let client = service.session().client();
    peer.close();
    assert_eq!(parked.wait(), Err(Disrupted::Closed));
    service.wait_for_line(&format!("expired {client}"));
    assert_eq!(
        peer.call(Batch::of(ECHO, Vec::new())).wait(),
        Err(Disrupted::Closed)
    );
    assert_eq!(peer.state(), PeerState::Closed);
}

fn a_later_incarnation_replaces_the_earlier(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (old, _) = place.peer();
    let parked = old.call(Batch::of(PARK, Vec::new()));
    service.wait_for_line("parked");
    let first = service.session();
    let (new, _) = place.peer_with(rpc::PeerConfig {
        incarnation: 2,
        ..place.config()
    });
    echo(&new, "I am the mount now");
    service.wait_for_line(&format!("expired {}", first.client()));
    assert_eq!(parked.wait(), Err(Disrupted::Refused));
    until("the old one is refused", || {
        matches!(old.state(), PeerState::Refused(refusal)
            if refusal.reason == RefusalReason::Replaced)
    });
    echo(&new, "undisturbed");
    let (other, _) = place.peer_with(rpc::PeerConfig {
        secret: ClientSecret([2; 16]),
        ..place.config()
    });
    echo(&other, "another mount");
    echo(&new, "next to it");
}

fn one_that_fails_while_it_takes_over_says_no_goodbye(mut place: Place) {
    let (_server, service) = place.serve(1);
    let (fails, _) = place.peer_with(rpc::PeerConfig {
        incarnation: 2,
        ..place.config()
    });
    let parked = fails.call(Batch::of(PARK, Vec::new()));
    service.wait_for_line("parked");
    let failed = std::thread::spawn(move || {
        let _dropped = fails;
        panic!("as a bug would");
    });
    assert!(failed.join().is_err());
    service.wait_for_parked().reply(reply_of([Vec::new()]));
    assert!(parked.wait().is_ok(), "nothing that was asked is dropped");
    let expired = format!("expired {}", service.session().client());
    assert!(!service.log.change(|log| log.lines.contains(&expired)));
}

fn what_became_durable_is_told_to_an_idle_client(mut place: Place) {
    let (_server, _) = place.serve(1);
    let (peer, handler) = place.peer();
    let transno = peer
        .call(Batch::of(CHANGE, Vec::new()))
        .wait()
        .unwrap()
        .transno;
    assert_eq!((transno, peer.last_committed()), (Transno(1), Transno(0)));
    place.disk.committed.set(transno);
    handler.heard.wait_for("the news", |heard| {
        (heard.committed == transno).then_some(())
    });
    assert_eq!(peer.last_committed(), transno);
}

fn a_service_may_refuse(mut place: Place) {
    let (_server, service) = place.serve(1);
    *service.refuse.lock().unwrap() = true;
    let (peer, _) = place.peer();
    assert_eq!(
        peer.call(Batch::of(ECHO, Vec::new())).wait(),
        Err(Disrupted::Refused)
    );
    match peer.state() {
        PeerState::Refused(refusal) => {
            assert_eq!(
                (refusal.reason, &*refusal.text),
                (RefusalReason::Service, "not today")
            );
        }
        other => panic!("{other:?}"),
    }
}

/// The target has no session, and the client waits for another.
fn is_refused_as_an_older_copy(peer: &rpc::Peer, service: &TestService) {
    until("it is refused", || {
        let told = peer.obstacle();
        told.is_some_and(|told| told.contains("has lost changes"))
    });
    service.log.change(|log| {
        assert!(log.sessions.is_empty());
        // One client's word does not end what others have.
        assert!(!log.lines.iter().any(|line| line == "lost changes"));
    });
    assert!(matches!(peer.state(), PeerState::WaitingSince(_)));
}

fn calls_wait_for_the_target_that_an_older_copy_stands_for(mut place: Place) {
    let (server, _) = place.serve(1);
    let (peer, _) = place.peer();
    place.disk.committed.set(Transno(100));
    echo(&peer, "hears of 100");
    assert_eq!(peer.last_committed(), Transno(100));
    drop(server);
    // Restored from an older copy.
    let newer = std::mem::take(&mut place.disk);
    let (server, service) = place.serve(2);
    let call = peer.call(Batch::of(ECHO, b"waits".to_vec()));
    is_refused_as_an_older_copy(&peer, &service);
    drop(server);
    place.disk = newer;
    let (_server, _) = place.serve(3);
    assert_eq!(call.wait().unwrap().replies[0].body, b"waits");
}

/// Others may have changed so much since that the numbers say nothing any more.
fn a_target_of_an_earlier_start_is_an_older_copy(mut place: Place) {
    let (server, _) = place.serve(3);
    let (peer, _) = place.peer();
    place.disk.committed.set(Transno(100));
    echo(&peer, "hears of 100");
    drop(server);
    place.disk.committed.set(Transno(200));
    let (_server, service) = place.serve(2);
    let _call = peer.call(Batch::of(ECHO, b"waits".to_vec()));
    is_refused_as_an_older_copy(&peer, &service);
}

fn who_is_awake_receives_for_the_reader(mut place: Place) {
    let (_server, _) = place.serve(1);
    let (peer, _) = place.peer();
    echo(&peer, "connected");
    let attended = |round: u32| {
        let call = peer.call(Batch::of(ECHO, round.to_be_bytes().to_vec()));
        let waiter = std::thread::spawn(move || call.wait().unwrap());
        let mut came = 0;
        while !waiter.is_finished() {
            came += usize::from(peer.attend());
        }
        let reply = waiter.join().unwrap();
        assert_eq!(reply.replies[0].body, round.to_be_bytes());
        came
    };
    peer.begin_attending();
    let came: usize = (0..100).map(attended).sum();
    // The reader looks once more before it sleeps.
    assert!(came >= 50 || place.over != Over::Tcp, "{came} of 100");
    peer.disconnect();
    (0..10).map(attended).for_each(drop);
    let unattended = peer.call(Batch::of(ECHO, Vec::new()));
    peer.end_attending();
    unattended.wait().unwrap();
    echo(&peer, "the reader receives again");
}

fn frames_and_messages_are_counted(mut place: Place) {
    let (server, _) = place.serve(1);
    let (peer, _) = place.peer();
    for _ in 0..3 {
        let message = |operation| Message {
            opcode: ECHO,
            body: vec![operation, 1, 2],
        };
        let batch = Batch {
            messages: vec![message(7), message(7), message(8)],
            bulk: Bulk::default(),
        };
        peer.call(batch).wait().unwrap();
    }
    let sent = peer.counters();
    assert_eq!(sent.rpcs_sent(), 3);
    assert_eq!(sent.messages(), [(ECHO as u8, 7, 6), (ECHO as u8, 8, 3)]);
    let received = server.counters(target()).unwrap();
    assert_eq!(received.messages(), sent.messages());
    until("the server has read what we sent", || {
        received.frames_received() == sent.frames_sent()
    });
}

#[test]
fn a_silent_client_is_disconnected_then_expires() {
    let clock = Arc::new(VirtualClock::default());
    let mut place = Place::new(Over::DelayedMem);
    place.clock = clock.clone();
    let (_server, service) = place.serve(1);
    let (peer, _) = place.peer();
    echo(&peer, "here");
    let client = service.session().client();
    let seen = |line: &str| {
        service
            .log
            .change(|log| log.lines.iter().any(|l| l == line))
    };
    // Whole minutes pass, and pings are answered: nothing happens.
    for _ in 0..12 {
        clock.advance(Duration::from_secs(5));
        echo(&peer, "still here");
    }
    assert!(!seen(&format!("disconnected {client}")));
    // From now on nothing arrives any more.
    place.link.set(Duration::from_secs(3600), None);
    until("the client is disconnected", || {
        clock.advance(Duration::from_secs(5));
        seen(&format!("disconnected {client}"))
    });
    assert!(!seen(&format!("expired {client}")));
    until("the client expires", || {
        clock.advance(Duration::from_secs(10));
        seen(&format!("expired {client}"))
    });
    until("the client waits", || {
        clock.advance(Duration::from_secs(10));
        matches!(peer.state(), PeerState::WaitingSince(_))
    });
}

#[test]
fn a_delayed_call_takes_a_round_trip_and_many_take_one() {
    let mut place = Place::new(Over::DelayedMem);
    let (_server, _) = place.serve(1);
    let (peer, _) = place.peer();
    echo(&peer, "connected");
    let rtt = Duration::from_millis(40);
    place.link.set(rtt, None);
    let start = Instant::now();
    let calls: Vec<_> = (0..32)
        .map(|_| peer.call(Batch::of(ECHO, Vec::new())))
        .collect();
    for call in calls {
        call.wait().unwrap();
    }
    let took = start.elapsed();
    assert!(took >= rtt && took < 8 * rtt, "{took:?}");
}

#[test]
fn a_narrow_link_takes_its_time() {
    let mut place = Place::new(Over::DelayedMem);
    let (_server, _) = place.serve(1);
    let (peer, _) = place.peer();
    echo(&peer, "connected");
    place.link.set(Duration::ZERO, Some(10_000_000));
    let start = Instant::now();
    let body = 1_000_000u32.to_le_bytes().to_vec();
    let reply = peer.call_bulk(Batch::of(READ, body)).wait().unwrap();
    assert_eq!(reply.bulk.len(), 1_000_000);
    assert!(start.elapsed() >= Duration::from_millis(100));
}
