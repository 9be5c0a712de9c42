//! The thread that keeps a peer connected: tries its addresses in turn, resumes the session,
//! watches silence, deadlines and how long the wait has been.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::{BootEpoch, Disrupted, TargetKind};
use wire::frame::FrameKind;
use wire::handshake::{Hello, Lane, Nonce, Refusal, RefusalReason, Versions, Welcome};

use super::inner::{Inner, PeerState, Token, disrupted_by, fail};
use crate::connection::{Connection, Numbers, Reading};
use crate::greet::{self, GreetError};
use crate::session::Begun;
use crate::threads::{self, lock, wait_until};
use crate::transport::{self, Transport};

/// How often deadlines and silence are looked at.
const TICK: Duration = Duration::from_millis(250);
/// The wait after the first round of addresses that led nowhere; doubles up to the longest. A server
/// that begins again is found so much later at most.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_LONGEST: Duration = Duration::from_millis(500);
/// The wait after a refusal by a target that may be served as it was, or by another server.
const BACKOFF_UNSERVED: Duration = Duration::from_secs(2);
/// The wait after a refusal, which only a person can mend.
const BACKOFF_REFUSED: Duration = Duration::from_secs(30);

/// A target whose handshake takes longer is far away: the window of one connection can be less than the
/// network could carry.
const FAR: Duration = Duration::from_millis(10);
/// Lanes to a target that is nearer.
const LANES_NEAR: usize = 2;

/// Of a target at whose address somebody answers who may be anybody.
const UNPROVEN: &str =
    "is not reached; calls wait: the peer that answers has not proven its key, and says";

/// A connection that is welcome, and how its frames are numbered.
type Greeted = ((Arc<dyn Transport>, Numbers), Welcome);

pub(super) struct Connector {
    inner: Arc<Inner>,
    /// The address to try next.
    address: usize,
    /// What this round of addresses has met.
    refusal: Option<Refusal>,
    /// The same of what nobody has proven.
    unproven: Option<Refusal>,
    broken: Option<String>,
    /// What a person was told last of a target that is not what it was.
    told: Option<RefusalReason>,
    backoff: Duration,
    /// When the last attempt began.
    begun: Instant,
    /// When each lane may be tried again.
    retry_at: [Option<Instant>; Lane::COUNT],
    /// The target is, or was once, far away: what was given to its lanes must find them again.
    is_far: bool,
}

impl Connector {
    pub(super) fn new(inner: Arc<Inner>) -> Connector {
        Connector {
            inner,
            address: 0,
            refusal: None,
            unproven: None,
            broken: None,
            told: None,
            backoff: BACKOFF_FIRST,
            begun: ::threads::now(),
            retry_at: [None; Lane::COUNT],
            is_far: false,
        }
    }

    pub(super) fn run(mut self) {
        while !self.is_closed() {
            self.settle();
            self.look_at_the_clock();
            match self.lane_to_connect() {
                Some(Lane::Control) => self.connect_control(),
                Some(bulk) => self.connect_bulk(bulk),
                None => self.wait(),
            }
        }
        let mut state = lock(&self.inner.state);
        let lanes = std::mem::take(&mut state.lanes);
        let readers = std::mem::take(&mut state.readers);
        drop(state);
        lanes
            .iter()
            .flatten()
            .for_each(|connection| connection.close());
        readers.into_iter().for_each(threads::join);
    }

    fn is_closed(&self) -> bool {
        lock(&self.inner.state).closed
    }

    /// Tells the handler of an eviction, then fails the calls that it hit, and those not taken.
    fn settle(&mut self) {
        let mut state = lock(&self.inner.state);
        if std::mem::take(&mut state.moved) {
            (self.address, self.retry_at[0]) = (0, None);
            (self.refusal, self.unproven, self.broken) = (None, None, None);
            self.backoff = BACKOFF_FIRST;
        }
        let condemned = state.condemned.take();
        let shed = std::mem::take(&mut state.shed);
        drop(state);
        if let Some(tokens) = condemned {
            self.evicted(tokens);
        }
        shed.into_iter()
            .for_each(|(token, disrupted)| token(Err(disrupted)));
    }

    fn evicted(&self, tokens: Vec<Token>) {
        let target = self.inner.config.target;
        tracing::warn!(%target, calls = tokens.len(), "evicted: what was not flushed is lost");
        self.inner.handler.evicted();
        fail(tokens, Disrupted::Evicted);
    }

    fn look_at_the_clock(&self) {
        let now = self.inner.clock.tick();
        let mut state = lock(&self.inner.state);
        let expired = state.session.expire(now);
        let waited = match state.standing {
            PeerState::WaitingSince(_) => state.waiting.poll(now),
            _ => None,
        };
        let ping = state.session.bare(FrameKind::Ping);
        let lanes = state.lanes.clone();
        let (ended, running) = state
            .readers
            .drain(..)
            .partition(|reader| reader.is_finished());
        state.readers = running;
        let address = state.addresses.get(self.address).map(ToString::to_string);
        drop(state);
        let _: Vec<()> = Vec::into_iter(ended).map(threads::join).collect();
        if let Some(waited) = waited {
            let (target, seconds) = (self.inner.config.target, waited.as_secs());
            let address = address.unwrap_or_else(|| "no address".into());
            tracing::warn!("still waiting for {target} at {address}, {seconds} s");
        }
        fail(expired, Disrupted::Timeout);
        for connection in lanes.iter().flatten() {
            connection.check(now, || ping.clone());
            connection.close_if_cut();
        }
    }

    fn lane_to_connect(&self) -> Option<Lane> {
        let state = lock(&self.inner.state);
        let due = |lane: Lane| {
            let at = self.retry_at[lane.index()];
            state.lanes[lane.index()].is_none() && at.is_none_or(|at| at <= ::threads::now())
        };
        if state.closing || state.condemned.is_some() {
            return None;
        }
        if state.lanes[0].is_none() {
            return due(Lane::Control).then_some(Lane::Control);
        }
        let lanes = usize::from(self.inner.config.lanes);
        let lanes = if self.is_far {
            lanes
        } else {
            lanes.min(LANES_NEAR)
        };
        let mut bulk = Lane::ALL.into_iter().take(lanes).skip(1);
        bulk.find(|lane| due(*lane))
    }

    fn wait(&self) {
        let soonest = self
            .retry_at
            .iter()
            .flatten()
            .filter(|at| **at > ::threads::now())
            .min();
        let tick = ::threads::now() + TICK;
        let until = soonest.map_or(tick, |at| tick.min(*at));
        let mut state = lock(&self.inner.state);
        while !state.news && ::threads::now() < until {
            state = wait_until(&self.inner.news, state, Some(until));
        }
        state.news = false;
    }

    fn connect_control(&mut self) {
        let begun = ::threads::now();
        self.begun = begun;
        match self.greet(Lane::Control) {
            Ok(greeted) => {
                (self.refusal, self.unproven, self.broken) = (None, None, None);
                self.backoff = BACKOFF_FIRST;
                // A server that welcomes us and hangs up at once must not keep us spinning.
                self.retry_at = [None; Lane::COUNT];
                self.retry_at[0] = Some(::threads::now() + BACKOFF_FIRST);
                self.is_far |= ::threads::now().duration_since(begun) >= FAR;
                self.begin(greeted);
            }
            Err(error) => self.on_failure(error),
        }
    }

    /// Connects to the address whose turn it is and says hello.
    fn greet(&self, lane: Lane) -> Result<Greeted, GreetError> {
        let config = &self.inner.config;
        let broken = |error: std::io::Error| GreetError::Broken(error.to_string());
        let address = lock(&self.inner.state).addresses.get(self.address).cloned();
        let address = address.ok_or_else(|| {
            let text = format!("no address is known for {}", config.target);
            GreetError::Refused(Refusal::new(RefusalReason::NotServed, text))
        })?;
        let transport = transport::connect(&address, config.insecure).map_err(|error| {
            // This side's own rule, and not what a file's mode or a firewall says of the moment.
            let is_ours = error.raw_os_error().is_none();
            match error.kind() {
                std::io::ErrorKind::PermissionDenied if is_ours => {
                    GreetError::Refused(Refusal::new(RefusalReason::User, error.to_string()))
                }
                _ => broken(error),
            }
        })?;
        let vouched_for = transport.identity().trusted().is_some();
        let hello = self.hello(lane, crate::random::random().map_err(broken)?, !vouched_for);
        let mut state = lock(&self.inner.state);
        if state.closing {
            transport.shutdown();
        }
        state.greeting = Some(transport.clone());
        drop(state);
        let asked = self.inner.clock.now();
        let greeted = greet::greet(&*transport, &hello, config.key.as_ref());
        let answered = self.inner.clock.now();
        lock(&self.inner.state).greeting = None;
        if greeted.is_err() {
            transport.shutdown();
            transport.join();
        }
        let (welcome, quickest) = greeted?;
        let from = (config.target, transport.peer());
        let skewed = config.clocks.compare(from, (asked, answered), welcome.now);
        skewed.inspect(|skewed| tracing::warn!("{skewed}"));
        self.measured(
            lane,
            transport.round_trip().unwrap_or(quickest).min(quickest),
        );
        let numbers = Numbers::of_client(&hello.to_bytes());
        Ok(((transport, numbers), welcome))
    }

    /// How far the target is the system says or, where it does not, the quickest answer: the others had
    /// to wait for a busy machine.
    fn measured(&self, lane: Lane, round_trip: Duration) {
        let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
        let known = &self.inner.round_trip;
        match lane {
            Lane::Control => known.store(micros, Ordering::Relaxed),
            _ => drop(known.fetch_min(micros, Ordering::Relaxed)),
        }
    }

    fn hello(&self, lane: Lane, nonce: [u8; 32], wants_proof: bool) -> Hello {
        let config = &self.inner.config;
        let state = lock(&self.inner.state);
        Hello {
            versions: Versions::OURS,
            client: config.secret,
            incarnation: config.incarnation,
            target: config.target,
            lane,
            nonce: Nonce(nonce),
            session: state.session.id(),
            boot_epoch: state.session.epoch(),
            last_committed: state.session.last_committed(),
            credential: config.credential,
            wants_proof,
        }
    }

    /// On to the next address; after the last one, a wait and the next round.
    fn on_failure(&mut self, error: GreetError) {
        let target = self.inner.config.target;
        tracing::debug!(%target, address = self.address, %error, "connection attempt failed");
        match error {
            GreetError::Refused(refusal) => self.refusal = Some(refusal),
            // Who has nothing to lose is told at once.
            GreetError::Unproven(refusal) if self.inner.config.policy.is_trial() => {
                self.refusal = Some(refusal);
            }
            GreetError::Unproven(refusal) => self.unproven = Some(refusal),
            GreetError::Broken(text) | GreetError::Garbled(text) => self.broken = Some(text),
        }
        self.address += 1;
        let state = lock(&self.inner.state);
        let (count, is_known) = (state.addresses.len(), state.session.epoch() != BootEpoch(0));
        drop(state);
        if self.address < count {
            return;
        }
        self.address = 0;
        let (refusal, broken) = (self.refusal.take(), self.broken.take());
        let unproven = self.unproven.take();
        // One that is not at one address may come back at one that does not answer; one that was
        // there, or of which the MGS says where it is, is on its way from one to another.
        let may_come = broken.is_some() || is_known || target.kind != TargetKind::Mgs;
        let pause = match refusal {
            // A better copy may come, or another release.
            Some(refusal) if self.may_end(&refusal) => {
                self.waits_for_another(refusal, "refuses us; calls wait");
                BACKOFF_UNSERVED
            }
            Some(refusal) if !may_come || refusal.reason != RefusalReason::NotServed => {
                self.refused(refusal);
                BACKOFF_REFUSED
            }
            _ => {
                match unproven {
                    // It may be on its way from one address to another.
                    None
                    | Some(Refusal {
                        reason: RefusalReason::NotServed,
                        ..
                    }) => {
                        self.not_refused();
                    }
                    Some(said) => self.waits_for_another(said, UNPROVEN),
                }
                let pause = self.backoff;
                self.backoff = (pause * 2).min(BACKOFF_LONGEST);
                pause
            }
        };
        // From one attempt to the next: one that nobody answers has taken time itself.
        self.retry_at[0] = Some(::threads::now().max(self.begun + pause));
    }

    /// Tells the person, and fails what waits.
    fn refused(&self, refusal: Refusal) {
        let target = self.inner.config.target;
        let disrupted = disrupted_by(&refusal);
        let mut state = lock(&self.inner.state);
        if state.closing {
            return;
        }
        let standing = PeerState::Refused(refusal.clone());
        let news = std::mem::replace(&mut state.standing, standing.clone()) != standing;
        let tokens = state.session.abandon();
        drop(state);
        if news {
            tracing::error!("{target} refuses us: {refusal}");
        }
        fail(tokens, disrupted);
    }

    /// A refusal that ends by itself, or by what a person does at the servers: nothing is given up.
    fn may_end(&self, refusal: &Refusal) -> bool {
        match refusal.reason {
            RefusalReason::Damaged | RefusalReason::Busy => true,
            RefusalReason::Version => !self.inner.config.policy.is_trial(),
            _ => false,
        }
    }

    /// What is there is not the target as it was: nothing is given up, and a person is told once of
    /// each reason.
    fn waits_for_another(&mut self, refusal: Refusal, what: &str) {
        let target = self.inner.config.target;
        self.not_refused();
        lock(&self.inner.state).obstacle = Some(refusal.text.clone());
        if self.told != Some(refusal.reason) {
            tracing::error!("{target} {what}: {refusal}");
            self.told = Some(refusal.reason);
        }
    }

    /// Nobody answers: the peer that refused us before may be gone.
    fn not_refused(&self) {
        let mut state = lock(&self.inner.state);
        state.obstacle = None;
        if matches!(state.standing, PeerState::Refused(_)) {
            state.standing = PeerState::WaitingSince(state.waiting.since());
        }
    }

    fn begin(&mut self, (greeted, welcome): Greeted) {
        let target = self.inner.config.target;
        self.told = None;
        let mut state = lock(&self.inner.state);
        state.obstacle = None;
        let (before, boot_epoch) = (state.session.last_committed(), state.session.epoch());
        let begun = state.session.begin(&welcome);
        let committed = state.session.last_committed();
        let mut old = Vec::new();
        if !matches!(begun, Begun::Resumed) {
            for lane in Lane::ALL.into_iter().skip(1) {
                if let Some(bulk) = state.lanes[lane.index()].take() {
                    state.session.lane_down(lane);
                    old.push(bulk);
                }
            }
        }
        drop(state);
        old.iter().for_each(|bulk| bulk.close());
        let is_new = matches!(begun, Begun::First | Begun::Evicted(_));
        match begun {
            Begun::Resumed => {}
            Begun::First => self.inner.handler.begun(welcome.boot_epoch, false),
            Begun::NewEpoch { old, new } => {
                tracing::info!(%target, %old, %new, "the server has restarted");
                self.inner.handler.epoch_changed(old, new);
            }
            Begun::Evicted(tokens) => {
                self.evicted(tokens);
                let epoch = welcome.boot_epoch;
                self.inner.handler.begun(epoch, epoch != boot_epoch);
            }
        }
        self.inner
            .handler
            .connected(welcome.session, welcome.boot_epoch);
        if committed > before {
            self.inner.handler.last_committed(committed);
        }
        if is_new {
            lock(&self.inner.state).begun = Some(self.inner.clock.tick());
        }
        tracing::info!(%target, address = greeted.0.peer(), "connected");
        self.install(Lane::Control, greeted);
    }

    fn connect_bulk(&mut self, lane: Lane) {
        match self.greet(lane) {
            Ok((greeted, _)) => self.install(lane, greeted),
            Err(error) => {
                let target = self.inner.config.target;
                tracing::debug!(%target, %lane, %error, "no bulk lane yet");
            }
        }
        self.retry_at[lane.index()] = Some(::threads::now() + TICK);
    }

    /// Lets calls flow over the new connection: those unanswered first.
    fn install(&self, lane: Lane, greeted: (Arc<dyn Transport>, Numbers)) {
        let inner = &self.inner;
        let counters = inner.counters.clone();
        let reading = match lane {
            Lane::Control => Reading::Attended(inner.attendance.clone()),
            _ => Reading::Asleep,
        };
        let (queues, now) = (&inner.queues, inner.clock.tick());
        let connection = Connection::new(greeted, reading, counters, queues, now);
        let mut state = lock(&inner.state);
        let reader = self.spawn_reader(lane, &connection);
        match reader {
            Ok(reader) if !state.closing => state.readers.push(reader),
            Ok(reader) => {
                state.readers.push(reader);
                connection.close();
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "no thread to serve a connection");
                connection.close();
                return;
            }
        }
        state.lanes[lane.index()] = Some(connection.clone());
        state.session.lane_up(lane);
        if lane == Lane::Control {
            state.standing = PeerState::Connected;
        }
        drop(state);
        self.inner.pump(lane);
    }

    fn spawn_reader(
        &self,
        lane: Lane,
        connection: &Arc<Connection>,
    ) -> std::io::Result<::threads::JoinHandle<()>> {
        let (inner, connection) = (self.inner.clone(), connection.clone());
        let target = inner.config.target;
        let letter = match lane {
            Lane::Control => 'c',
            _ => 'b',
        };
        threads::spawn(format!("rpc-{target}-{letter}r"), move || {
            let writer = format!("rpc-{target}-{letter}w");
            let (owner, back) = (inner.clone(), connection.clone());
            let on_frame = move |frame| owner.on_frame(&back, frame);
            connection.serve(writer, Box::new(on_frame));
            inner.on_lane_lost(lane, &connection);
        })
    }
}
