//! Tunables that were set while the file system was mounted. The next process takes them, so that a person
//! sets each of them once for a mount (docs/recovery.md, section 10).

use std::collections::BTreeMap;
use std::sync::PoisonError;

use handover::{Found, Record, Records};
use serde::{Deserialize, Serialize};
use threads::Mutex;

use super::record::{TUNABLES, decode, encode, put};

/// Body of a [`TUNABLES`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct TunablesBody {
    values: BTreeMap<String, u64>,
    /// Which of two is the later one.
    order: u64,
}

/// The tunables that were set, and their record.
#[derive(Debug)]
pub(crate) struct Tunables {
    records: Records,
    set: Mutex<(TunablesBody, Option<Record>)>,
}

impl Tunables {
    /// The newest of those that were `found`: the process before may have been about to forget another.
    pub fn new(records: Records, found: Vec<Found>) -> Tunables {
        let decoded = found.into_iter();
        let decoded =
            decoded.filter_map(|one| Some((decode::<TunablesBody>(&one.bytes)?, one.record)));
        let newest = decoded.max_by_key(|(body, _)| body.order);
        let set = newest.map_or_else(Default::default, |(body, record)| (body, Some(record)));
        Tunables {
            records,
            set: Mutex::new(set),
        }
    }

    /// What a process of this mount was told to use, by name.
    pub fn values(&self) -> BTreeMap<String, u64> {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        set.0.values.clone()
    }

    /// A tunable is set. The new record is there before the old one goes.
    pub fn remember(&self, name: &str, value: u64) {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let (body, record) = &mut *set;
        body.values.insert(name.to_owned(), value);
        body.order += 1;
        if let Some(new) = put(&self.records, TUNABLES, 0, &encode(body)) {
            *record = Some(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use handover::Region;

    use super::*;

    #[test]
    fn the_next_process_has_each_value_that_was_set_last() {
        let memory = Region::create(8 << 20).unwrap();
        let open = || Records::open(Region::map(&memory).unwrap()).unwrap();
        let (records, found) = open();
        let first = Tunables::new(records, found);
        assert!(first.values().is_empty());
        for (name, value) in [("wbc", 1), ("batch_max", 7), ("wbc", 0)] {
            first.remember(name, value);
        }
        std::mem::forget(first);
        let (records, found) = open();
        assert_eq!(found.len(), 1, "the old ones are gone");
        // The process before was about to forget an older one.
        std::mem::forget(put(
            &records,
            TUNABLES,
            0,
            &encode(&TunablesBody::default()),
        ));
        let (records, found) = open();
        let next = Tunables::new(records, found);
        let values = next.values();
        let expected = [("batch_max".to_owned(), 7), ("wbc".to_owned(), 0)];
        assert!(values.into_iter().eq(expected));
    }
}
