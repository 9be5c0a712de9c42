//! The operations, one file each: what they check, what they lock, what they do.

mod append;
mod destroy;
mod glimpse;
mod inherit;
pub(crate) mod list;
mod map;
mod read;
mod resize;
mod seek;
mod statfs;
mod watch;
mod write;

use base::limits::BULK_BYTES_MAX;
use base::{ClientId, FsError, Tick, Timestamp, Transno};
use dlm::Input;
use wire::ost::{Reply, Request, Watermark};

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::Change;
use crate::oss::Oss;
use crate::outbox::Outbox;
use crate::resizing::Resize;
use crate::step::{Append, Call, Step};
use glimpse::glimpse;
use list::list;
use map::map;
use read::Read;
use seek::seek;
use watch::{Watch, announce};
use write::Write;

impl Oss {
    /// Hands a request to its operation.
    pub(crate) fn start(
        &mut self,
        now: Tick,
        wall: Timestamp,
        call: Call<'_>,
        out: &mut Outbox,
    ) -> Outcome<Step> {
        let (client, bulk) = (call.client, call.bulk);
        match call.request {
            Request::Enqueue {
                object,
                mode,
                range,
            } => self.enqueue(now, client, Wish::of(object, mode, range)?, object),
            Request::Watch {
                object,
                writes,
                again,
            } => {
                let watch = Watch {
                    object,
                    writes,
                    again,
                };
                self.watch(now, client, watch)
            }
            Request::Announce { object, size } => announce(object, size),
            Request::Inherit { object } => self.inherit(now, client, object),
            Request::Convert { handle, mode } => self.convert(now, client, (handle, mode)),
            Request::Glimpse {
                object,
                speculative,
            } => glimpse(object, speculative),
            Request::Seek {
                object,
                offset,
                hole,
            } => seek(object, offset, hole),
            Request::Map { object, offset } => map(object, offset),
            Request::Sync => Ok(Step::Sync),
            Request::Join { boot_epoch } => self.join(now, wall, (client, boot_epoch), out),
            Request::Destroy { objects, watermark } => match self.watermark.hear(watermark)? {
                Some(ahead) => Step::answer(ahead),
                None => self.destroy(now, wall, &objects),
            },
            Request::Cancel { handles } => {
                self.locks.tell(now, Input::Cancel { client, handles });
                Step::answer(Reply::Done)
            }
            Request::StatFs => Step::answer(self.statfs()?),
            Request::List {
                from,
                unrecorded,
                watermark,
            } => match self.watermark.hear(watermark)? {
                Some(ahead) => Step::answer(ahead),
                None => list(&self.objects, from, unrecorded),
            },
            Request::Watermark { watermark, seen } => self.compare(watermark, seen),
            request @ (Request::Read { .. } | Request::Write { .. } | Request::Append { .. }) => {
                self.start_io(now, client, request, bulk)
            }
            request @ (Request::Truncate { .. } | Request::Allocate { .. }) => {
                self.resize(now, client, Resize::of(&request)?)
            }
        }
    }

    /// How far an MDT and this target have come, and had come by what each knows of the other.
    fn compare(&self, watermark: Watermark, seen: Transno) -> Outcome<Step> {
        let committed = self.committed();
        self.watermark.recall(committed, seen)?;
        match self.watermark.hear(watermark)? {
            Some(ahead) => Step::answer(ahead),
            None => Step::answer(Reply::Watermark { committed }),
        }
    }

    /// The same for what reads and changes bytes.
    fn start_io(
        &mut self,
        now: Tick,
        client: ClientId,
        request: Request,
        bulk: &[u8],
    ) -> Outcome<Step> {
        match request {
            Request::Read {
                object,
                offset,
                len,
                lock_mode,
                under,
            } => {
                let read = Read {
                    object,
                    offset,
                    len,
                    lock_mode,
                    under,
                };
                self.read(now, client, &read)
            }
            Request::Write {
                object,
                offset,
                bulk: place,
                ticket,
                mtime,
                under,
                boot_epoch,
            } => {
                let write = Write {
                    object,
                    offset,
                    data: part(bulk, place)?,
                    change: Change::by(ticket, mtime)?,
                    under,
                    boot_epoch,
                };
                self.write(now, client, &write)
            }
            Request::Append {
                object,
                bulk: place,
                ticket,
                mtime,
            } => self.append(Append {
                object,
                data: part(bulk, place)?.to_vec(),
                change: Change::by(ticket, mtime)?,
                from: 0,
            }),
            _ => Err(FsError::NotSupported.into()),
        }
    }
}

/// The part of a frame's bulk region that a request points to.
fn part(bulk: &[u8], (offset, len): (u32, u32)) -> Result<&[u8], FsError> {
    let start = offset as usize;
    let end = start.checked_add(len as usize).ok_or(FsError::Invalid)?;
    bulk.get(start..end)
        .filter(|data| data.len() <= BULK_BYTES_MAX)
        .ok_or(FsError::Invalid)
}
