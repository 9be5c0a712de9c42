//! Messages from clients to servers, seen from outside: packets on the loopback interface of a test's own
//! network, put together to frames again (docs/wire.md).

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};

/// Bytes of packets that wait in the kernel until they are looked at.
const WAITING_MAX: usize = 128 << 20;
const PACKET_BYTES_MAX: usize = 1 << 17;
/// Of a frame's header.
const HEADER_BYTES: usize = 64;

/// What was sent to one port since the tap was made.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Frames by their kind.
    pub frames: BTreeMap<u8, u64>,
    /// Messages in request frames by their opcode.
    pub requests: BTreeMap<u16, u64>,
    /// Packets with data.
    pub segments: u64,
}

/// Of frames.
pub const REQUEST: u8 = 1;

impl Sent {
    /// Request frames.
    pub fn request_frames(&self) -> u64 {
        self.frames.get(&REQUEST).copied().unwrap_or(0)
    }
}

/// Sees every packet of the calling thread's network.
pub struct Tap {
    socket: OwnedFd,
    port: u16,
    /// Connections by the port they come from.
    streams: BTreeMap<u16, Stream>,
    sent: Sent,
}

/// What came of one connection.
#[derive(Default)]
struct Stream {
    /// The number of the byte that comes next.
    next: u32,
    /// Packets that came before those in front of them.
    early: BTreeMap<u32, Vec<u8>>,
    /// The begin of a frame.
    bytes: Vec<u8>,
}

impl Tap {
    /// Looks at what is sent to `address` from now on. Connections made earlier are not understood.
    pub fn new(address: &str) -> Tap {
        let port = address
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        let family = AddressFamily::Packet;
        let (kind, flags) = (
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        );
        let socket = socket(family, kind, flags, SockProtocol::EthAll);
        let socket = socket.expect("root can look at packets");
        setsockopt(&socket, sockopt::RcvBufForce, &WAITING_MAX).expect("root may have room");
        Tap {
            socket,
            port: port.expect("an address with a port"),
            streams: BTreeMap::new(),
            sent: Sent::default(),
        }
    }

    /// All that was sent until now.
    pub fn sent(&mut self) -> Sent {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        loop {
            let (length, from) = match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut packet) {
                Ok(received) => received,
                Err(Errno::EAGAIN) => return self.sent.clone(),
                Err(errno) => panic!("looking at packets: {errno}"),
            };
            // On loopback each is seen when it leaves and when it comes.
            let came = from.is_some_and(|from| from.as_ref().sll_pkttype == libc::PACKET_HOST);
            if let (true, Some(segment)) = (came, segment(&packet[..length], self.port)) {
                self.take(segment);
            }
        }
    }

    fn take(&mut self, segment: Segment<'_>) {
        let stream = self.streams.entry(segment.from).or_default();
        if segment.is_first {
            *stream = Stream {
                next: segment.number.wrapping_add(1),
                ..Stream::default()
            };
        }
        if segment.data.is_empty() {
            return;
        }
        self.sent.segments += 1;
        stream.early.insert(segment.number, segment.data.to_vec());
        while let Some(data) = stream.early.remove(&stream.next) {
            stream.next = stream.next.wrapping_add(data.len() as u32);
            stream.bytes.extend(data);
        }
        while let Some(length) = stream.whole_frame() {
            let frame: Vec<u8> = stream.bytes.drain(..length).collect();
            self.sent.take(&frame);
        }
    }
}

impl Stream {
    /// The length of the frame at the begin, once all of it is there.
    fn whole_frame(&self) -> Option<usize> {
        let header = self.bytes.get(..HEADER_BYTES)?;
        assert_eq!(&header[..4], b"GLNT", "this is no frame");
        let length = HEADER_BYTES + number(header, 8) as usize + number(header, 12) as usize;
        (self.bytes.len() >= length).then_some(length)
    }
}

impl Sent {
    fn take(&mut self, frame: &[u8]) {
        let kind = frame[5];
        *self.frames.entry(kind).or_default() += 1;
        let is_compact = frame[6] & 2 != 0;
        if kind != REQUEST || is_compact {
            return;
        }
        let count = u16::from_le_bytes([frame[24], frame[25]]);
        let mut at = HEADER_BYTES;
        for _ in 0..count {
            let opcode = u16::from_le_bytes([frame[at], frame[at + 1]]);
            *self.requests.entry(opcode).or_default() += 1;
            at += 8 + number(frame, at + 4) as usize;
        }
    }
}

/// Of a connection to a port.
struct Segment<'a> {
    from: u16,
    number: u32,
    is_first: bool,
    data: &'a [u8],
}

/// What is in an Ethernet packet, where that is TCP over IPv4 to `port`.
fn segment(packet: &[u8], port: u16) -> Option<Segment<'_>> {
    let (ethernet, ip) = packet.split_at_checked(14)?;
    if ethernet[12..] != [8, 0] || *ip.get(9)? != 6 {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let tcp = ip.get(usize::from(ip[0] & 15) * 4..total)?;
    let word = |at: usize| Some(u16::from_be_bytes([*tcp.get(at)?, *tcp.get(at + 1)?]));
    if word(2)? != port {
        return None;
    }
    Some(Segment {
        from: word(0)?,
        number: (u32::from(word(4)?) << 16) | u32::from(word(6)?),
        is_first: tcp.get(13)? & 2 != 0,
        data: tcp.get(usize::from(tcp[12] >> 4) * 4..)?,
    })
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let four = bytes[at..at + 4].try_into();
    u32::from_le_bytes(four.expect("four bytes"))
}
