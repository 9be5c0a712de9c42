//! A check of all seals against the bytes that are there, for `glint fsck` (docs/disk.md, `ost_seals`). No
//! process serves the target.

use std::ops::ControlFlow;

use base::{ByteRange, Damage};

use super::ends::WrongEnd;
use crate::error::Result;
use crate::kv::{KeyRange, Kv, TableId};
use crate::objects::changing::Changing;
use crate::objects::seal::{END, SEGMENT, Seal, key, place_of_key};
use crate::objects::store::{ObjectId, ObjectStore};

/// Calls `visit` with the bytes that contradict a seal, of all objects. These are damaged blocks, bytes that
/// are missing before a sealed end, and bytes behind one.
pub fn examine_seals(
    store: &dyn ObjectStore,
    kv: &Kv,
    table: TableId,
    visit: &mut dyn FnMut(ObjectId, ByteRange),
) -> Result<()> {
    // One past the last byte that was visited.
    let mut visited = (None, 0);
    for (id, segment) in sealed(kv, table)? {
        let found = kv.get_with(table, &key(id, segment), |row| Seal::decode(segment, row))?;
        let Some(Ok(seal)) = found else {
            continue;
        };
        let wrong = match segment {
            END => wrong_end(store, id, &seal)?,
            _ => wrong_blocks(store, (id, segment), seal)?,
        };
        for bytes in wrong {
            // The end comes after all segments: bytes that a segment lacks are not visited again.
            let from = match visited {
                (of, end) if of == Some(id) => bytes.start.max(end),
                _ => bytes.start,
            };
            if from < bytes.end {
                visited = (Some(id), bytes.end);
                visit(id, ByteRange::new(from, bytes.end));
            }
        }
    }
    Ok(())
}

/// All sealed segments and ends. Rows that cannot be read are reported by the check of rows.
fn sealed(kv: &Kv, table: TableId) -> Result<Vec<(ObjectId, u64)>> {
    let mut places = Vec::new();
    kv.scan(table, &KeyRange::all(), |key, value| {
        let sealed = !Seal::is_open(value);
        places.extend(place_of_key(key).ok().filter(|_| sealed));
        ControlFlow::Continue(())
    })?;
    Ok(places)
}

fn wrong_end(store: &dyn ObjectStore, id: ObjectId, seal: &Seal) -> Result<Vec<ByteRange>> {
    let size = store.stat(id)?.map_or(0, |stat| stat.size);
    let wrong = WrongEnd::of(seal.len, size).map(|wrong| wrong.bytes);
    Ok(wrong.into_iter().collect())
}

fn wrong_blocks(
    store: &dyn ObjectStore,
    (id, segment): (ObjectId, u64),
    seal: Seal,
) -> Result<Vec<ByteRange>> {
    let base = segment * SEGMENT;
    let data = store.read_shared(id, base, seal.len as usize)?;
    let sums = Changing::new(seal).sums(0..SEGMENT);
    let wrong = sums.iter().filter(|sum| !sum.is_sound(0, &data));
    let wrong = wrong.map(|sum| ByteRange::new(base + sum.bytes.start, base + sum.bytes.end));
    Ok(wrong.collect())
}

/// A row of seals is one that can be there.
pub fn check_seal(key: &[u8], value: &[u8]) -> std::result::Result<ObjectId, Damage> {
    let (id, segment) = place_of_key(key)?;
    Seal::decode(segment, value)?;
    Ok(id)
}
