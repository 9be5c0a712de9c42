//! What takes its time, and so is done outside the core: making modifications durable, removing
//! bytes, reading them, looking at all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::ByteRange;
use layout::ObjectId;
use storage::{Batch, Kv, ObjectStore, Pace, StorageError, Wanted};
use wire::ost::{Reply, Request};

use crate::locks::resource_of;
use crate::objects::stored;
use crate::ops::list::{LISTED_MAX, page};
use crate::outbox::Answer;
use crate::records::{HISTORY_KEY, META, OBJECTS, object_key};
use crate::work::{ListWork, ReadWork, SyncWork, Touched};

/// Does that work. Syncs run one at a time; all else may run beside them.
#[derive(Debug, Clone)]
pub struct Syncer {
    store: Arc<dyn ObjectStore>,
    kv: Arc<Kv>,
    pace: Arc<Pace>,
}

impl Syncer {
    /// For the objects in `store` and `kv`; `pace` is told what syncs take.
    pub fn new(store: Arc<dyn ObjectStore>, kv: Arc<Kv>, pace: Arc<Pace>) -> Syncer {
        Syncer { store, kv, pace }
    }

    /// Bytes first, or with them the records, then the word that both are there.
    pub fn run(&self, work: &SyncWork) -> Result<(), StorageError> {
        let begun = threads::now();
        let touched: Option<Vec<storage::ObjectId>> = match &work.touched {
            Touched::Objects(objects) => Some(objects.iter().map(|id| stored(*id)).collect()),
            Touched::Many => None,
        };
        let mut batch = Batch::new();
        batch.put(META, HISTORY_KEY, work.history.encode());
        self.store.sync_with(touched.as_deref(), &self.kv, batch)?;
        self.pace.took(threads::now() - begun, work.bytes);
        Ok(())
    }

    /// Reads. What the object no longer has is missing from the answer.
    pub fn read(&self, work: &ReadWork) -> Result<Answer, StorageError> {
        let id = stored(work.object);
        let data = self.store.read_shared(id, work.offset, work.len)?;
        let reply = Reply::Read {
            bulk: (0, data.len() as u32),
            grant: None,
            attr: work.attr,
        };
        Ok(Answer { reply, data })
    }

    /// Looks at all objects for those. One that is new, and has a record in memory only, may be among
    /// them.
    pub fn list(&self, work: ListWork) -> Result<Answer, StorageError> {
        let ListWork { from } = work;
        let (mut found, mut failure) = (BTreeSet::new(), None);
        self.store.list(&mut |id| {
            let (fid, stripe) = (id.fid, id.stripe);
            let object = ObjectId { fid, stripe };
            let is_wanted = fid.sequence() == from.fid.sequence() && object >= from;
            if !is_wanted || resource_of(object).is_err() {
                return;
            }
            match self.kv.contains(OBJECTS, &object_key(object)) {
                Ok(false) => {
                    found.insert(object);
                }
                Ok(true) => {}
                Err(error) => failure = Some(error),
            }
            if found.len() > LISTED_MAX + 1 {
                found.pop_last();
            }
        })?;
        match failure {
            Some(error) => Err(error),
            None => Ok(page(found.into_iter().collect()).into()),
        }
    }

    /// Does what the changes among these requests would wait for, while the core answers nobody.
    pub fn foresee(&self, requests: &[Request]) -> Result<(), StorageError> {
        let reads: Vec<Wanted> = requests.iter().filter_map(wanted).collect();
        if reads.len() > 1 {
            self.store.read_ahead(&reads)?;
        }
        let mut changes = Vec::new();
        for request in requests {
            changes.extend(self.expected(request)?);
        }
        match changes.is_empty() {
            true => Ok(()),
            false => self.store.foresee(&changes),
        }
    }

    /// The bytes that a request is going to change, if it is not refused.
    fn expected(
        &self,
        request: &Request,
    ) -> Result<Option<(storage::ObjectId, ByteRange)>, StorageError> {
        let (object, range) = match *request {
            Request::Write {
                object,
                offset,
                bulk: (_, len),
                ..
            } => (object, ByteRange::at(offset, len.into())),
            Request::Allocate { object, range, .. } => (object, Some(range)),
            Request::Append { object, .. } => (object, Some(self.rest(object, u64::MAX)?)),
            Request::Truncate { object, size, .. } => (object, Some(self.rest(object, size)?)),
            _ => return Ok(None),
        };
        Ok(range.map(|range| (stored(object), range)))
    }

    /// From there on, or from the end of the object.
    fn rest(&self, object: ObjectId, start: u64) -> Result<ByteRange, StorageError> {
        let end = self.store.stat(stored(object))?.map_or(0, |stat| stat.size);
        Ok(ByteRange::from(start.min(end)))
    }

    /// Does what nobody waits for.
    pub fn settle(&self) -> Result<(), StorageError> {
        self.store.settle()
    }

    /// The same for all of it, durably: nothing changes any more.
    pub fn settle_all(&self) -> Result<(), StorageError> {
        self.store.settle_all()?;
        self.kv.wait_durable(self.kv.committed())
    }

    /// Removes the bytes of objects that have a tombstone: a durable one, for bytes that are gone while
    /// nothing says why are damage.
    pub fn remove(&self, objects: &[ObjectId]) -> Result<(), StorageError> {
        self.store.sync_with(Some(&[]), &self.kv, Batch::new())?;
        for object in objects {
            self.store.remove(stored(*object))?;
        }
        Ok(())
    }
}

/// The bytes that a request reads, if it is not refused.
fn wanted(request: &Request) -> Option<Wanted> {
    match *request {
        Request::Read {
            object,
            offset,
            len,
            ..
        } => Some(Wanted {
            id: stored(object),
            offset,
            len: len as usize,
        }),
        _ => None,
    }
}
