//! Where the programs of a machine find its mount, which may crash and come back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::Client;

use super::Program;

/// How often a program looks whether its machine is there again.
const LOOK: Duration = Duration::from_millis(50);

/// A machine's mount.
pub struct Seat {
    client: Mutex<Option<Client>>,
    life: AtomicU64,
}

impl Seat {
    /// A mount that is there.
    pub fn of(client: Client) -> Arc<Seat> {
        Arc::new(Seat {
            client: Mutex::new(Some(client)),
            life: AtomicU64::new(0),
        })
    }

    /// How often it has crashed.
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::SeqCst)
    }

    /// It has crashed.
    pub fn leave(&self) {
        self.life.fetch_add(1, Ordering::SeqCst);
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

    fn client(&self) -> Option<Client> {
        let place = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        place.clone()
    }
}

impl Program {
    /// Waits for the machine, where that has crashed, and begins anew on it.
    pub(super) fn sit_down(&mut self) {
        while self.seat.life() != self.life {
            match self.seat.client() {
                None => threads::sleep(LOOK),
                Some(client) => {
                    self.client = client;
                    self.life = self.seat.life();
                    self.opened = None;
                    self.know_all();
                }
            }
        }
    }
}
