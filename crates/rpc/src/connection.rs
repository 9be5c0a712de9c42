//! One connection: a transport, the queue of bytes that did not fit it, and two threads. The reader runs
//! [`Connection::serve`] and owns the writer.

use ::threads::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use awake::Wakefulness;
use base::Tick;
use base::limits::{FRAME_BYTES_MAX, UNTAKEN_BYTES_MAX};
use wire::frame::{Frame, FrameNumbers};

use crate::attendance::{Attendance, Attended};
use crate::counters::Counters;
use crate::keepalive::{Health, Keepalive, Progress};
use crate::pool::{Member, Pool, Share};
use crate::replier::Violation;
use crate::threads::{self, lock, wait};
use crate::transport::{Incoming, Outgoing, ReceiveError, Transport, Watched};

/// How long the frames that came before a connection was closed are still looked at.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What is done with each frame that comes.
pub(crate) type OnFrame = Box<dyn FnMut(Frame) -> Result<ControlFlow<()>, Violation> + Send>;

/// How a connection's reader waits.
pub(crate) enum Reading {
    /// Asleep.
    Asleep,
    /// Awake for a moment where the next frame is expected at once.
    Awake,
    /// Asleep also while another receives what comes.
    Attended(Arc<Attendance>),
}

/// A connection whose handshake is done. Nothing waits for the peer while it holds a lock or a caller waits:
/// bytes that do not fit at once are left to the connection's writer.
pub(crate) struct Connection {
    transport: Arc<dyn Transport>,
    reading: Reading,
    /// Held while a frame is received and handled: they are handled in their order.
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    changed: Condvar,
    keepalive: Mutex<Keepalive>,
    /// That have come whole.
    frames_received: AtomicU64,
    /// The reader waits for the peer to take what is queued for it.
    held_back: AtomicBool,
    counters: Arc<Counters>,
}

/// The numbers of a connection's frames: of those that it sends, and of those that come.
pub(crate) struct Numbers {
    ours: FrameNumbers,
    theirs: FrameNumbers,
}

impl Numbers {
    /// The client's, of the connection that its Hello began.
    pub(crate) fn of_client(hello: &[u8]) -> Numbers {
        Numbers {
            ours: FrameNumbers::to_server(hello),
            theirs: FrameNumbers::to_client(hello),
        }
    }

    /// The server's.
    pub(crate) fn of_server(hello: &[u8]) -> Numbers {
        Numbers {
            ours: FrameNumbers::to_client(hello),
            theirs: FrameNumbers::to_server(hello),
        }
    }
}

struct Inbox {
    /// None before the connection is served, and at its end.
    on_frame: Option<OnFrame>,
    numbers: FrameNumbers,
}

struct Outbox {
    numbers: FrameNumbers,
    /// Frames, and since when they wait.
    queue: VecDeque<(Instant, Outgoing)>,
    /// What is queued or being written, of all that the connections of this process have.
    share: Share<Connection>,
    /// Since when a frame waits that is no longer in the queue: the writer is sending it.
    writing: Option<Instant>,
    /// Since when it is closed.
    closed: Option<Instant>,
}

impl Connection {
    /// A connection over `transport`, made at `now`. What it queues is accounted for in `queues`.
    pub(crate) fn new(
        (transport, numbers): (Arc<dyn Transport>, Numbers),
        reading: Reading,
        counters: Arc<Counters>,
        queues: &Arc<Pool<Connection>>,
        now: Tick,
    ) -> Arc<Connection> {
        Arc::new_cyclic(|connection| Connection {
            transport,
            reading,
            inbox: Mutex::new(Inbox {
                on_frame: None,
                numbers: numbers.theirs,
            }),
            outbox: Mutex::new(Outbox {
                numbers: numbers.ours,
                queue: VecDeque::new(),
                share: queues.join(connection.clone()),
                writing: None,
                closed: None,
            }),
            changed: Condvar::new(),
            keepalive: Mutex::new(Keepalive::new(now)),
            frames_received: AtomicU64::new(0),
            held_back: AtomicBool::new(false),
            counters,
        })
    }

    /// Sends `frame` at once as far as it fits, and leaves the rest to the writer. Never waits
    /// for the peer: two peers that write to each other must both go on reading.
    pub(crate) fn send(&self, frame: &Frame) {
        let mut outgoing = match Outgoing::new(frame, self.transport.compact()) {
            Ok(outgoing) => outgoing,
            Err(error) => {
                // The thread that made the payload has checked it; the session can't go on without
                // it.
                tracing::error!(peer = self.transport.peer(), %error, "a frame can't be sent");
                return self.close();
            }
        };
        let mut outbox = lock(&self.outbox);
        if outbox.closed.is_some() {
            return;
        }
        self.counters.count_sent(frame, outgoing.bytes());
        outgoing.number(&mut outbox.numbers);
        if outbox.queue.is_empty() && outbox.writing.is_none() {
            match self.transport.try_send(&mut outgoing) {
                Ok(()) if outgoing.is_sent() => return,
                Ok(()) => {}
                Err(_) => {
                    drop(outbox);
                    return self.close();
                }
            }
        }
        let bytes = outbox.share.bytes() + outgoing.bytes();
        outbox.share.set(bytes);
        outbox.queue.push_back((::threads::now(), outgoing));
        let queues = outbox.share.pool().clone();
        drop(outbox);
        self.changed.notify_all();
        queues.relieve();
    }

    /// Ends the connection; what is queued is lost, and both threads end.
    pub(crate) fn close(&self) {
        let mut outbox = lock(&self.outbox);
        outbox.closed.get_or_insert_with(::threads::now);
        let queued = std::mem::take(&mut outbox.queue);
        let bytes: usize = queued.iter().map(|(_, frame)| frame.bytes()).sum();
        let left = outbox.share.bytes() - bytes;
        outbox.share.set(left);
        drop(outbox);
        self.changed.notify_all();
        self.transport.shutdown();
    }

    /// It has ended, although its threads may not have.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.outbox).closed.is_some()
    }

    /// Where the peer is, for logs.
    pub(crate) fn peer(&self) -> String {
        self.transport.peer()
    }

    /// Pings or closes a connection that has been silent for long. True: it was closed.
    pub(crate) fn check(&self, now: Tick, ping: impl FnOnce() -> Frame) -> bool {
        if self.is_closed() {
            return false;
        }
        let mut progress = Progress {
            frames: self.frames_received.load(Ordering::Relaxed),
            bytes: self.transport.bytes_received(),
        };
        if self.held_back.load(Ordering::Relaxed) {
            // We are not listening; that the peer takes what we send is its sign of life.
            progress.frames += self.transport.bytes_sent();
        }
        let health = lock(&self.keepalive).poll(now, progress);
        match health {
            Health::Fine => {}
            Health::Ping => self.send(&ping()),
            Health::Dead => {
                tracing::warn!(
                    peer = self.peer(),
                    "disconnected: no frame came for too long"
                );
                self.close();
            }
        }
        health == Health::Dead
    }

    /// Closes a connection whose way is cut. A new one finds the other end as soon as it can be
    /// reached, while this one would wait ever longer before it tries again.
    pub(crate) fn close_if_cut(&self) {
        if !self.is_closed() && self.transport.is_cut() {
            tracing::info!(
                peer = self.peer(),
                "disconnected: what is sent does not arrive"
            );
            self.close();
        }
    }

    /// Reads frames until the connection ends or `on_frame` says so, then ends it.
    pub(crate) fn serve(self: &Arc<Self>, writer_name: String, on_frame: OnFrame) {
        let writer = {
            let connection = self.clone();
            threads::spawn(writer_name, move || connection.write())
        };
        match writer {
            Ok(writer) => {
                lock(&self.inbox).on_frame = Some(on_frame);
                self.read();
                self.close();
                // It may lead back to this connection.
                let on_frame = lock(&self.inbox).on_frame.take();
                drop(on_frame);
                threads::join(writer);
            }
            Err(error) => {
                tracing::warn!(peer = self.peer(), %error, "disconnected: no thread to serve it");
                self.close();
            }
        }
        self.transport.join();
    }

    fn read(self: &Arc<Self>) {
        match (self.transport.watched(), &self.reading) {
            (Some(watched), Reading::Attended(attendance)) => {
                attendance.enter(self.clone());
                // The handshake may have read on into what came behind it.
                while self.drain(watched).is_continue() && watched.wait().is_ok() {}
                attendance.leave(self);
            }
            (Some(watched), Reading::Awake) => self.read_awake(watched),
            (_, _) => while self.read_next().is_continue() {},
        }
    }

    fn read_next(&self) -> ControlFlow<(), bool> {
        self.receive(|| self.transport.receive(FRAME_BYTES_MAX, None).map(Some))
    }

    fn read_awake(&self, watched: &dyn Watched) {
        let mut wakefulness = Wakefulness::default();
        loop {
            let (began, patience) = (::threads::now(), wakefulness.patience());
            if !patience.is_zero() {
                awake::keep_cpus();
            }
            let mut looked = began;
            while looked.duration_since(began) < patience && !watched.is_ready() {
                // The thread that wants this CPU has better use for it.
                ::threads::yield_now();
                let back = ::threads::now();
                wakefulness.gave_cpu_for(back.duration_since(looked));
                looked = back;
            }
            let next = || {
                let frame = self.transport.receive(FRAME_BYTES_MAX, None)?;
                wakefulness.came_after(::threads::now().duration_since(began));
                Ok(Some(frame))
            };
            if self.receive(next).is_break() {
                return;
            }
        }
    }

    /// Handles every frame that has come whole, so that none is left where only a look would find
    /// it. True: there was one.
    fn drain(&self, watched: &dyn Watched) -> ControlFlow<(), bool> {
        let mut came = false;
        while self.receive(|| watched.try_receive(FRAME_BYTES_MAX))? {
            came = true;
        }
        ControlFlow::Continue(came)
    }

    /// Handles the frame that `next` brings. False: it brings none.
    fn receive(
        &self,
        next: impl FnOnce() -> Result<Option<Incoming>, ReceiveError>,
    ) -> ControlFlow<(), bool> {
        let closed = lock(&self.outbox).closed;
        if closed.is_some_and(|since| ::threads::now().duration_since(since) > LAST_WORDS) {
            return ControlFlow::Break(());
        }
        let mut inbox = lock(&self.inbox);
        let Inbox { on_frame, numbers } = &mut *inbox;
        let Some(on_frame) = on_frame else {
            return ControlFlow::Break(());
        };
        let decode = |frame: Incoming| frame.decode_next(numbers).map_err(ReceiveError::from);
        let frame = match next().and_then(|frame| frame.map(decode).transpose()) {
            Ok(Some(frame)) => frame,
            Ok(None) => return ControlFlow::Continue(false),
            Err(ReceiveError::Garbage(error)) => {
                tracing::warn!(peer = self.peer(), reason = %error, "disconnected");
                return ControlFlow::Break(());
            }
            Err(error) => {
                tracing::debug!(peer = self.peer(), reason = %error, "connection ended");
                return ControlFlow::Break(());
            }
        };
        self.frames_received.fetch_add(1, Ordering::Relaxed);
        self.counters.count_received(&frame);
        // A panic there is a defect; here it ends this connection and no more.
        match panic::catch_unwind(AssertUnwindSafe(|| on_frame(frame))) {
            Ok(Ok(ControlFlow::Continue(()))) => ControlFlow::Continue(true),
            Ok(Ok(ControlFlow::Break(()))) => ControlFlow::Break(()),
            Ok(Err(violation)) => {
                tracing::warn!(peer = self.peer(), reason = %violation, "disconnected");
                ControlFlow::Break(())
            }
            Err(_) => {
                tracing::error!(peer = self.peer(), "disconnected: a handler panicked");
                ControlFlow::Break(())
            }
        }
    }

    /// Waits until the peer has taken most of what is queued for it. A server hears no more
    /// requests from a client that does not take its replies.
    pub(crate) fn wait_for_room(&self) {
        let mut outbox = lock(&self.outbox);
        if outbox.share.bytes() <= UNTAKEN_BYTES_MAX {
            return;
        }
        self.held_back.store(true, Ordering::Relaxed);
        while outbox.share.bytes() > UNTAKEN_BYTES_MAX / 2 && outbox.closed.is_none() {
            outbox = wait(&self.changed, outbox);
        }
        self.held_back.store(false, Ordering::Relaxed);
    }

    /// The writer: sends what did not fit at once.
    fn write(&self) {
        while let Some(mut outgoing) = self.next_outgoing() {
            let bytes = outgoing.bytes();
            let sent = self.transport.send(&mut outgoing);
            let mut outbox = lock(&self.outbox);
            outbox.writing = None;
            let left = outbox.share.bytes() - bytes;
            outbox.share.set(left);
            drop(outbox);
            self.changed.notify_all();
            if sent.is_err() {
                return self.close();
            }
        }
    }

    fn next_outgoing(&self) -> Option<Outgoing> {
        let mut outbox = lock(&self.outbox);
        loop {
            if outbox.closed.is_some() {
                return None;
            }
            if let Some((since, outgoing)) = outbox.queue.pop_front() {
                outbox.writing = Some(since);
                return Some(outgoing);
            }
            outbox = wait(&self.changed, outbox);
        }
    }
}

impl Attended for Connection {
    fn let_sleep(&self, sleep: bool) {
        if let Some(watched) = self.transport.watched() {
            watched.let_sleep(sleep);
        }
    }

    fn attend(&self) -> bool {
        let Some(watched) = self.transport.watched() else {
            return false;
        };
        match threads::as_ours(|| self.drain(watched)) {
            ControlFlow::Continue(came) => came,
            ControlFlow::Break(()) => {
                self.close();
                false
            }
        }
    }
}

impl Member for Connection {
    /// Its bytes times the nanoseconds that the oldest of them have waited: who takes what it is sent weighs
    /// little, however much that is.
    fn weight(&self) -> u128 {
        let outbox = lock(&self.outbox);
        let oldest = outbox.queue.front().map(|(since, _)| *since);
        let since = outbox
            .writing
            .or(oldest)
            .filter(|_| outbox.closed.is_none());
        since.map_or(0, |since| {
            let waited = ::threads::now().duration_since(since).as_nanos();
            outbox.share.bytes() as u128 * waited.max(1)
        })
    }

    /// The peer may come back, and send again what it has no answer to.
    fn let_go(&self) {
        tracing::warn!(
            peer = self.peer(),
            bytes = lock(&self.outbox).share.bytes(),
            "disconnected: it does not take its replies, and those that wait for all peers are too many"
        );
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::sync::mpsc;

    use wire::frame::{FrameKind, Header};

    use super::*;
    use crate::transport::socket::Socket;

    #[test]
    fn what_came_behind_the_handshake_is_handled() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = |stream| Arc::new(Socket::unix(stream, Path::new("pair")).unwrap());
        let (ours, theirs) = (socket(ours), socket(theirs));
        for kind in [FrameKind::Handshake, FrameKind::Ping] {
            let frame = Frame::bare(Header::new(kind));
            let mut outgoing = Outgoing::new(&frame, false).unwrap();
            if kind == FrameKind::Ping {
                outgoing.number(&mut FrameNumbers::to_server(b"hello"));
            }
            theirs.send(&mut outgoing).unwrap();
        }
        let greeting = ours.receive(FRAME_BYTES_MAX, None).unwrap();
        let greeting = greeting.decode().unwrap();
        assert_eq!(greeting.header.kind, FrameKind::Handshake);
        let reading = Reading::Attended(Arc::default());
        let queues = Pool::new(usize::MAX);
        let ours = (ours as Arc<dyn Transport>, Numbers::of_server(b"hello"));
        let connection = Connection::new(ours, reading, Arc::default(), &queues, Tick::default());
        let (tell, told) = mpsc::channel();
        let on_frame = Box::new(move |frame: Frame| {
            tell.send(frame.header.kind).unwrap();
            Ok(ControlFlow::Break(()))
        });
        let served = ::threads::spawn(move || connection.serve("writer".to_owned(), on_frame));
        let came = told.recv_timeout(Duration::from_secs(10));
        theirs.shutdown();
        served.join().unwrap();
        assert_eq!(came, Ok(FrameKind::Ping));
    }

    #[test]
    fn a_connection_is_found_to_be_silent_once() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let ours = Arc::new(Socket::unix(ours, Path::new("pair")).unwrap());
        let (queues, start) = (Pool::new(usize::MAX), Tick::default());
        let ours = (ours as Arc<dyn Transport>, Numbers::of_server(b"hello"));
        let connection = Connection::new(ours, Reading::Asleep, Arc::default(), &queues, start);
        let late = start.after(base::limits::KEEPALIVE_DEAD);
        let found = [late, late].map(|now| {
            let ping = || Frame::bare(Header::new(FrameKind::Ping));
            connection.check(now, ping)
        });
        assert_eq!(found, [true, false]);
    }
}
