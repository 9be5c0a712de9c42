//! Clients that may have bytes which the target lacks. They are kept over restarts, so that the target waits
//! for them, and tells one that was given up.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Damage, Timestamp};
use rpc::window::GIVEN_UP_FOR;
use storage::{Batch, KeyRange, Kv, StorageError};
use wire::handshake::ClientUuid;

use crate::objects::damaged;
use crate::records::{CLIENTS, KnownClient, client_of_key};

/// Their records. A change is durable with the target's next sync.
#[derive(Debug)]
pub(crate) struct Clients {
    kv: Arc<Kv>,
}

impl Clients {
    pub fn new(kv: Arc<Kv>) -> Clients {
        Clients { kv }
    }

    /// Those to be waited for. That others were given up long before `now` is forgotten.
    pub fn awaited(&self, now: Timestamp) -> Result<BTreeSet<ClientUuid>, StorageError> {
        let (mut awaited, mut batch, mut damage) = (BTreeSet::new(), Batch::new(), None);
        let old = now.secs.saturating_sub(GIVEN_UP_FOR.as_secs() as i64);
        self.kv.scan(CLIENTS, &KeyRange::all(), |key, value| {
            match row(key, value) {
                Ok((uuid, KnownClient { given_up: None })) => {
                    awaited.insert(uuid);
                }
                Ok((_, KnownClient { given_up })) if given_up < Some(old) => {
                    batch.delete(CLIENTS, key);
                }
                Ok(_) => {}
                Err(found) => {
                    damage = Some(found);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(damage) = damage {
            return Err(damaged(&damage));
        }
        self.kv.commit(batch)?;
        Ok(awaited)
    }

    /// What is known of it.
    pub fn get(&self, client: ClientUuid) -> Result<Option<KnownClient>, StorageError> {
        let found = self.kv.get_with(CLIENTS, &client.0, KnownClient::decode)?;
        found.transpose().map_err(|damage| damaged(&damage))
    }

    pub fn put(&self, client: ClientUuid, known: KnownClient) -> Result<(), StorageError> {
        let mut batch = Batch::new();
        batch.put(CLIENTS, client.0, known.encode());
        self.kv.commit(batch).map(|_| ())
    }

    pub fn remove(&self, client: ClientUuid) -> Result<(), StorageError> {
        let mut batch = Batch::new();
        batch.delete(CLIENTS, client.0);
        self.kv.commit(batch).map(|_| ())
    }
}

fn row(key: &[u8], value: &[u8]) -> Result<(ClientUuid, KnownClient), Damage> {
    Ok((client_of_key(key)?, KnownClient::decode(value)?))
}
