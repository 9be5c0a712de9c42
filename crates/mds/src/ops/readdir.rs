//! `op.readdir`: a page of a directory in cookie order, which is the order of its key range. A name
//! that is there all the while is met once, whatever else comes and goes between pages.

use std::ops::ControlFlow;

use base::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};
use base::{Fid, FsError, Name};
use storage::KeyRange;
use wire::mdt::{DirEntry, Lease, Page, Reply};
use wire::{Cover, Node};

use super::context::{Ctx, Op, dir_state, node};
use crate::keys::{self, Spot, Table};
use crate::records::Dirent;
use crate::store::missing;
use crate::txn::{Result, Txn};

/// Cookies up to this one are not of names: the start, `.` and `..`.
const DOTS: u64 = 2;
/// Bytes of an entry beside its name, rounded up; and of its attributes.
const ENTRY_BYTES: usize = 24;
const NODE_BYTES: usize = 140;

/// About how many bytes an entry takes in an answer.
pub fn entry_bytes(name: &Name, attributes: bool) -> usize {
    ENTRY_BYTES + name.as_bytes().len() + if attributes { NODE_BYTES } else { 0 }
}

/// See [`wire::mdt::Request::ReadDir`].
pub struct ReadDir {
    pub dir: Fid,
    pub cookie: u64,
    pub attrs_max: u32,
    pub entries_max: u32,
    pub bytes_max: u32,
}

impl Op for ReadDir {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        self.page(ctx.txn).map(Reply::Page)
    }
}

impl ReadDir {
    /// The page, which carries no locks yet.
    pub fn page(&self, txn: &Txn<'_>) -> Result<Page> {
        if self.entries_max == 0 || self.cookie >= 1 << 63 {
            return Err(FsError::Invalid.into());
        }
        let dir = txn.dir(self.dir)?;
        let (mut entries, end) = self.names(txn)?;
        for entry in entries.iter_mut().take(self.attrs_max as usize) {
            // Of directories and files with several names the attributes are elsewhere.
            if entry.node.is_none() {
                let file = txn.file(entry.fid)?;
                entry.node = Some(node(entry.fid, &file.inode));
            }
        }
        Ok(Page {
            lease: Lease::None,
            dir: dir_state(self.dir, &dir),
            entries,
            end,
            covers_list: false,
        })
    }

    fn names(&self, txn: &Txn<'_>) -> Result<(Vec<DirEntry>, bool)> {
        let first = Spot {
            dir: self.dir,
            cookie: self.cookie.max(DOTS) + 1,
        };
        let end = Fid(self.dir.0 + 1);
        let range = KeyRange::new(keys::dirent(first), keys::fid(end));
        let entries_max = (self.entries_max as usize).min(PAGE_ENTRIES_MAX);
        let bytes_max = (self.bytes_max as usize).min(PAGE_BYTES_MAX);
        let (mut entries, mut bytes, mut end) = (Vec::new(), 0, true);
        txn.store()
            .scan(Table::Dirents, &range, |key, dirent: Dirent| {
                let attributes = entries.len() < self.attrs_max as usize;
                bytes += entry_bytes(&dirent.name, attributes);
                if !entries.is_empty() && (entries.len() >= entries_max || bytes > bytes_max) {
                    end = false;
                    return Ok(ControlFlow::Break(()));
                }
                let spot = keys::parse_dirent(key).ok_or_else(|| missing("cookie", self.dir))?;
                let inode = dirent.inode.filter(|_| attributes);
                entries.push(DirEntry {
                    cookie: spot.cookie,
                    node: inode.map(|inode| Node {
                        fid: dirent.fid,
                        attr: inode.into_attr(),
                        cover: Cover::None,
                    }),
                    name: dirent.name,
                    fid: dirent.fid,
                    kind: dirent.kind,
                    is_outside: false,
                });
                Ok(ControlFlow::Continue(()))
            })?;
        Ok((entries, end))
    }
}
