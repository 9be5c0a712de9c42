//! Programs on supervised mounts that write to the same files, and read them, without making anything
//! durable.

use std::sync::Arc;
use std::time::Duration;

use base::{ByteRange, Fid, FsError, Name, Rng, SeededRng};
use client::{HandleId, OpenWish, WriteWish};
use wire::mdt::{Access, Caller, SetAttr};
use wire::ost::AllocateMode;

use super::bounds::BLOCKS;
use super::bytes::{BLOCK_BYTES, block_of, read_blocks};
use super::desk::Desk;
use super::kernel::InodeLocks;
use super::log::Log;
use crate::history::{Call, Entry, Seen};
use crate::scheduler::Scheduler;

/// Files that all share.
const SHARED: u8 = 2;
/// The longest pause between two calls.
const PAUSE_MAX: Duration = Duration::from_millis(3);

/// One program.
pub struct Sharer {
    /// Its number.
    pub number: u32,
    /// Who serves it.
    pub desk: Arc<Desk>,
    /// It writes, too.
    pub writes: bool,
    /// The files, by number.
    pub files: Vec<Fid>,
    /// Its node's locks.
    pub locks: Arc<InodeLocks>,
    /// Its dice.
    pub numbers: SeededRng,
    /// Where it writes down what it saw.
    pub log: Arc<Log>,
    /// Whose time it is.
    pub scheduler: Arc<Scheduler>,
}

impl Sharer {
    /// Makes `calls` calls.
    pub fn run(mut self, calls: usize) {
        let opened: Result<Vec<HandleId>, FsError> = (0..SHARED).map(|f| self.open(f)).collect();
        let opened = opened.expect("the files are there");
        for made in 0..calls {
            while made >= self.log.allowed() {
                threads::sleep(PAUSE_MAX);
            }
            let pause = self.numbers.below(PAUSE_MAX.as_nanos() as u64);
            threads::sleep(Duration::from_nanos(pause));
            let (file, call) = self.choose();
            self.make_call(call, (file, opened[usize::from(file)]));
        }
        for handle in opened {
            let released = |client: client::Client| async move { client.release(handle) };
            self.desk.ask(released);
        }
    }

    fn open(&self, file: u8) -> Result<HandleId, FsError> {
        let fid = self.files[usize::from(file)];
        let name = Name::new(format!("f{file}")).map_err(|_| FsError::Invalid)?;
        let looked = move |client: client::Client| {
            let name = name.clone();
            async move { client.lookup(Fid::ROOT, &name).await }
        };
        self.desk.ask(looked)?;
        let wish = OpenWish {
            access: Access {
                read: true,
                write: self.writes,
                exec: false,
            },
            append: false,
        };
        let opened = move |client: client::Client| async move { client.open(fid, wish).await };
        self.desk.ask(opened).map(|opened| opened.handle)
    }

    fn choose(&mut self) -> (u8, Call) {
        let file = self.numbers.below(u64::from(SHARED)) as u8;
        let block = self.numbers.below(u64::from(BLOCKS)) as u8;
        // Of each write another, and never zero.
        let value = self.numbers.next_u64() | 1;
        let call = match self.numbers.below(16) {
            0..3 => Call::Get(file),
            3..5 => Call::Size(file),
            _ if !self.writes => Call::Get(file),
            5..10 => Call::Append(file, value),
            10..14 => Call::Put(file, block, value),
            14 => Call::Truncate(file, block),
            _ => Call::Zero(file, block),
        };
        (file, call)
    }

    fn make_call(&mut self, call: Call, of: (u8, HandleId)) {
        let start = self.scheduler.time();
        self.log.begin(self.number, (start, call.clone()));
        let seen = match self.perform(&call, of) {
            Ok(seen) => seen,
            Err(FsError::Io | FsError::TryAgain | FsError::NoDevice) => Seen::Unknown,
            Err(error) => Seen::Failed(error),
        };
        self.log.end(self.number);
        let entry = Entry {
            caller: self.number,
            start,
            end: self.scheduler.time(),
            call,
            seen,
        };
        self.log.lock().push(entry);
    }

    fn perform(&self, call: &Call, (file, handle): (u8, HandleId)) -> Result<Seen, FsError> {
        let fid = self.files[usize::from(file)];
        let byte = |block: u8| u64::from(block) * BLOCK_BYTES as u64;
        // The kernel lets one change a file at a time.
        let _alone = (!call.is_read()).then(|| self.locks.file(file));
        match *call {
            Call::Get(_) => {
                let read =
                    move |client: client::Client| async move { read_blocks(&client, handle).await };
                return self.desk.ask(read);
            }
            Call::Size(_) => {
                let asked = move |client: client::Client| async move { client.getattr(fid).await };
                return self.desk.ask(asked).map(|stat| Seen::Bytes(stat.attr.size));
            }
            Call::Put(_, block, value) => self.write((fid, handle), Some(byte(block)), value)?,
            Call::Append(_, value) => self.write((fid, handle), None, value)?,
            Call::Truncate(_, blocks) => {
                let cut = move |client: client::Client| async move {
                    let (caller, change) = (Caller::default(), SetAttr::default());
                    client
                        .setattr(caller, fid, change, Some(byte(blocks)))
                        .await
                };
                self.desk.ask(cut)?;
            }
            Call::Zero(_, block) => {
                let range = ByteRange::new(byte(block), byte(block + 1));
                let zeroed = move |client: client::Client| async move {
                    client.allocate(fid, range, AllocateMode::Zero).await
                };
                self.desk.ask(zeroed)?;
            }
            _ => return Err(FsError::NotSupported),
        }
        Ok(Seen::Done)
    }

    fn write(
        &self,
        (fid, handle): (Fid, HandleId),
        offset: Option<u64>,
        value: u64,
    ) -> Result<(), FsError> {
        let wish = WriteWish {
            append: offset.is_none(),
            ..WriteWish::default()
        };
        let at = offset.unwrap_or(0);
        let written = move |client: client::Client| {
            let bytes = block_of(value);
            async move { client.write(fid, Some(handle), at, &bytes, wish).await }
        };
        self.desk.ask(written).map(drop)
    }
}
