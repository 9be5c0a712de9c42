//! Extent locks: the lock table of `dlm`, in the words of this crate.

use std::collections::VecDeque;
use std::time::Duration;

use base::{BootEpoch, ByteRange, ClientId, Fid, FsError, LockHandle, Tick, Xid};
use dlm::{
    Cover, Grant, Input, Kind, Limits, LockTable, Mode, OpId, Output, ResourceId, TryGrant, Want,
};
use layout::ObjectId;
use wire::ost::ExtentGrant;

/// The space of objects' first stripes; stripe `n` is in the n-th space after it.
const SPACE: u8 = 2;
/// Stripes that can be told apart.
const STRIPES_MAX: u32 = u8::MAX as u32 - SPACE as u32;

/// The locks of one target, and what they want done.
pub struct Locks {
    table: LockTable,
    step: Vec<Output>,
    events: VecDeque<Output>,
}

impl Locks {
    /// No locks yet in this boot of the target.
    pub fn new(limits: Limits, boot_epoch: BootEpoch) -> Locks {
        Locks {
            table: LockTable::of_boot(limits, boot_epoch.0),
            step: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// The table below.
    pub fn table(&self) -> &LockTable {
        &self.table
    }

    /// Somebody waits for this client to give back a lock.
    pub fn is_called_back(&self, client: ClientId) -> bool {
        self.table.is_called_back(client)
    }

    /// How long a client may take to give a lock back.
    pub fn callback_deadline(&self) -> Duration {
        self.table.limits().callback_deadline
    }

    /// All locks that `client` holds.
    pub fn handles(&self, client: ClientId) -> Vec<LockHandle> {
        self.table.handles(client)
    }

    /// One lock that `client` holds covers the wish.
    pub fn covers(&self, client: ClientId, wish: Wish) -> bool {
        let (what, cover) = ((wish.resource, wish.mode), Cover::Range(wish.range));
        self.table.covers(client, what, cover)
    }

    /// What the table wants done next.
    pub fn next_event(&mut self) -> Option<Output> {
        self.events.pop_front()
    }

    /// Tells the table something.
    pub fn tell(&mut self, now: Tick, input: Input) {
        self.table.step(now, input, &mut self.step);
        self.events.extend(self.step.drain(..));
    }

    /// Waits for a lock, as `wait`.
    pub fn enqueue(&mut self, now: Tick, client: ClientId, wait: u64, wish: Wish) {
        let input = Input::Enqueue {
            client,
            request: Xid(wait),
            resource: wish.resource,
            mode: wish.mode,
            kind: Kind::Extent { range: wish.range },
            nonblock: false,
        };
        self.tell(now, input);
    }

    /// A lock if it can be had at once, disturbing nobody. Bytes to be written in EX where nobody
    /// watches the object, so that the holder may make it longer and announce that to nobody.
    pub fn try_best(&mut self, now: Tick, client: ClientId, wish: Wish) -> Option<Grant> {
        let stronger = (wish.mode == Mode::PW).then_some(Mode::EX);
        let modes = stronger.into_iter().chain([wish.mode]);
        let mut wishes = modes.map(|mode| Wish { mode, ..wish });
        wishes.find_map(|wish| self.try_grant(now, client, wish))
    }

    /// A lock if it can be had at once, disturbing nobody.
    pub fn try_grant(&mut self, now: Tick, client: ClientId, wish: Wish) -> Option<Grant> {
        let ask = TryGrant {
            op: None,
            client,
            resource: wish.resource,
            mode: wish.mode,
        };
        self.table.try_grant_extent(now, ask, wish.range)
    }

    /// Nobody but `client` holds or awaits what conflicts with the wish.
    pub fn is_free(&mut self, now: Tick, client: ClientId, wish: Wish) -> bool {
        let Some(grant) = self.try_grant(now, client, wish) else {
            return false;
        };
        self.tell(
            now,
            Input::Cancel {
                client,
                handles: vec![grant.handle],
            },
        );
        true
    }

    /// `client` holds `handle`, and it covers the wish.
    pub fn allows(&self, client: ClientId, handle: LockHandle, wish: Wish) -> bool {
        self.table
            .holds(client, handle)
            .is_some_and(|lock| lock.allows(wish.resource, wish.mode, Cover::Range(wish.range)))
    }

    /// Waits, as operation `wait` of `client`, for a lock of the target's own.
    pub fn begin(&mut self, now: Tick, client: ClientId, wait: u64, wish: Wish) {
        self.begin_want(
            now,
            client,
            wait,
            Want::range(wish.resource, wish.mode, wish.range),
        );
    }

    /// Asks those who write the object how it looks now, as operation `wait` of `client`.
    pub fn glimpse(
        &mut self,
        now: Tick,
        client: ClientId,
        wait: u64,
        resource: ResourceId,
        speculative: bool,
    ) {
        self.begin_want(
            now,
            client,
            wait,
            Want::GlimpseExtent {
                resource,
                speculative,
            },
        );
    }

    /// Tells those who watch the object what operation `wait` of `client` has to say.
    pub fn tell_watchers(&mut self, now: Tick, client: ClientId, wait: u64, resource: ResourceId) {
        self.begin_want(now, client, wait, Want::Tell { resource });
    }

    fn begin_want(&mut self, now: Tick, client: ClientId, wait: u64, want: Want) {
        let input = Input::Begin {
            op: OpId(wait),
            client: Some(client),
            wants: vec![want],
        };
        self.tell(now, input);
    }
}

/// What somebody wants to do to an object.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// The object.
    pub resource: ResourceId,
    /// CR to watch it grow, PR, PW, or EX to make it longer unwatched.
    pub mode: Mode,
    /// Which bytes.
    pub range: ByteRange,
}

impl Wish {
    /// To read.
    pub fn read(object: ObjectId, range: ByteRange) -> Result<Wish, FsError> {
        Ok(Wish {
            resource: resource_of(object)?,
            mode: Mode::PR,
            range,
        })
    }

    /// To write.
    pub fn write(object: ObjectId, range: ByteRange) -> Result<Wish, FsError> {
        Ok(Wish {
            resource: resource_of(object)?,
            mode: Mode::PW,
            range,
        })
    }

    /// Something with all of it.
    pub fn all(object: ObjectId, mode: Mode) -> Result<Wish, FsError> {
        Ok(Wish {
            resource: resource_of(object)?,
            mode,
            range: ByteRange::ALL,
        })
    }

    /// As a client asks for it, in a mode's number.
    pub fn of(object: ObjectId, mode: u8, range: ByteRange) -> Result<Wish, FsError> {
        let mode = Mode::from_index(mode).filter(|mode| matches!(mode, Mode::PR | Mode::PW));
        let mode = mode.ok_or(FsError::Invalid)?;
        if range.is_empty() {
            return Err(FsError::Invalid);
        }
        Ok(Wish {
            resource: resource_of(object)?,
            mode,
            range,
        })
    }
}

/// The object's place in the lock table. `Invalid` for what names no object.
pub fn resource_of(object: ObjectId) -> Result<ResourceId, FsError> {
    if object.fid == Fid::NONE || object.stripe >= STRIPES_MAX {
        return Err(FsError::Invalid);
    }
    Ok(ResourceId {
        space: SPACE + object.stripe as u8,
        id: object.fid.0,
    })
}

/// The inverse of [`resource_of`].
pub fn object_of(resource: ResourceId) -> ObjectId {
    let stripe = u32::from(resource.space.saturating_sub(SPACE));
    ObjectId {
        fid: Fid(resource.id),
        stripe,
    }
}

/// A grant as clients are told of it.
pub fn told(grant: &Grant) -> ExtentGrant {
    ExtentGrant {
        handle: grant.handle,
        object: object_of(grant.resource),
        mode: grant.mode.index() as u8,
        range: range_of(grant.cover),
    }
}

/// The bytes of a cover.
pub fn range_of(cover: Cover) -> ByteRange {
    match cover {
        Cover::Range(range) => range,
        // Objects have extents only; a reader of this is told the safe thing.
        Cover::Bits(_) => ByteRange::ALL,
    }
}
