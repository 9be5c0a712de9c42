//! Bytes of one file that programs wrote and that are not durable at the OST. A record's mark says which of
//! its bytes still count; later records win. A write of several records counts once the last says that all
//! are there.

use std::collections::BTreeMap;

use base::{ByteRange, Fid, Timestamp};
use handover::{Found, Record, Records, Share};
use serde::{Deserialize, Serialize};

use super::record::{BYTES, decode, encode};
use super::serving::WROTE;
use crate::executor;

/// Bytes in one record: with its heads it fills a block.
const PART_BYTES: usize = (128 << 10) - 128;

/// What stands before the bytes; its own length, in one byte, before that.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Head {
    fid: Fid,
    offset: u64,
    mtime: Timestamp,
    order: u64,
    /// The kernel's request that wrote them; zero: unknown.
    origin: u64,
}

#[derive(Debug)]
struct Part {
    /// Where its bytes begin.
    from: u64,
    /// Those that count.
    live: ByteRange,
    head: Head,
    record: Record,
}

/// What is left of a part.
#[derive(Default)]
struct Rest {
    first: Option<Part>,
    second: Option<Part>,
    /// There was no room for the second.
    lacks_tail: bool,
}

/// The parts, by where those bytes begin that count.
#[derive(Debug, Default)]
pub(crate) struct RememberedBytes {
    parts: BTreeMap<u64, Part>,
    /// Of some that count there was no room for a record.
    lacks_some: bool,
}

/// A part that was found.
pub(crate) struct FoundBytes {
    pub fid: Fid,
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub mtime: Timestamp,
    pub order: u64,
    pub origin: u64,
}

impl FoundBytes {
    /// Its write had come to its end.
    pub fn is_whole(&self, records: &Records) -> bool {
        self.order < records.get(WROTE)
    }
}

fn mark(from: u64, live: ByteRange) -> u64 {
    (live.start - from) << 32 | (live.end - from)
}

impl RememberedBytes {
    /// Bytes are written. False: there was no room for them, or for earlier ones: all that is not durable
    /// must be made so.
    pub fn wrote(
        &mut self,
        records: &Records,
        (fid, mtime, order): (Fid, Timestamp, u64),
        offset: u64,
        data: &[u8],
    ) -> bool {
        let origin = executor::origin().map_or(0, |origin| origin.number());
        let mut new = Vec::new();
        for (index, part) in data.chunks(PART_BYTES).enumerate() {
            let offset = offset + (index * PART_BYTES) as u64;
            let head = Head {
                fid,
                offset,
                mtime,
                order,
                origin,
            };
            match Part::put(records, Share::Most, head, part) {
                Some(part) => new.push(part),
                // What is there of it never counted.
                None => return false,
            }
        }
        records.set(WROTE, order + 1);
        if let Some(range) = ByteRange::at(offset, data.len() as u64) {
            self.settled(records, range);
        }
        self.parts
            .extend(new.into_iter().map(|part| (part.live.start, part)));
        !self.lacks_some
    }

    /// Takes over a part that was found, later ones after earlier ones.
    pub fn adopt(&mut self, records: &Records, found: Found) {
        let head = found.bytes.split_first().and_then(|(len, rest)| {
            let head = rest.get(..usize::from(*len))?;
            decode::<Head>(head)
        });
        let Some(head) = head else { return };
        let (start, end) = (found.mark >> 32, found.mark & u64::from(u32::MAX));
        let live = ByteRange::new(head.offset + start, head.offset + end);
        self.settled(records, live);
        let (from, record) = (head.offset, found.record);
        let part = Part {
            from,
            live,
            head,
            record,
        };
        self.parts.insert(live.start, part);
    }

    /// These bytes are durable, or nobody's any more.
    pub fn settled(&mut self, records: &Records, range: ByteRange) {
        if range.is_empty() || self.parts.is_empty() {
            return;
        }
        let before = self.parts.range(..range.start).next_back();
        let first = before.map_or(range.start, |(start, _)| *start);
        let touched: Vec<u64> = self
            .parts
            .range(first..range.end)
            .filter(|(_, part)| part.live.overlaps(range))
            .map(|(start, _)| *start)
            .collect();
        for start in touched {
            if let Some(part) = self.parts.remove(&start) {
                let rest = part.without(records, range);
                self.lacks_some |= rest.lacks_tail;
                let parts = [rest.first, rest.second].into_iter().flatten();
                self.parts.extend(parts.map(|part| (part.live.start, part)));
            }
        }
    }

    /// All that was written is durable.
    pub fn all_settled(&mut self) {
        self.lacks_some = false;
    }

    /// Nothing is remembered, nor missing.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.lacks_some
    }
}

impl Part {
    fn put(records: &Records, share: Share, head: Head, bytes: &[u8]) -> Option<Part> {
        let live = ByteRange::at(head.offset, bytes.len() as u64)?;
        let body = encode(&head);
        let parts = [&[body.len() as u8][..], &body, bytes];
        let record = records.put_within(share, BYTES, mark(head.offset, live), &parts)?;
        Some(Part {
            from: head.offset,
            live,
            head,
            record,
        })
    }

    /// What is left of it without `range`.
    fn without(mut self, records: &Records, range: ByteRange) -> Rest {
        let front = ByteRange::new(
            self.live.start,
            range.start.clamp(self.live.start, self.live.end),
        );
        let back = ByteRange::new(
            range.end.clamp(self.live.start, self.live.end),
            self.live.end,
        );
        if front.is_empty() && back.is_empty() {
            return Rest::default();
        }
        let is_split = !front.is_empty() && !back.is_empty();
        let second = match is_split {
            // Both ends count on, each in a record of its own.
            true => found(&self.record.bytes(), mark(self.from, back)).and_then(|tail| {
                let head = Head {
                    offset: tail.offset,
                    ..self.head
                };
                Part::put(records, Share::All, head, &tail.bytes)
            }),
            false => None,
        };
        self.live = if front.is_empty() { back } else { front };
        self.record.set_mark(mark(self.from, self.live));
        Rest {
            first: Some(self),
            lacks_tail: is_split && second.is_none(),
            second,
        }
    }
}

/// Reads a record.
pub(crate) fn found(body: &[u8], mark: u64) -> Option<FoundBytes> {
    let (len, rest) = body.split_first()?;
    let (head, bytes) = rest.split_at_checked(usize::from(*len))?;
    let head: Head = decode(head)?;
    let (from, to) = (mark >> 32, mark & u64::from(u32::MAX));
    let bytes = bytes.get(from as usize..to as usize)?.to_vec();
    Some(FoundBytes {
        fid: head.fid,
        offset: head.offset + from,
        bytes,
        mtime: head.mtime,
        order: head.order,
        origin: head.origin,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover::{Death, Region};

    const FID: Fid = Fid(77);
    const LEN: usize = 600_000;

    fn read_back(region: &std::os::fd::OwnedFd) -> Vec<Option<u8>> {
        let (records, found_records) = Records::open(Region::map(region).unwrap()).unwrap();
        let mut parts: Vec<FoundBytes> = found_records
            .iter()
            .map(|record| found(&record.bytes, record.mark).unwrap())
            .filter(|part| part.is_whole(&records))
            .collect();
        found_records
            .into_iter()
            .for_each(|found| std::mem::forget(found.record));
        parts.sort_by_key(|part| part.order);
        let mut seen = vec![None; LEN];
        for part in parts {
            for (index, byte) in part.bytes.iter().enumerate() {
                seen[part.offset as usize + index] = Some(*byte);
            }
        }
        seen
    }

    /// Stops a process after each of its stores. Every write that had returned is there, of the one
    /// under way all or nothing, and nothing else.
    #[test]
    fn a_write_is_remembered_whole_or_not_at_all_wherever_its_process_ends() {
        let writes = [
            (0, 300_000, 1_u8),
            (100_000, 10_000, 2),
            (50_000, 400_000, 3),
        ];
        let mut stores = 1;
        loop {
            let (memory, death) = (Region::create(64 << 20).unwrap(), Death::after(stores));
            let region = Region::mapped_until(&memory, &death).unwrap();
            let (mut truth, mut under_way) = (vec![None; LEN], None);
            if let Some((records, _)) = Records::open(region) {
                let mut bytes = RememberedBytes::default();
                for (order, (at, len, value)) in (0..).zip(writes) {
                    let about = (FID, Timestamp::default(), order);
                    let range = at as usize..at as usize + len;
                    bytes.wrote(&records, about, at, &vec![value; len]);
                    if death.has_come() {
                        under_way = under_way.or(Some((range, value)));
                    } else {
                        truth[range].fill(Some(value));
                    }
                }
                std::mem::forget(bytes);
            }
            let seen = read_back(&memory);
            let mut then = truth.clone();
            if let Some((range, value)) = under_way {
                then[range].fill(Some(value));
            }
            assert!(seen == truth || seen == then, "after {stores} stores");
            if !death.has_come() {
                break;
            }
            stores += 1;
        }
        assert!(stores > 40);
    }

    #[test]
    fn exactly_those_bytes_are_found_that_are_not_durable() {
        let memory = Region::create(64 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let (mut bytes, mut truth) = (RememberedBytes::default(), vec![None; LEN]);
        let mut random = 12_345_u64;
        let mut next = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % below
        };
        for order in 0..400 {
            let (at, len) = (next(LEN - 1), 1 + next(200_000));
            let end = (at + len).min(LEN);
            let range = ByteRange::new(at as u64, end as u64);
            if next(3) > 0 {
                let value = next(256) as u8;
                let data = vec![value; end - at];
                let about = (FID, Timestamp::default(), order);
                assert!(bytes.wrote(&records, about, at as u64, &data));
                truth[at..end].fill(Some(value));
            } else {
                bytes.settled(&records, range);
                truth[at..end].fill(None);
            }
            if order % 20 == 0 {
                assert!(read_back(&memory) == truth, "after step {order}");
            }
        }
        bytes.settled(&records, ByteRange::ALL);
        assert!(bytes.is_empty() && records.bytes() == 0);
    }
}
