//! A server's end: listeners, the targets behind them, and a thread per connection.

mod admission;
mod connected;
mod deferred;
mod handshakes;
mod registry;
mod target;

use ::threads::JoinHandle;
use ::threads::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::limits::{REPLIES_BYTES_MIN, SESSION_GRACE};
use base::{Clock, Disrupted, SystemClock, TargetName, Tick};
use wire::frame::{Frame, FrameKind};
use wire::handshake::{Handshake, Lane};

use crate::address::Address;
use crate::connection::{Connection, Numbers, Reading};
use crate::counters::Counters;
use crate::greet::{self, GreetError};
use crate::pool::Pool;
use crate::replier::Violation;
use crate::server_session::Event;
use crate::threads::{self, lock};
use crate::transport::Transport;
use crate::transport::listener::Listener;

pub use connected::{Connected, OnReply, PeerInfo, Responder};
pub use target::{Departure, LastCommitted, ServedTarget, Service, Unwelcome};

use deferred::Deferred;
use handshakes::Handshakes;
use target::Target;

/// How often silence, grace and what became durable are looked at.
const TICK: Duration = Duration::from_millis(250);
/// The wait after an accept that failed, for want of file descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where and how to serve.
#[derive(Clone)]
pub struct ServerConfig {
    /// Every address to listen on.
    pub listen: Vec<Address>,
    /// Listen beyond loopback although connections are not encrypted.
    pub insecure: bool,
    /// How long a client may be gone before its session ends.
    pub grace: Duration,
    /// Connections at one time. Beyond: told at once that the server is busy, and to come again.
    pub connections_max: usize,
    /// Bytes of replies that all clients have not taken yet, and bytes of those kept for all clients to be
    /// sent again. Beyond the first: the connection is cut that takes its own too slowly. Beyond half of the
    /// second: only those are kept that report changes; beyond it: the session ends that keeps most.
    pub replies_bytes_max: usize,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl ServerConfig {
    /// Listens on `listen`, with loopback only, the usual grace and the machine's clock.
    pub fn new(listen: Vec<Address>) -> ServerConfig {
        ServerConfig {
            listen,
            insecure: false,
            grace: SESSION_GRACE,
            connections_max: usize::MAX,
            replies_bytes_max: REPLIES_BYTES_MIN,
            clock: Arc::new(SystemClock::default()),
        }
    }
}

/// Why a server did not start.
#[derive(Debug)]
pub struct StartError {
    /// Where it was to listen; none where that was not the trouble.
    pub address: Option<Address>,
    /// What happened.
    pub cause: io::Error,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "cannot listen on {address}: {}", self.cause),
            None => write!(f, "cannot serve: {}", self.cause),
        }
    }
}

impl std::error::Error for StartError {}

struct Shared {
    targets: HashMap<TargetName, Arc<Target>>,
    grace: Duration,
    connections_max: usize,
    clock: Arc<dyn Clock>,
    stopping: AtomicBool,
    handshakes: Mutex<Handshakes>,
    connections: Mutex<Connections>,
    /// What all connections have not sent yet.
    queues: Arc<Pool<Connection>>,
    kept: Arc<Pool<Connected>>,
    /// What the timer runs, and what wakes it.
    deferred: Arc<Deferred>,
}

/// What must end for the server to end.
#[derive(Default)]
struct Connections {
    next: u64,
    transports: HashMap<u64, Arc<dyn Transport>>,
    threads: Vec<JoinHandle<()>>,
}

/// A running server; stops when dropped.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Arc<Listener>>,
    addresses: Vec<Address>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Listens on every address and serves every target on each of them.
    pub fn start(config: ServerConfig, targets: Vec<ServedTarget>) -> Result<Server, StartError> {
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for address in &config.listen {
            let error = |cause| StartError {
                address: Some(address.clone()),
                cause,
            };
            let listener = Listener::bind(address, config.insecure).map_err(error);
            let bound = listener.and_then(|listener| {
                addresses.push(listener.address().map_err(error)?);
                listeners.push(Arc::new(listener));
                Ok(())
            });
            if let Err(error) = bound {
                listeners.iter().for_each(|listener| listener.close());
                return Err(error);
            }
        }
        let deferred = Arc::<Deferred>::default();
        let kept = Pool::new(config.replies_bytes_max);
        let targets = targets.into_iter().map(|served| {
            let target = Target::new(served, deferred.clone(), kept.clone());
            (target.name, target)
        });
        let shared = Arc::new(Shared {
            targets: targets.collect(),
            grace: config.grace,
            connections_max: config.connections_max,
            clock: config.clock,
            stopping: AtomicBool::new(false),
            handshakes: Mutex::default(),
            connections: Mutex::default(),
            queues: Pool::new(config.replies_bytes_max),
            kept,
            deferred,
        });
        let server = Server {
            shared,
            listeners,
            addresses,
            threads: Mutex::default(),
        };
        // On an error the drop of what was started stops it.
        server.spawn_threads().map_err(|cause| StartError {
            address: None,
            cause,
        })?;
        Ok(server)
    }

    fn spawn_threads(&self) -> io::Result<()> {
        let mut threads = lock(&self.threads);
        let shared = self.shared.clone();
        threads.push(threads::spawn("rpc-timer", move || shared.run_timer())?);
        for listener in &self.listeners {
            let (shared, listener) = (self.shared.clone(), listener.clone());
            threads.push(threads::spawn("rpc-listen", move || {
                shared.run_listener(&listener)
            })?);
        }
        Ok(())
    }

    /// Where it really listens: ports that were left open are filled in.
    pub fn local_addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// What was received and sent for `target`. None: not served here.
    pub fn counters(&self, target: TargetName) -> Option<Arc<Counters>> {
        Some(self.shared.targets.get(&target)?.counters.clone())
    }

    /// Bytes of replies that clients have not taken yet, and of those kept to be sent again.
    pub fn replies_bytes(&self) -> (usize, usize) {
        (self.shared.queues.bytes(), self.shared.kept.bytes())
    }

    /// Connections that have a thread, those in their handshake included.
    pub fn connections(&self) -> usize {
        lock(&self.shared.connections).transports.len()
    }

    /// The clients of `target` that have a session, connected or not.
    pub fn sessions(&self, target: TargetName) -> Vec<Arc<Connected>> {
        let target = self.shared.targets.get(&target);
        target.map_or_else(Vec::new, |target| lock(&target.sessions).all())
    }

    /// Stops listening, cuts every connection, and waits for every thread; on one of this crate's
    /// own threads it does not wait. Clients keep their sessions until they meet a new epoch.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.listeners.iter().for_each(|listener| listener.close());
        self.shared.deferred.stop();
        self.shared.cut_connections();
        if threads::on_ours() {
            return;
        }
        std::mem::take(&mut *lock(&self.threads))
            .into_iter()
            .for_each(threads::join);
        // A listener may have let one more in before it ended.
        self.shared.cut_connections();
        let readers = std::mem::take(&mut lock(&self.shared.connections).threads);
        readers.into_iter().for_each(threads::join);
        for target in self.shared.targets.values() {
            let sessions = lock(&target.sessions).all();
            for session in sessions {
                session.end(Disrupted::Closed);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn cut_connections(&self) {
        for transport in lock(&self.connections).transports.values() {
            transport.shutdown();
        }
    }

    fn run_listener(self: &Arc<Self>, listener: &Listener) {
        loop {
            let accepted = listener.accept();
            if self.is_stopping() {
                if let Ok(transport) = accepted {
                    transport.shutdown();
                }
                return;
            }
            match accepted {
                Ok(transport) => self.on_accept(transport),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    ::threads::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    fn on_accept(self: &Arc<Self>, transport: Arc<dyn Transport>) {
        let mut connections = lock(&self.connections);
        if connections.transports.len() >= self.connections_max {
            drop(connections);
            return self.is_busy(&transport);
        }
        let id = connections.next;
        connections.next += 1;
        let turned_away = lock(&self.handshakes).begin(id, &transport);
        if turned_away.is_some_and(|turned_away| turned_away.tell(id)) {
            return;
        }
        connections.transports.insert(id, transport.clone());
        let shared = self.clone();
        let thread = threads::spawn(format!("rpc-in{id}-r"), move || {
            shared.run_connection(id, &transport);
            if let Some(transport) = lock(&shared.connections).transports.remove(&id) {
                transport.shutdown();
            }
        });
        match thread {
            Ok(thread) => connections.threads.push(thread),
            Err(error) => {
                tracing::warn!(%error, "no thread to serve a connection");
                lock(&self.handshakes).end(id);
                if let Some(transport) = connections.transports.remove(&id) {
                    transport.shutdown();
                }
            }
        }
    }

    /// More would take the descriptors that objects are opened with.
    fn is_busy(&self, transport: &Arc<dyn Transport>) {
        let (peer, most) = (transport.peer(), self.connections_max);
        tracing::warn!(
            peer,
            "busy: there are {most} connections, and the limit of open files allows no more"
        );
        let text =
            "the server has as many connections as its limit of open files allows: come again";
        handshakes::turn_away(&**transport, text);
    }

    fn run_connection(self: &Arc<Self>, id: u64, transport: &Arc<dyn Transport>) {
        let admitted = self.admit(id, transport);
        lock(&self.handshakes).end(id);
        match admitted {
            Ok((session, lane, numbers)) => {
                self.serve(id, (&session, lane), (transport.clone(), numbers));
            }
            Err(GreetError::Broken(reason)) => {
                tracing::debug!(peer = transport.peer(), reason, "handshake broken off");
            }
            Err(GreetError::Garbled(reason)) => {
                tracing::warn!(peer = transport.peer(), reason, "disconnected");
            }
            Err(GreetError::Refused(refusal) | GreetError::Unproven(refusal)) => {
                tracing::warn!(peer = transport.peer(), reason = %refusal, "refused");
                // The peer may be gone already; it has nothing more to learn then.
                let _ = greet::say(&**transport, &Handshake::Refusal(refusal));
            }
        }
    }

    fn serve(
        self: &Arc<Self>,
        id: u64,
        (session, lane): (&Arc<Connected>, Lane),
        greeted: (Arc<dyn Transport>, Numbers),
    ) {
        let counters = session.target().counters.clone();
        let reading = match lane {
            Lane::Control => Reading::Awake,
            _ => Reading::Asleep,
        };
        let (queues, now) = (&self.queues, self.clock.tick());
        let connection = Connection::new(greeted, reading, counters, queues, now);
        if session.attach(lane, &connection) {
            let (server, session, back) = (self.clone(), session.clone(), connection.clone());
            let on_frame = move |frame| {
                let next = server.on_frame(&session, lane, &back, frame);
                back.wait_for_room();
                server.kept.relieve();
                next
            };
            connection.serve(format!("rpc-in{id}-w"), Box::new(on_frame));
        }
        if session.detach(lane, &connection, self.clock.tick()) && !self.is_stopping() {
            let _admission = lock(&session.target().admission);
            // It may have come back while we waited for our turn.
            if session.is_gone() {
                session.target().service.disconnected(session.client());
            }
        }
    }

    fn on_frame(
        &self,
        session: &Arc<Connected>,
        lane: Lane,
        connection: &Arc<Connection>,
        frame: Frame,
    ) -> Result<ControlFlow<()>, Violation> {
        // Nobody waits for what came before the connection ended: a client that is back sends it again. So
        // nothing of it is done, not even an answer to a callback, which may speak of requests before it.
        if connection.is_closed() && frame.header.kind != FrameKind::Goodbye {
            return Ok(ControlFlow::Continue(()));
        }
        match session.handle(frame)? {
            Some(Event::Request(request, batch)) => {
                let (xid, resent) = (request.xid, request.resent);
                let responder = Responder::new(session.clone(), lane, request);
                session
                    .target()
                    .service
                    .request(session, xid, resent, batch, responder);
            }
            Some(Event::CallbackReplied(on_reply, message)) => on_reply(Ok(message)),
            Some(Event::Send(frame)) => connection.send(&frame),
            Some(Event::Ready) => {
                session.ready();
                session.target().service.ready(session);
            }
            Some(Event::Goodbye) => {
                self.say_goodbye(session);
                return Ok(ControlFlow::Break(()));
            }
            Some(Event::Nothing) => {}
            // The session has ended.
            None => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The client leaves: ends its session for good and tells the service.
    fn say_goodbye(&self, session: &Arc<Connected>) {
        let _admission = lock(&session.target().admission);
        session.expire(Departure::Goodbye);
    }

    /// The same for a client that was gone for too long, if it still is once it is our turn.
    fn expire_if_gone(&self, session: &Arc<Connected>, now: Tick) {
        let _admission = lock(&session.target().admission);
        if session.is_gone_for(self.grace, now) {
            let (client, target) = (session.client(), session.target().name);
            tracing::warn!(%client, %target, peer = %session.peer().address, "gone for too long");
            session.expire(Departure::GivenUp);
        }
    }

    fn run_timer(&self) {
        let mut next = ::threads::now() + TICK;
        while self.deferred.run_until(next) {
            next = ::threads::now() + TICK;
            for target in self.targets.values() {
                let sessions = lock(&target.sessions).all();
                sessions.iter().for_each(|session| self.look_after(session));
            }
            // Of answers that came on other threads.
            self.kept.relieve();
            self.reap();
        }
    }

    fn look_after(&self, session: &Arc<Connected>) {
        let now = self.clock.tick();
        if session.is_gone_for(self.grace, now) {
            return self.expire_if_gone(session, now);
        }
        session.push_committed();
        for connection in session.connections() {
            connection.check(now, || session.bare(FrameKind::Ping));
        }
    }

    /// Joins the threads of connections that have ended.
    fn reap(&self) {
        let mut connections = lock(&self.connections);
        let threads = std::mem::take(&mut connections.threads);
        let (ended, running): (Vec<_>, Vec<_>) =
            threads.into_iter().partition(|thread| thread.is_finished());
        connections.threads = running;
        drop(connections);
        ended.into_iter().for_each(threads::join);
    }
}
