//! Callbacks that holders have not answered yet, and their deadlines: data, below the files that send
//! and answer callbacks.

use std::collections::BTreeMap;

use base::{ClientId, Tick};

use crate::bits::Bits;
use crate::lock::{Cover, Lock, OpId};
use crate::mode::ModeSet;

/// The deadline of one outstanding callback.
pub(super) type DueKey = (Tick, u64);

/// Outstanding callbacks by deadline; nothing else is looked at when time passes.
#[derive(Default)]
pub(super) struct Deadlines {
    due: BTreeMap<DueKey, ClientId>,
    serial: u64,
}

impl Deadlines {
    pub fn add(&mut self, at: Tick, client: ClientId) -> DueKey {
        self.serial += 1;
        let key = (at, self.serial);
        self.due.insert(key, client);
        key
    }

    pub fn remove(&mut self, key: DueKey) {
        self.due.remove(&key);
    }

    pub fn contains(&self, key: DueKey) -> bool {
        self.due.contains_key(&key)
    }

    /// Takes out one whose time has come.
    pub fn pop_expired(&mut self, now: Tick) -> Option<ClientId> {
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Tick> {
        self.due.first_key_value().map(|(key, _)| key.0)
    }
}

/// A blocking callback that has not been answered in full.
pub(super) struct Blocking {
    /// Who was called.
    pub client: ClientId,
    pub due: DueKey,
    /// Inode bits wanted so far.
    pub bits: Bits,
    /// Modes wanted so far.
    pub modes: ModeSet,
    /// Operations that wait until the lock has none of those bits.
    pub revokers: Vec<(OpId, Bits)>,
}

impl Blocking {
    /// What the holder was asked for conflicts with what is left of its lock.
    pub fn concerns(&self, lock: &Lock) -> bool {
        let overlap = match lock.cover {
            Cover::Bits(bits) => bits.overlaps(self.bits),
            Cover::Range(_) => true,
        };
        overlap && !self.modes.all_compatible_with(lock.mode)
    }
}

/// What one lock no longer covers, and what its holder has not acknowledged.
#[derive(Default)]
pub(super) struct Lease {
    /// Entries the holder may not use, until readmitted.
    pub withdrawn: BTreeMap<u64, Bits>,
    /// Callbacks sent, by version.
    pub unacked: BTreeMap<u64, Unacked>,
}

/// One withdrawal under way.
pub(super) struct Unacked {
    pub key: u64,
    pub bits: Bits,
    pub due: DueKey,
    pub ops: Vec<OpId>,
}

impl Lease {
    /// Nothing is withdrawn and nothing awaits an answer.
    pub fn is_empty(&self) -> bool {
        self.withdrawn.is_empty() && self.unacked.is_empty()
    }
}

/// The glimpse of one lock.
pub(super) struct Glimpse {
    pub due: DueKey,
    /// Those the answer under way is for.
    pub asked: Vec<OpId>,
    /// Those the next one will be for.
    pub next: Vec<OpId>,
}
