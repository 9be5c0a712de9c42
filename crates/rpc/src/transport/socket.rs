//! TCP and Unix stream sockets.

use ::threads::Mutex;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::limits::{FRAME_BYTES_MAX, KEEPALIVE_DEAD};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, MsgFlags, sockopt};
use nix::{getsockopt_impl, libc, setsockopt_impl, sockopt_impl};
use wire::frame::{self, HEADER_BYTES};

use super::carrier::{Identity, Incoming, Outgoing, ReceiveError, Transport, Watched};
use crate::threads::lock;

/// Bytes of kernel buffer asked for in each direction: what is on its way on a fast and long line.
const SOCKET_BUFFER_BYTES: usize = 16 << 20;
/// Parts of a frame sent at once; the system takes no more.
const PARTS_MAX: usize = 1024;
/// Bytes read at once where frames are small.
const READ_BUFFER_BYTES: usize = 64 << 10;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A stream socket that carries frames.
pub(crate) struct Socket {
    stream: Stream,
    peer: String,
    identity: Identity,
    reader: Mutex<Reader>,
    received: AtomicU64,
    sent: AtomicU64,
}

impl Socket {
    /// Connects to `host` (`NAME:PORT`), trying each of its addresses.
    pub(crate) fn connect_tcp(host: &str, insecure: bool, timeout: Duration) -> io::Result<Socket> {
        let mut last = io::Error::new(ErrorKind::NotFound, format!("{host} has no address"));
        for address in host.to_socket_addrs()? {
            check_loopback(&address, insecure)?;
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => return Socket::tcp(stream, address),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A connected TCP stream.
    pub(crate) fn tcp(stream: TcpStream, peer: SocketAddr) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        keep_trying(&stream)?;
        Socket::new(Stream::Tcp(stream), peer.to_string(), Identity::Unknown)
    }

    /// Connects to the socket at `path`.
    pub(crate) fn connect_unix(path: &Path) -> io::Result<Socket> {
        Socket::unix(UnixStream::connect(path)?, path)
    }

    /// A connected Unix stream of the socket at `path`.
    pub(crate) fn unix(stream: UnixStream, path: &Path) -> io::Result<Socket> {
        let credentials = socket::getsockopt(&stream, sockopt::PeerCredentials)?;
        let peer = format!("unix:{} (pid {})", path.display(), credentials.pid());
        Socket::new(
            Stream::Unix(stream),
            peer,
            Identity::User(credentials.uid()),
        )
    }

    fn new(stream: Stream, peer: String, identity: Identity) -> io::Result<Socket> {
        widen(&stream)?;
        Ok(Socket {
            stream,
            peer,
            identity,
            reader: Mutex::new(Reader::default()),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        })
    }

    /// Sends once; the number of bytes that fitted.
    fn send_some(&self, outgoing: &mut Outgoing, flags: MsgFlags) -> io::Result<()> {
        let parts: Vec<IoSlice> = outgoing.rest().take(PARTS_MAX).map(IoSlice::new).collect();
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        let fd = self.stream.as_fd().as_raw_fd();
        let bytes = socket::sendmsg::<()>(fd, &parts, &[], flags, None)?;
        outgoing.advance(bytes);
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    fn send_all(&self, outgoing: &mut Outgoing, flags: MsgFlags) -> io::Result<()> {
        while !outgoing.is_sent() {
            match self.send_some(outgoing, flags) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Zero: nothing has come within the time. An error or an end counts as something.
    fn poll(&self, timeout: PollTimeout) -> nix::Result<i32> {
        poll(
            &mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)],
            timeout,
        )
    }

    /// Reads once into `buffer`. Zero: the other end closed.
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let flags = match wait {
            Wait::Never => MsgFlags::MSG_DONTWAIT,
            Wait::Until(_) | Wait::Forever => MsgFlags::empty(),
        };
        loop {
            if let Wait::Until(deadline) = wait {
                let left = deadline.saturating_duration_since(::threads::now());
                if left.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
                self.stream.set_read_timeout(Some(left))?;
            }
            match socket::recv(self.stream.as_fd().as_raw_fd(), buffer, flags) {
                Ok(bytes) => {
                    self.received.fetch_add(bytes as u64, Ordering::Relaxed);
                    return Ok(bytes);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if matches!(wait, Wait::Until(_)) => {
                    return Err(ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// How long to wait for bytes.
#[derive(Debug, Clone, Copy)]
enum Wait {
    Never,
    Until(Instant),
    Forever,
}

/// Refuses what leaves this machine unencrypted, unless that was asked for.
pub(crate) fn check_loopback(address: &SocketAddr, insecure: bool) -> io::Result<()> {
    if insecure || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let text = format!(
        "{address} is beyond loopback and connections are not encrypted; \
         use a loopback address, or say --insecure"
    );
    Err(io::Error::new(ErrorKind::PermissionDenied, text))
}

impl Transport for Socket {
    fn try_send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        match self.send_all(outgoing, MsgFlags::MSG_DONTWAIT) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    fn send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        self.send_all(outgoing, MsgFlags::empty())
    }

    fn receive(
        &self,
        bytes_max: usize,
        deadline: Option<Instant>,
    ) -> Result<Incoming, ReceiveError> {
        let wait = deadline.map_or(Wait::Forever, Wait::Until);
        let frame = lock(&self.reader).frame(self, bytes_max.min(FRAME_BYTES_MAX), wait);
        if deadline.is_some() {
            self.stream.set_read_timeout(None)?;
        }
        frame
    }

    fn watched(&self) -> Option<&dyn Watched> {
        Some(self)
    }

    fn shutdown(&self) {
        // An error means that the connection has ended already.
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn bytes_received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn round_trip(&self) -> Option<Duration> {
        match &self.stream {
            Stream::Tcp(stream) => {
                let info = socket::getsockopt(stream, Measured).ok()?;
                Some(Duration::from_micros(info.tcpi_rtt.into()))
            }
            Stream::Unix(_) => Some(Duration::ZERO),
        }
    }

    fn is_cut(&self) -> bool {
        match &self.stream {
            Stream::Tcp(stream) => {
                let info = socket::getsockopt(stream, Measured);
                info.is_ok_and(|info| info.tcpi_retransmits >= CUT_AFTER)
            }
            Stream::Unix(_) => false,
        }
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn compact(&self) -> bool {
        matches!(self.stream, Stream::Tcp(_))
    }
}

/// Asks for large kernel buffers. The system's limit, 4 MiB and less as a rule, is passed by who may.
fn widen(stream: &Stream) -> io::Result<()> {
    let bytes = SOCKET_BUFFER_BYTES;
    socket::setsockopt(stream, sockopt::SndBufForce, &bytes)
        .or_else(|_| socket::setsockopt(stream, sockopt::SndBuf, &bytes))?;
    socket::setsockopt(stream, sockopt::RcvBufForce, &bytes)
        .or_else(|_| socket::setsockopt(stream, sockopt::RcvBuf, &bytes))?;
    Ok(())
}

/// How often something is sent again, with nothing heard from the other machine, until the way
/// there counts as cut. After 1.4 s where the machines are near, as each wait is twice the one
/// before.
const CUT_AFTER: u8 = 3;
/// The longest such wait, in milliseconds: as short as the system has it. What waits for the other
/// machine goes on that soon after it can be reached again.
const TRIED_AGAIN_MS: u32 = 1000;

/// What was sent is sent again often, until the connection is given up for its silence anyway.
fn keep_trying(stream: &TcpStream) -> io::Result<()> {
    // Before Linux 6.15 the waits go on to double: a client then makes its connections anew.
    let _ = socket::setsockopt(stream, LongestWait, &TRIED_AGAIN_MS);
    let time = u32::try_from(KEEPALIVE_DEAD.as_millis()).unwrap_or(u32::MAX);
    Ok(socket::setsockopt(stream, GivenUpAfter, &time)?)
}

/// Bytes that wake a reader which is to sleep: what comes in such pieces is worth it.
const WAKING_BYTES: usize = 64 << 10;

sockopt_impl!(
    /// How many bytes wake who waits for some.
    WakingBytes,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    usize
);

/// `TCP_RTO_MAX_MS`, which `libc` does not have yet: the same number on every machine.
const TCP_RTO_MAX_MS: libc::c_int = 44;

sockopt_impl!(
    /// How long TCP waits at most before it sends again.
    LongestWait,
    SetOnly,
    libc::IPPROTO_TCP,
    TCP_RTO_MAX_MS,
    u32
);

sockopt_impl!(
    /// How long TCP tries before it gives a connection up.
    GivenUpAfter,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_USER_TIMEOUT,
    u32
);

sockopt_impl!(
    /// What TCP knows of a connection.
    Measured,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    libc::tcp_info
);

impl Watched for Socket {
    fn try_receive(&self, bytes_max: usize) -> Result<Option<Incoming>, ReceiveError> {
        let frame = lock(&self.reader).frame(self, bytes_max.min(FRAME_BYTES_MAX), Wait::Never);
        match frame {
            Ok(frame) => Ok(Some(frame)),
            Err(ReceiveError::Io(error)) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn wait(&self) -> io::Result<()> {
        match self.poll(PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn is_ready(&self) -> bool {
        lock(&self.reader).holds_bytes() || self.poll(PollTimeout::ZERO) != Ok(0)
    }

    /// By the number of bytes for which TCP wakes who waits; for Unix sockets there is none.
    fn let_sleep(&self, sleep: bool) {
        if let Stream::Tcp(stream) = &self.stream {
            let bytes = if sleep { WAKING_BYTES } else { 1 };
            // A reader that is woken for nothing is the worst that can come of an error.
            let _ = socket::setsockopt(stream, WakingBytes, &bytes);
        }
    }
}

/// Cuts frames out of what is read; several small frames come with one read. What has come of a
/// frame stays here when the rest is not there yet.
struct Reader {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    large: Option<Large>,
}

/// A frame that is read straight to its place, beyond the buffer.
struct Large {
    head: Part,
    bulk: Part,
}

/// Bytes of which the first `have` have come.
struct Part {
    bytes: Vec<u8>,
    have: usize,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            buffer: vec![0; READ_BUFFER_BYTES].into(),
            start: 0,
            end: 0,
            large: None,
        }
    }
}

impl Reader {
    fn frame(
        &mut self,
        socket: &Socket,
        bytes_max: usize,
        wait: Wait,
    ) -> Result<Incoming, ReceiveError> {
        if self.large.is_none() {
            self.fill(socket, HEADER_BYTES, wait)?;
            let header = &self.buffer[self.start..self.end];
            let lengths = frame::lengths(header, bytes_max).map_err(ReceiveError::Garbage)?;
            let head_bytes = HEADER_BYTES + lengths.body;
            if head_bytes <= self.buffer.len() {
                self.fill(socket, head_bytes, wait)?;
                if lengths.bulk == 0 {
                    let head = self.start..self.start + head_bytes;
                    self.start = head.end;
                    return Ok(Incoming::new(self.buffer[head].to_vec(), Vec::new()));
                }
            }
            self.large = Some(Large {
                head: self.part(head_bytes),
                bulk: self.part(lengths.bulk),
            });
        }
        if let Some(large) = &mut self.large {
            large.head.fill(socket, wait)?;
            large.bulk.fill(socket, wait)?;
        }
        match self.large.take() {
            Some(Large { head, bulk }) => Ok(Incoming::new(head.bytes, bulk.bytes)),
            None => Err(ReceiveError::Io(ErrorKind::WouldBlock.into())),
        }
    }

    fn holds_bytes(&self) -> bool {
        self.start < self.end
    }

    /// Reads until the buffer holds `bytes` bytes.
    fn fill(&mut self, socket: &Socket, bytes: usize, wait: Wait) -> Result<(), ReceiveError> {
        if self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        while self.end - self.start < bytes {
            match socket.read(&mut self.buffer[self.end..], wait)? {
                0 if self.start == self.end => return Err(ReceiveError::Closed),
                0 => return Err(ReceiveError::Garbage(frame::FrameError::Truncated)),
                read => self.end += read,
            }
        }
        Ok(())
    }

    /// The next `bytes` bytes, of which some may be in the buffer.
    fn part(&mut self, bytes: usize) -> Part {
        let have = bytes.min(self.end - self.start);
        let mut part = Part {
            bytes: vec![0; bytes],
            have,
        };
        part.bytes[..have].copy_from_slice(&self.buffer[self.start..self.start + have]);
        self.start += have;
        part
    }
}

impl Part {
    fn fill(&mut self, socket: &Socket, wait: Wait) -> Result<(), ReceiveError> {
        while self.have < self.bytes.len() {
            match socket.read(&mut self.bytes[self.have..], wait)? {
                0 => return Err(ReceiveError::Garbage(frame::FrameError::Truncated)),
                read => self.have += read,
            }
        }
        Ok(())
    }
}
