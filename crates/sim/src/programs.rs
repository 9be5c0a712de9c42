//! Programs: each makes one call after the other on its mount, by the throw of its own dice, and
//! writes down what it saw.

mod ahead;
mod attributes;
mod bounds;
mod bytes;
mod desk;
mod gardener;
mod ground;
mod kernel;
mod log;
mod names;
mod opened;
mod program;
mod seat;
mod sharer;

use std::time::Duration;

use base::{FsError, Rng};
use wire::mdt::RenameMode;
use wire::ost::AllocateMode;

use self::bounds::{ATTRIBUTES, BLOCKS, DIRS, FILES, NAMES};
use crate::history::{Call, Entry, Seen, Slot, Subject};

pub(crate) use attributes::{number_of, owner_of, xattr_of};
pub(crate) use bytes::{BLOCK_BYTES, READ_BYTES};
pub use desk::Desk;
pub use gardener::Gardener;
pub use ground::{make_directories, make_files};
pub use kernel::InodeLocks;
pub use log::Log;
pub(crate) use names::FIRST_MODE;
pub use program::{Opened, Program};
pub use seat::Seat;
pub use sharer::Sharer;

/// Each so many calls one that changes names makes what it changed durable.
const SYNC_EVERY: usize = 5;
/// How often a program looks whether its machine is there again.
const LOOK: Duration = Duration::from_millis(50);
/// The longest pause between two calls.
const PAUSE_MAX: Duration = Duration::from_millis(40);

impl Program {
    /// Makes `calls` calls.
    pub fn run(mut self, calls: usize) {
        self.know_all();
        for made in 0..calls {
            while made >= self.log.allowed() {
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
        if self.seat.crashes() != self.crashes {
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

    /// Waits for the machine, where that has crashed, and begins anew on it.
    fn sit_down(&mut self) {
        while self.seat.crashes() != self.crashes {
            match self.seat.client() {
                None => threads::sleep(LOOK),
                Some(client) => {
                    self.client = client;
                    self.crashes = self.seat.crashes();
                    self.opened = None;
                    self.know_all();
                }
            }
        }
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
