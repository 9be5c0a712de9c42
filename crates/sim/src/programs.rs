//! Programs: each makes one call after the other on its mount, by the throw of its own dice, and
//! writes down what it saw.

mod ahead;
mod attributes;
mod bytes;
mod desk;
mod kernel;
mod names;
mod opened;
mod seat;
mod sharer;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{Fid, FsError, Rng, SeededRng};
use client::Client;
use wire::mdt::RenameMode;
use wire::ost::AllocateMode;

use crate::history::{Call, Entry, Seen, Slot, Subject};
use crate::scheduler::Scheduler;
pub(crate) use attributes::{FIRST_MODE, number_of, owner_of, xattr_of};
pub(crate) use bytes::{BLOCK_BYTES, READ_BYTES};
pub use desk::Desk;
pub use kernel::InodeLocks;
pub use names::{make_directories, make_files};
pub use opened::Opened;
pub use seat::Seat;
pub use sharer::Sharer;

/// Directories that programs work in.
pub const DIRS: u8 = 3;
/// Names in each: digits, so that they can be told to be needed as a range.
pub const NAMES: u8 = 4;
/// Each so many calls one that changes names makes what it changed durable.
const SYNC_EVERY: usize = 5;
/// The longest pause between two calls.
const PAUSE_MAX: Duration = Duration::from_millis(40);

/// A change is new for so long: it need not be durable.
const FRESH: Duration = Duration::from_secs(1);

/// What all programs write down.
#[derive(Default)]
pub struct Log {
    entries: Mutex<Vec<Entry>>,
    /// By caller, what has not returned, and since when.
    under_way: Mutex<BTreeMap<u32, (Duration, Call)>>,
    /// How many calls each may make by now.
    allowed: AtomicUsize,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each program may make so many calls more: faults come among calls, not after them.
    pub fn allow(&self, more: usize) {
        self.allowed.fetch_add(more, Ordering::SeqCst);
    }

    /// How many calls have returned.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Nothing was called.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of `callers` was told since `then` that what it did is durable.
    pub fn has_synced(&self, callers: &Range<u32>, then: Duration) -> bool {
        let entries = self.lock();
        let (own, _) = since(&entries, callers, then);
        own.iter().any(|entry| entry.has_synced())
    }

    /// Others have seen since `then` what one of `callers` had just changed.
    pub fn has_shown(&self, callers: &Range<u32>, then: Duration) -> bool {
        let entries = self.lock();
        let (own, others) = since(&entries, callers, then.saturating_sub(FRESH));
        let mut others = others.iter().filter(|entry| entry.end >= then);
        others.any(|entry| own.iter().any(|change| entry.shows(change)))
    }

    /// A call that has not returned since `then`, and who made it when.
    pub fn under_way_since(&self, then: Duration) -> Option<(u32, Duration, Call)> {
        let under_way = self.calls_under_way();
        let mut late = under_way.iter().filter(|(_, (start, _))| *start <= then);
        late.next()
            .map(|(caller, (start, call))| (*caller, *start, call.clone()))
    }

    /// A call of `caller` is under way.
    pub(crate) fn begin(&self, caller: u32, begun: (Duration, Call)) {
        self.calls_under_way().insert(caller, begun);
    }

    /// It has returned.
    pub(crate) fn end(&self, caller: u32) {
        self.calls_under_way().remove(&caller);
    }

    fn calls_under_way(&self) -> MutexGuard<'_, BTreeMap<u32, (Duration, Call)>> {
        let calls = self.under_way.lock();
        calls.unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it.
    pub fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.lock())
    }
}

/// Calls that have returned since `then`: those of `callers`, and those of others.
fn since<'a>(
    entries: &'a [Entry],
    callers: &Range<u32>,
    then: Duration,
) -> (Vec<&'a Entry>, Vec<&'a Entry>) {
    let since = entries.iter().rev().take_while(|entry| entry.end >= then);
    since.partition(|entry| callers.contains(&entry.caller))
}

/// Files whose bytes programs read and write; their names nobody touches.
pub const FILES: u8 = 3;

/// Blocks of a file that are written by number, or that one is cut down to; appends make more.
pub const BLOCKS: u8 = 4;

/// Files whose attributes programs change, and which they make anew.
pub const ATTRIBUTES: u8 = 2;

/// One program.
pub struct Program {
    /// Its number.
    pub number: u32,
    /// Its mount, as long as that is there.
    pub client: Client,
    /// Where it finds the next.
    pub seat: Arc<Seat>,
    /// Which one it has.
    pub life: u64,
    /// The directories, by number.
    pub dirs: Vec<Fid>,
    /// The files, by number.
    pub files: Vec<Fid>,
    /// Whether it reads and writes them.
    pub bytes: bool,
    /// What it writes is not always durable when the call returns.
    pub lazy: bool,
    /// What it keeps open.
    pub opened: Option<Opened>,
    /// Its node's locks.
    pub locks: Arc<InodeLocks>,
    /// Its dice.
    pub numbers: SeededRng,
    /// Where it writes down what it saw.
    pub log: Arc<Log>,
    /// Whose time it is.
    pub scheduler: Arc<Scheduler>,
}

impl Program {
    /// Makes `calls` calls.
    pub fn run(mut self, calls: usize) {
        self.know_all();
        for made in 0..calls {
            while made >= self.log.allowed.load(Ordering::SeqCst) {
                threads::sleep(PAUSE_MAX);
            }
            let pause = self.numbers.below(PAUSE_MAX.as_nanos() as u64);
            threads::sleep(Duration::from_nanos(pause));
            let call = self.choose();
            let changed = call.changes();
            self.make_call(call);
            if let Some(name) = changed.first().filter(|_| made % SYNC_EVERY == 0) {
                self.make_call(Call::SyncDir(name.dir));
            }
        }
        self.close();
    }

    fn slot(&mut self) -> Slot {
        Slot {
            dir: self.numbers.below(u64::from(DIRS)) as u8,
            name: self.numbers.below(u64::from(NAMES)) as u8,
        }
    }

    /// To write: never zero, and of each write another.
    fn number(&mut self) -> u64 {
        self.numbers.next_u64() >> 1 | 1
    }

    fn choose(&mut self) -> Call {
        let slot = self.slot();
        if self.bytes && self.numbers.below(3) == 0 {
            return self.choose_of_bytes();
        }
        if self.numbers.below(6) == 0 {
            return self.choose_of_attributes();
        }
        match self.numbers.below(25) {
            0..3 => Call::Create(slot),
            3 => Call::Mkdir(slot),
            4..6 => Call::Unlink(slot),
            6 => Call::Rmdir(slot),
            7..9 => Call::Rename(slot, self.slot()),
            9 => {
                let Seen::File(fid) = self.make_call(Call::Lookup(slot)) else {
                    return Call::Lookup(slot);
                };
                Call::Link(fid, self.slot())
            }
            10..14 => Call::Lookup(slot),
            14..16 => Call::List(slot.dir),
            16 => Call::Prefetch,
            17 => self.walk(),
            18 => self.ask_in_turn(slot.dir),
            19 => Call::RenameNew(slot, self.slot()),
            20 => Call::Exchange(slot, self.slot()),
            21 => Call::Symlink(slot, self.numbers.next_u64()),
            22 => Call::ReadLink(slot),
            _ => self.keep_open(slot),
        }
    }

    fn choose_of_bytes(&mut self) -> Call {
        let file = self.numbers.below(u64::from(FILES)) as u8;
        let block = self.numbers.below(u64::from(BLOCKS)) as u8;
        let value = self.number();
        if self.numbers.below(5) == 0 {
            return match self.numbers.below(3) {
                0 => Call::Reserve(file, block + 1),
                1 => Call::Punch(file, block),
                _ => Call::Zero(file, block),
            };
        }
        match self.numbers.below(16) {
            0..3 => Call::Put(file, block, value),
            3..6 => Call::Append(file, value),
            6..9 => Call::Truncate(file, block),
            9..12 => Call::Size(file),
            _ => Call::Get(file),
        }
    }

    fn choose_of_attributes(&mut self) -> Call {
        let file = self.numbers.below(u64::from(ATTRIBUTES)) as u8;
        let number = self.numbers.next_u64();
        let mode = (number % 0o1000) as u16;
        match self.numbers.below(13) {
            0..3 => Call::Remake(file, mode),
            3 => Call::Chmod(file, mode),
            4 => Call::Chown(file, number as u32 >> 1),
            5 => Call::SetXattr(file, number),
            6 => Call::RemoveXattr(file),
            7..9 => Call::Contents(file),
            9 => Call::Mode(file),
            10 => Call::Owner(file),
            _ => Call::GetXattr(file),
        }
    }

    fn make_call(&mut self, call: Call) -> Seen {
        self.sit_down();
        if matches!(call.subject(), Some(Subject::Opened(_))) && self.opened.is_none() {
            // What was open went with the machine.
            return Seen::Unknown;
        }
        let start = self.scheduler.time();
        let begun = (start, call.clone());
        self.log.begin(self.number, begun);
        let locks = self.locks.clone();
        let held = kernel::hold(&locks, &call);
        let mut seen = self.perform(&call);
        drop(held);
        self.log.end(self.number);
        if self.seat.life() != self.life {
            // The program went with its mount: nobody was answered.
            seen = Seen::Unknown;
            if call.is_read() {
                return seen;
            }
        }
        let entry = Entry {
            caller: self.number,
            start,
            end: self.scheduler.time(),
            call,
            seen: seen.clone(),
        };
        self.log.lock().push(entry);
        seen
    }

    fn perform(&mut self, call: &Call) -> Seen {
        let result = match call {
            Call::Create(slot) => self.create(*slot),
            Call::Mkdir(slot) => self.mkdir(*slot),
            Call::Unlink(slot) => self.unlink(*slot, false),
            Call::Rmdir(slot) => self.unlink(*slot, true),
            Call::Symlink(slot, to) => self.symlink(*slot, *to),
            Call::Rename(from, to) => self.rename(*from, *to, RenameMode::Replace),
            Call::RenameNew(from, to) => self.rename(*from, *to, RenameMode::NoReplace),
            Call::Exchange(one, other) => self.rename(*one, *other, RenameMode::Exchange),
            Call::Link(fid, slot) => self.link(*fid, *slot),
            Call::Lookup(slot) => self.lookup(*slot),
            Call::ReadLink(slot) => self.read_link(*slot),
            Call::Open(slot, writes) => self.open(*slot, *writes),
            Call::List(dir) => self.list(*dir),
            Call::SyncDir(_) => self.sync_names(),
            Call::Prefetch => self.prefetch(),
            Call::Put(file, block, value) => self.put(*file, Some(*block), *value),
            Call::Append(file, value) => self.put(*file, None, *value),
            Call::Truncate(file, blocks) => self.truncate(*file, *blocks),
            Call::Reserve(file, blocks) => self.allocate(*file, 0..*blocks, AllocateMode::Extend),
            Call::Punch(file, block) => {
                self.allocate(*file, *block..block + 1, AllocateMode::PunchHole)
            }
            Call::Zero(file, block) => self.allocate(*file, *block..block + 1, AllocateMode::Zero),
            Call::Size(file) => self.size(*file),
            Call::Get(file) => self.get(*file),
            Call::WriteOpen(_, block, value) => self.write_open(*block, *value),
            Call::ReadOpen(_) => self.read_open(),
            Call::Remake(file, mode) => self.remake(*file, *mode),
            Call::Chmod(file, mode) => self.chmod(*file, *mode),
            Call::Mode(file) => self.mode(*file),
            Call::Chown(file, owner) => self.chown(*file, *owner),
            Call::Owner(file) => self.owner(*file),
            Call::SetXattr(file, value) => self.set_xattr(*file, *value),
            Call::GetXattr(file) => self.get_xattr(*file),
            Call::RemoveXattr(file) => self.remove_xattr(*file),
            Call::Contents(file) => self.contents(*file),
        };
        match result {
            Ok(seen) => seen,
            Err(FsError::Io | FsError::TryAgain | FsError::NoDevice | FsError::Interrupted) => {
                Seen::Unknown
            }
            Err(error) => Seen::Failed(error),
        }
    }
}
