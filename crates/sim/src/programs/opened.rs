//! Files that a program keeps open while their names change: it moves them to another directory, and
//! others remove them there. They are the program's until it closes them.

use base::{FsError, Rng};
use client::OpenWish;
use client::executor::block_on;
use wire::FileKind;
use wire::mdt::Access;

use super::attributes::lost;
use super::bounds::{BLOCKS, DIRS};
use super::bytes::{read_blocks, write_block};
use super::program::{Opened, Program};
use crate::history::{Call, Seen, Slot};

impl Program {
    /// Opens a file and moves it; or does its work on what it has open, and closes that. The last call is
    /// left to do. In between it does other things, as long as chance says.
    pub(super) fn keep_open(&mut self, slot: Slot) -> Call {
        if let Some(opened) = self.opened {
            self.write_if_open(opened);
            return Call::ReadOpen(opened.fid);
        }
        let writes = self.numbers.below(3) == 0;
        self.make_call(Call::Open(slot, writes));
        let Some(opened) = self.opened else {
            return self.make_full(slot);
        };
        self.write_if_open(opened);
        let elsewhere = (slot.dir + 1 + self.numbers.below(u64::from(DIRS) - 1) as u8) % DIRS;
        let to = Slot {
            dir: elsewhere,
            ..self.slot()
        };
        match self.numbers.below(3) {
            0 => Call::Exchange(slot, to),
            _ => Call::Rename(slot, to),
        }
    }

    /// Makes a file with bytes for others to open. The last call is left to do.
    fn make_full(&mut self, slot: Slot) -> Call {
        self.make_call(Call::Create(slot));
        self.make_call(Call::Open(slot, true));
        let Some(opened) = self.opened else {
            return Call::Lookup(slot);
        };
        self.write_if_open(opened);
        Call::ReadOpen(opened.fid)
    }

    fn write_if_open(&mut self, opened: Opened) {
        if opened.writes {
            let block = self.numbers.below(u64::from(BLOCKS)) as u8;
            let value = self.number();
            self.make_call(Call::WriteOpen(opened.fid, block, value));
        }
    }

    /// Opens what a name leads to, if that is a file.
    pub(super) fn open(&mut self, slot: Slot, writes: bool) -> Result<Seen, FsError> {
        let wish = OpenWish {
            access: Access {
                read: true,
                write: writes,
                exec: false,
            },
            append: false,
        };
        let (fid, opened) = self.at_name(slot, |client, entry| {
            let (fid, asked) = (entry.fid, client.clone());
            let handle = match entry.attr.kind {
                FileKind::Regular => block_on(async move { asked.open(fid, wish).await }).map(Some),
                _ => Ok(None),
            };
            if !matches!(handle, Ok(Some(_))) {
                client.forget(fid, 1);
            }
            let opened = handle?.map(|opened| Opened {
                fid,
                handle: opened.handle,
                writes,
            });
            Ok((fid, opened))
        })?;
        self.opened = opened;
        Ok(Seen::File(fid))
    }

    /// Writes a block, durably where clients are given up.
    pub(super) fn write_open(&self, block: u8, value: u64) -> Result<Seen, FsError> {
        let Opened { fid, handle, .. } = self.opened.ok_or(FsError::BadHandle)?;
        let is_lazy = self.lazy && value & 2 != 0;
        let (client, _held) = (self.client.clone(), self.locks.opened());
        let written = write_block(client.clone(), (fid, handle), Some(block), value);
        let synced = written.and_then(|()| match is_lazy {
            true => Ok(()),
            false => block_on(async move { client.fsync(handle).await }),
        });
        synced.map(|()| Seen::Done).map_err(lost)
    }

    /// Asks for the attributes, which an empty file has too, reads, and closes.
    pub(super) fn read_open(&mut self) -> Result<Seen, FsError> {
        let Opened { fid, handle, .. } = self.opened.ok_or(FsError::BadHandle)?;
        let client = self.client.clone();
        let read = block_on(async move {
            client.getattr(fid).await?;
            read_blocks(&client, handle).await
        });
        self.close();
        read.map_err(lost)
    }

    /// Closes what is open. What went with its machine is open no more.
    pub(super) fn close(&mut self) {
        let opened = self.opened.take();
        let Some(Opened { fid, handle, .. }) =
            opened.filter(|_| self.seat.crashes() == self.crashes)
        else {
            return;
        };
        let client = self.client.clone();
        // What could not be written is missed by who reads it.
        let _ = block_on(async move { client.flush(handle).await });
        self.client.release(handle);
        self.client.forget(fid, 1);
    }
}
