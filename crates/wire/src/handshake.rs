//! The messages before the first request: Hello, Challenge, Proof, Welcome or Refusal. docs/wire.md,
//! "Handshake", is normative.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base::{BootEpoch, ClientId, TargetName, Timestamp, Transno};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::frame::{Bulk, Frame, FrameKind, Header, Payload, SessionId, Sub};

/// Bytes in a handshake frame. Beyond: the peer is disconnected before it is known.
pub const HANDSHAKE_BYTES_MAX: usize = 4096;

/// The protocol that this build speaks.
pub const PROTOCOL: u8 = 10;

/// The protocol versions one end speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The lowest.
    pub min: u8,
    /// The highest.
    pub max: u8,
}

impl Versions {
    /// What this build speaks.
    pub const OURS: Versions = Versions {
        min: PROTOCOL,
        max: PROTOCOL,
    };

    /// The highest version that both speak.
    pub fn highest_common(self, other: Versions) -> Option<u8> {
        let highest = self.max.min(other.max);
        (highest >= self.min.max(other.min)).then_some(highest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(f, "{}", self.min),
            false => write!(f, "{} to {}", self.min, self.max),
        }
    }
}

/// A client's name, the same at every target and after reconnects: others may know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientUuid(pub [u8; 16]);

impl fmt::Display for ClientUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ClientUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a client alone knows: random, made once, kept for its next process. Its name follows from it, and
/// nobody who knows the name can say hello as that client.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSecret(pub [u8; 16]);

impl ClientSecret {
    /// The client's name.
    pub fn uuid(&self) -> ClientUuid {
        let digest: [u8; 32] = Sha256::new()
            .chain_update(b"glint client\0")
            .chain_update(self.0)
            .finalize()
            .into();
        let mut name = [0; 16];
        name.copy_from_slice(&digest[..16]);
        ClientUuid(name)
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientSecret(of {})", self.uuid())
    }
}

/// Random bytes used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce(pub [u8; 32]);

/// A connection's part in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lane {
    /// Requests, replies, callbacks.
    Control,
    /// Requests with much file data, walks of trees, and their replies.
    Bulk,
    /// More for file data, where one connection's window would be the limit.
    Bulk2,
    /// See [`Lane::Bulk2`].
    Bulk3,
    /// See [`Lane::Bulk2`].
    Bulk4,
}

impl Lane {
    /// How many there may be.
    pub const COUNT: usize = 5;
    /// All, the one that makes the session first.
    pub const ALL: [Lane; Lane::COUNT] = [
        Lane::Control,
        Lane::Bulk,
        Lane::Bulk2,
        Lane::Bulk3,
        Lane::Bulk4,
    ];

    /// Its place in [`Lane::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lane::Control => "control",
            Lane::Bulk => "bulk",
            Lane::Bulk2 => "bulk2",
            Lane::Bulk3 => "bulk3",
            Lane::Bulk4 => "bulk4",
        })
    }
}

/// Whose key a peer proves, and so what it may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Credential {
    /// The file system's key: it is a mount.
    Client,
    /// The key of its servers: it speaks for targets.
    Server,
}

/// The client's first words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What it speaks. First, so that every version can read it.
    pub versions: Versions,
    /// Who it is, and the proof of that.
    pub client: ClientSecret,
    /// Which incarnation of that mount: a higher one replaces the sessions of the lower.
    pub incarnation: u64,
    /// Whom it wants.
    pub target: TargetName,
    /// What the connection is for.
    pub lane: Lane,
    /// For the server's proof.
    pub nonce: Nonce,
    /// The session to go on with; none for a new one.
    pub session: SessionId,
    /// The target's boot epoch when it last spoke to it. Zero: never.
    pub boot_epoch: BootEpoch,
    /// The highest `last_committed` it was ever told: a target that has less was damaged or restored.
    pub last_committed: Transno,
    /// Whose key both ends prove, where they prove one.
    pub credential: Credential,
    /// The kernel does not vouch for the server: it is to prove the key.
    pub wants_proof: bool,
}

/// The server proves its key and asks for the client's proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// The version chosen.
    pub version: u8,
    /// For the client's proof.
    pub nonce: Nonce,
    /// [`prove`] as [`Role::Server`].
    pub proof: [u8; 32],
}

/// The client proves its key: [`prove`] as [`Role::Client`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof(pub [u8; 32]);

/// The client is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version chosen.
    pub version: u8,
    /// The session, from now on in every header.
    pub session: SessionId,
    /// The same session goes on, with its slots. Else every lock and reply of an older one is gone.
    pub resumed: bool,
    /// What the target calls this client.
    pub client: ClientId,
    /// The target's boot. Another than the client knew: drop all that the old one granted.
    pub boot_epoch: BootEpoch,
    /// Slots granted.
    pub slots: u16,
    /// The target's newest durable change.
    pub last_committed: Transno,
    /// Of the boot that the hello names: its newest change that is durable. What it made after that
    /// is lost, unless the client tells of it again.
    pub survived: Transno,
    /// The target has given up on this mount since then: whatever is not durable of it is lost.
    pub evicted: bool,
    /// What the server's clock says, for a word to people where the client's says otherwise.
    pub now: Timestamp,
}

/// Why a server says no. Numbers on the wire: only ever appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RefusalReason {
    /// No protocol version in common.
    Version,
    /// The key was not proven, or is missing on one side.
    Key,
    /// This uid may not use the Unix socket.
    User,
    /// The target is not served at this address.
    NotServed,
    /// The client was told of more than the target has: the target is damaged or was restored.
    Damaged,
    /// A later incarnation of the same mount has taken over.
    Replaced,
    /// A bulk lane without its session: make the session first.
    NoSession,
    /// The service has its own reason; the text says it.
    Service,
    /// Not words of this handshake.
    Garbled,
    /// Too many connections are in their handshake: come again.
    Busy,
}

/// The server says no, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub reason: RefusalReason,
    /// For people: one line that says what and how to mend it.
    pub text: String,
}

impl Refusal {
    /// A refusal; a text too long for a frame is cut.
    pub fn new(reason: RefusalReason, text: impl Into<String>) -> Refusal {
        let text = text.into().chars().take(500).collect();
        Refusal { reason, text }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

/// The highest version that both speak, or a refusal that names both ranges.
pub fn negotiate(server: Versions, client: Versions) -> Result<u8, Refusal> {
    server.highest_common(client).ok_or_else(|| {
        let text = format!(
            "the client speaks protocol version {client}, the server {server}: \
             install the same release on both"
        );
        Refusal::new(RefusalReason::Version, text)
    })
}

/// One message of the handshake; each is a frame with one sub-message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handshake {
    /// Opcode 1.
    Hello(Hello),
    /// Opcode 2.
    Challenge(Challenge),
    /// Opcode 3.
    Proof(Proof),
    /// Opcode 4.
    Welcome(Welcome),
    /// Opcode 5.
    Refusal(Refusal),
}

/// A frame where a message of the handshake should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbled(pub &'static str);

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "garbled handshake: {}", self.0)
    }
}

impl std::error::Error for Garbled {}

impl Handshake {
    /// The frame that says it.
    pub fn to_frame(&self) -> Frame {
        let (opcode, body) = match self {
            Handshake::Hello(hello) => (1, hello.to_bytes()),
            Handshake::Challenge(challenge) => (2, to_bytes(challenge)),
            Handshake::Proof(proof) => (3, to_bytes(proof)),
            Handshake::Welcome(welcome) => (4, to_bytes(welcome)),
            Handshake::Refusal(refusal) => (5, to_bytes(refusal)),
        };
        let subs = vec![Sub {
            opcode,
            status: 0,
            body,
        }];
        Frame {
            header: Header::new(FrameKind::Handshake),
            payload: Arc::new(Payload {
                subs,
                bulk: Bulk::default(),
            }),
        }
    }

    /// What `frame` says.
    pub fn from_frame(frame: &Frame) -> Result<Handshake, Garbled> {
        let sub = only_sub(frame)?;
        Ok(match sub.opcode {
            1 => Handshake::Hello(from_bytes(&sub.body)?),
            2 => Handshake::Challenge(from_bytes(&sub.body)?),
            3 => Handshake::Proof(from_bytes(&sub.body)?),
            4 => Handshake::Welcome(from_bytes(&sub.body)?),
            5 => Handshake::Refusal(from_bytes(&sub.body)?),
            _ => return Err(Garbled("unknown message")),
        })
    }
}

/// The versions of a Hello, which begins with them in all versions of the protocol.
pub fn versions_of(frame: &Frame) -> Result<Versions, Garbled> {
    let sub = only_sub(frame)?;
    match sub.opcode {
        1 => from_bytes(&sub.body),
        _ => Err(Garbled("handshake out of order")),
    }
}

/// The bytes of a Hello as they came, which are what the proofs cover.
pub fn hello_bytes(frame: &Frame) -> Result<&[u8], Garbled> {
    Ok(&only_sub(frame)?.body)
}

impl Hello {
    /// Its bytes, which are what the proofs cover.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }
}

fn only_sub(frame: &Frame) -> Result<&Sub, Garbled> {
    match (frame.header.kind, &*frame.payload.subs) {
        (FrameKind::Handshake, [sub]) => Ok(sub),
        (FrameKind::Handshake, _) => Err(Garbled("not one message")),
        _ => Err(Garbled("another kind of frame")),
    }
}

fn to_bytes<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_allocvec(message).expect("handshake messages hold nothing postcard refuses")
}

/// Bytes after the message are a later version's fields: ignored.
fn from_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Garbled> {
    postcard::from_bytes(bytes).map_err(|_| Garbled("malformed message"))
}

/// The secret of a target: who has it may speak to it over TCP.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// A key of these bytes, which must come from a source of secrets.
    pub fn new(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    /// 64 hexadecimal digits, for the key file and nothing else.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// A key file that holds no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyParseError;

impl fmt::Display for KeyParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key is 64 hexadecimal digits")
    }
}

impl std::error::Error for KeyParseError {}

impl FromStr for Key {
    type Err = KeyParseError;

    fn from_str(text: &str) -> Result<Key, KeyParseError> {
        let digits = text.trim().as_bytes();
        if digits.len() != 64 {
            return Err(KeyParseError);
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(KeyParseError);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Ok(Key(key))
    }
}

/// Who proves. The roles' proofs differ, so that neither end can send the other's back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that connects.
    Client,
    /// The end that was connected to.
    Server,
}

fn mac(key: &Key, role: Role, hello: &[u8], version: u8, server: &Nonce) -> Hmac<Sha256> {
    let label: &[u8] = match role {
        Role::Client => b"glint handshake client\0",
        Role::Server => b"glint handshake server\0",
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("HMAC takes keys of every length");
    mac.update(label);
    mac.update(&(hello.len() as u32).to_le_bytes());
    mac.update(hello);
    mac.update(&[version]);
    mac.update(&server.0);
    mac
}

/// HMAC-SHA256 under `key` of the role, the Hello's bytes (with the client's nonce), the version
/// chosen and the server's nonce. Proves the key, and that nobody changed what was asked for.
pub fn prove(key: &Key, role: Role, hello: &[u8], version: u8, server: &Nonce) -> [u8; 32] {
    mac(key, role, hello, version, server)
        .finalize()
        .into_bytes()
        .into()
}

/// Whether `proof` is what [`prove`] gives; takes the same time whatever is wrong with it.
pub fn verify(
    key: &Key,
    role: Role,
    hello: &[u8],
    version: u8,
    server: &Nonce,
    proof: &[u8; 32],
) -> bool {
    mac(key, role, hello, version, server)
        .verify_slice(proof)
        .is_ok()
}
