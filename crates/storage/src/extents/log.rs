//! The log of commits: one checksummed record for each, in a ring of blocks. Pure: it says which bytes go
//! where, and the store writes them. docs/disk.md, "Extents: log", is the normative text.

use std::fmt;

/// Bytes of a block: records begin at one, so that no write touches a record that is durable.
pub const BLOCK_BYTES: u64 = 4096;
/// The version of this layout.
pub const LOG_VERSION: u32 = 1;
/// Bytes before a record's body.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a record's body. Beyond: the commit is taken apart.
pub const BODY_BYTES_MAX: usize = 4 << 20;

const MAGIC: &[u8; 8] = b"GLINTLOG";

/// The blocks of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// The first block on the disk.
    pub first: u64,
    /// How many there are.
    pub blocks: u64,
}

/// Bytes and their place on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// In bytes.
    pub offset: u64,
    /// Whole blocks.
    pub bytes: Vec<u8>,
}

/// The ring has no room for a record: a checkpoint must let go of its oldest ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFull;

impl fmt::Display for LogFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the log is full; a checkpoint must be made first")
    }
}

impl std::error::Error for LogFull {}

/// A place in the log, and what the record there must say to be the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// In blocks since the log was made; the ring's size is not subtracted.
    pub block: u64,
    /// The ticket of the record before.
    pub ticket: u64,
    /// The sum of the record before.
    pub sum: u32,
    /// The life of the store in which the record before was written.
    pub life: u64,
}

impl Position {
    /// Where a new log begins.
    pub const START: Position = Position {
        block: 0,
        ticket: 0,
        sum: 0,
        life: 0,
    };
}

/// What a record says besides its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Its number: one more than that of the record before.
    pub ticket: u64,
    /// The life of the store in which it was written.
    pub life: u64,
    /// Every record up to this one was durable, with the bytes it names, when this one was written.
    pub durable: u64,
    /// The sum of the record before.
    pub previous: u32,
    /// The store that it belongs to: the first half of its UUID.
    pub store: u64,
    /// Its own sum.
    pub sum: u32,
    /// Bytes of the body.
    pub body_bytes: usize,
}

/// The end of the log, where records are added.
#[derive(Debug)]
pub struct Log {
    area: Area,
    store: u64,
    /// The oldest block that is needed.
    tail: u64,
    end: Position,
    durable: u64,
}

impl Log {
    /// Of `store`: goes on at `end`, in life `life`, with what lies before block `tail` free.
    pub fn new(area: Area, store: u64, tail: u64, end: Position, life: u64) -> Log {
        Log {
            area,
            store,
            tail,
            end: Position { life, ..end },
            durable: end.ticket,
        }
    }

    /// Where the next record goes.
    pub fn end(&self) -> Position {
        self.end
    }

    /// Blocks that are free.
    pub fn room(&self) -> u64 {
        self.area.blocks - (self.end.block - self.tail)
    }

    /// Every record up to `ticket` is durable: later ones say so.
    pub fn made_durable(&mut self, ticket: u64) {
        self.durable = self.durable.max(ticket);
    }

    /// The last ticket that was reported durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Records before `block` are not needed any more.
    pub fn trim(&mut self, block: u64) {
        self.tail = self.tail.max(block.min(self.end.block));
    }

    /// The next record, with `body`: what to write where. At most two pieces: at the ring's end, and at its
    /// beginning.
    pub fn append(&mut self, body: &[u8]) -> Result<(u64, Vec<Piece>), LogFull> {
        let blocks = record_blocks(body.len());
        if blocks > self.room() {
            return Err(LogFull);
        }
        let header = Header {
            ticket: self.end.ticket + 1,
            life: self.end.life,
            durable: self.durable,
            previous: self.end.sum,
            store: self.store,
            sum: 0,
            body_bytes: body.len(),
        };
        let (bytes, sum) = encode(&header, body);
        let pieces = pieces(self.area, self.end.block, bytes);
        self.end = Position {
            block: self.end.block + blocks,
            ticket: header.ticket,
            sum,
            life: header.life,
        };
        Ok((header.ticket, pieces))
    }
}

/// Blocks of a record whose body has `body_bytes`.
pub fn record_blocks(body_bytes: usize) -> u64 {
    ((HEADER_BYTES + body_bytes) as u64).div_ceil(BLOCK_BYTES)
}

/// The byte on the disk where block `block` of the log is.
pub fn offset_of(area: Area, block: u64) -> u64 {
    (area.first + block % area.blocks) * BLOCK_BYTES
}

fn pieces(area: Area, block: u64, mut bytes: Vec<u8>) -> Vec<Piece> {
    let before_end = (area.blocks - block % area.blocks) * BLOCK_BYTES;
    let first = before_end.min(bytes.len() as u64) as usize;
    let rest = bytes.split_off(first);
    let mut pieces = vec![Piece {
        offset: offset_of(area, block),
        bytes,
    }];
    if !rest.is_empty() {
        pieces.push(Piece {
            offset: offset_of(area, 0),
            bytes: rest,
        });
    }
    pieces
}

/// A record's bytes, in whole blocks, and its sum.
fn encode(header: &Header, body: &[u8]) -> (Vec<u8>, u32) {
    let mut bytes = Vec::with_capacity((record_blocks(body.len()) * BLOCK_BYTES) as usize);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&LOG_VERSION.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&header.ticket.to_le_bytes());
    bytes.extend_from_slice(&header.life.to_le_bytes());
    bytes.extend_from_slice(&header.durable.to_le_bytes());
    bytes.extend_from_slice(&header.previous.to_le_bytes());
    bytes.extend_from_slice(&header.store.to_le_bytes());
    bytes.resize(HEADER_BYTES - 4, 0);
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes), body);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes.resize((record_blocks(body.len()) * BLOCK_BYTES) as usize, 0);
    (bytes, sum)
}

/// The header at the start of `block`, not checked against its sum. `None`: no record begins here.
pub fn parse_header(block: &[u8]) -> Option<Header> {
    let word = |at: usize| Some(u32::from_le_bytes(block.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?));
    let is_ours = block.get(..8)? == MAGIC && word(8)? == LOG_VERSION;
    let body_bytes = word(12)? as usize;
    if !is_ours || body_bytes > BODY_BYTES_MAX {
        return None;
    }
    Some(Header {
        ticket: long(16)?,
        life: long(24)?,
        durable: long(32)?,
        previous: word(40)?,
        store: long(44)?,
        sum: word(HEADER_BYTES - 4)?,
        body_bytes,
    })
}

/// The body of the record that `bytes` begin with, if its sum is right.
pub fn checked_body<'a>(header: &Header, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let body = bytes.get(HEADER_BYTES..HEADER_BYTES + header.body_bytes)?;
    let sum = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    (crc32c::crc32c_append(sum, body) == header.sum).then_some(body)
}

/// A record with this header follows the one at `position`.
pub fn follows(header: &Header, position: &Position) -> bool {
    header.ticket == position.ticket + 1
        && header.previous == position.sum
        && header.life >= position.life
        && header.durable < header.ticket
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Area = Area {
        first: 3,
        blocks: 8,
    };

    fn joined(pieces: &[Piece]) -> Vec<u8> {
        pieces
            .iter()
            .flat_map(|piece| piece.bytes.clone())
            .collect()
    }

    #[test]
    fn a_record_is_read_back_and_no_flipped_bit_goes_unseen() {
        let mut log = Log::new(AREA, 7, 0, Position::START, 1);
        let (ticket, pieces) = log.append(b"what changed").unwrap();
        let bytes = joined(&pieces);
        let header = parse_header(&bytes).unwrap();
        assert_eq!((ticket, header.ticket, header.life), (1, 1, 1));
        assert!(follows(&header, &Position::START));
        assert_eq!(checked_body(&header, &bytes), Some(&b"what changed"[..]));
        for bit in 0..(HEADER_BYTES + 12) * 8 {
            let mut harmed = bytes.clone();
            harmed[bit / 8] ^= 1 << (bit % 8);
            let found = parse_header(&harmed);
            assert!(found.is_none_or(|header| checked_body(&header, &harmed).is_none()));
        }
    }

    #[test]
    fn the_ring_goes_round_and_is_never_overrun() {
        let mut log = Log::new(AREA, 7, 0, Position::START, 1);
        let body = vec![7; 2 * BLOCK_BYTES as usize];
        let mut at = Vec::new();
        for _ in 0..2 {
            at.push(log.append(&body).unwrap().1);
        }
        assert_eq!(log.append(&body), Err(LogFull));
        log.trim(3);
        let (_, pieces) = log.append(&body).unwrap();
        let places: Vec<_> = pieces.iter().map(|p| (p.offset, p.bytes.len())).collect();
        assert_eq!(places, [(9 * 4096, 2 * 4096), (3 * 4096, 4096)]);
        assert_eq!((log.room(), log.append(&body)), (2, Err(LogFull)));
    }

    #[test]
    fn a_record_of_an_earlier_round_or_life_does_not_follow() {
        let mut log = Log::new(AREA, 7, 0, Position::START, 1);
        let first = parse_header(&joined(&log.append(b"a").unwrap().1)).unwrap();
        let end = log.end();
        let second = parse_header(&joined(&log.append(b"b").unwrap().1)).unwrap();
        assert!(follows(&second, &end) && !follows(&first, &end));
        // The same ticket in the next life, after another first record: its sum is another.
        let mut again = Log::new(AREA, 7, 0, Position::START, 2);
        again.append(b"a").unwrap();
        assert!(!follows(&second, &again.end()));
    }
}
