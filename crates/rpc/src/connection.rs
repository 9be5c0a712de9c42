//! One connection: a transport, the queue of what did not fit it, and the two threads that serve
//! it (the reader runs [`Connection::serve`], and owns the writer).

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use base::Tick;
use base::limits::{FRAME_BYTES_MAX, PEER_QUEUE_BYTES_MAX};
use wire::frame::Frame;

use crate::counters::Counters;
use crate::keepalive::{Health, Keepalive};
use crate::replier::Violation;
use crate::threads::{self, lock, wait};
use crate::transport::{Outgoing, ReceiveError, Transport};

/// A connection whose handshake is done.
pub(crate) struct Connection {
    transport: Arc<dyn Transport>,
    outbox: Mutex<Outbox>,
    changed: Condvar,
    keepalive: Mutex<Keepalive>,
    /// The reader waits for the peer to take what is queued for it.
    held_back: AtomicBool,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Outbox {
    queue: VecDeque<Outgoing>,
    bytes: usize,
    /// The writer is sending a frame that is no longer in the queue.
    writing: bool,
    closed: bool,
}

impl Connection {
    /// A connection over `transport`, made at `now`.
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        counters: Arc<Counters>,
        now: Tick,
    ) -> Arc<Connection> {
        Arc::new(Connection {
            transport,
            outbox: Mutex::default(),
            changed: Condvar::new(),
            keepalive: Mutex::new(Keepalive::new(now)),
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
                // Whoever made the payload has checked it; the session can't go on without it.
                tracing::error!(peer = self.transport.peer(), %error, "a frame can't be sent");
                return self.close();
            }
        };
        self.counters.count_sent(frame, outgoing.bytes());
        let mut outbox = lock(&self.outbox);
        if outbox.closed {
            return;
        }
        if outbox.queue.is_empty() && !outbox.writing {
            match self.transport.try_send(&mut outgoing) {
                Ok(()) if outgoing.is_sent() => return,
                Ok(()) => {}
                Err(_) => {
                    drop(outbox);
                    return self.close();
                }
            }
        }
        outbox.bytes += outgoing.bytes();
        outbox.queue.push_back(outgoing);
        self.changed.notify_all();
    }

    /// Ends the connection; what is queued is lost, and both threads end.
    pub(crate) fn close(&self) {
        lock(&self.outbox).closed = true;
        self.changed.notify_all();
        self.transport.shutdown();
    }

    /// Where the peer is, for logs.
    pub(crate) fn peer(&self) -> String {
        self.transport.peer()
    }

    /// Pings or closes a connection that has been silent for long. True: it was closed.
    pub(crate) fn check(&self, now: Tick, ping: impl FnOnce() -> Frame) -> bool {
        let mut progress = self.transport.bytes_received();
        if self.held_back.load(Ordering::Relaxed) {
            // We are not listening; that the peer takes what we send is its sign of life.
            progress += self.transport.bytes_sent();
        }
        let health = lock(&self.keepalive).poll(now, progress);
        match health {
            Health::Fine => {}
            Health::Ping => self.send(&ping()),
            Health::Dead => {
                tracing::warn!(peer = self.peer(), "disconnected: silent for too long");
                self.close();
            }
        }
        health == Health::Dead
    }

    /// Reads frames until the connection ends or `on_frame` says so, then ends it.
    pub(crate) fn serve(
        self: &Arc<Self>,
        writer_name: String,
        mut on_frame: impl FnMut(Frame) -> Result<ControlFlow<()>, Violation>,
    ) {
        let writer = {
            let connection = self.clone();
            threads::spawn(writer_name, move || connection.write())
        };
        match writer {
            Ok(writer) => {
                // A panic above is a defect there; here it ends this connection and no more.
                let read = AssertUnwindSafe(|| self.read(&mut on_frame));
                if panic::catch_unwind(read).is_err() {
                    tracing::error!(peer = self.peer(), "disconnected: a handler panicked");
                }
                self.close();
                threads::join(writer);
            }
            Err(error) => {
                tracing::warn!(peer = self.peer(), %error, "disconnected: no thread to serve it");
                self.close();
            }
        }
        self.transport.join();
    }

    fn read(&self, on_frame: &mut impl FnMut(Frame) -> Result<ControlFlow<()>, Violation>) {
        loop {
            let frame = match self.transport.receive(FRAME_BYTES_MAX, None) {
                Ok(frame) => frame,
                Err(ReceiveError::Garbage(error)) => {
                    tracing::warn!(peer = self.peer(), reason = %error, "disconnected");
                    return;
                }
                Err(error) => {
                    tracing::debug!(peer = self.peer(), reason = %error, "connection ended");
                    return;
                }
            };
            self.counters.count_received(&frame);
            match on_frame(frame) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(violation) => {
                    tracing::warn!(peer = self.peer(), reason = %violation, "disconnected");
                    return;
                }
            }
        }
    }

    /// Waits until the peer has taken most of what is queued for it: a server hears no more
    /// requests from a client that does not take its replies.
    pub(crate) fn wait_for_room(&self) {
        let mut outbox = lock(&self.outbox);
        if outbox.bytes <= PEER_QUEUE_BYTES_MAX {
            return;
        }
        self.held_back.store(true, Ordering::Relaxed);
        while outbox.bytes > PEER_QUEUE_BYTES_MAX / 2 && !outbox.closed {
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
            outbox.writing = false;
            outbox.bytes -= bytes;
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
            if outbox.closed {
                return None;
            }
            if let Some(outgoing) = outbox.queue.pop_front() {
                outbox.writing = true;
                return Some(outgoing);
            }
            outbox = wait(&self.changed, outbox);
        }
    }
}
