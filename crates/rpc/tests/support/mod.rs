//! A server with a service that does as it is told, and a handler that writes down what it hears.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use base::{BootEpoch, ClientId, Clock, Disrupted, SystemClock, TargetName, Transno, Xid};
use rpc::{
    Address, Batch, CallbackResponder, ClientHandler, ClientSecret, ClientUuid, Connected,
    Departure, Key, LastCommitted, Link, MemPort, Message, Peer, PeerConfig, Policy, Refusal,
    RefusalReason, ReplyBatch, ReplyMessage, Responder, ServedTarget, Server, ServerConfig,
    Service, Unwelcome,
};

/// Answers with what it got.
pub const ECHO: u16 = 1;
/// Is answered when the test says so.
pub const PARK: u16 = 2;
/// Is dropped without an answer.
pub const DROP: u16 = 3;
/// Answers, then calls back; the body is the callback's.
pub const CALL_BACK: u16 = 4;
/// A change: gets the next transno, and a record that survives a restart; answered with what it brought.
pub const CHANGE: u16 = 5;
/// Makes the service panic.
pub const PANIC: u16 = 7;
/// Answers with as many bytes of bulk as the body says.
pub const READ: u16 = 6;

pub const KEY: [u8; 32] = [42; 32];
pub const SERVER_KEY: [u8; 32] = [43; 32];
const PATIENCE: Duration = Duration::from_secs(20);

pub fn target() -> TargetName {
    TargetName::mdt(0)
}

/// Something that tests wait for.
#[derive(Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.value.lock().unwrap());
        self.changed.notify_all();
        result
    }

    pub fn wait_for<R>(&self, what: &str, mut ready: impl FnMut(&mut T) -> Option<R>) -> R {
        let deadline = Instant::now() + PATIENCE;
        let mut value = self.value.lock().unwrap();
        loop {
            if let Some(result) = ready(&mut value) {
                return result;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            value = self
                .changed
                .wait_timeout(value, Duration::from_millis(100))
                .unwrap()
                .0;
        }
    }
}

pub fn until(what: &str, mut ready: impl FnMut() -> bool) {
    Watched::<()>::default().wait_for(what, |()| ready().then_some(()));
}

/// What survives a restart of the server.
#[derive(Default)]
pub struct Disk {
    pub records: Mutex<HashMap<(ClientUuid, Xid), Transno>>,
    pub committed: Arc<LastCommitted>,
}

#[derive(Default)]
pub struct Log {
    pub lines: Vec<String>,
    pub parked: Vec<Responder>,
    pub executed: HashMap<Xid, u32>,
    pub sessions: Vec<Arc<Connected>>,
    pub callback_answers: Vec<Result<Vec<u8>, Disrupted>>,
}

/// How far a service is with giving a client up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    #[default]
    Nobody,
    /// When the client is here next.
    Soon,
    /// That is not durable.
    Now,
    Durably,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    #[default]
    Nothing,
    Next,
    Held,
}

/// The service under the tests.
#[derive(Default)]
pub struct TestService {
    pub log: Watched<Log>,
    pub disk: Arc<Disk>,
    pub refuse: Mutex<bool>,
    pub revocation: Mutex<Revocation>,
    /// The next hello waits until the test says so.
    pub hold_hello: Watched<Hold>,
    /// It breaks handshakes off.
    pub stops: Mutex<bool>,
}

impl TestService {
    fn note(&self, line: String) {
        self.log.change(|log| log.lines.push(line));
    }

    pub fn wait_for_line(&self, line: &str) {
        self.log.wait_for(line, |log| {
            log.lines.iter().any(|l| l == line).then_some(())
        });
    }

    pub fn wait_for_parked(&self) -> Responder {
        self.log
            .wait_for("a parked request", |log| log.parked.pop())
    }

    pub fn session(&self) -> Arc<Connected> {
        self.log
            .wait_for("a session", |log| log.sessions.last().cloned())
    }

    fn change(&self, session: &Connected, xid: Xid, resent: bool) -> Transno {
        let mut records = self.disk.records.lock().unwrap();
        let next = Transno(records.len() as u64 + 1);
        let known = records.get(&(session.peer().uuid, xid)).copied();
        assert!(known.is_none() || resent, "an xid was used twice");
        *records.entry((session.peer().uuid, xid)).or_insert(next)
    }
}

pub fn reply_of(bodies: impl IntoIterator<Item = Vec<u8>>) -> ReplyBatch {
    let replies = bodies
        .into_iter()
        .map(|body| ReplyMessage { status: 0, body });
    ReplyBatch {
        replies: replies.collect(),
        ..ReplyBatch::default()
    }
}

impl Service for TestServiceHandle {
    fn succeeded(&self, session: Arc<Connected>) {
        self.0.log.change(|log| {
            log.lines.push(format!("succeeded {}", session.client()));
            log.sessions.push(session);
        });
    }

    fn connected(&self, session: Arc<Connected>) -> Result<(), Unwelcome> {
        if *self.0.stops.lock().unwrap() {
            return Err(Unwelcome::BrokenOff("as the test asked".into()));
        }
        if *self.0.refuse.lock().unwrap() {
            return Err(Refusal::new(RefusalReason::Service, "not today").into());
        }
        self.0.log.change(|log| {
            log.lines.push(format!("connected {}", session.client()));
            log.sessions.push(session);
        });
        let mut revocation = self.0.revocation.lock().unwrap();
        if *revocation == Revocation::Soon {
            *revocation = Revocation::Now;
        }
        Ok(())
    }

    fn gave_up(&self, _: ClientUuid) -> Result<bool, Unwelcome> {
        let revocation = *self.0.revocation.lock().unwrap();
        Ok(matches!(revocation, Revocation::Now | Revocation::Durably))
    }

    fn is_giving_up(&self, _: ClientUuid) -> bool {
        *self.0.revocation.lock().unwrap() == Revocation::Now
    }

    fn wait_to_give_up(&self, _: ClientUuid) -> Result<(), Unwelcome> {
        let held = self.0.hold_hello.change(|hold| {
            let is_next = *hold == Hold::Next;
            *hold = if is_next { Hold::Held } else { *hold };
            is_next
        });
        if held {
            let released = |hold: &mut Hold| (*hold == Hold::Nothing).then_some(());
            self.0.hold_hello.wait_for("the test's word", released);
        }
        let mut revocation = self.0.revocation.lock().unwrap();
        if *revocation == Revocation::Now {
            *revocation = Revocation::Durably;
        }
        Ok(())
    }

    fn request(
        &self,
        session: &Arc<Connected>,
        xid: Xid,
        resent: bool,
        batch: Batch,
        responder: Responder,
    ) {
        let service = &self.0;
        service
            .log
            .change(|log| *log.executed.entry(xid).or_default() += 1);
        match batch.messages.first().map(|message| message.opcode) {
            Some(PARK) => service.log.change(|log| {
                let resent = if resent { ", resent" } else { "" };
                log.lines.push(format!("parked{resent}"));
                log.parked.push(responder);
            }),
            Some(DROP) => drop(responder),
            Some(PANIC) => panic!("as the test asked"),
            Some(CALL_BACK) => {
                let message = batch.messages.into_iter().next().unwrap();
                responder.reply(reply_of([b"soon".to_vec()]));
                let service = service.clone();
                session.callback(
                    message,
                    Box::new(move |answer| {
                        let answer = answer.map(|message| message.body);
                        service.log.change(|log| log.callback_answers.push(answer));
                    }),
                );
            }
            Some(CHANGE) => {
                let transno = service.change(session, xid, resent);
                let mut reply = reply_of([transno.0.to_le_bytes().to_vec()]);
                reply.transno = transno;
                reply.bulk = batch.bulk;
                responder.reply(reply);
            }
            Some(READ) => {
                let bytes = u32::from_le_bytes(batch.messages[0].body[..4].try_into().unwrap());
                let mut reply = reply_of([Vec::new()]);
                reply.bulk = vec![7; bytes as usize].into();
                responder.reply(reply);
            }
            _ => {
                let mut reply = reply_of(batch.messages.into_iter().map(|message| message.body));
                reply.bulk = batch.bulk;
                responder.reply(reply);
            }
        }
    }

    fn disconnected(&self, client: ClientId) {
        self.0.note(format!("disconnected {client}"));
    }

    fn resumed(&self, client: ClientId) {
        self.0.note(format!("resumed {client}"));
    }

    fn expired(&self, client: ClientId, _: Departure) {
        self.0.note(format!("expired {client}"));
    }

    fn lost_changes(&self, _: &str) {
        self.0.note("lost changes".to_owned());
    }
}

/// Lets the test and the server share one service.
pub struct TestServiceHandle(pub Arc<TestService>);

#[derive(Default)]
pub struct Heard {
    pub lines: Vec<String>,
    pub callbacks: Vec<Vec<u8>>,
    /// When set, responders are kept instead of answered.
    pub keep: bool,
    pub kept: Vec<CallbackResponder>,
    pub committed: Transno,
}

/// Answers callbacks with their own body.
#[derive(Default)]
pub struct TestHandler {
    pub heard: Watched<Heard>,
}

impl TestHandler {
    pub fn wait_for_line(&self, line: &str) {
        self.heard.wait_for(line, |heard| {
            heard.lines.iter().any(|l| l == line).then_some(())
        });
    }
}

impl ClientHandler for TestHandler {
    fn callback(&self, message: Message, responder: CallbackResponder) {
        let kept = self.heard.change(|heard| {
            heard.callbacks.push(message.body.clone());
            heard
                .lines
                .push(format!("callback of {} bytes", message.body.len()));
            match heard.keep {
                true => {
                    heard.kept.push(responder);
                    None
                }
                false => Some(responder),
            }
        });
        if let Some(responder) = kept {
            responder.reply(message);
        }
    }

    fn epoch_changed(&self, old: BootEpoch, new: BootEpoch) {
        self.heard
            .change(|heard| heard.lines.push(format!("epoch {old} to {new}")));
    }

    fn evicted(&self) {
        self.heard
            .change(|heard| heard.lines.push("evicted".into()));
    }

    fn last_committed(&self, transno: Transno) {
        self.heard.change(|heard| {
            assert!(transno > heard.committed, "only grows");
            heard.committed = transno;
        });
    }
}

/// Which transport a test runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Tcp,
    Unix,
    Mem,
    DelayedTcp,
    DelayedMem,
}

/// A server's place, and what survives its restarts.
pub struct Place {
    pub over: Over,
    pub listen: Address,
    pub disk: Arc<Disk>,
    pub clock: Arc<dyn Clock>,
    pub grace: Duration,
    pub connections_max: usize,
    pub replies_bytes_max: usize,
    pub link: Arc<Link>,
    _dir: tempfile::TempDir,
}

impl Place {
    pub fn new(over: Over) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let listen = match over {
            Over::Tcp | Over::DelayedTcp => Address::Tcp("127.0.0.1:0".into()),
            Over::Unix => Address::Unix(dir.path().join("socket")),
            Over::Mem | Over::DelayedMem => Address::Mem(MemPort::new("test")),
        };
        Place {
            over,
            listen,
            disk: Arc::default(),
            clock: Arc::new(SystemClock::default()),
            grace: Duration::from_secs(150),
            connections_max: usize::MAX,
            replies_bytes_max: base::limits::REPLIES_BYTES_MIN,
            link: Link::new(Duration::from_millis(2), Some(500_000_000)),
            _dir: dir,
        }
    }

    /// A server of boot `epoch`. The first start settles the port.
    pub fn serve(&mut self, epoch: u64) -> (Server, Arc<TestService>) {
        self.serve_as(target(), epoch)
    }

    pub fn serve_as(&mut self, name: TargetName, epoch: u64) -> (Server, Arc<TestService>) {
        let service = Arc::new(TestService {
            disk: self.disk.clone(),
            ..TestService::default()
        });
        let served = ServedTarget {
            name,
            key: Some(Key::new(KEY)),
            server_key: Some(Key::new(SERVER_KEY)),
            boot_epoch: BootEpoch(epoch),
            last_committed: self.disk.committed.clone(),
            service: Arc::new(TestServiceHandle(service.clone())),
        };
        let config = ServerConfig {
            clock: self.clock.clone(),
            grace: self.grace,
            connections_max: self.connections_max,
            replies_bytes_max: self.replies_bytes_max,
            ..ServerConfig::new(vec![self.listen.clone()])
        };
        let server = Server::start(config, vec![served]).unwrap();
        self.listen = server.local_addresses()[0].clone();
        (server, service)
    }

    pub fn address(&self) -> Address {
        match self.over {
            Over::DelayedTcp | Over::DelayedMem => self.listen.clone().delayed(&self.link),
            _ => self.listen.clone(),
        }
    }

    pub fn config(&self) -> PeerConfig {
        PeerConfig {
            target: target(),
            addresses: vec![self.address()],
            secret: ClientSecret([1; 16]),
            incarnation: 1,
            key: Some(Key::new(KEY)),
            credential: rpc::Credential::Client,
            insecure: false,
            policy: Policy::Hard,
            lanes: 2,
            keeping: rpc::Keeping::Nothing,
            legacy: None,
            clocks: rpc::Clocks::default(),
        }
    }

    pub fn peer(&self) -> (Peer, Arc<TestHandler>) {
        self.peer_with(self.config())
    }

    pub fn peer_with(&self, config: PeerConfig) -> (Peer, Arc<TestHandler>) {
        let handler = Arc::new(TestHandler::default());
        let peer = Peer::new(config, handler.clone(), self.clock.clone()).unwrap();
        (peer, handler)
    }
}

pub fn echo(peer: &Peer, text: &str) {
    let reply = peer.call(Batch::of(ECHO, text.into())).wait().unwrap();
    assert_eq!(reply.replies[0].body, text.as_bytes());
}
