//! An emulated link in front of any transport. Each direction holds each frame for half a round
//! trip and lets bytes through at a bounded rate. Adjustable while in use.

use ::threads::JoinHandle;
use ::threads::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::carrier::{Identity, Incoming, Outgoing, ReceiveError, Transport};
use crate::threads::{self, lock, wait, wait_until};
use base::limits::{FRAME_BYTES_MAX, PEER_QUEUE_BYTES_MAX};

/// A link's properties, shared by all connections that run over it.
#[derive(Debug)]
pub struct Link {
    rtt_nanos: AtomicU64,
    /// Zero: unlimited.
    bytes_per_second: AtomicU64,
    /// When each direction has let through what it was given.
    free_at: [Mutex<Option<Instant>>; 2],
}

impl Link {
    /// A link with this round-trip time and, per direction, this many bytes a second (None: any).
    pub fn new(rtt: Duration, bytes_per_second: Option<u64>) -> Arc<Link> {
        let link = Link {
            rtt_nanos: AtomicU64::new(0),
            bytes_per_second: AtomicU64::new(0),
            free_at: Default::default(),
        };
        link.set(rtt, bytes_per_second);
        Arc::new(link)
    }

    /// From now on, for frames not yet under way.
    pub fn set(&self, rtt: Duration, bytes_per_second: Option<u64>) {
        self.rtt_nanos
            .store(rtt.as_nanos() as u64, Ordering::Relaxed);
        self.bytes_per_second
            .store(bytes_per_second.unwrap_or(0), Ordering::Relaxed);
    }

    /// When a frame of `bytes` bytes that enters `direction` now comes out.
    fn due(&self, direction: Direction, bytes: usize) -> Instant {
        let now = ::threads::now();
        let held = Duration::from_nanos(self.rtt_nanos.load(Ordering::Relaxed) / 2);
        let rate = self.bytes_per_second.load(Ordering::Relaxed);
        if rate == 0 {
            return now + held;
        }
        let mut free_at = lock(&self.free_at[direction as usize]);
        let start = free_at.unwrap_or(now).max(now);
        let through =
            start + Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / rate);
        *free_at = Some(through);
        through + held
    }
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Out,
    In,
}

/// Things under way in one direction.
struct Line<T> {
    state: Mutex<LineState<T>>,
    changed: Condvar,
}

struct LineState<T> {
    under_way: VecDeque<(Instant, usize, T)>,
    bytes: usize,
    closed: bool,
}

impl<T> Line<T> {
    fn new() -> Line<T> {
        Line {
            state: Mutex::new(LineState {
                under_way: VecDeque::new(),
                bytes: 0,
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Puts `item` on the line, or gives it back when the line is full. Err: closed.
    fn push(&self, due: Instant, bytes: usize, item: T) -> Result<Option<T>, ()> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(());
        }
        if state.bytes != 0 && state.bytes + bytes > PEER_QUEUE_BYTES_MAX {
            return Ok(Some(item));
        }
        state.bytes += bytes;
        state.under_way.push_back((due, bytes, item));
        self.changed.notify_all();
        Ok(None)
    }

    fn push_waiting(&self, due: Instant, bytes: usize, mut item: T) -> Result<(), ()> {
        while let Some(back) = self.push(due, bytes, item)? {
            item = back;
            let state = lock(&self.state);
            if state.bytes != 0 && !state.closed {
                drop(wait(&self.changed, state));
            }
        }
        Ok(())
    }

    /// The next item once it is due. None: the line is closed, or the deadline passed.
    fn pop(&self, deadline: Option<Instant>) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            let now = ::threads::now();
            let due = state.under_way.front().map(|(due, ..)| *due);
            if due.is_some_and(|due| due <= now) {
                let (_, bytes, item) = state.under_way.pop_front()?;
                state.bytes -= bytes;
                self.changed.notify_all();
                return Some(item);
            }
            if state.closed || deadline.is_some_and(|deadline| deadline <= now) {
                return None;
            }
            let until = [due, deadline].into_iter().flatten().min();
            state = wait_until(&self.changed, state, until);
        }
    }

    fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }
}

struct Shared {
    inner: Arc<dyn Transport>,
    link: Arc<Link>,
    out: Line<Outgoing>,
    into: Line<Result<Incoming, ReceiveError>>,
}

/// A transport behind a [`Link`].
pub(crate) struct Delayed {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Delayed {
    /// Puts `link` in front of `inner`.
    pub(crate) fn new(inner: Arc<dyn Transport>, link: Arc<Link>) -> io::Result<Delayed> {
        let shared = Arc::new(Shared {
            inner,
            link,
            out: Line::new(),
            into: Line::new(),
        });
        let delayed = Delayed {
            shared: shared.clone(),
            threads: Mutex::default(),
        };
        for (name, run) in [
            ("rpc-delay-out", Shared::run_out as fn(&Shared)),
            ("rpc-delay-in", Shared::run_in),
        ] {
            let shared = shared.clone();
            let thread = threads::spawn(name, move || run(&shared));
            match thread {
                Ok(thread) => lock(&delayed.threads).push(thread),
                Err(error) => {
                    delayed.shutdown();
                    delayed.join();
                    return Err(error);
                }
            }
        }
        Ok(delayed)
    }
}

impl Shared {
    /// Sends what has come to the end of the line.
    fn run_out(&self) {
        while let Some(mut outgoing) = self.out.pop(None) {
            if self.inner.send(&mut outgoing).is_err() {
                self.out.close();
            }
        }
    }

    /// Takes frames off the transport as they come, so that each is held from its arrival on.
    fn run_in(&self) {
        while !self.into.is_closed() {
            let received = self.inner.receive(FRAME_BYTES_MAX, None);
            let bytes = received.as_ref().map_or(0, Incoming::bytes);
            let last = received.is_err();
            let due = self.link.due(Direction::In, bytes);
            if self.into.push_waiting(due, bytes, received).is_err() || last {
                return;
            }
        }
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.shutdown();
        self.join();
    }
}

impl Transport for Delayed {
    fn try_send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let bytes = outgoing.bytes();
        let due = self.shared.link.due(Direction::Out, bytes);
        match self.shared.out.push(due, bytes, outgoing.take()) {
            Ok(None) => Ok(()),
            Ok(Some(back)) => {
                *outgoing = back;
                Ok(())
            }
            Err(()) => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    fn send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let bytes = outgoing.bytes();
        let due = self.shared.link.due(Direction::Out, bytes);
        let pushed = self.shared.out.push_waiting(due, bytes, outgoing.take());
        pushed.map_err(|()| ErrorKind::BrokenPipe.into())
    }

    fn receive(
        &self,
        bytes_max: usize,
        deadline: Option<Instant>,
    ) -> Result<Incoming, ReceiveError> {
        match self.shared.into.pop(deadline) {
            Some(Ok(frame)) if frame.bytes() > bytes_max => {
                let bytes = frame.bytes() as u64;
                let limit = bytes_max;
                let error = wire::frame::FrameError::TooLarge { bytes, limit };
                Err(ReceiveError::Garbage(error))
            }
            Some(received) => received,
            None if self.shared.into.is_closed() => Err(ReceiveError::Closed),
            None => Err(ReceiveError::Io(ErrorKind::TimedOut.into())),
        }
    }

    fn shutdown(&self) {
        self.shared.out.close();
        self.shared.into.close();
        self.shared.inner.shutdown();
    }

    fn join(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        threads.into_iter().for_each(threads::join);
        self.shared.inner.join();
    }

    fn bytes_received(&self) -> u64 {
        self.shared.inner.bytes_received()
    }

    fn bytes_sent(&self) -> u64 {
        self.shared.inner.bytes_sent()
    }

    fn is_cut(&self) -> bool {
        self.shared.inner.is_cut()
    }

    fn identity(&self) -> Identity {
        self.shared.inner.identity()
    }

    fn peer(&self) -> String {
        format!("{} (delayed)", self.shared.inner.peer())
    }

    fn compact(&self) -> bool {
        true
    }
}
