//! Both halves of a session against each other over a network that loses, repeats and reorders.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use base::{Rng, SeededRng};
use proptest::prelude::*;

use super::*;
use crate::batch::{Batch, ReplyMessage};
use crate::requester::Urgency;
use crate::server_session::{self, RequestId, ServerSession};

const NOW: Tick = Tick(0);

/// A client, a server, and what is under way between them.
struct World {
    client: Session<u32>,
    server: ServerSession<u32>,
    epoch: u64,
    to_server: VecDeque<Frame>,
    to_client: VecDeque<Frame>,
    /// Frames of broken connections, and repeated ones, that may still arrive.
    ghosts: Vec<(bool, Frame)>,
    /// Requests that run, by what they carry.
    running: BTreeMap<u32, RequestId>,
    /// Callbacks that the client works on.
    called_back: BTreeMap<u32, CallbackId>,
    /// Replies that survive a restart, by xid.
    durable: BTreeMap<Xid, u32>,
    executed: BTreeMap<u32, u32>,
    answers: BTreeMap<u32, u32>,
    callbacks_run: BTreeMap<u32, u32>,
    callback_answers: BTreeMap<u32, u32>,
    trace: String,
}

fn number(body: &[u8]) -> u32 {
    u32::from_le_bytes(body.try_into().unwrap())
}

impl World {
    fn new() -> World {
        let mut world = World {
            client: Session::default(),
            server: ServerSession::new(SessionId(1), BootEpoch(1)),
            epoch: 1,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            ghosts: Vec::new(),
            running: BTreeMap::new(),
            called_back: BTreeMap::new(),
            durable: BTreeMap::new(),
            executed: BTreeMap::new(),
            answers: BTreeMap::new(),
            callbacks_run: BTreeMap::new(),
            callback_answers: BTreeMap::new(),
            trace: String::new(),
        };
        world.connect(false);
        world
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.trace, "{line}").unwrap();
    }

    fn connect(&mut self, resumed: bool) {
        let begun = self.client.begin(&Welcome {
            version: 1,
            session: self.server.id(),
            resumed,
            client: ClientId(1),
            boot_epoch: BootEpoch(self.epoch),
            slots: self.server.slots(),
            last_committed: Transno(0),
            survived: Transno(0),
            evicted: false,
            now: base::Timestamp::default(),
        });
        match begun {
            Begun::NewEpoch { old, new } => self.say(format_args!("client: epoch {old} to {new}")),
            Begun::Evicted(lost) => self.say(format_args!("client: evicted, lost {lost:?}")),
            Begun::First | Begun::Resumed => {}
        }
        for lane in Lane::ALL {
            self.client.lane_up(lane);
            self.pump_client(lane);
        }
    }

    /// The connection breaks: frames under way are lost, or arrive later than anybody thinks.
    fn lose(&mut self) {
        for lane in Lane::ALL {
            self.client.lane_down(lane);
        }
        self.server.lost();
        let to_server = self.to_server.drain(..).map(|frame| (true, frame));
        self.ghosts.extend(to_server);
        let to_client = self.to_client.drain(..).map(|frame| (false, frame));
        self.ghosts.extend(to_client);
    }

    /// The server starts anew; what ran without an answer never happened.
    fn restart(&mut self) {
        self.lose();
        self.ghosts.clear();
        self.epoch += 1;
        self.server = ServerSession::new(SessionId(1), BootEpoch(self.epoch));
        for payload in std::mem::take(&mut self.running).into_keys() {
            self.executed.remove(&payload);
        }
        self.called_back.clear();
        self.connect(false);
    }

    fn call(&mut self, payload: u32, lane: Lane, urgency: Urgency) {
        let batch = Batch::of(7, payload.to_le_bytes().to_vec());
        let call = Call {
            payload: Arc::new(batch.into()),
            lane,
            urgency,
            deadline: None,
            token: payload,
            call_record: None,
        };
        self.client.submit(call).unwrap();
        self.pump_client(lane);
    }

    fn call_back(&mut self, payload: u32) {
        let body = payload.to_le_bytes().to_vec();
        self.server
            .call_back(Message { opcode: 8, body }, payload)
            .unwrap();
        self.pump_server();
    }

    fn pump_client(&mut self, lane: Lane) {
        while let Some(frame) = self.client.poll_send(lane) {
            self.to_server.push_back(frame);
        }
    }

    fn pump_server(&mut self) {
        while let Some(frame) = self.server.poll_send(Transno(0)) {
            self.to_client.push_back(frame);
        }
    }

    fn deliver_to_server(&mut self, frame: Frame) {
        match self.server.handle(frame, Transno(0)).unwrap() {
            server_session::Event::Request(request, batch) => self.run(request, &batch),
            server_session::Event::CallbackReplied(token, message) => {
                assert_eq!(number(&message.body), token + 1000);
                *self.callback_answers.entry(token).or_default() += 1;
                self.say(format_args!("server: callback {token} answered"));
                self.pump_server();
            }
            server_session::Event::Send(frame) => {
                self.say(format_args!("server: replays xid {}", frame.header.xid.0));
                self.to_client.push_back(frame);
            }
            server_session::Event::Ready => {
                self.server.ready();
                self.pump_server();
            }
            server_session::Event::Goodbye | server_session::Event::Nothing => {}
        }
    }

    fn run(&mut self, request: RequestId, batch: &Batch) {
        let payload = number(&batch.messages[0].body);
        let resent = if request.resent { ", resent" } else { "" };
        if let Some(&reply) = self.durable.get(&request.xid) {
            assert!(request.resent, "an xid was used twice");
            self.say(format_args!("server: {payload} is on record"));
            return self.send_reply(&request, reply);
        }
        self.say(format_args!("server: runs {payload}{resent}"));
        *self.executed.entry(payload).or_default() += 1;
        self.running.insert(payload, request);
    }

    fn answer(&mut self, payload: u32) {
        let request = self.running.remove(&payload).unwrap();
        self.durable.insert(request.xid, payload + 1000);
        self.send_reply(&request, payload + 1000);
    }

    fn send_reply(&mut self, request: &RequestId, reply: u32) {
        let replies = vec![ReplyMessage {
            status: 0,
            body: reply.to_le_bytes().to_vec(),
        }];
        let batch = ReplyBatch {
            replies,
            ..ReplyBatch::default()
        };
        let stored = Stored {
            payload: Arc::new(batch.into_payload(&request.opcodes)),
            transno: Transno(request.xid.0),
        };
        if let Some(frame) = self.server.reply(request, stored, Room::ForAll, Transno(0)) {
            self.to_client.push_back(frame);
        }
    }

    fn deliver_to_client(&mut self, frame: Frame) {
        match self.client.handle(frame).unwrap() {
            Event::Replied(token, reply) => {
                assert_eq!(number(&reply.replies[0].body), token + 1000);
                *self.answers.entry(token).or_default() += 1;
                self.say(format_args!("client: {token} answered"));
                Lane::ALL
                    .into_iter()
                    .for_each(|lane| self.pump_client(lane));
            }
            Event::Replayed { .. } => panic!("this client keeps nothing"),
            Event::Callback(id, message) => {
                let payload = number(&message.body);
                self.say(format_args!("client: called back {payload}"));
                *self.callbacks_run.entry(payload).or_default() += 1;
                self.called_back.insert(payload, id);
            }
            Event::Send(frame) => self.to_server.push_back(frame),
            Event::Evicted | Event::Nothing => {}
        }
    }

    fn answer_callback(&mut self, payload: u32) {
        let id = self.called_back.remove(&payload).unwrap();
        let body = (payload + 1000).to_le_bytes().to_vec();
        if let Some(frame) = self.client.answer_callback(id, Message { opcode: 8, body }) {
            self.to_server.push_back(frame);
        }
    }

    fn deliver_ghost(&mut self, index: usize) {
        let (to_server, frame) = self.ghosts.swap_remove(index);
        match to_server {
            true => self.deliver_to_server(frame),
            false => self.deliver_to_client(frame),
        }
    }

    /// Delivers and answers everything until nothing moves.
    fn settle(&mut self) {
        loop {
            if let Some(frame) = self.to_server.pop_front() {
                self.deliver_to_server(frame);
            } else if let Some(frame) = self.to_client.pop_front() {
                self.deliver_to_client(frame);
            } else if let Some((&payload, _)) = self.running.first_key_value() {
                self.answer(payload);
            } else if let Some((&payload, _)) = self.called_back.first_key_value() {
                self.answer_callback(payload);
            } else if !self.ghosts.is_empty() {
                self.deliver_ghost(0);
            } else {
                return;
            }
        }
    }
}

/// Runs `script`, one command a line, and gives back what happened.
fn play(script: &str) -> String {
    let mut world = World::new();
    world.settle();
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let mut words = line.split(' ');
        let command = words.next().unwrap();
        let numbers: Vec<u32> = words.map(|word| word.parse().unwrap()).collect();
        let first = numbers.first().copied();
        match command {
            "call" => world.call(first.unwrap(), Lane::Control, Urgency::Ordinary),
            "urgent" => world.call(first.unwrap(), Lane::Control, Urgency::Urgent),
            "bulk" => world.call(first.unwrap(), Lane::Bulk, Urgency::Urgent),
            "answer" => world.answer(first.unwrap()),
            "callback" => world.call_back(first.unwrap()),
            "ack" => world.answer_callback(first.unwrap()),
            ">" => {
                let frame = world.to_server.pop_front().unwrap();
                world.deliver_to_server(frame);
            }
            "<" => {
                let frame = world.to_client.pop_front().unwrap();
                world.deliver_to_client(frame);
            }
            "repeat>" => {
                let frame = world.to_server.front().unwrap().clone();
                world.to_server.push_front(frame);
            }
            "lose" => world.lose(),
            "forget" => world.ghosts.clear(),
            "ghost" => world.deliver_ghost(0),
            "resume" => world.connect(true),
            "restart" => world.restart(),
            "grant" => world.server.grant(first.unwrap() as u16),
            "evict" => {
                world.lose();
                world.ghosts.clear();
                world.server = ServerSession::new(SessionId(2), BootEpoch(world.epoch));
                world.connect(false);
            }
            "settle" => world.settle(),
            other => panic!("no command {other}"),
        }
    }
    world.trace
}

fn check(script: &str, trace: &str) {
    let expected: String = trace
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .fold(String::new(), |all, line| all + line + "\n");
    assert_eq!(play(script), expected);
}

#[test]
fn a_call_and_its_answer() {
    check(
        "call 1\n >\n answer 1\n <",
        "server: runs 1\n client: 1 answered",
    );
}

#[test]
fn a_repeated_request_runs_once() {
    check(
        "call 1\n repeat>\n >\n >\n answer 1\n settle",
        "server: runs 1\n client: 1 answered",
    );
}

#[test]
fn a_lost_request_is_sent_again() {
    check(
        "call 1\n lose\n forget\n resume\n settle",
        "server: runs 1, resent\n client: 1 answered",
    );
}

#[test]
fn a_lost_reply_is_replayed() {
    check(
        "call 1\n >\n answer 1\n lose\n forget\n resume\n settle",
        "server: runs 1\n server: replays xid 1\n client: 1 answered",
    );
}

#[test]
fn a_request_that_still_runs_is_not_run_again() {
    check(
        "call 1\n >\n lose\n forget\n resume\n >\n answer 1\n settle",
        "server: runs 1\n client: 1 answered",
    );
}

#[test]
fn a_late_copy_of_an_answered_request_is_dropped() {
    check(
        "call 1\n lose\n resume\n settle\n call 2\n settle",
        "server: runs 1, resent\n client: 1 answered\n server: replays xid 1
         server: runs 2\n client: 2 answered",
    );
    // The same, but the copy comes after its slot was used again.
    check(
        "call 1\n lose\n resume\n >\n answer 1\n <\n call 2\n >\n >\n ghost\n settle",
        "server: runs 1, resent\n client: 1 answered\n server: runs 2\n client: 2 answered",
    );
}

#[test]
fn calls_are_sent_again_in_their_order() {
    check(
        "call 1\n call 2\n call 3\n > \n answer 1\n <\n call 4\n lose\n forget\n resume\n settle",
        "server: runs 1\n client: 1 answered
         server: runs 2, resent\n server: runs 3, resent\n server: runs 4, resent
         client: 2 answered\n client: 3 answered\n client: 4 answered",
    );
}

#[test]
fn calls_made_while_away_go_after_those_sent_before() {
    check(
        "call 1\n lose\n forget\n call 2\n resume\n settle",
        "server: runs 1, resent\n server: runs 2\n client: 1 answered\n client: 2 answered",
    );
}

#[test]
fn a_restart_answers_from_the_record_and_runs_the_rest() {
    check(
        "call 1\n call 2\n >\n answer 1\n restart\n settle",
        "server: runs 1\n client: epoch 0x1 to 0x2
         server: 1 is on record\n server: runs 2, resent
         client: 1 answered\n client: 2 answered",
    );
}

#[test]
fn an_eviction_gives_up_every_call() {
    check(
        "call 1\n >\n call 2\n evict\n call 3\n settle",
        "server: runs 1\n client: evicted, lost [1, 2]\n server: runs 3\n client: 3 answered",
    );
}

#[test]
fn a_callback_and_its_answer() {
    check(
        "callback 5\n <\n ack 5\n >",
        "client: called back 5\n server: callback 5 answered",
    );
}

#[test]
fn a_callback_runs_once_however_often_it_is_sent() {
    check(
        "callback 5\n <\n lose\n forget\n resume\n >\n <\n ack 5\n settle",
        "client: called back 5\n server: callback 5 answered",
    );
}

#[test]
fn a_lost_answer_to_a_callback_is_replayed() {
    check(
        "callback 5\n <\n ack 5\n lose\n forget\n resume\n settle",
        "client: called back 5\n server: callback 5 answered",
    );
}

#[test]
fn a_callback_waits_until_resends_are_answered() {
    // The reply that grants a lock reaches the client before the callback on that lock.
    check(
        "call 1\n >\n answer 1\n callback 5\n lose\n forget\n resume\n settle",
        "server: runs 1\n server: replays xid 1\n client: 1 answered
         client: called back 5\n server: callback 5 answered",
    );
}

#[test]
fn a_callback_made_while_the_client_is_away_waits_until_it_is_ready() {
    check(
        "call 1\n >\n answer 1\n lose\n forget\n callback 5\n resume\n settle",
        "server: runs 1\n server: replays xid 1\n client: 1 answered
         client: called back 5\n server: callback 5 answered",
    );
}

#[test]
fn ordinary_calls_leave_slots_to_urgent_ones() {
    let mut script = String::from("grant 8\n call 0\n >\n answer 0\n <\n");
    for n in 1..=9 {
        writeln!(script, "call {n}").unwrap();
    }
    script += "urgent 100\n urgent 101\n";
    script += &">\n".repeat(8);
    let trace = play(&script);
    assert!(
        trace.contains("runs 7") && !trace.contains("runs 8"),
        "{trace}"
    );
    assert!(
        trace.contains("runs 100") && !trace.contains("runs 101"),
        "{trace}"
    );
}

#[test]
fn bulk_calls_take_half_of_the_slots() {
    let mut world = World::new();
    for n in 0..60 {
        world.call(n, Lane::Bulk, Urgency::Urgent);
    }
    assert_eq!(world.to_server.len(), 1 + 32);
    world.settle();
    assert_eq!(world.answers.len(), 60);
}

#[test]
fn slots_taken_away_are_not_used_again() {
    let mut world = World::new();
    for n in 0..40 {
        world.call(n, Lane::Control, Urgency::Ordinary);
    }
    world.server.grant(4);
    world.settle();
    for n in 40..60 {
        world.call(n, Lane::Control, Urgency::Ordinary);
    }
    assert_eq!(world.to_server.len(), 4);
    world.settle();
    assert_eq!(world.answers.len(), 60);
}

#[test]
fn a_deadline_gives_up_the_call_but_not_its_slot() {
    let mut world = World::new();
    let call = |token| Call {
        payload: Arc::new(Batch::of(7, vec![0; 4]).into()),
        lane: Lane::Control,
        urgency: Urgency::Ordinary,
        deadline: Some(Tick(100)),
        token,
        call_record: None,
    };
    world.client.submit(call(1)).unwrap();
    world.pump_client(Lane::Control);
    world.client.lane_down(Lane::Control);
    world.client.submit(call(2)).unwrap();
    assert!(world.client.expire(Tick(99)).is_empty());
    assert_eq!(world.client.expire(Tick(100)), [1, 2]);
    assert_eq!(world.client.outstanding(), 1, "the one sent keeps its slot");
    world.client.lane_up(Lane::Control);
    let again = world.client.poll_send(Lane::Control).unwrap();
    assert!(again.header.resent);
    let ready = world.client.poll_send(Lane::Control).unwrap();
    assert_eq!(ready.header.kind, FrameKind::Ready);
    assert!(world.client.poll_send(Lane::Control).is_none());
}

#[test]
fn what_is_to_be_told_first_goes_before_word_that_this_client_is_ready() {
    let mut world = World::new();
    world.lose();
    let earlier = world.client.hold_ready();
    let hold = world.client.hold_ready();
    world.client.lane_up(Lane::Control);
    assert!(world.client.poll_send(Lane::Control).is_none());
    world.call(1, Lane::Control, Urgency::Ordinary);
    assert!(world.to_server.is_empty(), "it would not be answered");
    world.call(2, Lane::Control, Urgency::Urgent);
    let told = world.to_server.pop_back().expect("sent at once");
    assert_eq!(told.header.kind, FrameKind::Request);
    world.client.release_ready(earlier);
    assert!(world.client.poll_send(Lane::Control).is_none());
    world.client.release_ready(hold);
    let ready = world.client.poll_send(Lane::Control).unwrap();
    assert_eq!(ready.header.kind, FrameKind::Ready);
    assert!(world.client.poll_send(Lane::Control).is_some(), "the other");
}

/// Kinds of the frames that go when the server restarts, with something to be told to it first.
fn sent_to_a_new_boot(world: &mut World) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for frame in &world.to_server {
        let kind = match frame.header.kind {
            FrameKind::Ready => "ready",
            _ if frame.header.resent => "again",
            _ => "new",
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

#[test]
fn where_what_is_sent_again_takes_all_slots_nothing_can_be_told_first() {
    let mut world = World::new();
    for n in 0..200 {
        world.call(n, Lane::Control, Urgency::Urgent);
    }
    world.client.hold_ready();
    world.restart();
    let sent = sent_to_a_new_boot(&mut world);
    assert_eq!((sent.get("ready"), sent.get("new")), (Some(&1), None));
}

#[test]
fn what_is_told_first_may_be_more_than_there_are_slots() {
    let mut world = World::new();
    world.call(0, Lane::Control, Urgency::Urgent);
    world.to_server.clear();
    world.client.hold_ready();
    world.restart();
    for n in 1..200 {
        world.call(n, Lane::Control, Urgency::Urgent);
    }
    let sent = sent_to_a_new_boot(&mut world);
    assert_eq!((sent.get("ready"), sent.get("again")), (None, Some(&1)));
    assert_eq!(sent["new"] + 1, usize::from(world.server.slots()));
}

#[test]
fn nothing_overtakes_word_that_a_successor_is_settled() {
    let mut world = World::new();
    world.client = Session::succeed(
        Keeping::Nothing,
        Legacy {
            session: SessionId(1),
            epoch: BootEpoch(1),
            first_xid: 1 << 32,
            committed: Transno(0),
        },
    );
    world.lose();
    world.connect(true);
    // What it asks to put things in order says nothing of that.
    assert_eq!(world.client.lane(Lane::Bulk), Lane::Bulk);
    world.call(1, Lane::Control, Urgency::Urgent);
    world.client.settled();
    assert_eq!(world.client.lane(Lane::Bulk), Lane::Control);
    world.settle();
    assert_eq!(world.client.lane(Lane::Bulk), Lane::Control);
    world.call(2, Lane::Control, Urgency::Ordinary);
    world.settle();
    assert_eq!(world.client.lane(Lane::Bulk), Lane::Bulk);
}

#[test]
fn calls_beyond_the_bound_are_shed() {
    let mut requester = Requester::new(1, 4, 2);
    let call = |token| Call {
        payload: Arc::new(Payload::default()),
        lane: Lane::Control,
        urgency: Urgency::Ordinary,
        deadline: None,
        token,
        call_record: None,
    };
    assert_eq!(requester.submit(call(1)), Ok(()));
    assert_eq!(requester.submit(call(2)), Ok(()));
    assert_eq!(requester.submit(call(3)), Err(3));
    requester.lane_up(Lane::Control);
    assert!(
        requester
            .poll_send(Lane::Control, Urgency::Ordinary)
            .is_some()
    );
    assert_eq!(requester.submit(call(4)), Ok(()));
}

#[test]
fn violations_are_named() {
    let mut replier = Replier::new(4);
    assert!(replier.accept(4, Xid(1)).is_err());
    assert_eq!(replier.accept(3, Xid(1)), Ok(Verdict::Execute));
    assert!(replier.accept(3, Xid(2)).is_err(), "one request a slot");

    let mut world = World::new();
    let frame = |kind, xid| {
        let mut frame = Frame::bare(Header::new(kind));
        frame.header.session = SessionId(1);
        frame.header.epoch = 1;
        frame.header.xid = Xid(xid);
        frame
    };
    for kind in [
        FrameKind::Handshake,
        FrameKind::Reply,
        FrameKind::Committed,
        FrameKind::Evicted,
    ] {
        assert!(
            world.server.handle(frame(kind, 0), Transno(0)).is_err(),
            "{kind:?}"
        );
    }
    for kind in [
        FrameKind::Handshake,
        FrameKind::Request,
        FrameKind::Ready,
        FrameKind::Goodbye,
    ] {
        assert!(world.client.handle(frame(kind, 0)).is_err(), "{kind:?}");
    }
    let high = CALLBACK_XID_BIT | 1;
    assert!(
        world
            .server
            .handle(frame(FrameKind::Request, high), Transno(0))
            .is_err()
    );
    assert!(world.client.handle(frame(FrameKind::Callback, 1)).is_err());
    assert!(
        world
            .client
            .handle(frame(FrameKind::Callback, high))
            .is_err(),
        "no message"
    );
    let mut foreign = frame(FrameKind::Ping, 0);
    foreign.header.session = SessionId(9);
    assert!(world.server.handle(foreign, Transno(0)).is_err());
}

#[test]
fn an_idle_client_is_told_what_became_durable() {
    let mut world = World::new();
    world.call(1, Lane::Control, Urgency::Ordinary);
    world.settle();
    assert!(
        world.server.poll_committed(Transno(0)).is_none(),
        "nothing new"
    );
    let news = world.server.poll_committed(Transno(1)).unwrap();
    world.deliver_to_client(news);
    assert_eq!(world.client.last_committed(), Transno(1));
    assert!(
        world.server.poll_committed(Transno(1)).is_none(),
        "told once"
    );
    assert!(
        world.server.poll_committed(Transno(9)).is_none(),
        "nothing of its own is waiting"
    );
}

/// A random life: every call runs once and is answered once, whatever the network does.
fn live(seed: u64, restarts: bool) {
    let mut rng = SeededRng::new(seed);
    let mut world = World::new();
    let (mut calls, mut callbacks, mut connected) = (0, 0, true);
    for _ in 0..400 {
        match rng.below(if restarts { 21 } else { 20 }) {
            0..4 => {
                let lane = Lane::ALL[rng.below(Lane::COUNT as u64) as usize];
                let urgency = [Urgency::Ordinary, Urgency::Urgent][rng.below(2) as usize];
                world.call(calls, lane, urgency);
                calls += 1;
            }
            4 if !restarts => {
                world.call_back(callbacks);
                callbacks += 1;
            }
            4..8 => {
                let index = pick(&mut rng, world.to_server.len());
                if let Some(frame) = world.to_server.remove(index) {
                    if rng.below(8) == 0 {
                        world.ghosts.push((true, frame.clone()));
                    }
                    world.deliver_to_server(frame);
                }
            }
            8..12 => {
                let index = pick(&mut rng, world.to_client.len());
                if let Some(frame) = world.to_client.remove(index) {
                    if rng.below(8) == 0 {
                        world.ghosts.push((false, frame.clone()));
                    }
                    world.deliver_to_client(frame);
                }
            }
            12..15 => {
                let index = rng.below(world.running.len() as u64) as usize;
                if let Some(&payload) = world.running.keys().nth(index) {
                    world.answer(payload);
                }
            }
            15 => {
                if let Some(&payload) = world.called_back.keys().next() {
                    world.answer_callback(payload);
                }
            }
            16 => {
                world.lose();
                connected = false;
                // Some frames die for good.
                let mut kept = 0;
                world.ghosts.retain(|_| {
                    kept += 1;
                    kept % 3 == 0
                });
            }
            17 | 18 if !world.ghosts.is_empty() => {
                let index = rng.below(world.ghosts.len() as u64) as usize;
                world.deliver_ghost(index);
            }
            20 => {
                world.restart();
                connected = true;
            }
            _ if !connected => {
                world.connect(true);
                connected = true;
            }
            _ => {}
        }
    }
    world.lose();
    world.connect(true);
    world.settle();
    let once = |counts: &BTreeMap<u32, u32>, total: u32| {
        counts.len() == total as usize && counts.values().all(|&count| count == 1)
    };
    assert!(
        once(&world.executed, calls),
        "seed {seed}: {:?}",
        world.executed
    );
    assert!(
        once(&world.answers, calls),
        "seed {seed}: {:?}",
        world.answers
    );
    assert!(once(&world.callbacks_run, callbacks), "seed {seed}");
    assert!(once(&world.callback_answers, callbacks), "seed {seed}");
    assert_eq!(world.client.outstanding(), 0);
    assert_eq!(world.client.expire(NOW), []);
}

/// Mostly the first, so that order matters, sometimes another.
fn pick(rng: &mut SeededRng, len: usize) -> usize {
    match rng.below(4) {
        0 => rng.below(len as u64) as usize,
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn exactly_once_over_any_network(seed: u64) {
        live(seed, false);
    }

    #[test]
    fn exactly_once_across_restarts(seed: u64) {
        live(seed, true);
    }
}
