//! TCP and Unix stream sockets.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::limits::FRAME_BYTES_MAX;
use nix::sys::socket::{self, MsgFlags, sockopt};
use wire::frame::{self, Frame, HEADER_BYTES};

use super::{Identity, Outgoing, ReceiveError, Transport};
use crate::threads::lock;

/// Bytes of kernel buffer asked for in each direction: a few bulk frames.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
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

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read(buffer),
            Stream::Unix(stream) => (&mut &*stream).read(buffer),
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
        socket::setsockopt(&stream, sockopt::SndBuf, &SOCKET_BUFFER_BYTES)?;
        socket::setsockopt(&stream, sockopt::RcvBuf, &SOCKET_BUFFER_BYTES)?;
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
        let (head, bulk) = outgoing.rest();
        let parts = [IoSlice::new(head), IoSlice::new(bulk)];
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

    /// Reads once into `buffer`, at most until `deadline`. Zero: the other end closed.
    fn read(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            if let Some(deadline) = deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
                self.stream.set_read_timeout(Some(left))?;
            }
            match (&self.stream).read(buffer) {
                Ok(bytes) => {
                    self.received.fetch_add(bytes as u64, Ordering::Relaxed);
                    return Ok(bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && deadline.is_some() => {
                    return Err(ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }
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

    fn receive(&self, bytes_max: usize, deadline: Option<Instant>) -> Result<Frame, ReceiveError> {
        let mut reader = lock(&self.reader);
        let frame = reader.frame(self, bytes_max.min(FRAME_BYTES_MAX), deadline);
        if deadline.is_some() {
            self.stream.set_read_timeout(None)?;
        }
        frame
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

/// Cuts frames out of what is read; several small frames come with one read.
struct Reader {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            buffer: vec![0; READ_BUFFER_BYTES].into(),
            start: 0,
            end: 0,
        }
    }
}

impl Reader {
    fn frame(
        &mut self,
        socket: &Socket,
        bytes_max: usize,
        deadline: Option<Instant>,
    ) -> Result<Frame, ReceiveError> {
        self.fill(socket, HEADER_BYTES, deadline)?;
        let header = &self.buffer[self.start..self.end];
        let lengths = frame::lengths(header, bytes_max).map_err(ReceiveError::Garbage)?;
        let head_bytes = HEADER_BYTES + lengths.body;
        if head_bytes <= self.buffer.len() {
            self.fill(socket, head_bytes, deadline)?;
            let head = self.start..self.start + head_bytes;
            self.start = head.end;
            let bulk = self.take(socket, lengths.bulk, deadline)?;
            return Frame::decode(&self.buffer[head], bulk).map_err(ReceiveError::Garbage);
        }
        let head = self.take(socket, head_bytes, deadline)?;
        let bulk = self.take(socket, lengths.bulk, deadline)?;
        Frame::decode(&head, bulk).map_err(ReceiveError::Garbage)
    }

    /// Reads until the buffer holds `bytes` bytes.
    fn fill(
        &mut self,
        socket: &Socket,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<(), ReceiveError> {
        if self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        while self.end - self.start < bytes {
            match socket.read(&mut self.buffer[self.end..], deadline)? {
                0 if self.start == self.end => return Err(ReceiveError::Closed),
                0 => return Err(ReceiveError::Garbage(frame::FrameError::Truncated)),
                read => self.end += read,
            }
        }
        Ok(())
    }

    /// `bytes` bytes, those beyond the buffer read straight to their place.
    fn take(
        &mut self,
        socket: &Socket,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<u8>, ReceiveError> {
        let buffered = bytes.min(self.end - self.start);
        let mut taken = vec![0; bytes];
        taken[..buffered].copy_from_slice(&self.buffer[self.start..self.start + buffered]);
        self.start += buffered;
        let mut at = buffered;
        while at < bytes {
            match socket.read(&mut taken[at..], deadline)? {
                0 => return Err(ReceiveError::Garbage(frame::FrameError::Truncated)),
                read => at += read,
            }
        }
        Ok(taken)
    }
}
