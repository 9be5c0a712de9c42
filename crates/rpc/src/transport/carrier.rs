//! What a connection needs of whatever carries its bytes.

use std::fmt;
use std::io;
use std::iter;
use std::time::{Duration, Instant};

use wire::frame::{Bulk, Frame, FrameError, FrameNumbers};

/// An encoded frame on its way out. What the head was made of is not kept with it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    head: Vec<u8>,
    bulk: Bulk,
    sent: usize,
}

impl Outgoing {
    /// Encodes `frame`.
    pub(crate) fn new(frame: &Frame, compact: bool) -> Result<Outgoing, FrameError> {
        Ok(Outgoing {
            head: frame.encode(compact)?,
            bulk: frame.payload.bulk.clone(),
            sent: 0,
        })
    }

    /// Gives it the next number of its way over the connection.
    pub(crate) fn number(&mut self, numbers: &mut FrameNumbers) {
        numbers.number(&mut self.head);
    }

    /// Bytes in all.
    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + self.bulk.len()
    }

    /// Moves the frame out; what is left behind counts as sent.
    pub(super) fn take(&mut self) -> Outgoing {
        let taken = Outgoing {
            head: std::mem::take(&mut self.head),
            bulk: std::mem::take(&mut self.bulk),
            sent: 0,
        };
        self.sent = 0;
        taken
    }

    /// What is still to be sent: of header and body, of each piece of bulk.
    pub(super) fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let pieces = self.bulk.pieces().iter().map(|piece| &piece[..]);
        let mut sent = self.sent;
        iter::once(&self.head[..])
            .chain(pieces)
            .filter_map(move |part| {
                let rest = &part[sent.min(part.len())..];
                sent -= part.len() - rest.len();
                (!rest.is_empty()).then_some(rest)
            })
    }

    /// Flips one bit of it, counted from the first and round and round. Who sent it keeps it as it
    /// was.
    pub(super) fn flip(&mut self, bit: u64) {
        let (byte, mask) = ((bit / 8) as usize % self.bytes().max(1), 1 << (bit % 8));
        if let Some(flipped) = self.head.get_mut(byte) {
            *flipped ^= mask;
            return;
        }
        let mut data = self.bulk.joined().to_vec();
        if let Some(flipped) = data.get_mut(byte - self.head.len()) {
            *flipped ^= mask;
        }
        self.bulk = Bulk::from(data);
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Nothing is left to send.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent >= self.bytes()
    }

    /// The frame as it comes to the other end.
    pub(super) fn into_incoming(self) -> Incoming {
        Incoming {
            head: self.head,
            bulk: self.bulk.joined().into(),
        }
    }
}

/// A frame as it came. Of its contents only the lengths have been looked at.
#[derive(Debug)]
pub(crate) struct Incoming {
    head: Vec<u8>,
    bulk: Bulk,
}

impl Incoming {
    /// Header and body, and what followed them.
    pub(super) fn new(head: Vec<u8>, bulk: impl Into<Bulk>) -> Incoming {
        let bulk = bulk.into();
        Incoming { head, bulk }
    }

    /// Bytes in all.
    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + self.bulk.len()
    }

    /// The frame, which is one of the handshake and has no number.
    pub(crate) fn decode(self) -> Result<Frame, FrameError> {
        Frame::decode(&self.head, self.bulk)
    }

    /// The frame, if it is the next one of its way over the connection.
    pub(crate) fn decode_next(self, numbers: &mut FrameNumbers) -> Result<Frame, FrameError> {
        Frame::decode_next(&self.head, self.bulk, numbers)
    }
}

/// Why nothing came.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// The other end closed the connection between two frames.
    Closed,
    /// The connection broke, or the deadline passed.
    Io(io::Error),
    /// What came is no frame.
    Garbage(FrameError),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Closed => f.write_str("the peer closed the connection"),
            ReceiveError::Io(error) => error.fmt(f),
            ReceiveError::Garbage(error) => error.fmt(f),
        }
    }
}

impl From<FrameError> for ReceiveError {
    fn from(error: FrameError) -> ReceiveError {
        ReceiveError::Garbage(error)
    }
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> ReceiveError {
        ReceiveError::Io(error)
    }
}

/// Who the other end is, as far as the transport knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The kernel says which user it is.
    User(u32),
    /// It has to prove a key.
    Unknown,
}

impl Identity {
    /// The user whom the kernel vouches for, where that one is trusted without a proof: root, and who
    /// this process runs as. Both may read what this process has of keys.
    pub(crate) fn trusted(self) -> Option<u32> {
        match self {
            Identity::User(uid) if uid == 0 || uid == nix::unistd::geteuid().as_raw() => Some(uid),
            _ => None,
        }
    }
}

/// One connection's bytes. Frames go out whole and in order, or the connection ends.
pub(crate) trait Transport: Send + Sync {
    /// Sends as much of `outgoing` as fits without waiting.
    fn try_send(&self, outgoing: &mut Outgoing) -> io::Result<()>;
    /// Sends all of `outgoing`, waiting as long as the other end lets it.
    fn send(&self, outgoing: &mut Outgoing) -> io::Result<()>;
    /// The next frame, of at most `bytes_max` bytes. One thread at a time.
    fn receive(
        &self,
        bytes_max: usize,
        deadline: Option<Instant>,
    ) -> Result<Incoming, ReceiveError>;
    /// Set where a thread can look at what has come without waiting for more.
    fn watched(&self) -> Option<&dyn Watched> {
        None
    }
    /// Ends both directions; the thread that waits in `send` or `receive` returns.
    fn shutdown(&self);
    /// Waits for the transport's own threads, after `shutdown`.
    fn join(&self) {}
    /// Bytes received so far; grows also in the middle of a frame.
    fn bytes_received(&self) -> u64;
    /// Bytes sent so far.
    fn bytes_sent(&self) -> u64;
    /// How far the other end is, where the system has measured it.
    fn round_trip(&self) -> Option<Duration> {
        None
    }
    /// What was sent has not come to the other machine for some time, though it was sent again and
    /// again. The way there is cut, or was.
    fn is_cut(&self) -> bool {
        false
    }
    /// Who is there.
    fn identity(&self) -> Identity;
    /// Where it is, for logs.
    fn peer(&self) -> String;
    /// Bytes are dear here: compact what can be.
    fn compact(&self) -> bool;
}

/// A transport of which frames can be taken as they come.
pub(crate) trait Watched {
    /// The next frame, if all of it has come. One thread at a time, and none in `receive`.
    fn try_receive(&self, bytes_max: usize) -> Result<Option<Incoming>, ReceiveError>;
    /// Waits until there is more to look at, or the connection has ended.
    fn wait(&self) -> io::Result<()>;
    /// Whether `receive` would find something at once.
    fn is_ready(&self) -> bool;
    /// Whether `wait` sleeps on although little things come, until told otherwise. As far as the
    /// transport can.
    fn let_sleep(&self, sleep: bool);
}
