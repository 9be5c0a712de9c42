//! The watermark of the MDT: its last durable change, as it reported it. An MDT that was restored from an
//! older copy takes newer files for lost, and must remove nothing. The MDT remembers the watermark of this
//! target in the same way.

use std::sync::Arc;

use base::Transno;
use storage::{Batch, Kv, StorageError};
use wire::ost::{Reply, Watermark};

use crate::failure::Outcome;
use crate::records::{META, MdtWatermark, WATERMARK_KEY};

/// The stored watermark. A change of it becomes durable with the store's next commit.
#[derive(Debug)]
pub(crate) struct PeerWatermark {
    kv: Arc<Kv>,
}

impl PeerWatermark {
    pub fn new(kv: Arc<Kv>) -> PeerWatermark {
        PeerWatermark { kv }
    }

    /// Compares and stores the watermark of an MDT. Some: the refusal of an older copy.
    pub fn hear(&self, watermark: Watermark) -> Outcome<Option<Reply>> {
        let known = self
            .kv
            .get_with(META, WATERMARK_KEY, MdtWatermark::decode)?;
        let known = known.transpose()?.unwrap_or_default();
        let MdtWatermark {
            epoch_stamp,
            committed,
        } = known;
        if epoch_stamp != watermark.epoch_stamp && committed > watermark.begun {
            return Ok(Some(Reply::Ahead { committed }));
        }
        let heard = MdtWatermark {
            epoch_stamp: watermark.epoch_stamp,
            committed: committed.max(watermark.committed),
        };
        if heard != known {
            let mut batch = Batch::new();
            batch.put(META, WATERMARK_KEY, heard.encode());
            self.kv.commit(batch)?;
        }
        Ok(None)
    }

    /// Refuses to go on if this target holds less than `seen`, which it once acknowledged as durable.
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
