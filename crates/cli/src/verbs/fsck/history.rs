//! A target that is an older copy of what it was: others know how far it had come.

use base::{TargetIndex, Transno};
use mds::watermarks::seen;
use oss::fsck::{Histories, forget_mdt, histories, last_sequence};
use storage::{Kv, ObjectStore};

use super::checked::Checked;
use super::of_mdt::{Mdt, words};

/// More sequences than a newer copy of an MDT can have granted since. No file has a higher one: such an
/// object is a client's invention, and would take all sequences from the MDT.
const GRANTED_SINCE_MAX: u64 = 1 << 32;

/// What a person can do about it.
const ADVICE: &str = "restore a newer copy, or make do with this one by --repair";

/// Whether each of the two is as far as the other knows it to have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// Then there is nothing that the MDT does not know.
    pub mdt: bool,
    pub ost: bool,
}

/// Tells whether the MDT or the OST was further once than it is; with `repair` that will do from now on.
/// The files that it has lost with that are told of, or go, with all others.
pub fn check(
    mdt: &Mdt,
    (index, store, kv): (TargetIndex, &dyn ObjectStore, &Kv),
    repair: bool,
    checked: &mut Checked,
) -> Result<Newest, String> {
    let of_store = |error: storage::StorageError| error.to_string();
    let Histories { own, mdt: heard } = histories(kv).map_err(of_store)?;
    let told = seen(&mdt.store).map_err(words)?;
    let told = told.get(&index).copied().unwrap_or(Transno(0));
    let newest = Newest {
        mdt: heard <= mdt.last,
        ost: told <= own,
    };
    if !newest.ost {
        let what = format!(
            "it holds changes up to {own}, and held those up to {told}: it is an older copy of what it \
             was, without what was written since"
        );
        if repair {
            mds::fsck::forget_ost(&mdt.store, index).map_err(words)?;
        }
        tell(checked, repair, &what);
    }
    if newest.mdt {
        return Ok(newest);
    }
    let what = format!(
        "the MDT holds changes up to {}, and held those up to {heard}: it is an older copy of what it \
         was, without files that were made since",
        mdt.last
    );
    if repair {
        let end = mds::fsck::next_sequence(&mdt.store).map_err(words)? + GRANTED_SINCE_MAX;
        if let Some(last) = last_sequence(store, end).map_err(of_store)? {
            mds::fsck::burn_sequences(&mdt.store, last).map_err(words)?;
        }
        forget_mdt(kv).map_err(of_store)?;
    }
    tell(checked, repair, &what);
    Ok(newest)
}

fn tell(checked: &mut Checked, repair: bool, what: &str) {
    match repair {
        true => checked.mended.push(format!("mended: {what}; made do with")),
        false => checked.errors.push(format!("{what}; {ADVICE}")),
    }
}
