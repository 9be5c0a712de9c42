//! A machine behind a server: what it is told, in which order, and what becomes of what it says.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use base::limits::{CALLBACK_DEADLINE, FRAME_REQUESTS_MAX, UNANSWERED_BYTES_MAX};
use base::{BootEpoch, ClientId, Disrupted, SystemClock, TargetName, Tick, Transno, Xid};
use rpc::scheduler::{Nature, RuleReport, Vocabulary};
use rpc::serving::{self, Arrival, Effect, Machine, Moment, Scheduling, Serving};
use rpc::{
    Address, Batch, CallbackResponder, ClientHandler, ClientSecret, ClientUuid, Connected,
    Departure, LastCommitted, Legacy, MemPort, Message, Peer, PeerConfig, PeerInfo, Policy,
    ReplyBatch, ReplyMessage, Responder, ServedTarget, Server, ServerConfig, Service, Unwelcome,
};
use wire::frame::SessionId;

/// Is answered at once, with what it says.
const ECHO: u16 = 1;
/// Waits until it is released.
const PARK: u16 = 2;
/// Asks its client; what that answers is its answer.
const ASK: u16 = 3;
/// Its client is found to be dead.
const EVICT: u16 = 4;
/// Is done outside, and answered then.
const CHORE: u16 = 5;
/// Waits until it is released, and takes more than half of the memory for what waits.
const HOARD: u16 = 6;

/// Takes a millisecond while the test says so.
const SLOW: u16 = 7;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

type Told = Effect<Vec<u8>, u64>;

/// Counts changes: each answer is one.
#[derive(Default)]
struct Toy {
    changes: u64,
    parked: VecDeque<(u64, Vec<u8>)>,
    asked: VecDeque<u64>,
    evicted: Arc<Mutex<Vec<ClientId>>>,
    /// How often a client was ready.
    ready: u32,
    /// It gave a client up; whether that is durable.
    gave_up: Option<bool>,
    /// What it knows of clients cannot be read.
    is_damaged: bool,
    /// Slow requests take their time.
    is_slow: Arc<AtomicBool>,
    /// How many of them it has done.
    slow_done: usize,
    /// How many it had done at the last echo.
    slow_before: usize,
}

enum Event {
    /// It gives a client up; whether that is durable.
    GivesUp(bool),
    /// The request that came last is released first.
    Release,
    Done(u64),
    Damaged,
    Stops,
}

impl Toy {
    fn readable(&self) -> Result<(), String> {
        match self.is_damaged {
            true => Err("damaged".into()),
            false => Ok(()),
        }
    }

    fn answer(&mut self, tag: u64, answer: Vec<u8>) -> Told {
        self.changes += 1;
        let transno = Transno(self.changes);
        Effect::Answer {
            tag,
            answer,
            transno,
        }
    }
}

impl Machine for Toy {
    type Output = Told;
    type Answer = Vec<u8>;
    type Event = Event;
    type Chore = u64;

    const VOCABULARY: Vocabulary = Vocabulary {
        operations: &["echo", "park", "ask", "cancel"],
        uids: false,
    };
    const ANSWER_BYTES_MAX: usize = 0;

    const KEEPS_ANSWERS: bool = true;

    fn nature(message: &Message) -> Nature {
        let operation = match message.opcode {
            ECHO => "echo",
            PARK | HOARD => "park",
            ASK => "ask",
            _ => "cancel",
        };
        Nature {
            operation,
            uid: None,
            urgent: operation == "cancel",
        }
    }

    fn kept_bytes(batch: &Batch) -> usize {
        let kept = |message: &Message| match message.opcode {
            HOARD => UNANSWERED_BYTES_MAX / 2 + 1,
            _ => message.body.len(),
        };
        batch.messages.iter().map(kept).sum()
    }

    fn answer_bytes(answer: &Vec<u8>) -> usize {
        answer.len()
    }

    fn extra_cost(answer: &Vec<u8>) -> u64 {
        answer.len() as u64 / 10
    }

    fn is_awaited(&self, _: ClientId) -> bool {
        !self.asked.is_empty()
    }

    fn callback_deadline(&self) -> Duration {
        CALLBACK_DEADLINE
    }

    fn committed(&self) -> Transno {
        Transno(self.changes)
    }

    fn connected(&mut self, _: ClientId, _: &PeerInfo) -> Result<(), String> {
        self.readable()
    }

    fn ready(&mut self, _: Moment, _: ClientId, _: &mut Vec<Told>) {
        self.ready += 1;
    }

    fn gave_up(&self, _: ClientUuid) -> Result<bool, String> {
        self.readable().map(|()| self.gave_up.is_some())
    }

    fn is_giving_up(&self, _: ClientUuid) -> bool {
        self.gave_up == Some(false)
    }

    fn requests(&mut self, _: Moment, arrival: Arrival<'_>, out: &mut Vec<Told>) -> usize {
        let (client, mut done) = (arrival.client, 0);
        let messages = (arrival.first_tag..).zip(&arrival.batch.messages);
        for (tag, message) in messages.skip(arrival.from) {
            if arrival.part.is_over(done) {
                break;
            }
            done += 1;
            match message.opcode {
                ECHO => {
                    self.slow_before = self.slow_done;
                    out.push(self.answer(tag, message.body.clone()));
                }
                SLOW => {
                    if self.is_slow.load(Ordering::Acquire) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    self.slow_done += 1;
                    out.push(self.answer(tag, Vec::new()));
                }
                PARK | HOARD => self.parked.push_back((tag, message.body.clone())),
                ASK => {
                    self.asked.push_back(tag);
                    out.push(Effect::CallBack {
                        client,
                        id: tag,
                        message: message.clone(),
                    });
                }
                CHORE => out.push(Effect::Chore(tag)),
                _ => out.push(Effect::Evict { client }),
            }
        }
        done
    }

    fn answered(&mut self, _: Moment, _: ClientId, id: u64, answer: &Message, out: &mut Vec<Told>) {
        assert_eq!(self.asked.pop_front(), Some(id));
        out.push(self.answer(id, answer.body.clone()));
    }

    fn hear(&mut self, _: Moment, event: Event, out: &mut Vec<Told>) {
        match event {
            Event::Release => {
                let (tag, body) = self.parked.pop_back().expect("something is parked");
                out.push(self.answer(tag, body));
            }
            Event::GivesUp(durably) => self.gave_up = Some(durably),
            Event::Damaged => self.is_damaged = true,
            Event::Stops => out.push(Effect::Stop {
                reason: "as the test asked".into(),
            }),
            Event::Done(tag) => out.push(self.answer(tag, b"done".to_vec())),
        }
    }

    fn end_session(&mut self, _: Moment, (client, _): (ClientId, Departure), _: &mut Vec<Told>) {
        self.evicted.lock().expect("no panic").push(client);
    }

    fn recovery(&self, _: Tick) -> rpc::window::Report {
        rpc::window::Report::default()
    }

    fn give_up_waiting(&mut self, _: Moment, _: &mut Vec<Told>) {}

    fn tick(&mut self, _: Moment, _: &mut Vec<Told>) {}

    fn effect(output: Told) -> Told {
        output
    }

    fn pack(answers: Vec<Vec<u8>>) -> ReplyBatch {
        let replies = answers
            .into_iter()
            .map(|body| ReplyMessage { status: 0, body });
        ReplyBatch {
            replies: replies.collect(),
            ..ReplyBatch::default()
        }
    }
}

/// Turns what it is asked around.
struct Client;

impl ClientHandler for Client {
    fn callback(&self, mut message: Message, responder: CallbackResponder) {
        message.body.reverse();
        responder.reply(message);
    }

    fn epoch_changed(&self, _: BootEpoch, _: BootEpoch) {}

    fn evicted(&self) {}

    fn last_committed(&self, _: Transno) {}
}

fn config_of(server: &Server) -> PeerConfig {
    PeerConfig {
        target: TargetName::mdt(0),
        addresses: server.local_addresses().to_vec(),
        secret: ClientSecret([1; 16]),
        incarnation: 1,
        key: None,
        credential: rpc::Credential::Client,
        insecure: false,
        policy: Policy::Hard,
        lanes: 1,
        keeping: rpc::Keeping::Nothing,
        legacy: None,
        clocks: rpc::Clocks::default(),
    }
}

struct Rig {
    peer: Peer,
    serving: Arc<Serving<Toy>>,
    evicted: Arc<Mutex<Vec<ClientId>>>,
    server: Server,
}

impl Rig {
    fn new(name: &str) -> Rig {
        Rig::around(name, |serving| serving.service())
    }

    /// What comes in reaches the machine through what `wrap` makes of it.
    fn around(name: &str, wrap: impl FnOnce(&Arc<Serving<Toy>>) -> Arc<dyn Service>) -> Rig {
        let (toy, target) = (Toy::default(), TargetName::mdt(0));
        let evicted = toy.evicted.clone();
        let last_committed = LastCommitted::new(Transno(0));
        let clock = Arc::new(SystemClock::default());
        // A chore that is done at once, while the machine is held.
        let done = |serving: &Arc<Serving<Toy>>, tag| serving.hear(Event::Done(tag));
        let serving = Serving::start(
            toy,
            "toy-tick",
            last_committed.clone(),
            clock.clone(),
            Box::new(done),
            Box::new(|_| {}),
        );
        let serving = serving.expect("a thread starts");
        let served = ServedTarget {
            name: target,
            key: None,
            server_key: None,
            boot_epoch: BootEpoch(1),
            last_committed,
            service: wrap(&serving),
        };
        let listen = vec![Address::Mem(MemPort::new(name))];
        let server = Server::start(ServerConfig::new(listen), vec![served]).expect("listens");
        let config = config_of(&server);
        Rig {
            peer: Peer::new(config, Arc::new(Client), clock).expect("starts"),
            serving,
            evicted,
            server,
        }
    }

    /// The same as to hear of it, and it is done when this returns.
    fn tell(&self, event: Event) {
        self.serving
            .with(|toy, moment, out| toy.hear(moment, event, out));
    }

    /// The session of its client, once that has been answered something.
    fn session(&self) -> Arc<Connected> {
        self.call(&[(ECHO, "")]).wait().expect("answered");
        let sessions = self.server.sessions(TargetName::mdt(0));
        sessions.first().cloned().expect("one client")
    }

    /// The report of the only rule, once `ready` says so.
    fn report(&self, ready: impl Fn(&RuleReport) -> bool) -> RuleReport {
        let began = Instant::now();
        loop {
            let report = self.serving.report().pop().expect("there is a rule");
            if ready(&report) {
                return report;
            }
            assert!(began.elapsed() < PATIENCE, "{report:?}");
            std::thread::yield_now();
        }
    }

    fn rule(&self, command: &str) {
        self.serving.command(command).expect("is a rule");
    }

    fn call(&self, requests: &[(u16, &str)]) -> rpc::CallFuture {
        let messages = requests.iter().map(|(opcode, body)| Message {
            opcode: *opcode,
            body: body.as_bytes().to_vec(),
        });
        self.peer.call(Batch {
            messages: messages.collect(),
            bulk: Default::default(),
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.peer.close();
        self.serving.stop();
    }
}

fn bodies(reply: &ReplyBatch) -> Vec<&str> {
    let bodies = reply.replies.iter().map(|reply| &reply.body[..]);
    bodies
        .map(|body| std::str::from_utf8(body).expect("text"))
        .collect()
}

#[test]
fn a_frame_is_answered_when_all_of_it_is_in_the_order_of_its_requests() {
    let rig = Rig::new("serving-order");
    let waiting = rig.call(&[(PARK, "a"), (ECHO, "b"), (PARK, "c")]);
    let other = rig.call(&[(ECHO, "d")]).wait().expect("answered");
    assert_eq!(bodies(&other), ["d"], "another frame does not wait for it");
    rig.serving.hear(Event::Release);
    rig.serving.hear(Event::Release);
    let reply = waiting.wait().expect("answered");
    assert_eq!(bodies(&reply), ["a", "b", "c"]);
    assert_eq!(reply.transno, Transno(4), "the last change of the frame");
    let empty = rig.call(&[]).wait().expect("answered");
    assert!(empty.replies.is_empty());
}

#[test]
fn what_comes_while_the_machine_is_held_is_heard_after() {
    let rig = Rig::new("serving-inbox");
    let reply = rig.call(&[(CHORE, ""), (ASK, "abc"), (ECHO, "x")]);
    let reply = reply.wait().expect("answered");
    assert_eq!(bodies(&reply), ["done", "cba", "x"]);
    assert_eq!(rig.peer.last_committed(), Transno(3));
}

#[test]
fn a_client_found_dead_loses_its_session_and_the_machine_hears_of_it() {
    let rig = Rig::new("serving-evict");
    let client = rig.call(&[(ECHO, "")]).wait().map(|_| rig.peer.client());
    let client = client.expect("answered");
    let waiting = rig.call(&[(PARK, "a")]);
    let gone = rig.call(&[(EVICT, "")]);
    assert_eq!(waiting.wait().err(), Some(Disrupted::Evicted));
    assert_eq!(gone.wait().err(), Some(Disrupted::Evicted));
    // A new session begins; the old one's requests are not answered in it.
    let again = rig.call(&[(ECHO, "e")]).wait().expect("answered");
    assert_eq!(bodies(&again), ["e"]);
    assert_eq!(*rig.evicted.lock().expect("no panic"), [client]);
}

/// What is the session's is dropped then, and what the next process needs with it.
#[test]
fn a_late_ready_of_a_dead_process_does_not_count_for_the_next() {
    let rig = Rig::new("serving-late-ready");
    let (dead, service) = (rig.session(), rig.serving.service());
    let ready = || rig.serving.look(|toy| toy.ready);
    let began = Instant::now();
    while ready() == 0 {
        assert!(began.elapsed() < PATIENCE, "it is ready");
        std::thread::yield_now();
    }
    service.ready(&dead);
    assert_eq!(ready(), 2);
    let config = PeerConfig {
        incarnation: 2,
        legacy: Some(Legacy {
            session: SessionId(1),
            epoch: BootEpoch(1),
            first_xid: 100,
            committed: Transno(0),
        }),
        ..config_of(&rig.server)
    };
    let clock = Arc::new(SystemClock::default());
    let next = Peer::new(config, Arc::new(Client), clock).expect("starts");
    next.call(Batch::of(ECHO, Vec::new()))
        .wait()
        .expect("answered");
    service.ready(&dead);
    assert_eq!(ready(), 2, "the next one has yet to say so");
    next.close();
}

/// The eviction took the session of the process before; the target knows nothing of this one.
#[test]
fn a_process_goes_on_for_nobody_who_was_evicted() {
    let rig = Rig::new("serving-succeeds");
    let session = rig.session();
    assert!(serving::Recovering::evict(
        &*rig.serving,
        session.peer().uuid
    ));
    rig.serving.service().succeeded(session);
    assert!(rig.serving.clients().is_empty());
}

/// A boot after a crash would know nothing of it, and the client would not come with what it dropped.
#[test]
fn nobody_is_told_that_it_was_given_up_before_that_is_durable() {
    let rig = Rig::new("serving-gives-up");
    let service = rig.serving.service();
    let client = ClientSecret([1; 16]).uuid();
    assert!(service.wait_to_give_up(client).is_ok());
    rig.tell(Event::GivesUp(false));
    let (told, hears) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || told.send(service.wait_to_give_up(client)));
    let early = hears.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err(), "{early:?}");
    rig.tell(Event::GivesUp(true));
    assert_eq!(hears.recv_timeout(PATIENCE), Ok(Ok(())));
    asking.join().expect("no panic").expect("is heard");
}

/// Nor is anybody told anything else: what would come of it is not durable.
#[test]
fn a_target_that_stops_breaks_handshakes_off() {
    let rig = Rig::new("serving-stops");
    let (client, session) = (ClientSecret([1; 16]).uuid(), rig.session());
    let service = rig.serving.service();
    rig.tell(Event::GivesUp(false));
    let asking = std::thread::spawn(move || service.wait_to_give_up(client));
    rig.tell(Event::Stops);
    let broken_off = Unwelcome::BrokenOff("as the test asked".into());
    assert_eq!(asking.join().expect("no panic"), Err(broken_off.clone()));
    let service = rig.serving.service();
    assert_eq!(service.connected(session), Err(broken_off.clone()));
    rig.tell(Event::GivesUp(true));
    assert_eq!(service.wait_to_give_up(client), Err(broken_off));
}

/// The target stops while a request is on its way to it.
struct StopsBefore {
    serving: Arc<Serving<Toy>>,
    passed_on: mpsc::Sender<()>,
}

impl Service for StopsBefore {
    fn connected(&self, session: Arc<Connected>) -> Result<(), Unwelcome> {
        self.serving.service().connected(session)
    }

    fn request(
        &self,
        session: &Arc<Connected>,
        xid: Xid,
        resent: bool,
        batch: Batch,
        responder: Responder,
    ) {
        self.serving
            .with(|toy, moment, out| toy.hear(moment, Event::Stops, out));
        let service = self.serving.service();
        service.request(session, xid, resent, batch, responder);
        self.passed_on.send(()).expect("the test waits");
    }

    fn disconnected(&self, _: ClientId) {}

    fn succeeded(&self, _: Arc<Connected>) {}

    fn expired(&self, _: ClientId, _: Departure) {}
}

/// Its next boot, in the same process, finds the target's files let go of.
#[test]
fn a_request_that_meets_a_target_that_has_stopped_keeps_nothing_of_it() {
    let (passed_on, was_passed_on) = mpsc::channel();
    let rig = Rig::around("serving-kept", |serving| {
        let serving = serving.clone();
        Arc::new(StopsBefore { serving, passed_on })
    });
    let call = rig.call(&[(ECHO, "late")]);
    was_passed_on.recv_timeout(PATIENCE).expect("it comes in");
    let serving = Arc::downgrade(&rig.serving);
    drop((call, rig));
    assert!(serving.upgrade().is_none());
}

/// Frames that say "again" come as if they had been sent before.
struct Resends(Arc<dyn Service>);

impl Service for Resends {
    fn connected(&self, session: Arc<Connected>) -> Result<(), Unwelcome> {
        self.0.connected(session)
    }

    fn request(
        &self,
        session: &Arc<Connected>,
        xid: Xid,
        _: bool,
        batch: Batch,
        responder: Responder,
    ) {
        let resent = batch.messages.iter().any(|sent| sent.body == b"again");
        self.0.request(session, xid, resent, batch, responder);
    }

    fn disconnected(&self, _: ClientId) {}

    fn succeeded(&self, _: Arc<Connected>) {}

    fn expired(&self, _: ClientId, _: Departure) {}
}

/// As a new request it would be done twice.
#[test]
fn a_full_target_asks_for_a_frame_anew_unless_an_earlier_boot_may_have_done_it() {
    let rig = Rig::around("serving-full", |serving| {
        Arc::new(Resends(serving.service()))
    });
    let first = rig.call(&[(HOARD, "first")]);
    let refused = rig.call(&[(HOARD, "too much")]).wait().expect("answered");
    assert!(refused.replies.is_empty(), "{refused:?}");
    let again = rig.call(&[(HOARD, "again")]);
    let began = Instant::now();
    while rig.serving.look(|toy| toy.parked.len()) < 2 {
        assert!(began.elapsed() < PATIENCE, "both wait");
        std::thread::yield_now();
    }
    for (call, body) in [(again, "again"), (first, "first")] {
        rig.tell(Event::Release);
        let reply = call.wait().expect("answered");
        assert_eq!(bodies(&reply), [body]);
    }
}

#[test]
fn a_target_stops_that_cannot_read_what_it_knows_of_a_client() {
    for asks in [false, true] {
        let rig = Rig::new("serving-damaged");
        let (client, session) = (ClientSecret([1; 16]).uuid(), rig.session());
        let service = rig.serving.service();
        rig.tell(Event::Damaged);
        let unwelcome = match asks {
            true => service.gave_up(client).err(),
            false => service.connected(session).err(),
        };
        assert_eq!(unwelcome, Some(Unwelcome::BrokenOff("damaged".into())));
        assert_eq!(rig.serving.stopped().as_deref(), Some("damaged"));
    }
}

#[test]
fn a_target_that_ends_breaks_handshakes_off() {
    let rig = Rig::new("serving-ends");
    rig.serving.stop();
    let said = rig.serving.service().wait_to_give_up(ClientUuid([1; 16]));
    assert!(matches!(said, Err(Unwelcome::BrokenOff(_))), "{said:?}");
}

#[test]
fn a_frame_waits_for_its_tokens_and_keeps_nobody_else_waiting() {
    let rig = Rig::new("serving-rule");
    rig.rule("start slow opcode=echo rate=1 burst=1");
    let first = rig.call(&[(ECHO, "a")]).wait().expect("answered");
    assert_eq!(bodies(&first), ["a"]);
    let (began, held) = (Instant::now(), rig.call(&[(ECHO, "b")]));
    assert_eq!(rig.report(|report| report.waiting == 1).held, 1);
    let chore = rig.call(&[(CHORE, "")]).wait().expect("answered");
    assert_eq!(bodies(&chore), ["done"], "no rule is about it");
    let mixed = rig.call(&[(ECHO, "c"), (CHORE, "")]).wait();
    assert_eq!(bodies(&mixed.expect("answered")), ["c", "done"]);
    assert_eq!(rig.report(|_| true).waiting, 1, "the other waits yet");
    rig.rule("change slow rate=1000000");
    assert_eq!(bodies(&held.wait().expect("answered")), ["b"]);
    assert!(began.elapsed() < PATIENCE);
    let report = rig.report(|report| report.waiting == 0);
    assert_eq!((report.requests, report.owed), (3, 1));
}

#[test]
fn a_frame_comes_out_when_its_tokens_are_there() {
    let rig = Rig::new("serving-timer");
    rig.rule("start slow opcode=echo rate=100 burst=1");
    let began = Instant::now();
    for number in 0..31 {
        let number = number.to_string();
        let reply = rig.call(&[(ECHO, &number)]).wait().expect("answered");
        assert_eq!(bodies(&reply), [number]);
    }
    assert!(began.elapsed() >= Duration::from_millis(300), "30 tokens");
    let frame: Vec<(u16, &str)> = (0..64).map(|_| (ECHO, "x")).collect();
    let began = Instant::now();
    let reply = rig.call(&frame).wait().expect("answered");
    assert_eq!(reply.replies.len(), 64);
    assert!(began.elapsed() >= Duration::from_millis(620), "63 tokens");
    // An answer of 100 bytes costs eleven.
    let began = Instant::now();
    for _ in 0..3 {
        let long = rig.call(&[(ECHO, &"x".repeat(100))]);
        long.wait().expect("answered");
    }
    assert!(began.elapsed() >= Duration::from_millis(220), "22 tokens");
    rig.rule("stop slow");
    assert!(rig.serving.report().is_empty());
}

#[test]
fn who_is_called_back_gets_what_it_has_waiting() {
    let rig = Rig::new("serving-called");
    rig.rule("start slow opcode={echo,park} rate=1 burst=1");
    let parked = rig.call(&[(PARK, "a")]);
    rig.report(|report| report.requests == 1);
    let held = rig.call(&[(ECHO, "b")]);
    rig.report(|report| report.waiting == 1);
    // Its answer is waited for from the moment that it is asked.
    let asked = rig.call(&[(ASK, "abc")]);
    assert_eq!(bodies(&held.wait().expect("answered")), ["b"]);
    assert_eq!(bodies(&asked.wait().expect("answered")), ["cba"]);
    assert_eq!(rig.report(|report| report.waiting == 0).owed, 1);
    rig.serving.hear(Event::Release);
    assert_eq!(bodies(&parked.wait().expect("answered")), ["a"]);
}

#[test]
fn what_a_client_has_waiting_goes_with_it() {
    let rig = Rig::new("serving-forget");
    rig.rule("start slow opcode=echo rate=1 burst=1");
    rig.call(&[(ECHO, "a")]).wait().expect("answered");
    let held = rig.call(&[(ECHO, "b")]);
    rig.report(|report| report.waiting == 1);
    rig.call(&[(EVICT, "")]).wait().expect_err("evicted");
    assert_eq!(held.wait().err(), Some(Disrupted::Evicted));
    assert_eq!(rig.report(|_| true).waiting, 0);
    rig.rule("stop slow");
    let again = rig.call(&[(ECHO, "c")]).wait().expect("answered");
    assert_eq!(bodies(&again), ["c"]);
    let clients = rig.serving.clients();
    assert_eq!(clients.len(), 1);
    assert_eq!(clients[0].1.address, "mem:serving-forget");
    let error = rig.serving.command("stop slow").expect_err("it is gone");
    assert_eq!(error.to_string(), "there is no rule slow; there are none");
}

/// Each of the others has sent a frame of as many requests as a frame may have.
#[test]
fn a_session_does_not_wait_for_whole_frames_of_others() {
    const OTHERS: u8 = 4;
    let rig = Rig::new("turns");
    let is_slow = rig.serving.look(|toy| toy.is_slow.clone());
    is_slow.store(true, Ordering::Release);
    let clock = Arc::new(SystemClock::default());
    let others = (0..OTHERS).map(|number| {
        let config = PeerConfig {
            secret: ClientSecret([10 + number; 16]),
            ..config_of(&rig.server)
        };
        Peer::new(config, Arc::new(Client), clock.clone()).unwrap()
    });
    let others: Vec<Peer> = others.collect();
    let slow = Batch {
        messages: vec![
            Message {
                opcode: SLOW,
                body: Vec::new()
            };
            FRAME_REQUESTS_MAX
        ],
        ..Batch::default()
    };
    let asked: Vec<_> = others.iter().map(|peer| peer.call(slow.clone())).collect();
    let done = || rig.serving.look(|toy| toy.slow_done);
    let began = Instant::now();
    while done() == 0 {
        assert!(began.elapsed() < PATIENCE, "nothing is begun");
        std::thread::sleep(Duration::from_millis(1));
    }
    let answer = rig.call(&[(ECHO, "quick")]).wait().unwrap();
    let before = rig.serving.look(|toy| toy.slow_before);
    is_slow.store(false, Ordering::Release);
    assert_eq!(bodies(&answer), ["quick"]);
    assert!(before < FRAME_REQUESTS_MAX, "{before} requests of others");
    for answer in asked {
        assert_eq!(answer.wait().unwrap().replies.len(), FRAME_REQUESTS_MAX);
    }
}
