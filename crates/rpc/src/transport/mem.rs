//! Connections inside one process: the same encoded frames through bounded queues. A frame is
//! delivered by the receiving end's reader thread, never on the sender's stack.

use ::threads::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use wire::frame::{Frame, FrameError};

use super::{Identity, Outgoing, ReceiveError, Transport};
use crate::threads::{lock, wait, wait_until};

/// Bytes under way in one direction, as a socket's buffers would hold. One frame always fits.
const PIPE_BYTES_MAX: usize = 4 << 20;
/// Connections not accepted yet. Beyond: refused.
const BACKLOG_MAX: usize = 128;

/// A place inside this process that a server listens on and clients connect to.
pub struct MemPort {
    name: String,
    backlog: Mutex<Backlog>,
    changed: Condvar,
}

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
        Arc::new(MemPort {
            name: name.into(),
            backlog: Mutex::default(),
            changed: Condvar::new(),
        })
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
        let mut backlog = lock(&self.backlog);
        if !backlog.listening || backlog.waiting.len() >= BACKLOG_MAX {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = MemStream::pair(&self.name);
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
    frames: VecDeque<Outgoing>,
    bytes: usize,
    closed: bool,
}

impl Pipe {
    /// Queues `outgoing` if it fits. The caller wakes the reader, once it has let go of the lock.
    fn push(&self, state: &mut PipeState, outgoing: &mut Outgoing) -> io::Result<bool> {
        if state.closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let bytes = outgoing.bytes();
        if state.bytes != 0 && state.bytes + bytes > PIPE_BYTES_MAX {
            return Ok(false);
        }
        state.frames.push_back(outgoing.take());
        state.bytes += bytes;
        self.carried.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(true)
    }

    fn pop(&self, deadline: Option<Instant>) -> Result<Outgoing, ReceiveError> {
        let mut state = lock(&self.state);
        loop {
            if let Some(outgoing) = state.frames.pop_front() {
                state.bytes -= outgoing.bytes();
                self.changed.notify_all();
                return Ok(outgoing);
            }
            if state.closed {
                return Err(ReceiveError::Closed);
            }
            if deadline.is_some_and(|deadline| deadline <= ::threads::now()) {
                return Err(ReceiveError::Io(ErrorKind::TimedOut.into()));
            }
            state = wait_until(&self.changed, state, deadline);
        }
    }

    fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }
}

/// One end of a connection inside this process.
pub(crate) struct MemStream {
    name: String,
    out: Arc<Pipe>,
    into: Arc<Pipe>,
}

impl MemStream {
    fn pair(name: &str) -> (MemStream, MemStream) {
        let pipes: [Arc<Pipe>; 2] = Default::default();
        let end = |out: usize, into: usize| MemStream {
            name: name.to_owned(),
            out: pipes[out].clone(),
            into: pipes[into].clone(),
        };
        (end(0, 1), end(1, 0))
    }
}

impl Transport for MemStream {
    fn try_send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let pushed = self.out.push(&mut lock(&self.out.state), outgoing);
        self.out.changed.notify_all();
        pushed.map(|_| ())
    }

    fn send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let mut state = lock(&self.out.state);
        while !self.out.push(&mut state, outgoing)? {
            state = wait(&self.out.changed, state);
        }
        drop(state);
        self.out.changed.notify_all();
        Ok(())
    }

    fn receive(&self, bytes_max: usize, deadline: Option<Instant>) -> Result<Frame, ReceiveError> {
        let outgoing = self.into.pop(deadline)?;
        if outgoing.bytes() > bytes_max {
            let error = FrameError::TooLarge(outgoing.bytes() as u64);
            return Err(ReceiveError::Garbage(error));
        }
        outgoing.decode().map_err(ReceiveError::Garbage)
    }

    fn shutdown(&self) {
        self.out.close();
        self.into.close();
    }

    fn bytes_received(&self) -> u64 {
        self.into.carried.load(Ordering::Relaxed)
    }

    fn bytes_sent(&self) -> u64 {
        self.out.carried.load(Ordering::Relaxed)
    }

    fn identity(&self) -> Identity {
        Identity::User(nix::unistd::geteuid().as_raw())
    }

    fn peer(&self) -> String {
        format!("mem:{}", self.name)
    }

    fn compact(&self) -> bool {
        false
    }
}
