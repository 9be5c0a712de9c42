//! Connections inside one process: the same encoded frames through bounded queues. A frame is
//! delivered by the receiving end's reader thread, never on the sender's stack.

use ::threads::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use wire::frame::FrameError;

use super::carrier::{Identity, Incoming, Outgoing, ReceiveError, Transport};
use crate::threads::{lock, wait, wait_until};

/// Bytes under way in one direction, as a socket's buffers would hold. One frame always fits.
const PIPE_BYTES_MAX: usize = 4 << 20;
/// Connections not accepted yet. Beyond: refused.
const BACKLOG_MAX: usize = 128;

/// What is between the two ends of a port's connections, where that is more than memory.
pub trait Way: Send + Sync {
    /// Takes as long as a connect does, and says whether it succeeds.
    fn connect(&self) -> io::Result<()>;
    /// When what is sent now arrives.
    fn arrival(&self, to_server: bool, bytes: usize) -> Instant;
    /// Of a frame sent now, this bit arrives flipped, counted from its first and round and round.
    fn flipped(&self, to_server: bool) -> Option<u64> {
        _ = to_server;
        None
    }
}

/// A place inside this process that a server listens on and clients connect to.
pub struct MemPort {
    name: String,
    /// What comes from it outlives this process, and may go on with what it had here.
    outlives: bool,
    way: Option<Arc<dyn Way>>,
    backlog: Mutex<Backlog>,
    changed: Condvar,
    /// Connections over a way, which may be cut.
    connections: Mutex<Vec<Weak<Connection>>>,
}

/// What goes to the server, and what comes from it.
type Connection = [Pipe; 2];

#[derive(Default)]
struct Backlog {
    listening: bool,
    waiting: VecDeque<MemStream>,
}

impl fmt::Debug for MemPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemPort({})", self.name)
    }
}

impl MemPort {
    /// A port that nobody listens on yet.
    pub fn new(name: impl Into<String>) -> Arc<MemPort> {
        Arc::new(MemPort::with(name.into(), None))
    }

    /// One whose clients are gone on with, where this process ends, in the next.
    pub fn for_supervised(name: impl Into<String>) -> Arc<MemPort> {
        let mut port = MemPort::with(name.into(), None);
        port.outlives = true;
        Arc::new(port)
    }

    /// One that is reached over `way`.
    pub fn over(name: impl Into<String>, way: Arc<dyn Way>) -> Arc<MemPort> {
        Arc::new(MemPort::with(name.into(), Some(way)))
    }

    fn with(name: String, way: Option<Arc<dyn Way>>) -> MemPort {
        MemPort {
            name,
            outlives: false,
            way,
            backlog: Mutex::default(),
            changed: Condvar::new(),
            connections: Mutex::default(),
        }
    }

    /// Ends every connection over the port's way, as a lost machine between the two would. Of what
    /// is under way each direction still brings as many frames as `arrives` says of their number.
    pub fn cut(&self, mut arrives: impl FnMut(usize) -> usize) {
        let connections = std::mem::take(&mut *lock(&self.connections));
        for connection in connections.iter().filter_map(Weak::upgrade) {
            for pipe in &*connection {
                let mut state = lock(&pipe.state);
                let kept = arrives(state.frames.len());
                state.frames.truncate(kept);
                drop(state);
                pipe.close();
            }
        }
    }

    /// Its name, for logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts listening.
    pub(crate) fn listen(&self) -> io::Result<()> {
        let mut backlog = lock(&self.backlog);
        match std::mem::replace(&mut backlog.listening, true) {
            true => Err(ErrorKind::AddrInUse.into()),
            false => Ok(()),
        }
    }

    /// The next connection; an error once the port is closed.
    pub(crate) fn accept(&self) -> io::Result<MemStream> {
        let mut backlog = lock(&self.backlog);
        loop {
            if !backlog.listening {
                return Err(ErrorKind::NotConnected.into());
            }
            if let Some(stream) = backlog.waiting.pop_front() {
                return Ok(stream);
            }
            backlog = wait(&self.changed, backlog);
        }
    }

    /// Stops listening; connections not accepted end.
    pub(crate) fn close(&self) {
        let mut backlog = lock(&self.backlog);
        backlog.listening = false;
        for stream in backlog.waiting.drain(..) {
            stream.shutdown();
        }
        self.changed.notify_all();
    }

    pub(crate) fn connect(&self) -> io::Result<MemStream> {
        if let Some(way) = &self.way {
            way.connect()?;
        }
        let mut backlog = lock(&self.backlog);
        if !backlog.listening || backlog.waiting.len() >= BACKLOG_MAX {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = MemStream::pair(self);
        if self.way.is_some() {
            let mut connections = lock(&self.connections);
            connections.retain(|connection| connection.strong_count() > 0);
            connections.push(Arc::downgrade(&ours.pipes));
        }
        backlog.waiting.push_back(theirs);
        self.changed.notify_all();
        Ok(ours)
    }
}

/// Frames under way in one direction.
#[derive(Default)]
struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
    carried: AtomicU64,
}

#[derive(Default)]
struct PipeState {
    /// Each with when it arrives, where that is not at once.
    frames: VecDeque<(Option<Instant>, Outgoing)>,
    bytes: usize,
    closed: bool,
}

impl Pipe {
    /// Queues `outgoing` if it fits. The caller wakes the reader, once it has let go of the lock.
    fn push(
        &self,
        state: &mut PipeState,
        outgoing: &mut Outgoing,
        end: &MemStream,
    ) -> io::Result<bool> {
        if state.closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let bytes = outgoing.bytes();
        if state.bytes != 0 && state.bytes + bytes > PIPE_BYTES_MAX {
            return Ok(false);
        }
        // Nothing overtakes what was sent before it.
        let before = state.frames.back().and_then(|(arrives, _)| *arrives);
        let arrives = end.arrival(bytes).max(before);
        let mut frame = outgoing.take();
        if let Some(bit) = end.flipped() {
            frame.flip(bit);
        }
        state.frames.push_back((arrives, frame));
        state.bytes += bytes;
        self.carried.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(true)
    }

    fn pop(&self, deadline: Option<Instant>) -> Result<Outgoing, ReceiveError> {
        let mut state = lock(&self.state);
        loop {
            let arrives = state.frames.front().map(|(arrives, _)| *arrives);
            let until = match arrives {
                None if state.closed => return Err(ReceiveError::Closed),
                None => deadline,
                Some(Some(arrives)) if arrives > ::threads::now() => {
                    Some(deadline.map_or(arrives, |deadline| deadline.min(arrives)))
                }
                Some(_) => return self.take_first(&mut state).map_err(ReceiveError::Io),
            };
            if deadline.is_some_and(|deadline| deadline <= ::threads::now()) {
                return Err(ReceiveError::Io(ErrorKind::TimedOut.into()));
            }
            state = wait_until(&self.changed, state, until);
        }
    }

    fn take_first(&self, state: &mut PipeState) -> io::Result<Outgoing> {
        let (_, outgoing) = state.frames.pop_front().ok_or(ErrorKind::WouldBlock)?;
        state.bytes = state.bytes.saturating_sub(outgoing.bytes());
        self.changed.notify_all();
        Ok(outgoing)
    }

    fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }
}

/// One end of a connection inside this process.
pub(crate) struct MemStream {
    name: String,
    outlives: bool,
    way: Option<Arc<dyn Way>>,
    pipes: Arc<Connection>,
    /// Of the two pipes, the one that this end sends into.
    out: usize,
}

impl MemStream {
    fn pair(port: &MemPort) -> (MemStream, MemStream) {
        let pipes = Arc::<Connection>::default();
        let end = |out: usize| MemStream {
            name: port.name.clone(),
            outlives: port.outlives,
            way: port.way.clone(),
            pipes: pipes.clone(),
            out,
        };
        (end(0), end(1))
    }

    fn out(&self) -> &Pipe {
        &self.pipes[self.out]
    }

    fn into(&self) -> &Pipe {
        &self.pipes[1 - self.out]
    }

    /// When what this end sends now arrives.
    fn arrival(&self, bytes: usize) -> Option<Instant> {
        let way = self.way.as_ref()?;
        Some(way.arrival(self.out == 0, bytes))
    }

    /// Which bit of what this end sends now does not arrive as it was.
    fn flipped(&self) -> Option<u64> {
        self.way.as_ref()?.flipped(self.out == 0)
    }
}

impl Transport for MemStream {
    fn try_send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let pushed = self
            .out()
            .push(&mut lock(&self.out().state), outgoing, self);
        self.out().changed.notify_all();
        pushed.map(|_| ())
    }

    fn send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let mut state = lock(&self.out().state);
        while !self.out().push(&mut state, outgoing, self)? {
            state = wait(&self.out().changed, state);
        }
        drop(state);
        self.out().changed.notify_all();
        Ok(())
    }

    fn receive(
        &self,
        bytes_max: usize,
        deadline: Option<Instant>,
    ) -> Result<Incoming, ReceiveError> {
        let outgoing = self.into().pop(deadline)?;
        if outgoing.bytes() > bytes_max {
            let error = FrameError::TooLarge {
                bytes: outgoing.bytes() as u64,
                limit: bytes_max,
            };
            return Err(ReceiveError::Garbage(error));
        }
        Ok(outgoing.into_incoming())
    }

    fn shutdown(&self) {
        self.out().close();
        self.into().close();
    }

    fn bytes_received(&self) -> u64 {
        self.into().carried.load(Ordering::Relaxed)
    }

    fn bytes_sent(&self) -> u64 {
        self.out().carried.load(Ordering::Relaxed)
    }

    fn identity(&self) -> Identity {
        Identity::User(nix::unistd::geteuid().as_raw())
    }

    fn peer(&self) -> String {
        match self.way {
            Some(_) => format!("way:{}", self.name),
            None if self.outlives => format!("supervised:{}", self.name),
            None => format!("mem:{}", self.name),
        }
    }

    fn compact(&self) -> bool {
        false
    }
}
