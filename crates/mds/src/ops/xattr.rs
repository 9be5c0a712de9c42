//! `op.xattr`: extended attributes of the namespaces user,
//! trusted and security. That a file has none travels with its attributes.

use std::ops::ControlFlow;

use base::limits::{XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use base::{Fid, FsError};
use dlm::{Bits, Mode};
use storage::KeyRange;
use wire::mdt::{Reply, XattrMode};
use wire::xattr::check_name;

use super::context::{Ctx, Needs, Op, node};
use crate::keys::{self, Table};
use crate::mutation::Mutation;
use crate::records::Bytes;
use crate::store::missing;
use crate::txn::{File, Result, Txn};

pub type Values = Vec<(Vec<u8>, Vec<u8>)>;

/// See [`wire::mdt::Request::GetXattrs`].
pub struct GetXattrs {
    pub fid: Fid,
}

impl Op for GetXattrs {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let file = ctx.txn.file(self.fid)?;
        let values = if file.inode.has_xattrs {
            values(ctx.txn, self.fid)?
        } else {
            Vec::new()
        };
        Ok(Reply::Xattrs {
            values,
            cover: None,
        })
    }
}

/// See [`wire::mdt::Request::SetXattr`].
pub struct SetXattr<'r> {
    pub fid: Fid,
    pub name: &'r [u8],
    pub value: &'r [u8],
    pub mode: XattrMode,
}

impl Op for SetXattr<'_> {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        let file = ctx.txn.file(self.fid)?;
        check_name(self.name, file.inode.kind)?;
        if self.value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(FsError::TooLarge.into());
        }
        ctx.check_room()?;
        Ok(needs(&file))
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        ctx.check_room()?;
        let mut file = ctx.txn.file(self.fid)?;
        let mut values = values(ctx.txn, self.fid)?;
        let exists = values.iter().any(|(name, _)| name == self.name);
        match self.mode {
            XattrMode::Create if exists => return Err(FsError::Exists.into()),
            XattrMode::Replace if !exists => return Err(FsError::NoAttribute.into()),
            _ => {}
        }
        values.retain(|(name, _)| name != self.name);
        let others: usize = values
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if others + self.name.len() + self.value.len() > XATTR_TOTAL_BYTES_MAX {
            return Err(FsError::NoSpace.into());
        }
        let put = Mutation::PutXattr(self.fid, self.name.to_vec(), self.value.to_vec());
        ctx.txn.change(put);
        changed(ctx, &mut file, true)
    }
}

/// See [`wire::mdt::Request::RemoveXattr`].
pub struct RemoveXattr<'r> {
    pub fid: Fid,
    pub name: &'r [u8],
}

impl Op for RemoveXattr<'_> {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        let file = ctx.txn.file(self.fid)?;
        check_name(self.name, file.inode.kind)?;
        Ok(needs(&file))
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let mut file = ctx.txn.file(self.fid)?;
        let values = values(ctx.txn, self.fid)?;
        if !values.iter().any(|(name, _)| name == self.name) {
            return Err(FsError::NoAttribute.into());
        }
        ctx.txn
            .change(Mutation::RemoveXattr(self.fid, self.name.to_vec()));
        changed(ctx, &mut file, values.len() > 1)
    }
}

/// All of a file's, in name order.
pub fn values(txn: &Txn<'_>, fid: Fid) -> Result<Values> {
    let mut values = Vec::new();
    let range = KeyRange::prefix(&keys::fid(fid));
    txn.store()
        .scan(Table::Xattrs, &range, |key, value: Bytes| {
            let (_, name) = keys::parse_xattr(key).ok_or_else(|| missing("xattr name", fid))?;
            values.push((name.to_vec(), value.0));
            Ok(ControlFlow::Continue(()))
        })?;
    Ok(values)
}

fn needs(file: &File) -> Needs {
    let mut needs = Needs::default();
    if file.inode.is_dir() {
        needs.lock(file.fid, Mode::EX, Bits::XATTR | Bits::PERM);
    } else {
        needs.attributes(file, Bits::XATTR | Bits::PERM | Bits::UPDATE);
    }
    needs
}

fn changed(ctx: &mut Ctx<'_, '_>, file: &mut File, has_xattrs: bool) -> Result<Reply> {
    file.inode.has_xattrs = has_xattrs;
    file.inode.ctime = ctx.txn.now;
    ctx.txn.save(file)?;
    Ok(Reply::Node(node(file.fid, &file.inode)))
}
