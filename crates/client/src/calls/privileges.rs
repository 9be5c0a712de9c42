//! What a change of a file takes from its privileges: setuid, setgid and file capabilities.
//! SEMANTICS: op.write, op.setattr

use base::{Fid, FsError};
use wire::mdt::{Caller, Privileges, SetAttr};
use wire::{Attr, FileKind};

use crate::cache::file::FileState;
use crate::session::client::Client;
use crate::session::kernel::Forget;

/// The extended attribute that holds the capabilities of a program.
pub const CAPABILITY: &[u8] = b"security.capability";
const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;

/// What is changed of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Its bytes or its size.
    Content,
    /// Its owner or group, or nothing in a call that could change those.
    Owner,
    /// Nothing, as far as is known. As with a new owner, but nothing is taken where that is not allowed.
    Unknown,
}

/// The process that changes it. Asked only about a file that has something to lose.
pub trait Credentials {
    /// It may change the content of a file that is setuid or setgid, and leave it so (CAP_FSETID).
    fn keeps_set_id(&self) -> bool;

    /// It is a member of the group.
    fn is_in_group(&self, gid: u32) -> bool;

    /// It may set the mode of a file of this owner: as the owner, or by CAP_FOWNER.
    fn may_set_mode(&self, owner: u32) -> bool;
}

/// What `caller` takes from the mode when it changes a file.
fn taken(attr: &Attr, changed: Changed, caller: &impl Credentials) -> Privileges {
    let is_plain = attr.kind == FileKind::Regular;
    let has_any = attr.mode & (SETUID | SETGID) != 0 && attr.kind != FileKind::Directory;
    let keeps = changed == Changed::Content && (!is_plain || caller.keeps_set_id());
    if !has_any || keeps {
        return Privileges::Keep;
    }
    // Without group execution setgid is not for programs, and a matter of the group.
    let group_executes = attr.mode & 0o010 != 0;
    let of_group = attr.mode & SETGID != 0 && !group_executes;
    match of_group && !caller.is_in_group(attr.gid) && !caller.keeps_set_id() {
        true => Privileges::DropAll,
        false => Privileges::Drop,
    }
}

impl Client {
    /// Takes from the file what it must not keep when `caller` changes it. When this returns no mount
    /// and not the kernel believes in any of it, so the change itself may follow. A change of the owner that
    /// takes setuid or setgid is a change of the mode, and not permitted to all who may do the first.
    pub async fn drop_privileges(
        &self,
        fid: Fid,
        changed: Changed,
        caller: &impl Credentials,
    ) -> Result<(), FsError> {
        let Some(attr) = self.privileged(fid).await? else {
            return Ok(());
        };
        let privileges = taken(&attr, changed, caller);
        let had_mode = privileges.left_of(attr.mode) != attr.mode;
        if had_mode && changed != Changed::Content && !caller.may_set_mode(attr.uid) {
            return match changed {
                Changed::Unknown => Ok(()),
                _ => Err(FsError::NotPermitted),
            };
        }
        if had_mode {
            let change = SetAttr {
                privileges,
                ..SetAttr::default()
            };
            self.setattr(Caller::default(), fid, change, None).await?;
        }
        // A directory keeps it, as on a local disk: nothing comes of it there.
        let may_have = attr.has_xattrs && attr.kind != FileKind::Directory;
        let had_capability = may_have && self.drop_capability(fid).await?;
        if had_mode || had_capability {
            self.privileges_dropped(fid).await;
        }
        Ok(())
    }

    /// The file's owner, if `caller` may not take its privileges but by a change of the content.
    pub async fn owner_who_refuses(
        &self,
        fid: Fid,
        caller: &impl Credentials,
    ) -> Result<Option<u32>, FsError> {
        let Some(attr) = self.privileged(fid).await? else {
            return Ok(None);
        };
        let had_mode = taken(&attr, Changed::Owner, caller).left_of(attr.mode) != attr.mode;
        Ok((had_mode && !caller.may_set_mode(attr.uid)).then_some(attr.uid))
    }

    /// The file's attributes, if it may have privileges.
    async fn privileged(&self, fid: Fid) -> Result<Option<Attr>, FsError> {
        if !self.lock().mode_valid(fid) {
            self.wait_until(fid, FileState::being_told).await;
            self.ask_attributes(fid).await?;
        }
        let state = self.lock();
        let attr = state.cache.attr_of(fid).ok_or(FsError::Stale)?;
        let may_have = attr.has_xattrs || attr.mode & (SETUID | SETGID) != 0;
        Ok(may_have.then(|| attr.clone()))
    }

    /// Returns whether there was one.
    async fn drop_capability(&self, fid: Fid) -> Result<bool, FsError> {
        match self.getxattr(fid, CAPABILITY).await {
            Ok(_) => {}
            Err(FsError::NoAttribute) => return Ok(false),
            Err(error) => return Err(error),
        }
        match self.removexattr(fid, CAPABILITY.to_vec()).await {
            Ok(()) | Err(FsError::NoAttribute) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The kernel hears of a changed mode with the answers to its own questions only, and writing is
    /// none of them.
    async fn privileges_dropped(&self, fid: Fid) {
        let what = {
            let mut state = self.lock();
            state.cache.withdraw();
            let dir = state.cache.inode(fid).dir();
            Forget::Attributes { fid, dir }
        };
        self.0.forget(what).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct User {
        groups: Vec<u32>,
        root: bool,
    }

    impl Credentials for User {
        fn keeps_set_id(&self) -> bool {
            self.root
        }

        fn is_in_group(&self, gid: u32) -> bool {
            self.groups.contains(&gid)
        }

        fn may_set_mode(&self, _: u32) -> bool {
            self.root
        }
    }

    fn left(mode: u16, changed: Changed, groups: &[u32], root: bool) -> u16 {
        let attr = Attr {
            kind: FileKind::Regular,
            mode,
            uid: 0,
            gid: 7,
            nlink: 1,
            rdev: 0,
            has_xattrs: false,
            size_state: wire::SizeState::Strict,
            layout: layout::Layout::none(),
            atime: base::Timestamp::default(),
            mtime: base::Timestamp::default(),
            mtime_set: base::Timestamp::default(),
            ctime: base::Timestamp::default(),
            btime: base::Timestamp::default(),
            size: 0,
            blocks: 0,
            version: 1,
        };
        let groups = groups.to_vec();
        taken(&attr, changed, &User { groups, root }).left_of(mode)
    }

    #[test]
    fn a_change_of_content_takes_what_linux_takes() {
        let by_other = |mode| left(mode, Changed::Content, &[], false);
        let by_member = |mode| left(mode, Changed::Content, &[7], false);
        let by_root = |mode| left(mode, Changed::Content, &[], true);
        assert_eq!((by_other(0o6755), by_other(0o2644)), (0o755, 0o644));
        assert_eq!((by_member(0o6755), by_member(0o6644)), (0o755, 0o2644));
        assert_eq!((by_root(0o6755), by_root(0o2644)), (0o6755, 0o2644));
        assert_eq!(by_other(0o1777), 0o1777);
    }

    #[test]
    fn a_new_owner_takes_from_root_too() {
        let by_other = |mode| left(mode, Changed::Owner, &[], false);
        let by_root = |mode| left(mode, Changed::Owner, &[], true);
        assert_eq!((by_root(0o6755), by_root(0o6644)), (0o755, 0o2644));
        assert_eq!((by_other(0o6755), by_other(0o6644)), (0o755, 0o644));
    }
}
