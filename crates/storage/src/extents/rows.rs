//! The rows that say where an object's bytes are (docs/disk.md, "OST records", `ost_extents`), as bytes.

use allocator::{Block, Extent};
use base::{Damage, Fid};

use super::segment::{Content, Named, Piece, Segment};
use crate::kv::{KeyRange, TableId};
use crate::objects::ObjectId;

const VERSION: u8 = 1;
const OBJECT_KEY_BYTES: usize = 12;
const UNWRITTEN: u8 = 1;
const WRITTEN: u8 = 0;

/// Where a store of extents has its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentTables {
    /// Objects, and the places of their segments.
    pub extents: TableId,
    /// Sums of the segments.
    pub sums: TableId,
}

/// What the row of an object says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// One past its last byte.
    pub size: u64,
    /// Blocks that it has.
    pub blocks: u64,
    /// Segment 0 is in the row, and there is no other.
    pub is_whole: bool,
}

/// The row with which the records and the disk know each other.
pub const MARK_KEY: &[u8] = b"store";

/// The row that says up to which commit the records have what its log has of other tables.
pub const LOGGED_KEY: &[u8] = b"logged";

/// A commit: the life of the store, and the ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPlace {
    /// The life.
    pub life: u64,
    /// The ticket.
    pub ticket: u64,
}

/// The key of an object's row.
pub fn object_key(id: ObjectId) -> [u8; OBJECT_KEY_BYTES] {
    let mut key = [0; OBJECT_KEY_BYTES];
    key[..8].copy_from_slice(&id.fid.0.to_be_bytes());
    key[8..].copy_from_slice(&id.stripe.to_be_bytes());
    key
}

/// The key of a segment's rows.
pub fn segment_key(id: ObjectId, segment: u64) -> Vec<u8> {
    [&object_key(id)[..], &segment.to_be_bytes()].concat()
}

/// The keys of all segments from `first` on.
pub fn segments_from(id: ObjectId, first: u64) -> KeyRange {
    let all = KeyRange::prefix(&object_key(id));
    KeyRange {
        start: segment_key(id, first),
        end: all.end,
    }
}

/// The object of a key, and the segment where it is one's.
pub fn place_of_key(key: &[u8]) -> Option<(ObjectId, Option<u64>)> {
    let (fid, rest) = key.split_first_chunk::<8>()?;
    let (stripe, rest) = rest.split_first_chunk::<4>()?;
    let id = ObjectId::new(Fid(u64::from_be_bytes(*fid)), u32::from_be_bytes(*stripe));
    match rest {
        [] => Some((id, None)),
        rest => Some((id, Some(u64::from_be_bytes(rest.try_into().ok()?)))),
    }
}

fn damage(reason: &str) -> Damage {
    Damage {
        record: "extents of an object".to_owned(),
        reason: reason.to_owned(),
    }
}

fn put_places(bytes: &mut Vec<u8>, segment: &Segment) {
    bytes.extend((segment.pieces().len() as u16).to_le_bytes());
    for piece in segment.pieces() {
        bytes.extend((piece.first as u16).to_le_bytes());
        bytes.extend((piece.place.blocks as u16).to_le_bytes());
        bytes.extend(piece.place.start.0.to_le_bytes());
        bytes.push(match piece.content {
            Content::Unwritten => UNWRITTEN,
            Content::Written(_) => WRITTEN,
        });
    }
}

fn put_sums(bytes: &mut Vec<u8>, segment: &Segment) {
    for piece in segment.pieces() {
        if let Content::Written(sums) = &piece.content {
            bytes.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
        }
    }
}

/// The rest of a row.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let Some((field, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(damage("too short"));
        };
        self.0 = rest;
        Ok(*field)
    }

    fn version(&mut self) -> Result<(), Damage> {
        match self.take()? {
            [VERSION] => Ok(()),
            [found] => Err(damage(&format!("version {found}, not {VERSION}"))),
        }
    }

    fn end(&self) -> Result<(), Damage> {
        match self.0 {
            [] => Ok(()),
            _ => Err(damage("too long")),
        }
    }

    /// Places, with no sums yet: the blocks of each written piece are counted.
    fn places(&mut self) -> Result<Vec<(Piece, bool)>, Damage> {
        let count = u16::from_le_bytes(self.take()?);
        let mut places = Vec::with_capacity(count.into());
        for _ in 0..count {
            let first = u16::from_le_bytes(self.take()?);
            let blocks = u16::from_le_bytes(self.take()?);
            let start = u64::from_le_bytes(self.take()?);
            let is_written = match self.take()? {
                [WRITTEN] => true,
                [UNWRITTEN] => false,
                _ => return Err(damage("a flag is 0 or 1")),
            };
            let piece = Piece {
                first: first.into(),
                place: Extent::new(Block(start), blocks.into()),
                content: Content::Unwritten,
                named: if is_written {
                    Named::Written
                } else {
                    Named::Unwritten
                },
            };
            places.push((piece, is_written));
        }
        Ok(places)
    }

    fn segment(places: Vec<(Piece, bool)>, sums: &mut Fields<'_>) -> Result<Segment, Damage> {
        let mut pieces = Vec::with_capacity(places.len());
        for (mut piece, is_written) in places {
            if is_written {
                let sum = |_| sums.take().map(u32::from_le_bytes);
                let sums: Result<Vec<u32>, Damage> = (0..piece.place.blocks).map(sum).collect();
                piece.content = Content::Written(sums?);
            }
            pieces.push(piece);
        }
        sums.end()?;
        Segment::of(pieces).ok_or_else(|| damage("its pieces are no segment"))
    }
}

/// The row of an object; with `whole`, its segment 0 too.
pub fn encode_head(head: &Head, whole: Option<&Segment>) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(head.size.to_le_bytes());
    bytes.extend(head.blocks.to_le_bytes());
    bytes.push(whole.is_some().into());
    if let Some(segment) = whole {
        put_places(&mut bytes, segment);
        put_sums(&mut bytes, segment);
    }
    bytes
}

/// The inverse of [`encode_head`].
pub fn decode_head(bytes: &[u8]) -> Result<(Head, Option<Segment>), Damage> {
    let mut fields = Fields(bytes);
    fields.version()?;
    let (size, blocks) = (
        u64::from_le_bytes(fields.take()?),
        u64::from_le_bytes(fields.take()?),
    );
    let is_whole = match fields.take()? {
        [0] => false,
        [1] => true,
        _ => return Err(damage("a flag is 0 or 1")),
    };
    let head = Head {
        size,
        blocks,
        is_whole,
    };
    if !is_whole {
        fields.end()?;
        return Ok((head, None));
    }
    let places = fields.places()?;
    let segment = Fields::segment(places, &mut fields)?;
    match u64::from(segment.blocks()) == blocks {
        true => Ok((head, Some(segment))),
        false => Err(damage("it has more or fewer blocks than it says")),
    }
}

/// The rows of a segment: places, and sums.
pub fn encode_segment(segment: &Segment) -> (Vec<u8>, Vec<u8>) {
    let (mut places, mut sums) = (vec![VERSION], vec![VERSION]);
    put_places(&mut places, segment);
    put_sums(&mut sums, segment);
    (places, sums)
}

/// The inverse of [`encode_segment`].
pub fn decode_segment(places: &[u8], sums: &[u8]) -> Result<Segment, Damage> {
    let (mut fields, mut sums) = (Fields(places), Fields(sums));
    fields.version()?;
    let places = fields.places()?;
    fields.end()?;
    sums.version()?;
    Fields::segment(places, &mut sums)
}

/// The row that says which store the records belong to, and the last commit whose rows they have.
pub fn encode_mark(store: [u8; 16], ticket: u64) -> Vec<u8> {
    [&[VERSION][..], &store, &ticket.to_le_bytes()].concat()
}

/// The inverse of [`encode_mark`].
pub fn decode_mark(bytes: &[u8]) -> Result<([u8; 16], u64), Damage> {
    let mut fields = Fields(bytes);
    fields.version()?;
    let mark = (fields.take()?, u64::from_le_bytes(fields.take()?));
    fields.end()?;
    Ok(mark)
}

/// The row of [`LOGGED_KEY`].
pub fn encode_logged(place: LogPlace) -> Vec<u8> {
    let (life, ticket) = (place.life.to_le_bytes(), place.ticket.to_le_bytes());
    [&[VERSION][..], &life, &ticket].concat()
}

/// The inverse of [`encode_logged`].
pub fn decode_logged(bytes: &[u8]) -> Result<LogPlace, Damage> {
    let mut fields = Fields(bytes);
    fields.version()?;
    let life = u64::from_le_bytes(fields.take()?);
    let ticket = u64::from_le_bytes(fields.take()?);
    fields.end()?;
    Ok(LogPlace { life, ticket })
}

/// Whether a row is one that can be in these tables.
pub fn check_row(
    tables: &ExtentTables,
    table: TableId,
    key: &[u8],
    row: &[u8],
) -> Result<(), Damage> {
    if table == tables.extents && key == MARK_KEY {
        return decode_mark(row).map(drop);
    }
    if table == tables.extents && key == LOGGED_KEY {
        return decode_logged(row).map(drop);
    }
    let mut fields = Fields(row);
    match place_of_key(key) {
        Some((_, None)) if table == tables.extents => decode_head(row).map(drop),
        Some((_, Some(_))) if table == tables.extents => {
            fields.version()?;
            let places = fields.places()?.into_iter().map(|(piece, _)| piece);
            let places = Segment::of(places.collect());
            places.ok_or_else(|| damage("its pieces are no segment"))?;
            fields.end()
        }
        Some((_, Some(_))) if table == tables.sums && row.len() % 4 == 1 => fields.version(),
        _ => Err(damage("its key or its length is none that can be")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment {
        let piece = |first, start, blocks, content, named| Piece {
            first,
            place: Extent::new(Block(start), blocks),
            content,
            named,
        };
        Segment::of(vec![
            piece(1, 1 << 40, 2, Content::Written(vec![5, 6]), Named::Written),
            piece(9, 3, 1, Content::Unwritten, Named::Unwritten),
        ])
        .unwrap()
    }

    #[test]
    fn rows_are_read_back_and_their_bytes_are_fixed() {
        let head = Head {
            size: 7,
            blocks: 3,
            is_whole: true,
        };
        let row = encode_head(&head, Some(&segment()));
        assert_eq!(row.len(), 1 + 8 + 8 + 1 + 2 + 2 * 13 + 2 * 4);
        assert_eq!(row[..10], [1, 7, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(decode_head(&row), Ok((head, Some(segment()))));
        let (places, sums) = encode_segment(&segment());
        assert_eq!(sums, [1, 5, 0, 0, 0, 6, 0, 0, 0]);
        assert_eq!(decode_segment(&places, &sums), Ok(segment()));
        let id = ObjectId::new(Fid(0x102), 3);
        assert_eq!(place_of_key(&object_key(id)), Some((id, None)));
        assert_eq!(place_of_key(&segment_key(id, 8)), Some((id, Some(8))));
        assert_eq!(place_of_key(MARK_KEY), None);
        let mark = encode_mark([7; 16], 9);
        assert_eq!(decode_mark(&mark), Ok(([7; 16], 9)));
        let place = LogPlace { life: 2, ticket: 3 };
        assert_eq!(decode_logged(&encode_logged(place)), Ok(place));
    }

    #[test]
    fn any_other_bytes_are_damage_or_the_row_that_they_encode() {
        let head = Head {
            size: 7,
            blocks: 3,
            is_whole: true,
        };
        let row = encode_head(&head, Some(&segment()));
        for len in 0..row.len() {
            assert!(decode_head(&row[..len]).is_err());
        }
        for bit in 0..row.len() * 8 {
            let mut harmed = row.clone();
            harmed[bit / 8] ^= 1 << (bit % 8);
            if let Ok((head, segment)) = decode_head(&harmed) {
                assert_eq!(encode_head(&head, segment.as_ref()), harmed);
            }
        }
    }
}
