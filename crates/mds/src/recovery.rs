//! The first moments of a target's later boot. Its clients say again what a crash has taken, and
//! nobody sees the namespace before they have. docs/recovery.md, section 4.
//!
//! Invariant: while the window is open nothing runs but replays and openings anew; so what is done
//! again meets the namespace as it was when it was done first. What clients did independently of
//! each other may be done again in any order: one that saw another's change was answered when that
//! was durable ([`crate::sharing`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use base::{BootEpoch, Tick, Timestamp, Transno};
use rpc::window::{Report, Window};
use storage::{Batch, KeyRange};
use wire::handshake;
use wire::mdt::{Reply, Request};

use crate::event::Call;
use crate::keys::{self, ClientUuid, Table};
use crate::mutation::{Mutation, apply};
use crate::records::{BootBegun, KnownClient};
use crate::store::{Failure, Store, missing};

/// Boots of which it is known where they ended.
pub(crate) const BOOTS_MAX: usize = 256;
/// Whom the MDT waits for since its restart.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Those who are waited for, and what waits.
    pub window: Window<(Call, Request)>,
    pub(crate) replayed: u64,
    pub(crate) boot_epoch: BootEpoch,
    /// Those who had something open when this boot began, as far as is known, and have not told all of
    /// it.
    pub untold: BTreeSet<ClientUuid>,
    /// Clients that were given up in this boot, with the change that says so.
    pub given_up: BTreeMap<ClientUuid, Transno>,
}

impl Recovery {
    /// Requests that did again what a crash had taken.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Clients are waited for.
    pub fn is_open(&self) -> bool {
        self.window.is_open()
    }

    /// How things stand.
    pub fn report(&self, now: Tick) -> Report {
        Report {
            replayed: Some(self.replayed),
            ..self.window.report(now)
        }
    }
}

/// Notes where this boot begins, and says who is to be waited for.
pub(crate) fn begin(
    store: &Store,
    boot_epoch: BootEpoch,
    committed: Transno,
    now: Tick,
    window: Duration,
) -> Result<Recovery, Failure> {
    note_boot(store, boot_epoch, committed)?;
    let mut awaited = BTreeSet::new();
    store.scan(
        Table::Clients,
        &KeyRange::all(),
        |key, client: KnownClient| {
            let uuid = keys::parse_client(key).ok_or_else(|| missing("client's id", "MDT"))?;
            if client.given_up.is_none() {
                awaited.insert(handshake::ClientUuid(uuid));
            }
            Ok(ControlFlow::Continue(()))
        },
    )?;
    let recovery = Recovery {
        untold: awaited.iter().map(|client| client.0).collect(),
        window: Window::new(awaited, now.after(window)),
        replayed: 0,
        boot_epoch,
        given_up: BTreeMap::new(),
    };
    recovery.window.announce("mdt.*.recovery_status", window);
    Ok(recovery)
}

/// Notes durably where a boot of the target begins: behind the change `committed`.
pub(crate) fn note_boot(
    store: &Store,
    boot_epoch: BootEpoch,
    committed: Transno,
) -> Result<(), Failure> {
    let mut lives = Vec::new();
    store.scan(Table::Boots, &KeyRange::all(), |key, _: BootBegun| {
        lives.push(key.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    let mut mutations = vec![Mutation::PutBoot(boot_epoch, BootBegun { committed })];
    let old = lives
        .iter()
        .take((lives.len() + 1).saturating_sub(BOOTS_MAX));
    mutations.extend(
        old.filter_map(|key| keys::parse_boot_epoch(key))
            .map(Mutation::RemoveBoot),
    );
    let mut batch = Batch::new();
    apply(mutations, &mut batch);
    let ticket = store.commit(batch)?;
    Ok(store.kv().wait_durable(ticket)?)
}

/// When a request was done first, by what it was answered.
pub(crate) fn time_of(answer: &Reply) -> Option<Timestamp> {
    match answer {
        Reply::Node(node)
        | Reply::Created { node, .. }
        | Reply::Linked { node, .. }
        | Reply::Unlinked { node, .. }
        | Reply::Renamed { node, .. } => Some(node.attr.ctime),
        _ => None,
    }
}
