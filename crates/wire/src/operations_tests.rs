//! Every operation: its name, and whether a rule may hold it.

use base::{BootEpoch, ByteRange, Fid, LockHandle, Name, Timestamp, Transno};
use layout::ObjectId;

use crate::attr::FileKind;
use crate::codec::{decode, encode};
use crate::mdt::{
    self, Access, Caller, NewFile, OpenHandle, OpenIntent, RenameMode, SetAttr, WalkOrder,
    WriteTicket, XattrMode,
};
use crate::ost::{self, AllocateMode, UNDER_MDT};

const FID: Fid = Fid(1);
const NO_LOCK: LockHandle = LockHandle(0);
const LOCK: LockHandle = LockHandle(7);
const CALLER: Caller = Caller { uid: 500, gid: 0 };
const OBJECT: ObjectId = ObjectId {
    fid: FID,
    stripe: 0,
};
const TICKET: WriteTicket = WriteTicket {
    layout_generation: 0,
    open_epoch: 1,
};

fn name() -> Name {
    Name::new(b"name").expect("a name")
}

fn setattr(under: LockHandle) -> mdt::Request {
    mdt::Request::SetAttr {
        fid: FID,
        dir: FID,
        change: SetAttr::default(),
        caller: CALLER,
        under,
    }
}

fn open(intent: OpenIntent) -> mdt::Request {
    mdt::Request::Open {
        fid: FID,
        dir: FID,
        access: Access::default(),
        intent,
    }
}

fn write(under: LockHandle) -> ost::Request {
    ost::Request::Write {
        object: OBJECT,
        offset: 0,
        bulk: (0, 1),
        ticket: TICKET,
        mtime: Timestamp::default(),
        under,
        boot_epoch: BootEpoch(0),
    }
}

/// What names of the MDT's.
fn of_names() -> Vec<mdt::Request> {
    use mdt::Request::*;
    let (dir, caller) = (FID, CALLER);
    let file = NewFile {
        fid: FID,
        kind: FileKind::Regular,
        mode: 0,
        rdev: 0,
        target: Vec::new(),
    };
    vec![
        AllocSequences,
        GetAttr { fid: FID, dir },
        Lookup { dir, name: name() },
        LookupParent { dir },
        ReadDir {
            dir,
            cookie: 0,
            attrs_max: 1,
            entries_max: 1,
            bytes_max: 1,
        },
        Walk {
            walk: 1,
            levels: Vec::new(),
            order: WalkOrder::Cookie,
            bytes_max: 1,
            instead_of: 0,
        },
        ReadLink { fid: FID },
        Create {
            dir,
            name: name(),
            file: file.clone(),
            caller,
            open: None,
        },
        CreateNameless {
            dir,
            file,
            caller,
            open: Access {
                read: true,
                write: false,
                exec: false,
            },
        },
        Link {
            fid: FID,
            dir,
            name: name(),
        },
        Unlink {
            dir,
            name: name(),
            directory: false,
            caller,
        },
        Rename {
            source_dir: dir,
            source: name(),
            target_dir: dir,
            target: name(),
            mode: RenameMode::Replace,
            caller,
            whiteout: None,
        },
    ]
}

/// And of files and locks.
fn of_files() -> Vec<mdt::Request> {
    use mdt::Request::*;
    vec![
        setattr(NO_LOCK),
        setattr(LOCK),
        open(OpenIntent::First),
        open(OpenIntent::Reopen),
        Close {
            fid: FID,
            dir: Fid::NONE,
            handle: OpenHandle(1),
            change: mdt::SetAttr::default(),
            under: NO_LOCK,
        },
        GetXattrs { fid: FID },
        SetXattr {
            fid: FID,
            dir: Fid::NONE,
            name: Vec::new(),
            value: Vec::new(),
            mode: XattrMode::Set,
        },
        RemoveXattr {
            fid: FID,
            dir: Fid::NONE,
            name: Vec::new(),
        },
        Cancel {
            handles: vec![LOCK],
        },
        Convert {
            handle: LOCK,
            mode: 0,
            bits: 0,
        },
        Sync,
        Join {
            boot_epoch: BootEpoch(1),
        },
        StatFs,
        PathOf { fid: FID },
        Update {
            dirs: Vec::new(),
            changes: Vec::new(),
        },
        TakeLease { dir: FID },
        ReclaimLease { dir: FID },
    ]
}

fn of_ost() -> Vec<ost::Request> {
    use ost::Request::*;
    let (object, ticket, mtime) = (OBJECT, TICKET, Timestamp::default());
    let boot_epoch = BootEpoch(1);
    let cut = |under| Truncate {
        object,
        size: 0,
        ticket,
        mtime,
        under,
        boot_epoch,
    };
    let allocate = |under| Allocate {
        object,
        range: ByteRange::ALL,
        mode: AllocateMode::Extend,
        ticket,
        mtime,
        under,
        boot_epoch,
    };
    let watch = |again| Watch {
        object,
        writes: false,
        again,
    };
    vec![
        Enqueue {
            object,
            mode: 0,
            range: ByteRange::ALL,
        },
        Read {
            object,
            offset: 0,
            len: 1,
            lock_mode: 0,
            under: LOCK,
        },
        write(LOCK),
        write(UNDER_MDT),
        write(NO_LOCK),
        Append {
            object,
            bulk: (0, 1),
            ticket,
            mtime,
        },
        cut(LOCK),
        cut(UNDER_MDT),
        cut(NO_LOCK),
        allocate(LOCK),
        allocate(UNDER_MDT),
        allocate(NO_LOCK),
        Glimpse {
            object,
            speculative: false,
        },
        Seek {
            object,
            offset: 0,
            hole: false,
        },
        Sync,
        Destroy {
            objects: Vec::new(),
            watermark: ost::Watermark::default(),
        },
        Cancel {
            handles: vec![LOCK],
        },
        Convert {
            handle: LOCK,
            mode: 1,
        },
        watch(false),
        watch(true),
        Announce { object, size: 1 },
        StatFs,
        Join { boot_epoch },
        List {
            from: OBJECT,
            unrecorded: false,
            watermark: ost::Watermark::default(),
        },
        Watermark {
            watermark: ost::Watermark::default(),
            seen: Transno(0),
        },
        Inherit { object },
        Map { object, offset: 0 },
    ]
}

/// The names in the order of their numbers, which are the first bytes of their messages.
fn numbered<R: serde::Serialize>(
    all: &[R],
    name: impl Fn(&R) -> &'static str,
) -> Vec<&'static str> {
    let mut named: Vec<(u8, &str)> = all
        .iter()
        .map(|request| (crate::encode(request)[0], name(request)))
        .collect();
    named.sort_unstable();
    named.dedup();
    named.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn what_gives_back_is_urgent_and_nothing_else() {
    let all = [of_names(), of_files()].concat();
    assert_eq!(numbered(&all, mdt::Request::name), mdt::Request::NAMES);
    let urgent: Vec<_> = all.into_iter().filter(mdt::Request::is_urgent).collect();
    assert_eq!(urgent[..2], [setattr(LOCK), open(OpenIntent::Reopen)]);
    let rest: Vec<&str> = urgent[2..].iter().map(mdt::Request::name).collect();
    // Others wait until a restarted MDT has heard who has which directory to itself.
    assert_eq!(
        rest,
        [
            "close",
            "cancel",
            "convert",
            "mdt_join",
            "update",
            "reclaim_lease"
        ]
    );

    assert_eq!(numbered(&of_ost(), ost::Request::name), ost::Request::NAMES);
    let urgent: Vec<_> = of_ost()
        .into_iter()
        .filter(ost::Request::is_urgent)
        .collect();
    assert_eq!(urgent[0], write(NO_LOCK));
    let rest: Vec<&str> = urgent[1..].iter().map(ost::Request::name).collect();
    assert_eq!(
        rest,
        [
            "ost_punch",
            "ost_fallocate",
            "ldlm_cancel",
            "ldlm_extent_convert",
            "ldlm_watch",
            "ost_join",
            "ldlm_inherit"
        ]
    );
}

#[test]
fn who_changes_names_and_attributes_says_who_it_is() {
    let all = [of_names(), of_files()].concat();
    let mut asks: Vec<&str> = all
        .iter()
        .filter(|request| request.caller() == Some(CALLER))
        .map(mdt::Request::name)
        .collect();
    asks.dedup();
    assert_eq!(
        asks,
        ["create", "create_nameless", "unlink", "rename", "setattr"]
    );
}

#[test]
fn an_open_intent_is_two_booleans_on_the_wire() {
    for intent in [
        OpenIntent::First,
        OpenIntent::Reopen,
        OpenIntent::ReopenExclusive,
    ] {
        let bytes = encode(&intent);
        assert_eq!(bytes, encode(&<(bool, bool)>::from(intent)));
        assert_eq!(decode(&bytes), Ok(intent));
    }
    assert!(decode::<OpenIntent>(&encode(&(false, true))).is_err());
}
