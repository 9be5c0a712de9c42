//! What tests of the target's parts are made of.

use std::time::Duration;

use base::{Tick, Timestamp, Transno};
use storage::{Batch, Kv};
use wire::ost::Watermark;

use crate::effect::{Effect, Standing};
use crate::event::Output;
use crate::keys::{self, Table};
use crate::mutation::{Mutation, apply};
use crate::records::State;
use crate::store::{Store, tables};

/// A formatted store with these records beside.
pub(crate) fn store_of(records: Vec<Mutation>) -> Store {
    let kv = Kv::scratch(&tables()).expect("memory");
    crate::format::format(&kv, 42, Timestamp::default()).expect("an empty store");
    let store = Store::new(std::sync::Arc::new(kv));
    put(&store, records);
    store
}

/// The same, the sequences before `next_sequence` having been granted.
pub(crate) fn store_after(next_sequence: u64, records: Vec<Mutation>) -> Store {
    let store = store_of(records);
    let state: Option<State> = store.get(Table::State, keys::STATE).expect("readable");
    let state = State {
        next_sequence,
        ..state.expect("formatted")
    };
    put(&store, vec![Mutation::PutState(state)]);
    store
}

fn put(store: &Store, records: Vec<Mutation>) {
    let mut batch = Batch::new();
    apply(records, &mut batch);
    store.commit(batch).expect("a sound disk");
}

/// So many seconds after the start, changes up to `committed` being durable.
pub(crate) fn standing(secs: u64, committed: u64) -> Standing {
    Standing {
        now: Tick(0).after(Duration::from_secs(secs)),
        watermark: Watermark {
            epoch_stamp: Timestamp::default(),
            begun: Transno(1),
            committed: Transno(committed),
        },
    }
}

/// What is to be said, where nothing is to be changed.
pub(crate) fn said(effects: Vec<Effect>) -> Vec<Output> {
    let said = effects.into_iter().map(|effect| match effect {
        Effect::Say(output) => output,
        other => panic!("{other:?}"),
    });
    said.collect()
}
