//! What the file system consists of, as the MGS told last. The next process goes on with it while the MGS is
//! away. Written before a target is met, so that what a target has of this mount is never left with it.

use std::sync::PoisonError;

use handover::{Found, Record, Records};
use threads::Mutex;
use wire::mgs;

use super::record::{CONFIGURATION, decode, encode, put};

/// The newest configuration, and its record.
#[derive(Debug)]
pub(crate) struct Configuration {
    records: Records,
    known: Mutex<Option<(mgs::Config, Record)>>,
}

impl Configuration {
    /// The newest of those that were `found`: the process before may have been about to forget another.
    pub fn new(records: Records, found: Vec<Found>) -> Configuration {
        let decoded = found.into_iter();
        let decoded =
            decoded.filter_map(|one| Some((decode::<mgs::Config>(&one.bytes)?, one.record)));
        let known = decoded.max_by_key(|(config, _)| config.generation);
        Configuration {
            records,
            known: Mutex::new(known),
        }
    }

    /// What this process or one before it was told last. None: nothing.
    pub fn last(&self) -> Option<mgs::Config> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|(config, _)| config.clone())
    }

    /// The MGS has told this. The new record is there before the old one goes.
    pub fn remember(&self, told: &mgs::Config) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|(config, _)| config == told) {
            return;
        }
        if let Some(record) = put(&self.records, CONFIGURATION, 0, &encode(told)) {
            *known = Some((told.clone(), record));
        }
    }
}

#[cfg(test)]
mod tests {
    use handover::Region;

    use super::*;

    fn config(generation: u64) -> mgs::Config {
        mgs::Config {
            fsname: "test".to_owned(),
            uuid: [1; 16],
            generation,
            targets: Vec::new(),
        }
    }

    #[test]
    fn the_next_process_knows_what_was_told_last() {
        let memory = Region::create(8 << 20).unwrap();
        let open = || Records::open(Region::map(&memory).unwrap()).unwrap();
        let (records, found) = open();
        let first = Configuration::new(records, found);
        assert_eq!(first.last(), None);
        first.remember(&config(1));
        first.remember(&config(2));
        std::mem::forget(first);
        let (records, found) = open();
        assert_eq!(found.len(), 1, "the old one is gone");
        // The process before was about to forget an older one.
        let body = encode(&config(1));
        std::mem::forget(put(&records, CONFIGURATION, 0, &body));
        let (records, found) = open();
        let next = Configuration::new(records, found);
        assert_eq!(next.last(), Some(config(2)));
    }
}
