//! Requests of the kernel whose bytes are written, until they are answered. The kernel asks the
//! next process for them again, and others may have changed the file since, or what was appended
//! would be there twice.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Tick;
use handover::{Record, Records};

use super::record::{WRITTEN, decode, encode};
use crate::executor::{self, UntilAnswered};

/// What a kernel has no answer to it asks for at once.
const ASKED_AGAIN_WITHIN: Duration = Duration::from_secs(60);

/// Until this is dropped the next process knows of the request.
#[derive(Debug)]
struct Written(#[allow(dead_code, reason = "goes with its owner")] Record);

impl UntilAnswered for Written {}

/// Those of the process before, by their numbers. Without a record: there was no room for it.
#[derive(Debug, Default)]
pub(crate) struct WrittenBefore {
    requests: BTreeMap<u64, Option<Record>>,
    until: Option<Tick>,
}

fn put(records: &Records, number: u64) -> Option<Record> {
    records.put(WRITTEN, 0, &[&encode(&number)])
}

/// What the present task's origin asked for is written, and remembered: it must not be written again.
pub(crate) fn remember_written(records: &Records) {
    if let Some(origin) = executor::origin()
        && let Some(record) = put(records, origin.number())
    {
        origin.keep(Box::new(Written(record)));
    }
}

impl WrittenBefore {
    /// One whose record was found.
    pub fn adopt(&mut self, body: &[u8], record: Record) {
        if let Some(number) = decode::<u64>(body) {
            self.requests.insert(number, Some(record));
        }
    }

    /// One whose bytes were found: those may be durable, and forgotten, before it is asked for.
    pub fn add(&mut self, records: &Records, number: u64) {
        if number != 0 {
            let record = || put(records, number);
            self.requests.entry(number).or_insert_with(record);
        }
    }

    /// Whether the process before had written for the present task's origin, which is answered now.
    pub fn take(&mut self) -> bool {
        let Some(origin) = executor::origin() else {
            return false;
        };
        let Some(record) = self.requests.remove(&origin.number()) else {
            return false;
        };
        if let Some(record) = record {
            origin.keep(Box::new(Written(record)));
        }
        true
    }

    /// The kernel asks from now on; what it has not asked for long after was answered.
    pub fn grow_old(&mut self, now: Tick) {
        let until = *self.until.get_or_insert(now.after(ASKED_AGAIN_WITHIN));
        if now >= until {
            self.requests.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use handover::Region;

    use super::*;
    use crate::executor::Origin;

    fn found(memory: &OwnedFd) -> (WrittenBefore, Records) {
        let (records, found) = Records::open(Region::map(memory).unwrap()).unwrap();
        let mut before = WrittenBefore::default();
        for found in found {
            before.adopt(&found.bytes, found.record);
        }
        (before, records)
    }

    fn take(before: &mut WrittenBefore, origin: &Arc<Origin>) -> bool {
        Origin::run(origin, || before.take())
    }

    #[test]
    fn a_request_is_known_to_every_later_process_until_it_is_answered() {
        let memory = Region::create(8 << 20).unwrap();
        let (mut first, records) = found(&memory);
        first.add(&records, 7);
        std::mem::forget(first);
        let (second, _) = found(&memory);
        std::mem::forget(second);
        let (mut third, records) = found(&memory);
        let origin = Origin::new(7);
        assert!(take(&mut third, &origin) && !take(&mut third, &origin));
        assert!(records.bytes() > 0, "it is not answered");
        drop(origin);
        assert_eq!(records.bytes(), 0);
        assert!(!take(&mut third, &Origin::new(8)));
    }

    #[test]
    fn what_is_not_asked_for_was_answered() {
        let memory = Region::create(8 << 20).unwrap();
        let (mut before, records) = found(&memory);
        before.add(&records, 7);
        before.grow_old(Tick(1));
        before.grow_old(Tick(0).after(ASKED_AGAIN_WITHIN));
        assert!(records.bytes() > 0);
        before.grow_old(Tick(1).after(ASKED_AGAIN_WITHIN));
        assert_eq!(records.bytes(), 0);
    }
}
