//! One sound request of each kind, by its name: what scripts change fields of.

use base::{BootEpoch, ByteRange, Fid, LockHandle, Name, TargetName, Timestamp, Transno};
use layout::ObjectId;
use wire::mdt::{
    self, Access, Caller, NewFile, OpenHandle, OpenIntent, SetAttr, SetTime, SizeUpdate,
    WriteTicket,
};
use wire::{FileKind, mgs, ost};

use crate::shape::Node;

const TIME: Timestamp = Timestamp { secs: 5, nanos: 7 };
const TICKET: WriteTicket = WriteTicket {
    layout_generation: 1,
    open_epoch: 1 << 40,
};
const CALLER: Caller = Caller { uid: 0, gid: 0 };

fn object() -> ObjectId {
    ObjectId {
        fid: Fid::new(Fid::SEQUENCE_FIRST, 1),
        stripe: 0,
    }
}

fn watermark() -> ost::Watermark {
    ost::Watermark {
        epoch_stamp: TIME,
        begun: Transno(1),
        committed: Transno(2),
    }
}

/// Those of the target whose kind is called so.
pub fn of(kind: &str) -> Vec<(&'static str, Node)> {
    match kind {
        "mgs" => of_mgs(),
        "mdt" => of_mdt(),
        "ost" => of_ost(),
        other => panic!("no target is called {other:?}"),
    }
}

fn of_mgs() -> Vec<(&'static str, Node)> {
    let target = mgs::TargetInfo {
        name: TargetName::ost(0),
        uuid: [7; 16],
        addresses: vec!["10.0.0.1:7988".to_owned()],
    };
    let targets = vec![target];
    vec![
        ("getconfig", Node::of(&mgs::Request::GetConfig)),
        ("register", Node::of(&mgs::Request::Register { targets })),
        (
            "remove",
            Node::of(&mgs::Request::Remove {
                target: TargetName::ost(0),
            }),
        ),
    ]
}

fn of_ost() -> Vec<(&'static str, Node)> {
    use ost::Request::*;
    let (object, ticket, mtime, boot_epoch) = (object(), TICKET, TIME, BootEpoch(0));
    let (none, range, watermark) = (LockHandle(0), ByteRange::new(0, 4096), watermark());
    let all = [
        (
            "enqueue",
            Enqueue {
                object,
                mode: 2,
                range,
            },
        ),
        (
            "read",
            Read {
                object,
                offset: 0,
                len: 10,
                lock_mode: 0,
                under: none,
            },
        ),
        (
            "write",
            Write {
                object,
                offset: 0,
                bulk: (0, 8),
                ticket,
                mtime,
                under: ost::UNDER_MDT,
                boot_epoch,
            },
        ),
        (
            "append",
            Append {
                object,
                bulk: (0, 8),
                ticket,
                mtime,
            },
        ),
        (
            "truncate",
            Truncate {
                object,
                size: 3,
                ticket,
                mtime,
                under: none,
                boot_epoch,
            },
        ),
        (
            "allocate",
            Allocate {
                object,
                range,
                mode: ost::AllocateMode::KeepSize,
                ticket,
                mtime,
                under: none,
                boot_epoch,
            },
        ),
        (
            "glimpse",
            Glimpse {
                object,
                speculative: false,
            },
        ),
        (
            "seek",
            Seek {
                object,
                offset: 0,
                hole: true,
            },
        ),
        ("map", Map { object, offset: 0 }),
        ("sync", Sync),
        (
            "destroy",
            Destroy {
                objects: vec![(object, 1)],
                watermark,
            },
        ),
        (
            "cancel",
            Cancel {
                handles: vec![LockHandle(1)],
            },
        ),
        ("statfs", StatFs),
        (
            "join",
            Join {
                boot_epoch: BootEpoch(1),
            },
        ),
        (
            "list",
            List {
                from: object,
                unrecorded: false,
                watermark,
            },
        ),
        (
            "watermark",
            Watermark {
                watermark,
                seen: Transno(1 << 60),
            },
        ),
    ];
    all.iter()
        .map(|(name, request)| (*name, Node::of(request)))
        .collect()
}

fn change() -> SetAttr {
    SetAttr {
        mode: Some(0o640),
        uid: Some(0),
        gid: Some(0),
        atime: Some(SetTime::At(TIME)),
        mtime: Some(SetTime::At(TIME)),
        ctime: Some(TIME),
        size: Some(SizeUpdate {
            size: 5,
            blocks: 8,
            mtime: TIME,
            committed: true,
        }),
        privileges: mdt::Privileges::DropAll,
    }
}

fn of_mdt() -> Vec<(&'static str, Node)> {
    use mdt::Request::*;
    let (dir, caller, under) = (Fid::ROOT, CALLER, LockHandle(0));
    let fid = Fid::new(Fid::SEQUENCE_FIRST, 1);
    let name = Name::new(b"name").expect("a name");
    let file = NewFile {
        fid,
        kind: FileKind::Regular,
        mode: 0o644,
        rdev: 0,
        target: b"to".to_vec(),
    };
    let access = Access {
        read: true,
        write: true,
        exec: false,
    };
    let levels = vec![mdt::WalkLevel {
        dir,
        cookie: 0,
        listed: false,
    }];
    let order = mdt::WalkOrder::Breadth {
        depth: 1,
        deeper: true,
    };
    let xattr = || b"user.colour".to_vec();
    let all = [
        ("allocsequences", AllocSequences),
        ("getattr", GetAttr { fid: dir, dir }),
        (
            "lookup",
            Lookup {
                dir,
                name: name.clone(),
            },
        ),
        ("lookupparent", LookupParent { dir }),
        (
            "readdir",
            ReadDir {
                dir,
                cookie: 0,
                attrs_max: 10,
                entries_max: 10,
                bytes_max: 4096,
            },
        ),
        ("readlink", ReadLink { fid }),
        (
            "create",
            Create {
                dir,
                name: name.clone(),
                file,
                caller,
                open: Some(access),
            },
        ),
        (
            "link",
            Link {
                fid,
                dir,
                name: name.clone(),
            },
        ),
        (
            "unlink",
            Unlink {
                dir,
                name: name.clone(),
                directory: false,
                caller,
            },
        ),
        (
            "rename",
            Rename {
                source_dir: dir,
                source: name.clone(),
                target_dir: dir,
                target: name.clone(),
                mode: mdt::RenameMode::Exchange,
                caller,
                whiteout: Some(fid),
            },
        ),
        (
            "setattr",
            SetAttr {
                fid: dir,
                dir,
                change: change(),
                caller,
                under,
            },
        ),
        (
            "open",
            Open {
                fid,
                dir,
                access,
                intent: OpenIntent::First,
            },
        ),
        (
            "close",
            Close {
                fid,
                dir: Fid::NONE,
                handle: OpenHandle(1),
                change: change(),
                under,
            },
        ),
        ("getxattrs", GetXattrs { fid: dir }),
        (
            "setxattr",
            SetXattr {
                fid: dir,
                dir: Fid::NONE,
                name: xattr(),
                value: b"red".to_vec(),
                mode: mdt::XattrMode::Set,
            },
        ),
        (
            "removexattr",
            RemoveXattr {
                fid: dir,
                dir: Fid::NONE,
                name: xattr(),
            },
        ),
        (
            "cancel",
            Cancel {
                handles: vec![LockHandle(1)],
            },
        ),
        (
            "convert",
            Convert {
                handle: LockHandle(1),
                mode: 1,
                bits: 3,
            },
        ),
        ("sync", Sync),
        (
            "join",
            Join {
                boot_epoch: BootEpoch(1),
            },
        ),
        ("statfs", StatFs),
        ("pathof", PathOf { fid }),
        ("take-lease", TakeLease { dir: fid }),
        ("reclaim-lease", ReclaimLease { dir: fid }),
        (
            "walk",
            Walk {
                walk: 1,
                levels,
                order,
                bytes_max: 4096,
                instead_of: 0,
            },
        ),
    ];
    all.iter()
        .map(|(name, request)| (*name, Node::of(request)))
        .collect()
}
