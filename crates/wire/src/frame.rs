//! The frame, the unit that connections carry (docs/wire.md, "Frames"). A fixed little-endian
//! header of 64 bytes, sub-messages back to back, and a region of raw file data that they point
//! into by offset and length. Their bytes have no meaning here.

mod bulk;
mod numbers;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use base::limits::{FRAME_BYTES_MAX, FRAME_REQUESTS_MAX};
use base::{Transno, Xid};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use bulk::Bulk;
use numbers::CRC_AT;
pub use numbers::FrameNumbers;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// The first four bytes of every frame: `GLNT`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"GLNT");
/// The version of this header and of the messages inside.
pub const VERSION: u8 = 1;
/// Set in the xid of every callback, so that the two directions never share a number.
pub const CALLBACK_XID_BIT: u64 = 1 << 63;
/// Bytes of body from which on compaction is tried: below, it costs more than it saves.
const COMPACT_BYTES_MIN: usize = 512;
/// Bytes in front of a compact body: how long it is when expanded.
const EXPANDED_BYTES: usize = 4;
/// Bytes in front of each sub-message of a plain body.
const SUB_HEADER_BYTES: usize = 8;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Client to server: sub-requests to run, in order.
    Request = 1,
    /// Server to client: the sub-replies of the request with the same slot and xid.
    Reply = 2,
    /// Server to client: one message the client must answer.
    Callback = 3,
    /// Client to server: the answer to the callback with the same slot and xid.
    CallbackReply = 4,
    /// Both ways, before anything else: see [`crate::handshake`].
    Handshake = 5,
    /// Is anybody there?
    Ping = 6,
    /// Yes.
    Pong = 7,
    /// Client to server: every unanswered request has been sent again; callbacks may flow.
    Ready = 8,
    /// Server to client: nothing but a new `last_committed`.
    Committed = 9,
    /// Server to client: the session is over, and every lock with it.
    Evicted = 10,
    /// Client to server: the session is over, and every lock with it.
    Goodbye = 11,
}

impl FrameKind {
    /// Every kind, for tests and tables.
    pub const ALL: [FrameKind; 11] = [
        FrameKind::Request,
        FrameKind::Reply,
        FrameKind::Callback,
        FrameKind::CallbackReply,
        FrameKind::Handshake,
        FrameKind::Ping,
        FrameKind::Pong,
        FrameKind::Ready,
        FrameKind::Committed,
        FrameKind::Evicted,
        FrameKind::Goodbye,
    ];

    fn from_byte(byte: u8) -> Option<FrameKind> {
        let index = usize::from(byte).checked_sub(1)?;
        FrameKind::ALL.get(index).copied()
    }
}

/// A session's number: unique per target and boot. Zero: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct SessionId(pub u32);

impl SessionId {
    /// No session.
    pub const NONE: SessionId = SessionId(0);
}

/// What a header says, apart from lengths and checksums, which the codec works out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is for.
    pub kind: FrameKind,
    /// Sent before, perhaps received before.
    pub resent: bool,
    /// Done in an earlier boot of the target, which may have lost it: see [`Payload::replay`].
    pub replay: bool,
    /// The place in the slot table that the request occupies.
    pub slot: u16,
    /// In replies: how many slots the client may use from now on. Zero: unchanged.
    pub credits: u16,
    /// The session it belongs to.
    pub session: SessionId,
    /// The low 32 bits of the target's boot epoch; the whole is in the handshake.
    pub epoch: u32,
    /// The request, or with [`CALLBACK_XID_BIT`] the callback.
    pub xid: Xid,
    /// From a server: its newest durable change. From a client: the newest it was told of.
    pub last_committed: Transno,
    /// In replies: the change that the request made last. Zero: none.
    pub transno: Transno,
}

impl Header {
    /// A header of `kind` with every other field zero.
    pub fn new(kind: FrameKind) -> Header {
        Header {
            kind,
            resent: false,
            replay: false,
            slot: 0,
            credits: 0,
            session: SessionId::NONE,
            epoch: 0,
            xid: Xid(0),
            last_committed: Transno(0),
            transno: Transno(0),
        }
    }
}

/// One sub-message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sub {
    /// What is asked; echoed in the sub-reply.
    pub opcode: u16,
    /// How it went; zero in requests.
    pub status: u16,
    /// The rest, known to the layer above.
    pub body: Vec<u8>,
}

/// What a frame carries. Shared, because a sender keeps it for a resend.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Payload {
    /// The sub-messages, in order.
    pub subs: Vec<Sub>,
    /// Raw file data.
    pub bulk: Bulk,
}

impl Payload {
    /// What a replay carries: each of the requests together with the answer it got, by which its
    /// target does the same once more. The length of the request (4 bytes), the request, the answer.
    pub fn replay(requests: &Payload, answers: &Payload) -> Payload {
        let pairs = requests.subs.iter().zip(&answers.subs);
        let join = |(request, answer): (&Sub, &Sub)| Sub {
            opcode: request.opcode,
            status: answer.status,
            body: [
                &(request.body.len() as u32).to_le_bytes()[..],
                &request.body,
                &answer.body,
            ]
            .concat(),
        };
        Payload {
            subs: pairs.map(join).collect(),
            bulk: requests.bulk.clone(),
        }
    }

    /// The inverse of [`Payload::replay`]: requests and answers. `None`: it makes no sense.
    pub fn replayed(mut self) -> Option<(Payload, Vec<Sub>)> {
        let mut answers = Vec::with_capacity(self.subs.len());
        for sub in &mut self.subs {
            let (length, rest) = sub.body.split_first_chunk()?;
            let (request, answer) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            answers.push(Sub {
                opcode: sub.opcode,
                status: std::mem::take(&mut sub.status),
                body: answer.to_vec(),
            });
            sub.body = request.to_vec();
        }
        Some((self, answers))
    }

    /// Bytes of a plain frame with this payload.
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + plain_bytes(&self.subs) + self.bulk.len()
    }

    /// Fits one frame.
    pub fn check(&self) -> Result<(), FrameError> {
        if self.subs.len() > FRAME_REQUESTS_MAX {
            return Err(FrameError::TooMany(self.subs.len()));
        }
        match self.frame_bytes() {
            bytes if bytes > FRAME_BYTES_MAX => Err(FrameError::too_large(bytes as u64)),
            _ => Ok(()),
        }
    }
}

/// A decoded frame, or one to encode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Whose it is and what for.
    pub header: Header,
    /// What it carries.
    pub payload: Arc<Payload>,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// Fewer bytes than the lengths promise.
    Truncated,
    /// Does not begin with [`MAGIC`].
    Magic(u32),
    /// Of a version that was not agreed on.
    Version(u8),
    /// Of no known kind.
    Kind(u8),
    /// With flags that mean nothing.
    Flags(u16),
    /// Larger than what is taken here, `FRAME_BYTES_MAX` or less, as sent or once expanded.
    TooLarge {
        /// Of the frame.
        bytes: u64,
        /// What is taken.
        limit: usize,
    },
    /// More sub-messages than `FRAME_REQUESTS_MAX`.
    TooMany(usize),
    /// The header's lengths, or what stands beside them, are not what was sent.
    Lengths,
    /// Header or body are not what was sent, or another frame was sent in this place.
    Checksum,
    /// The bulk is not what was sent.
    BulkChecksum,
    /// The body is not `count` sub-messages.
    Body(&'static str),
}

impl FrameError {
    fn too_large(bytes: u64) -> FrameError {
        let limit = FRAME_BYTES_MAX;
        FrameError::TooLarge { bytes, limit }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Truncated => write!(f, "the frame is cut short"),
            FrameError::Magic(magic) => {
                write!(f, "starts with {magic:#010x}, which is not Glint's")
            }
            FrameError::Version(v) => write!(f, "protocol version {v}, expected {VERSION}"),
            FrameError::Kind(kind) => write!(f, "unknown frame kind {kind}"),
            FrameError::Flags(flags) => write!(f, "unknown flags {flags:#06x}"),
            FrameError::TooLarge { bytes, limit } => {
                write!(f, "{bytes} bytes, over the limit of {limit}")
            }
            FrameError::TooMany(count) => {
                write!(
                    f,
                    "{count} sub-messages, over the limit of {FRAME_REQUESTS_MAX}"
                )
            }
            FrameError::Lengths => write!(f, "check of the lengths is wrong"),
            FrameError::Checksum => {
                write!(
                    f,
                    "checksum of header and body is wrong, or a frame is missing"
                )
            }
            FrameError::BulkChecksum => write!(f, "checksum of bulk data is wrong"),
            FrameError::Body(what) => write!(f, "malformed body: {what}"),
        }
    }
}

impl std::error::Error for FrameError {}

const FLAG_RESENT: u16 = 1;
const FLAG_COMPACT: u16 = 2;
const FLAG_REPLAY: u16 = 4;
const FLAGS_KNOWN: u16 = FLAG_RESENT | FLAG_COMPACT | FLAG_REPLAY;

/// The header as it is on the wire.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: u8,
    kind: u8,
    flags: U16,
    body_bytes: U32,
    bulk_bytes: U32,
    crc: U32,
    bulk_crc: U32,
    count: U16,
    slot: U16,
    credits: U16,
    lengths_check: U16,
    session: U32,
    epoch: U32,
    xid: U64,
    last_committed: U64,
    transno: U64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(FRAME_REQUESTS_MAX <= u16::MAX as usize);

/// How much follows a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Bytes of sub-messages.
    pub body: usize,
    /// Bytes of file data after them.
    pub bulk: usize,
}

/// How much follows `header`, checked against `frame_bytes_max` before anything is allocated.
pub fn lengths(header: &[u8], frame_bytes_max: usize) -> Result<Lengths, FrameError> {
    let (raw, _) = RawHeader::ref_from_prefix(header).map_err(|_| FrameError::Truncated)?;
    raw.check()?;
    let (body, bulk) = (raw.body_bytes.get(), raw.bulk_bytes.get());
    let total = HEADER_BYTES as u64 + u64::from(body) + u64::from(bulk);
    let limit = frame_bytes_max.min(FRAME_BYTES_MAX);
    if total > limit as u64 {
        return Err(FrameError::TooLarge {
            bytes: total,
            limit,
        });
    }
    Ok(Lengths {
        body: body as usize,
        bulk: bulk as usize,
    })
}

impl RawHeader {
    fn check(&self) -> Result<FrameKind, FrameError> {
        if self.magic.get() != MAGIC {
            return Err(FrameError::Magic(self.magic.get()));
        }
        if self.version != VERSION {
            return Err(FrameError::Version(self.version));
        }
        let kind = FrameKind::from_byte(self.kind).ok_or(FrameError::Kind(self.kind))?;
        let unknown = self.flags.get() & !FLAGS_KNOWN;
        if unknown != 0 {
            return Err(FrameError::Flags(unknown));
        }
        if self.lengths_check.get() != self.check_lengths(kind) {
            return Err(FrameError::Lengths);
        }
        match usize::from(self.count.get()) {
            count if count > FRAME_REQUESTS_MAX => Err(FrameError::TooMany(count)),
            _ => Ok(kind),
        }
    }

    /// The low half of the crc32c of all that stands in front of the checksum. A wrong length is found by
    /// it before the bytes that it promises are waited for. Handshakes have none, for ends of all versions
    /// to understand them; they are short, and their time is bounded.
    fn check_lengths(&self, kind: FrameKind) -> u16 {
        match kind {
            FrameKind::Handshake => 0,
            _ => crc32c::crc32c(&self.as_bytes()[..CRC_AT]) as u16,
        }
    }

    fn encode(
        header: &Header,
        payload: &Payload,
        (body_bytes, compact): (usize, bool),
    ) -> RawHeader {
        let mut flags = 0;
        if header.resent {
            flags |= FLAG_RESENT;
        }
        if header.replay {
            flags |= FLAG_REPLAY;
        }
        if compact {
            flags |= FLAG_COMPACT;
        }
        let mut raw = RawHeader {
            magic: U32::new(MAGIC),
            version: VERSION,
            kind: header.kind as u8,
            flags: U16::new(flags),
            body_bytes: U32::new(body_bytes as u32),
            bulk_bytes: U32::new(payload.bulk.len() as u32),
            crc: U32::new(0),
            bulk_crc: U32::new(payload.bulk.checksum()),
            count: U16::new(payload.subs.len() as u16),
            slot: U16::new(header.slot),
            credits: U16::new(header.credits),
            lengths_check: U16::new(0),
            session: U32::new(header.session.0),
            epoch: U32::new(header.epoch),
            xid: U64::new(header.xid.0),
            last_committed: U64::new(header.last_committed.0),
            transno: U64::new(header.transno.0),
        };
        raw.lengths_check = U16::new(raw.check_lengths(header.kind));
        raw
    }

    fn decode(&self, kind: FrameKind) -> Header {
        Header {
            kind,
            resent: self.flags.get() & FLAG_RESENT != 0,
            replay: self.flags.get() & FLAG_REPLAY != 0,
            slot: self.slot.get(),
            credits: self.credits.get(),
            session: SessionId(self.session.get()),
            epoch: self.epoch.get(),
            xid: Xid(self.xid.get()),
            last_committed: Transno(self.last_committed.get()),
            transno: Transno(self.transno.get()),
        }
    }
}

impl Frame {
    /// A frame of `kind` that carries nothing.
    pub fn bare(header: Header) -> Frame {
        Frame {
            header,
            payload: Arc::new(Payload::default()),
        }
    }

    /// Header and body, without a number; the bulk follows them as it is. `compact` allows compaction.
    pub fn encode(&self, compact: bool) -> Result<Vec<u8>, FrameError> {
        self.payload.check()?;
        let mut out = Vec::with_capacity(HEADER_BYTES + plain_bytes(&self.payload.subs));
        out.resize(HEADER_BYTES, 0);
        put_plain(&self.payload.subs, &mut out);
        let compact = compact && put_compact(&mut out);
        let body_bytes = out.len() - HEADER_BYTES;
        let raw = RawHeader::encode(&self.header, &self.payload, (body_bytes, compact));
        out[..HEADER_BYTES].copy_from_slice(raw.as_bytes());
        let crc = crc32c::crc32c(&out);
        out[CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
        Ok(out)
    }

    /// The inverse of [`Frame::encode`]: `head` is header and body, `bulk` what followed them.
    pub fn decode(head: &[u8], bulk: impl Into<Bulk>) -> Result<Frame, FrameError> {
        Frame::decode_as(head, bulk.into(), |plain| plain)
    }

    /// The same of a frame with a number: fails unless that is the next of `numbers`.
    pub fn decode_next(
        head: &[u8],
        bulk: impl Into<Bulk>,
        numbers: &mut FrameNumbers,
    ) -> Result<Frame, FrameError> {
        Frame::decode_as(head, bulk.into(), |plain| numbers.next(plain))
    }

    /// The same of a frame whose checksum is made by `numbered` from the one without a number.
    fn decode_as(
        head: &[u8],
        bulk: Bulk,
        numbered: impl FnOnce(u32) -> u32,
    ) -> Result<Frame, FrameError> {
        let (raw, body) = RawHeader::ref_from_prefix(head).map_err(|_| FrameError::Truncated)?;
        let kind = raw.check()?;
        let lengths = lengths(head, FRAME_BYTES_MAX)?;
        if lengths.body != body.len() || lengths.bulk != bulk.len() {
            return Err(FrameError::Truncated);
        }
        if numbered(checksum(head)) != raw.crc.get() {
            return Err(FrameError::Checksum);
        }
        if bulk.checksum() != raw.bulk_crc.get() {
            return Err(FrameError::BulkChecksum);
        }
        let count = usize::from(raw.count.get());
        let subs = match raw.flags.get() & FLAG_COMPACT {
            0 => take_plain(body, count)?,
            _ => take_plain(&expand(body)?, count)?,
        };
        Ok(Frame {
            header: raw.decode(kind),
            payload: Arc::new(Payload { subs, bulk }),
        })
    }
}

/// crc32c of header and body, with the checksum's own four bytes as zero.
fn checksum(head: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&head[..CRC_AT]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &head[CRC_AT + 4..])
}

fn plain_bytes(subs: &[Sub]) -> usize {
    let bodies: usize = subs.iter().map(|sub| sub.body.len()).sum();
    subs.len() * SUB_HEADER_BYTES + bodies
}

fn put_plain(subs: &[Sub], out: &mut Vec<u8>) {
    for sub in subs {
        out.extend_from_slice(&sub.opcode.to_le_bytes());
        out.extend_from_slice(&sub.status.to_le_bytes());
        out.extend_from_slice(&(sub.body.len() as u32).to_le_bytes());
        out.extend_from_slice(&sub.body);
    }
}

/// Replaces the plain body after the header by a compact one, if that is worth it.
fn put_compact(out: &mut Vec<u8>) -> bool {
    let plain = &out[HEADER_BYTES..];
    if plain.len() < COMPACT_BYTES_MIN {
        return false;
    }
    let mut compact =
        vec![0; EXPANDED_BYTES + lz4_flex::block::get_maximum_output_size(plain.len())];
    compact[..EXPANDED_BYTES].copy_from_slice(&(plain.len() as u32).to_le_bytes());
    let packed = lz4_flex::block::compress_into(plain, &mut compact[EXPANDED_BYTES..]);
    let Ok(packed) = packed.map(|bytes| EXPANDED_BYTES + bytes) else {
        return false;
    };
    // The other end pays for expanding it: an eighth is the least it must save.
    if packed > plain.len() - plain.len() / 8 {
        return false;
    }
    out.truncate(HEADER_BYTES);
    out.extend_from_slice(&compact[..packed]);
    true
}

/// The plain body that `compact` stands for, of any bytes.
fn expand(compact: &[u8]) -> Result<Vec<u8>, FrameError> {
    let (len, block) = compact
        .split_first_chunk()
        .ok_or(FrameError::Body("no length of the compact body"))?;
    let len = u32::from_le_bytes(*len) as usize;
    if HEADER_BYTES + len > FRAME_BYTES_MAX {
        return Err(FrameError::too_large((HEADER_BYTES + len) as u64));
    }
    match lz4_flex::block::decompress(block, len) {
        Ok(plain) if plain.len() == len => Ok(plain),
        _ => Err(FrameError::Body("the compact body does not expand")),
    }
}

fn take_plain(body: &[u8], count: usize) -> Result<Vec<Sub>, FrameError> {
    let mut cursor = Cursor(body);
    // `count` may lie: what is really there bounds what is reserved.
    let mut subs = Vec::with_capacity(count.min(body.len() / SUB_HEADER_BYTES));
    for _ in 0..count {
        let (opcode, status) = (cursor.u16()?, cursor.u16()?);
        let len = cursor.u32()? as usize;
        let body = cursor.take(len)?.to_vec();
        subs.push(Sub {
            opcode,
            status,
            body,
        });
    }
    cursor.end()?;
    Ok(subs)
}

/// What of a body is still to be read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], FrameError> {
        let (head, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(FrameError::Body("a sub-message is cut short"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(FrameError::Body("a sub-message is cut short"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn end(&self) -> Result<(), FrameError> {
        match self.0 {
            [] => Ok(()),
            _ => Err(FrameError::Body("bytes after the last sub-message")),
        }
    }
}
