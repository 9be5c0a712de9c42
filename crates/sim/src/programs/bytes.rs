//! Calls on bytes.

use std::ops::Range;

use base::{ByteRange, Fid, FsError};
use client::executor::block_on;
use client::{Client, HandleId, OpenWish, ReadTo, WriteWish};
use wire::mdt::{Access, Caller, SetAttr};
use wire::ost::AllocateMode;

use super::program::Program;
use crate::history::Seen;

/// Bytes that are written at once.
pub(crate) const BLOCK_BYTES: usize = 64;
/// More than any file has.
pub(crate) const READ_BYTES: u64 = 1 << 16;

/// The number that a block is full of; nothing written is zero. What is torn, or too short, is a
/// number that nobody writes.
fn value_of(block: &[u8]) -> u64 {
    let (words, rest) = block.as_chunks();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let first = words.next().unwrap_or(u64::MAX);
    let is_whole = rest.is_empty() && block.len() == BLOCK_BYTES;
    match is_whole && words.all(|word| word == first) {
        true => first,
        false => u64::MAX,
    }
}

async fn open(client: &Client, fid: Fid, write: bool) -> Result<HandleId, FsError> {
    let access = Access {
        read: !write,
        write,
        exec: false,
    };
    let wish = OpenWish {
        access,
        append: false,
    };
    let opened = match client.open(fid, wish).await {
        // The kernel asks for the path's names again then, and to open, once.
        Err(FsError::Stale) => {
            let again = client.lookup_self(fid).await?;
            client.forget(again.fid, 1);
            client.open(again.fid, wish).await
        }
        opened => opened,
    };
    opened.map(|opened| opened.handle)
}

/// Opens a file and reads all of it.
pub(super) async fn read_whole(client: &Client, fid: Fid) -> Result<Seen, FsError> {
    let handle = open(client, fid, false).await?;
    let read = read_blocks(client, handle).await;
    client.release(handle);
    read
}

/// Reads all of an open file.
pub(super) async fn read_blocks(client: &Client, handle: HandleId) -> Result<Seen, FsError> {
    let read = client.read(handle, 0, READ_BYTES, ReadTo::Caller).await;
    let bytes = read.map(|data| data.pieces.concat())?;
    let blocks = bytes.chunks(BLOCK_BYTES).map(value_of).collect();
    Ok(Seen::Blocks(blocks))
}

/// Writes a block of an open file, or one more at its end.
pub(super) fn write_block(
    client: Client,
    (fid, handle): (Fid, HandleId),
    block: Option<u8>,
    value: u64,
) -> Result<(), FsError> {
    let bytes = block_of(value);
    let wish = WriteWish {
        append: block.is_none(),
        ..WriteWish::default()
    };
    let offset = u64::from(block.unwrap_or(0)) * BLOCK_BYTES as u64;
    let written = async move { client.write(fid, Some(handle), offset, &bytes, wish).await };
    block_on(written).map(drop)
}

/// A block full of the number.
pub(super) fn block_of(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

impl Program {
    /// Writes a block, or one more at the end. Where clients are given up it is durable when this
    /// returns, for nothing else survives.
    pub(super) fn put(&self, file: u8, block: Option<u8>, value: u64) -> Result<Seen, FsError> {
        let is_lazy = self.lazy && value & 2 != 0;
        self.changed(file, is_lazy, |client, fid, handle| {
            write_block(client, (fid, handle), block, value)
        })
    }

    /// Makes the file so many blocks long, durably.
    pub(super) fn truncate(&self, file: u8, blocks: u8) -> Result<Seen, FsError> {
        self.changed(file, false, |client, fid, _| {
            let size = u64::from(blocks) * BLOCK_BYTES as u64;
            let (caller, change) = (Caller::default(), SetAttr::default());
            let cut = async move { client.setattr(caller, fid, change, Some(size)).await };
            block_on(cut).map(drop)
        })
    }

    /// Has space for some of a file's blocks, or none and zeros, durably.
    pub(super) fn allocate(
        &self,
        file: u8,
        blocks: Range<u8>,
        mode: AllocateMode,
    ) -> Result<Seen, FsError> {
        self.changed(file, false, |client, fid, _| {
            let byte = |block: u8| u64::from(block) * BLOCK_BYTES as u64;
            let range = ByteRange::new(byte(blocks.start), byte(blocks.end));
            block_on(async move { client.allocate(fid, range, mode).await })
        })
    }

    /// Opens a file, lets `change` change it, makes that durable, and closes.
    fn changed(
        &self,
        file: u8,
        is_lazy: bool,
        change: impl FnOnce(Client, Fid, HandleId) -> Result<(), FsError>,
    ) -> Result<Seen, FsError> {
        let (fid, client) = (self.files[usize::from(file)], self.client.clone());
        let opening = client.clone();
        let handle = block_on(async move { open(&opening, fid, true).await })?;
        let changed = {
            let _held = self.locks.file(file);
            change(client.clone(), fid, handle)
        };
        let syncing = client.clone();
        let synced = match is_lazy {
            true => block_on(async move { syncing.flush(handle).await }),
            false => {
                let _held = self.locks.file(file);
                block_on(async move { syncing.fsync(handle).await })
            }
        };
        client.release(handle);
        changed?;
        synced.map(|()| Seen::Done)
    }

    pub(super) fn get(&self, file: u8) -> Result<Seen, FsError> {
        let (fid, client) = (self.files[usize::from(file)], self.client.clone());
        block_on(async move { read_whole(&client, fid).await })
    }

    pub(super) fn size(&self, file: u8) -> Result<Seen, FsError> {
        let (fid, client) = (self.files[usize::from(file)], self.client.clone());
        let attr = block_on(async move { client.getattr(fid).await })?.attr;
        Ok(Seen::Bytes(attr.size))
    }
}
