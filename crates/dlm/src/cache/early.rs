//! Callbacks that overtook the grant they are about.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use base::{LockHandle, Tick};

use crate::bits::Bits;
use crate::lock::Cover;
use crate::mode::Mode;

/// A callback for a lock that is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlyCallback {
    Blocking(Mode, Cover),
    Withdraw { key: u64, bits: Bits, version: u64 },
}

/// Callbacks waiting for their grants; bounded by number and by age.
#[derive(Debug, Default)]
pub(super) struct EarlyCallbacks {
    by_handle: HashMap<LockHandle, Vec<EarlyCallback>>,
    order: VecDeque<(Tick, LockHandle)>,
}

impl EarlyCallbacks {
    /// False if there is no room: then the callback must stay unanswered.
    pub fn remember(
        &mut self,
        now: Tick,
        handle: LockHandle,
        what: EarlyCallback,
        max: usize,
    ) -> bool {
        if self.order.len() >= max {
            return false;
        }
        self.by_handle.entry(handle).or_default().push(what);
        self.order.push_back((now, handle));
        true
    }

    /// Those about `handle`, in order of arrival.
    pub fn take(&mut self, handle: LockHandle) -> Vec<EarlyCallback> {
        self.by_handle.remove(&handle).unwrap_or_default()
    }

    /// Takes out the locks whose grant is too late by now.
    pub fn expire(&mut self, now: Tick, age: Duration) -> Vec<LockHandle> {
        let mut late = Vec::new();
        while let Some((_, handle)) = self.order.front().filter(|(at, _)| now.since(*at) >= age) {
            late.extend(self.by_handle.remove(handle).map(|_| *handle));
            self.order.pop_front();
        }
        late
    }

    /// Number remembered, taken ones included until they age.
    pub fn len(&self) -> usize {
        self.order.len()
    }
}

/// Handles given up lately: a callback about one of those needs no answer but the cancel.
#[derive(Debug, Default)]
pub(super) struct Gone {
    known: HashSet<LockHandle>,
    order: VecDeque<LockHandle>,
}

impl Gone {
    pub fn insert(&mut self, handle: LockHandle, max: usize) {
        if self.known.insert(handle) {
            self.order.push_back(handle);
        }
        while self.order.len() > max {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    pub fn contains(&self, handle: LockHandle) -> bool {
        self.known.contains(&handle)
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }
}
