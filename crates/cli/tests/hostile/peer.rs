//! One connection to a server, whose every byte the test chooses.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{BootEpoch, TargetKind, TargetName, Transno, Xid};
use rpc::{ClientSecret, Credential, Key, RefusalReason};
use wire::frame::{Bulk, Frame, FrameKind, FrameNumbers, Header, Payload, SessionId, Sub};
use wire::handshake::{self, Handshake, Hello, Lane, Nonce, Proof, Role, Versions};
use wire::opcode;

use crate::shape::Node;

/// How long the server may take for whatever it must say.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the servers are, and what proves what.
#[derive(Clone)]
pub struct Place {
    pub tcp: String,
    pub unix: PathBuf,
    pub key: [u8; 32],
    pub server_key: [u8; 32],
}

/// What came of something.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Nothing,
    Welcome,
    Refused(RefusalReason),
    Closed,
    Done,
    Failed(base::FsError),
    /// The connection stands, the server has dealt with what came after it, and no answer has come.
    Silence,
}

impl Outcome {
    pub fn words(&self) -> String {
        match self {
            Outcome::Refused(reason) => format!("refused {reason:?}"),
            Outcome::Failed(error) => format!("error {error:?}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// Who connects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Who {
    Client,
    Server,
    /// Has no key, and sends something else for a proof.
    Stranger,
    /// A client that says that it is a server.
    Climber,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buffer),
            Stream::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection.
pub struct Peer {
    stream: Stream,
    pub target: TargetName,
    session: SessionId,
    epoch: u32,
    /// Of the frames that it sends, and of those that come, once the handshake is done.
    numbers: Option<[FrameNumbers; 2]>,
    xid: u64,
    /// Slots that carry no request.
    free: Vec<u16>,
    /// Those of requests that have no answer yet.
    waiting: BTreeMap<Xid, u16>,
    /// Pings that have no answer yet.
    pings: u32,
}

/// What to wait for after a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Await {
    /// Its answer.
    Answer,
    /// Its answer, if that comes before the one to a ping behind it: the server may do the request later, or
    /// never.
    Turn,
}

pub fn hello(target: TargetName, number: u64, credential: Credential) -> Hello {
    let mut uuid = [0x5a; 16];
    uuid[..8].copy_from_slice(&number.to_le_bytes());
    Hello {
        versions: Versions::OURS,
        client: ClientSecret(uuid),
        incarnation: 1,
        target,
        lane: Lane::Control,
        nonce: Nonce([3; 32]),
        session: SessionId::NONE,
        boot_epoch: BootEpoch(0),
        last_committed: Transno(0),
        credential,
        wants_proof: false,
    }
}

impl Peer {
    /// A connection on which nothing was said.
    pub fn silent(place: &Place, over_unix: bool, target: TargetName) -> io::Result<Peer> {
        let stream = match over_unix {
            true => Stream::Unix(UnixStream::connect(&place.unix)?),
            false => Stream::Tcp(TcpStream::connect(&place.tcp)?),
        };
        if let Stream::Tcp(stream) = &stream {
            stream.set_nodelay(true)?;
        }
        stream.set_timeout(PATIENCE)?;
        Ok(Peer {
            stream,
            target,
            session: SessionId::NONE,
            epoch: 0,
            numbers: None,
            xid: 0,
            free: Vec::new(),
            waiting: BTreeMap::new(),
            pings: 0,
        })
    }

    /// Says a hello whose bytes these are, and proves what `who` can.
    pub fn greet(&mut self, place: &Place, hello: &[u8], who: Who) -> Outcome {
        if self.say_handshake(1, hello.to_vec()).is_err() {
            return Outcome::Closed;
        }
        loop {
            let Ok(frame) = self.hear() else {
                return Outcome::Closed;
            };
            match Handshake::from_frame(&frame) {
                Ok(Handshake::Challenge(challenge)) => {
                    let key = match who {
                        Who::Client | Who::Climber => place.key,
                        Who::Server => place.server_key,
                        Who::Stranger => [0; 32],
                    };
                    let (version, nonce) = (challenge.version, &challenge.nonce);
                    let (key, role) = (Key::new(key), Role::Client);
                    let proof = handshake::prove(&key, role, hello, version, nonce);
                    let frame = Handshake::Proof(Proof(proof)).to_frame();
                    if self.say(&frame).is_err() {
                        return Outcome::Closed;
                    }
                }
                Ok(Handshake::Welcome(welcome)) => {
                    self.numbers = Some([
                        FrameNumbers::to_server(hello),
                        FrameNumbers::to_client(hello),
                    ]);
                    self.session = welcome.session;
                    self.epoch = welcome.boot_epoch.0 as u32;
                    self.free = (0..welcome.slots).rev().collect();
                    let mut ready = Header::new(FrameKind::Ready);
                    self.stamp(&mut ready);
                    let _ = self.say(&Frame::bare(ready));
                    return Outcome::Welcome;
                }
                Ok(Handshake::Refusal(refusal)) => return Outcome::Refused(refusal.reason),
                other => panic!("a server says {other:?}"),
            }
        }
    }

    pub fn say_handshake(&mut self, opcode: u16, body: Vec<u8>) -> io::Result<()> {
        let mut frame = Frame::bare(Header::new(FrameKind::Handshake));
        frame.payload = payload(opcode, body, Vec::new());
        self.say(&frame)
    }

    pub fn say(&mut self, frame: &Frame) -> io::Result<()> {
        let mut bytes = frame.encode(false).expect("a test sends what fits a frame");
        if let Some([ours, _]) = &mut self.numbers {
            ours.number(&mut bytes);
        }
        bytes.extend(frame.payload.bulk.joined().iter());
        self.bytes(&bytes)
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next frame.
    pub fn hear(&mut self) -> io::Result<Frame> {
        let mut head = vec![0; 64];
        self.stream.read_exact(&mut head)?;
        let bad = |error: wire::frame::FrameError| io::Error::other(error.to_string());
        let lengths = wire::frame::lengths(&head, usize::MAX).map_err(bad)?;
        head.resize(64 + lengths.body, 0);
        self.stream.read_exact(&mut head[64..])?;
        let mut bulk = vec![0; lengths.bulk];
        self.stream.read_exact(&mut bulk)?;
        match &mut self.numbers {
            Some([_, theirs]) => Frame::decode_next(&head, bulk, theirs).map_err(bad),
            None => Frame::decode(&head, bulk).map_err(bad),
        }
    }

    pub fn stamp(&self, header: &mut Header) {
        header.session = self.session;
        header.epoch = self.epoch;
    }

    /// A request frame with this body, in a slot of its own.
    pub fn request(&mut self, body: Vec<u8>) -> Frame {
        let mut header = Header::new(FrameKind::Request);
        self.stamp(&mut header);
        self.xid += 1;
        header.xid = Xid(self.xid);
        header.slot = self.free.pop().expect("a slot is free");
        self.waiting.insert(header.xid, header.slot);
        let mut frame = Frame::bare(header);
        let opcode = match self.target.kind {
            TargetKind::Mgs => opcode::MGS,
            TargetKind::Mdt => opcode::MDT,
            TargetKind::Ost => opcode::OST,
        };
        frame.payload = payload(opcode, body, b"BULKDATA".to_vec());
        frame
    }

    /// Sends the frame and a ping behind it, and returns the answer. Callbacks that come meanwhile get an
    /// empty answer.
    pub fn ask(&mut self, frame: &Frame, what: Await) -> Outcome {
        let mut ping = Header::new(FrameKind::Ping);
        self.stamp(&mut ping);
        if self.say(frame).is_err() || self.say(&Frame::bare(ping)).is_err() {
            return Outcome::Closed;
        }
        self.pings += 1;
        while what == Await::Answer || self.pings > 0 {
            let heard = match self.hear() {
                Ok(heard) => heard,
                Err(error) if is_timeout(&error) => panic!("{} says nothing", self.target),
                Err(_) => return Outcome::Closed,
            };
            match heard.header.kind {
                FrameKind::Reply => {
                    self.is_answered(&heard);
                    if heard.header.xid == frame.header.xid {
                        return self.outcome(&heard);
                    }
                }
                FrameKind::Pong => self.pings -= 1,
                FrameKind::Callback if self.answer(&heard).is_err() => return Outcome::Closed,
                FrameKind::Evicted => return Outcome::Closed,
                _ => {}
            }
        }
        Outcome::Silence
    }

    /// The slot of the request is free again.
    pub fn is_answered(&mut self, reply: &Frame) {
        self.free.extend(self.waiting.remove(&reply.header.xid));
    }

    fn outcome(&self, reply: &Frame) -> Outcome {
        let status = reply.payload.subs.first().map_or(0, |sub| sub.status);
        match wire::status_from(status) {
            Ok(()) if self.is_refused(reply) => Outcome::Failed(base::FsError::NotPermitted),
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(error),
        }
    }

    pub fn answer(&mut self, callback: &Frame) -> io::Result<()> {
        let mut header = Header::new(FrameKind::CallbackReply);
        self.stamp(&mut header);
        (header.slot, header.xid) = (callback.header.slot, callback.header.xid);
        let mut answer = Frame::bare(header);
        answer.payload = payload(callback.payload.subs[0].opcode, vec![9], Vec::new());
        self.say(&answer)
    }

    /// The MGS says no in words.
    fn is_refused(&self, reply: &Frame) -> bool {
        let sub = reply.payload.subs.first();
        let said = sub.map(|sub| wire::decode::<wire::mgs::Reply>(&sub.body));
        self.target.kind == TargetKind::Mgs
            && matches!(said, Some(Ok(wire::mgs::Reply::Refused { .. })))
    }

    /// Sends a request with this body.
    pub fn send(&mut self, request: &Node, what: Await) -> Outcome {
        let mut body = Vec::new();
        request.encode(&mut body);
        let frame = self.request(body);
        self.ask(&frame, what)
    }

    /// Too many requests wait: there is no slot left.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Ends the session.
    pub fn leave(mut self) {
        let mut header = Header::new(FrameKind::Goodbye);
        self.stamp(&mut header);
        let _ = self.say(&Frame::bare(header));
        // The server hangs up when it has seen it.
        while self.hear().is_ok() {}
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

pub fn payload(opcode: u16, body: Vec<u8>, bulk: Vec<u8>) -> Arc<Payload> {
    let sub = Sub {
        opcode,
        status: 0,
        body,
    };
    Arc::new(Payload {
        subs: vec![sub],
        bulk: Bulk::from(bulk),
    })
}
