//! Extended attributes that a set brings: of each file all at once, so that its sum is looked at once.

use std::collections::BTreeMap;

use base::limits::{XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use base::{Fid, FsError, Timestamp};
use wire::update::Change;
use wire::xattr::check_name;

use super::Set;
use super::wrong::{Checked, Of, refuse};
use crate::mutation::Mutation;
use crate::ops::context::Ctx;
use crate::ops::xattr::values;

/// One attribute that changes; `value` is `None` where it goes.
struct Changed<'r> {
    change: usize,
    name: &'r [u8],
    value: Option<&'r [u8]>,
    ctime: Timestamp,
}

impl<'r> Set<'r> {
    pub(super) fn change_xattrs(&mut self, ctx: &mut Ctx<'_, '_>) -> Checked<()> {
        let mut of_files: BTreeMap<Fid, Vec<Changed<'r>>> = BTreeMap::new();
        for (change, one) in self.changes.iter().enumerate() {
            let (fid, name, value, ctime) = match one {
                Change::SetXattr {
                    fid,
                    name,
                    value,
                    ctime,
                } => (*fid, &name[..], Some(&value[..]), *ctime),
                Change::RemoveXattr { fid, name, ctime } => (*fid, &name[..], None, *ctime),
                _ => continue,
            };
            of_files.entry(fid).or_default().push(Changed {
                change,
                name,
                value,
                ctime,
            });
        }
        of_files
            .into_iter()
            .try_for_each(|(fid, changed)| self.change_xattrs_of(ctx, fid, &changed))
    }

    fn change_xattrs_of(
        &mut self,
        ctx: &mut Ctx<'_, '_>,
        fid: Fid,
        changed: &[Changed<'r>],
    ) -> Checked<()> {
        let first = changed[0].change;
        let file = self.at_home(ctx, fid, first)?;
        let stored = match file.file.inode.has_xattrs {
            true => values(ctx.txn, fid).of(first)?,
            false => Vec::new(),
        };
        let lengths = stored.iter();
        let mut lengths: BTreeMap<&[u8], usize> = lengths
            .map(|(name, value)| (&name[..], value.len()))
            .collect();
        let mut seen = BTreeMap::new();
        for one in changed {
            check_name(one.name, file.file.inode.kind).of(one.change)?;
            if seen.insert(one.name, ()).is_some() {
                return refuse(one.change, FsError::Invalid);
            }
            let put = match one.value {
                Some(value) if value.len() > XATTR_VALUE_BYTES_MAX => {
                    return refuse(one.change, FsError::TooLarge);
                }
                Some(value) => {
                    ctx.check_room().of(one.change)?;
                    lengths.insert(one.name, value.len());
                    Mutation::PutXattr(fid, one.name.to_vec(), value.to_vec())
                }
                None if lengths.remove(one.name).is_none() => {
                    return refuse(one.change, FsError::NoAttribute);
                }
                None => Mutation::RemoveXattr(fid, one.name.to_vec()),
            };
            ctx.txn.change(put);
            file.changed(ctx, one.ctime);
        }
        let total: usize = lengths.iter().map(|(name, len)| name.len() + len).sum();
        let last = changed.last().map_or(first, |one| one.change);
        if total > XATTR_TOTAL_BYTES_MAX {
            return refuse(last, FsError::NoSpace);
        }
        file.file.inode.has_xattrs = !lengths.is_empty();
        Ok(())
    }
}
