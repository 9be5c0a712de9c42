//! Making do with an older copy: of this target, or of an OST.

use base::{TargetIndex, Timestamp};

use super::repair::commit;
use crate::hash::NameHasher;
use crate::keys;
use crate::keys::Table;
use crate::mutation::Mutation;
use crate::records::State;
use crate::store::{Failure, Store, missing};
use crate::txn::Txn;

/// Whatever the OST holds will do from now on. Durable when this returns.
pub fn forget_ost(store: &Store, ost: TargetIndex) -> Result<(), Failure> {
    change(store, |txn| txn.change(Mutation::RemoveOst(ost)))
}

/// Of these sequences there are files elsewhere that are not here: they are not granted again. Durable
/// when this returns.
pub fn burn_sequences(store: &Store, last: u64) -> Result<(), Failure> {
    change(store, |txn| {
        txn.state.next_sequence = txn.state.next_sequence.max(last.saturating_add(1));
    })
}

fn change(store: &Store, change: impl FnOnce(&mut Txn<'_>)) -> Result<(), Failure> {
    let state: Option<State> = store.get(Table::State, keys::STATE)?;
    let state = state.ok_or_else(|| missing("state", "the target"))?;
    let hasher = NameHasher::new(state.hash_key);
    let mut txn = Txn::new(store, hasher, state, Timestamp::default());
    change(&mut txn);
    commit(store, txn)
}
