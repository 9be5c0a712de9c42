//! Calls on bytes.

use base::{Fid, FsError};
use client::executor::block_on;
use client::{Client, HandleId, OpenWish, WriteWish};
use wire::mdt::Access;

use super::Program;
use crate::history::Seen;

/// Bytes that are written and read at once.
const BYTES: usize = 64;

/// The number that `bytes` are full of; nothing written is zero. What is torn is a number that
/// nobody writes.
fn value_of(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks(8).map(|word| {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        u64::from_le_bytes(padded)
    });
    let first = words.next().unwrap_or(0);
    match words.all(|word| word == first) {
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

impl Program {
    /// Durable when it returns: of a client that is given up nothing else survives.
    pub(super) fn put(&self, file: u8, value: u64) -> Result<Seen, FsError> {
        let (fid, client) = (self.files[usize::from(file)], self.client.clone());
        block_on(async move {
            let handle = open(&client, fid, true).await?;
            let bytes = value.to_le_bytes().repeat(BYTES / 8);
            let wish = WriteWish {
                append: false,
                write_back: false,
                kill_privileges: false,
            };
            let written = client.write(fid, Some(handle), 0, &bytes, wish).await;
            let synced = client.fsync(handle).await;
            client.release(handle);
            written?;
            synced.map(|()| Seen::Done)
        })
    }

    pub(super) fn get(&self, file: u8) -> Result<Seen, FsError> {
        let (fid, client) = (self.files[usize::from(file)], self.client.clone());
        block_on(async move {
            let handle = open(&client, fid, false).await?;
            let read = client.read(handle, 0, BYTES as u64).await;
            let bytes = read.map(|data| data.pieces.concat());
            client.release(handle);
            Ok(Seen::Value(value_of(&bytes?)))
        })
    }
}
