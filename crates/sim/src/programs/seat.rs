//! Where the programs of a machine find its mount, which may crash and come back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use client::Client;

/// A machine's mount.
pub struct Seat {
    client: Mutex<Option<Client>>,
    crashes: AtomicU64,
}

impl Seat {
    /// A mount that is there.
    pub fn of(client: Client) -> Arc<Seat> {
        Arc::new(Seat {
            client: Mutex::new(Some(client)),
            crashes: AtomicU64::new(0),
        })
    }

    /// How often it has crashed.
    pub fn crashes(&self) -> u64 {
        self.crashes.load(Ordering::SeqCst)
    }

    /// It has crashed.
    pub fn leave(&self) {
        self.crashes.fetch_add(1, Ordering::SeqCst);
        self.replace(None);
    }

    /// It is there again.
    pub fn take(&self, client: Client) {
        self.replace(Some(client));
    }

    fn replace(&self, client: Option<Client>) {
        let mut place = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, client);
        drop(place);
        drop(before);
    }

    /// The mount, while that is there.
    pub(super) fn client(&self) -> Option<Client> {
        let place = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        place.clone()
    }
}
