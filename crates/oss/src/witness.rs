//! How far the MDT had come that last asked for something. One that was restored from an older copy
//! takes newer files for lost, and is to remove nothing. And how far this target had come, as the
//! MDT knows: an older copy of it has older bytes.

use std::sync::Arc;

use base::Transno;
use storage::{Batch, Kv, StorageError};
use wire::ost::{Progress, Reply};

use crate::failure::Outcome;
use crate::records::{META, WITNESS_KEY, Witnessed};

/// What is remembered of it. A change is durable when the store makes it so, before
/// long.
#[derive(Debug)]
pub(crate) struct Witness {
    kv: Arc<Kv>,
}

impl Witness {
    pub fn new(kv: Arc<Kv>) -> Witness {
        Witness { kv }
    }

    /// An MDT has come so far. What it is to be answered if it had been further in an earlier life.
    pub fn hear(&self, progress: Progress) -> Outcome<Option<Reply>> {
        let known = self.kv.get_with(META, WITNESS_KEY, Witnessed::decode)?;
        let known = known.transpose()?.unwrap_or_default();
        let Witnessed { life, committed } = known;
        if life != progress.life && committed > progress.begun {
            return Ok(Some(Reply::Ahead { committed }));
        }
        let heard = Witnessed {
            life: progress.life,
            committed: committed.max(progress.committed),
        };
        if heard != known {
            let mut batch = Batch::new();
            batch.put(META, WITNESS_KEY, heard.encode());
            self.kv.commit(batch)?;
        }
        Ok(None)
    }

    /// This target holds `committed`, and told an MDT that it held everything up to `seen`.
    pub fn recall(&self, committed: Transno, seen: Transno) -> Result<(), StorageError> {
        if seen <= committed {
            return Ok(());
        }
        let reason = format!(
            "it holds changes up to {committed}, and told the MDT that it held those up to {seen}: it is \
             damaged or was restored from an older copy"
        );
        Err(StorageError::damaged(self.kv.name(), "history", reason))
    }
}
