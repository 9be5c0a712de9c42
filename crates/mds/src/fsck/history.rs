//! Making do with what other targets hold: with an older copy of this one, or of an OST, and with an
//! object of another size.

use base::{Fid, TargetIndex, Timestamp};
use wire::SizeState;

use super::repair::commit;
use crate::keys;
use crate::keys::Table;
use crate::mutation::Mutation;
use crate::records::State;
use crate::store::{Failure, Store, missing};
use crate::txn::Txn;
use wire::hash::NameHasher;

/// Whatever the OST holds will do from now on. Durable when this returns.
pub fn forget_ost(store: &Store, ost: TargetIndex) -> Result<(), Failure> {
    change(store, |txn| {
        txn.change(Mutation::RemoveOst(ost));
        Ok(())
    })
}

/// The sequence that is granted next.
pub fn next_sequence(store: &Store) -> Result<u64, Failure> {
    Ok(state(store)?.next_sequence)
}

/// The file is as long as its object is. Durable when this returns.
pub fn ask_size(store: &Store, fid: Fid) -> Result<(), Failure> {
    change(store, |txn| {
        let mut file = txn.file(fid)?;
        file.inode.size_state = SizeState::Ask;
        txn.save(&mut file)
    })
}

/// Of these sequences there are files elsewhere that are not here: they are not granted again. Durable
/// when this returns.
pub fn burn_sequences(store: &Store, last: u64) -> Result<(), Failure> {
    change(store, |txn| {
        txn.state.next_sequence = txn.state.next_sequence.max(last.saturating_add(1));
        Ok(())
    })
}

fn state(store: &Store) -> Result<State, Failure> {
    let state: Option<State> = store.get(Table::State, keys::STATE)?;
    state.ok_or_else(|| missing("state", "the target"))
}

fn change(
    store: &Store,
    change: impl FnOnce(&mut Txn<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let state = state(store)?;
    let hasher = NameHasher::new(state.hash_key);
    let mut txn = Txn::new(store, hasher, state, Timestamp::default());
    change(&mut txn)?;
    commit(store, txn)
}
