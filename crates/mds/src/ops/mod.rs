//! The operations of the metadata server, one file each.

mod access;
mod close;
pub(crate) mod context;
mod create;
pub(crate) mod getattr;
mod lease;
mod link;
mod lookup;
pub(crate) mod open;
mod path;
pub(crate) mod readdir;
mod rename;
mod sequence;
mod setattr;
mod statfs;
mod unlink;
pub(crate) mod update;
mod xattr;

use wire::mdt::Request;

use context::Op;

/// Calls `with` with the operation of `request`. There is none (`None`) for requests about locks, durability
/// and walks of trees, which belong to the core.
pub fn with_op<R>(request: &Request, with: impl FnOnce(&dyn Op) -> R) -> Option<R> {
    match request {
        Request::Create { .. }
        | Request::CreateNameless { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::Rename { .. }
        | Request::Update { .. } => with_name_op(request, with),
        Request::SetAttr { .. }
        | Request::Open { .. }
        | Request::Close { .. }
        | Request::GetXattrs { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. } => with_file_op(request, with),
        Request::AllocSequences
        | Request::GetAttr { .. }
        | Request::Lookup { .. }
        | Request::LookupParent { .. }
        | Request::ReadDir { .. }
        | Request::ReadLink { .. }
        | Request::StatFs
        | Request::PathOf { .. }
        | Request::TakeLease { .. } => with_look(request, with),
        Request::Walk { .. }
        | Request::Cancel { .. }
        | Request::Convert { .. }
        | Request::Join { .. }
        | Request::ReclaimLease { .. }
        | Request::Sync => None,
    }
}

/// The same for what changes names.
fn with_name_op<R>(request: &Request, with: impl FnOnce(&dyn Op) -> R) -> Option<R> {
    Some(match request {
        Request::Create {
            dir,
            name,
            file,
            caller,
            open,
        } => with(&create::Create {
            dir: *dir,
            name: Some(name),
            file,
            caller: *caller,
            open: *open,
        }),
        Request::CreateNameless {
            dir,
            file,
            caller,
            open,
        } => with(&create::Create {
            dir: *dir,
            name: None,
            file,
            caller: *caller,
            open: Some(*open),
        }),
        Request::Link { fid, dir, name } => with(&link::Link {
            fid: *fid,
            dir: *dir,
            name,
        }),
        Request::Unlink {
            dir,
            name,
            directory,
            caller,
        } => {
            let (directory, caller) = (*directory, *caller);
            with(&unlink::Unlink {
                dir: *dir,
                name,
                directory,
                caller,
            })
        }
        Request::Rename {
            source_dir,
            source,
            target_dir,
            target,
            mode,
            caller,
            whiteout,
        } => with(&rename::Rename {
            source_dir: *source_dir,
            source,
            target_dir: *target_dir,
            target,
            mode: *mode,
            caller: *caller,
            whiteout: *whiteout,
        }),
        Request::Update { dirs, changes } => with(&update::Update { dirs, changes }),
        _ => return None,
    })
}

/// The same for what is about one file.
fn with_file_op<R>(request: &Request, with: impl FnOnce(&dyn Op) -> R) -> Option<R> {
    Some(match request {
        Request::SetAttr {
            fid,
            change,
            under,
            caller,
            ..
        } => with(&setattr::SetAttrOp {
            fid: *fid,
            change,
            under: *under,
            caller: *caller,
        }),
        Request::Open {
            fid,
            access,
            intent,
            ..
        } => with(&open::Open {
            fid: *fid,
            access: *access,
            intent: *intent,
        }),
        Request::Close {
            fid,
            handle,
            change,
            under,
            ..
        } => with(&close::Close {
            fid: *fid,
            handle: *handle,
            change,
            under: *under,
        }),
        Request::GetXattrs { fid } => with(&xattr::GetXattrs { fid: *fid }),
        Request::SetXattr {
            fid,
            name,
            value,
            mode,
            ..
        } => with(&xattr::SetXattr {
            fid: *fid,
            name,
            value,
            mode: *mode,
        }),
        Request::RemoveXattr { fid, name, .. } => with(&xattr::RemoveXattr { fid: *fid, name }),
        _ => return None,
    })
}

/// The same for what changes nothing in the namespace.
fn with_look<R>(request: &Request, with: impl FnOnce(&dyn Op) -> R) -> Option<R> {
    Some(match request {
        Request::AllocSequences => with(&sequence::AllocSequences),
        Request::GetAttr { fid, .. } => with(&getattr::GetAttr { fid: *fid }),
        Request::Lookup { dir, name } => with(&lookup::Lookup { dir: *dir, name }),
        Request::LookupParent { dir } => with(&lookup::LookupParent { dir: *dir }),
        Request::ReadDir {
            dir,
            cookie,
            attrs_max,
            entries_max,
            bytes_max,
        } => with(&readdir::ReadDir {
            dir: *dir,
            cookie: *cookie,
            attrs_max: *attrs_max,
            entries_max: *entries_max,
            bytes_max: *bytes_max,
        }),
        Request::ReadLink { fid } => with(&getattr::ReadLink { fid: *fid }),
        Request::StatFs => with(&statfs::StatFs),
        Request::TakeLease { dir } => with(&lease::TakeLease { dir: *dir }),
        Request::PathOf { fid } => with(&path::PathOf { fid: *fid }),
        _ => return None,
    })
}
