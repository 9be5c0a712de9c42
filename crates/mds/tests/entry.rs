//! Requests enter directories to which another client has the write lease.

mod support;

use std::time::Duration;

use base::{ClientId, Fid, FsError, LockHandle, Xid};
use dlm::{Bits, Mode};
use mds::locks::WRITE_LEASE;
use support::*;
use wire::FileKind;
use wire::mdt::{
    Callback, OpenIntent, RenameMode, Reply, Request, SetAttr, WalkLevel, WalkOrder, XattrMode,
};

/// A directory with files, of which a client has the write lease.
struct Held {
    world: World,
    holder: ClientId,
    visitor: ClientId,
    dir: Fid,
    lease: LockHandle,
    /// In the directory: a file, a link of which the other name is elsewhere, a symlink, a directory.
    file: Fid,
    linked: Fid,
    symlink: Fid,
    sub: Fid,
    /// A file in another directory.
    outside: Fid,
}

impl Held {
    fn new() -> Held {
        let mut world = World::new();
        let (holder, visitor) = (world.connect(1), world.connect(2));
        let dir = world.mkdir(holder, Fid::ROOT, "d");
        let file = world.touch(holder, dir, "f");
        let linked = world.touch(holder, dir, "l");
        world.link(holder, linked, Fid::ROOT, "m").expect("linked");
        let symlink = world.make(holder, dir, "s", FileKind::Symlink);
        let sub = world.mkdir(holder, dir, "sub");
        let outside = world.touch(holder, Fid::ROOT, "g");
        world.fid(visitor);
        world.flush();
        world.client(holder).manners = Manners::Silent;
        world.client(holder).asked.clear();
        let mut held = Held {
            world,
            holder,
            visitor,
            dir,
            lease: LockHandle::default(),
            file,
            linked,
            symlink,
            sub,
            outside,
        };
        held.lease = held.take(holder, dir).expect("free");
        held
    }

    fn take(&mut self, client: ClientId, dir: Fid) -> Option<LockHandle> {
        let lease = self.world.mds.try_write_lease(None, client, dir);
        lease.expect("readable").map(|grant| grant.handle)
    }

    /// Callbacks on the write lease so far: the bits that are wanted.
    fn called_back(&mut self) -> Vec<Bits> {
        let (holder, lease) = (self.holder, self.lease);
        let asked = self.world.client(holder).asked.iter();
        let bits = asked.filter_map(|callback| match callback {
            Callback::Blocking { handle, bits, .. } if *handle == lease => Some(Bits(*bits)),
            _ => None,
        });
        bits.collect()
    }

    /// The holder keeps its write lease for reading.
    fn convert(&mut self, lease: LockHandle) {
        let request = Request::Convert {
            handle: lease,
            mode: Mode::PR.index() as u8,
            bits: WRITE_LEASE.0,
        };
        let holder = self.holder;
        self.world.call(holder, request).expect("converted");
        self.world.client(holder).manners = Manners::Prompt;
    }

    fn ask(&mut self, request: Request) -> u64 {
        let visitor = self.visitor;
        let tag = self.world.send(visitor, request);
        self.world.answer_questions();
        tag
    }

    /// The visitor's request waits for one callback, and is answered when the holder has answered that.
    fn waits(&mut self, request: Request) -> Result<Reply, FsError> {
        let what = format!("{request:?}");
        let tag = self.ask(request);
        assert_eq!(self.world.poll(tag), None, "{what}");
        assert_eq!(self.called_back(), [Bits::LOOKUP], "{what}");
        self.convert(self.lease);
        let answer = self.world.wait(tag).0;
        // Of what is left of the lease the operation may want more.
        let mut later = self.called_back().into_iter().skip(1);
        assert!(!later.any(|bits| bits.overlaps(Bits::LOOKUP)), "{what}");
        answer
    }
}

fn lookup(dir: Fid, text: &str) -> Request {
    let name = name(text);
    Request::Lookup { dir, name }
}

fn getattr(fid: Fid) -> Request {
    let dir = Fid::NONE;
    Request::GetAttr { fid, dir }
}

fn chmod(fid: Fid) -> Request {
    Request::SetAttr {
        fid,
        dir: Fid::NONE,
        change: SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        },
        caller: ROOT_USER,
        under: LockHandle(0),
    }
}

fn open(fid: Fid) -> Request {
    Request::Open {
        fid,
        dir: Fid::NONE,
        access: READ,
        intent: OpenIntent::First,
    }
}

fn link(fid: Fid, dir: Fid, text: &str) -> Request {
    let name = name(text);
    Request::Link { fid, dir, name }
}

fn unlink(dir: Fid, text: &str, directory: bool) -> Request {
    Request::Unlink {
        dir,
        name: name(text),
        directory,
        caller: ROOT_USER,
    }
}

fn rename(from: (Fid, &str), to: (Fid, &str)) -> Request {
    Request::Rename {
        source_dir: from.0,
        source: name(from.1),
        target_dir: to.0,
        target: name(to.1),
        mode: RenameMode::Replace,
        caller: ROOT_USER,
        whiteout: None,
    }
}

fn readdir(dir: Fid) -> Request {
    Request::ReadDir {
        dir,
        cookie: 0,
        attrs_max: 64,
        entries_max: 64,
        bytes_max: 1 << 16,
    }
}

fn walk(dir: Fid) -> Request {
    Request::Walk {
        walk: 0,
        levels: vec![WalkLevel {
            dir,
            cookie: 0,
            listed: false,
        }],
        order: WalkOrder::Cookie,
        bytes_max: 1 << 20,
        instead_of: 0,
    }
}

/// Every request that names a directory, or a file that is named in one.
fn entering(held: &mut Held) -> Vec<(Request, Option<FsError>)> {
    let (dir, file, linked, sub) = (held.dir, held.file, held.linked, held.sub);
    let (root, visitor) = (Fid::ROOT, held.visitor);
    let mut fid = || held.world.fid(visitor);
    let set_xattr = |fid| Request::SetXattr {
        fid,
        dir: Fid::NONE,
        name: b"user.x".to_vec(),
        value: vec![1],
        mode: XattrMode::Set,
    };
    let remove_xattr = |fid| Request::RemoveXattr {
        fid,
        dir: Fid::NONE,
        name: b"user.x".to_vec(),
    };
    let nameless = |fid| {
        let Request::Create {
            file, caller, dir, ..
        } = make_request(fid, dir, "x", FileKind::Regular)
        else {
            panic!("a create");
        };
        Request::CreateNameless {
            dir,
            file,
            caller,
            open: WRITE,
        }
    };
    let by_name = vec![
        (lookup(dir, "f"), None),
        (lookup(dir, "none"), None),
        (lookup(root, "d"), None),
        (lookup(root, "m"), None),
        (readdir(dir), None),
        (make_request(fid(), dir, "new", FileKind::Regular), None),
        (
            make_request(fid(), dir, "f", FileKind::Regular),
            Some(FsError::Exists),
        ),
        (nameless(fid()), None),
        (link(held.outside, dir, "new"), None),
        (link(held.outside, dir, "f"), Some(FsError::Exists)),
        (unlink(dir, "f", false), None),
        (unlink(dir, "none", false), Some(FsError::NotFound)),
        (unlink(dir, "sub", true), None),
        (unlink(root, "d", true), Some(FsError::NotEmpty)),
        (unlink(root, "m", false), None),
        (rename((dir, "f"), (root, "x")), None),
        (rename((root, "g"), (dir, "x")), None),
        (rename((root, "g"), (root, "m")), None),
        (rename((root, "d"), (root, "e")), None),
    ];
    let by_fid = vec![
        (getattr(dir), None),
        (getattr(file), None),
        (getattr(linked), None),
        (getattr(sub), None),
        (Request::ReadLink { fid: held.symlink }, None),
        (Request::LookupParent { dir }, None),
        (Request::LookupParent { dir: sub }, None),
        (chmod(dir), None),
        (chmod(file), None),
        (chmod(linked), None),
        (open(dir), None),
        (open(file), None),
        (open(linked), None),
        (link(file, root, "new"), None),
        (link(linked, root, "new"), None),
        (Request::GetXattrs { fid: file }, None),
        (set_xattr(file), None),
        (remove_xattr(file), Some(FsError::NoAttribute)),
        (Request::PathOf { fid: file }, None),
        (Request::PathOf { fid: sub }, None),
    ];
    by_name.into_iter().chain(by_fid).collect()
}

#[test]
fn every_request_about_a_closed_directory_waits_for_one_callback() {
    let count = entering(&mut Held::new()).len();
    for at in 0..count {
        let mut held = Held::new();
        let (request, refused) = entering(&mut held).swap_remove(at);
        let what = format!("{request:?}");
        assert_eq!(held.waits(request).err(), refused, "{what}");
        held.world.check();
    }
}

#[test]
fn the_holder_and_requests_about_other_things_do_not_wait() {
    let count = entering(&mut Held::new()).len();
    for at in 0..count {
        let mut held = Held::new();
        held.visitor = held.holder;
        let (request, _) = entering(&mut held).swap_remove(at);
        let what = format!("{request:?}");
        let holder = held.holder;
        let tag = held.world.send(holder, request);
        held.world.flush();
        assert!(held.world.poll(tag).is_some(), "{what}");
        assert_eq!(held.called_back(), [], "{what}");
    }
    let mut held = Held::new();
    let outside = held.outside;
    let others = [
        lookup(Fid::ROOT, "g"),
        lookup(Fid::ROOT, "none"),
        readdir(Fid::ROOT),
        getattr(outside),
        getattr(Fid::ROOT),
        Request::StatFs,
        Request::Sync,
        walk(Fid::ROOT),
        Request::PathOf { fid: outside },
    ];
    for request in others {
        let visitor = held.visitor;
        held.world.call(visitor, request).expect("not in the way");
    }
    assert_eq!(held.called_back(), []);
}

#[test]
fn what_the_holder_has_changed_decides_not_what_was_stored() {
    let mut held = Held::new();
    let (holder, visitor, dir) = (held.holder, held.visitor, held.dir);
    let fid = held.world.fid(visitor);
    let made = held.ask(make_request(fid, dir, "f", FileKind::Regular));
    held.world.unlink(holder, dir, "f").expect("its own");
    held.convert(held.lease);
    assert!(held.world.wait(made).0.is_ok(), "it was free again");

    let mut held = Held::new();
    let found = held.ask(lookup(dir, "new"));
    let new = held.world.touch(holder, dir, "new");
    held.convert(held.lease);
    match held.world.wait(found).0 {
        Ok(Reply::Lookup { node, .. }) => assert_eq!(node.map(|node| node.fid), Some(new)),
        other => panic!("{other:?}"),
    }

    let mut held = Held::new();
    let removed = held.ask(unlink(Fid::ROOT, "d", true));
    for text in ["f", "l", "s"] {
        held.world.unlink(holder, dir, text).expect("its own");
    }
    held.world.rmdir(holder, dir, "sub").expect("its own");
    held.convert(held.lease);
    assert!(held.world.wait(removed).0.is_ok(), "it was empty");
    held.world.check();
}

#[test]
fn a_holder_that_goes_away_lets_others_enter() {
    let mut held = Held::new();
    let (holder, lease) = (held.holder, held.lease);
    let looked = held.ask(lookup(held.dir, "f"));
    let handles = vec![lease];
    held.world
        .call(holder, Request::Cancel { handles })
        .expect("cancelled");
    assert!(held.world.poll(looked).is_some());

    let mut held = Held::new();
    let looked = held.ask(lookup(held.dir, "f"));
    held.world.goodbye(holder);
    assert!(held.world.wait(looked).0.is_ok());
}

#[test]
fn nobody_who_waited_is_answered_before_the_eviction_is_durable() {
    let mut held = Held::new();
    let (holder, visitor, dir) = (held.holder, held.visitor, held.dir);
    held.world.flush();
    held.world.auto_flush = false;
    let fid = held.world.fid(visitor);
    let asked = [
        getattr(held.file),
        make_request(fid, dir, "f", FileKind::Regular),
        make_request(fid, dir, "new", FileKind::Regular),
    ];
    let tags = asked.map(|request| held.ask(request));
    held.world.evict(holder);
    let later = held.ask(lookup(dir, "none"));
    for tag in tags.into_iter().chain([later]) {
        assert_eq!(held.world.poll(tag), None);
    }
    held.world.flush();
    for tag in tags.into_iter().chain([later]) {
        assert!(held.world.poll(tag).is_some());
    }
    // The eviction is stored before the changes of those that it let enter.
    held.world.check();
}

#[test]
fn a_file_that_moves_while_its_directory_is_entered_is_followed() {
    let mut held = Held::new();
    let (holder, dir) = (held.holder, held.dir);
    let other = held.world.mkdir(holder, Fid::ROOT, "e");
    held.world.flush();
    let second = held.take(holder, other).expect("free");
    let asked = held.ask(getattr(held.file));
    held.world
        .call(holder, rename((dir, "f"), (other, "f")))
        .expect("its own");
    let first = held.lease;
    held.convert(first);
    held.world.client(holder).manners = Manners::Silent;
    assert_eq!(held.world.poll(asked), None, "it is in another one now");
    held.lease = second;
    assert_eq!(held.called_back(), [Bits::LOOKUP]);
    held.convert(second);
    assert!(held.world.wait(asked).0.is_ok());
}

#[test]
fn a_request_of_two_directories_asks_for_both_at_once() {
    let mut held = Held::new();
    let holder = held.holder;
    let other = held.world.mkdir(holder, Fid::ROOT, "e");
    let (world, linked) = (&mut held.world, held.linked);
    world.link(holder, linked, other, "n").expect("linked");
    world.flush();
    let second = held.take(holder, other).expect("free");
    let asked = held.ask(getattr(linked));
    let first = held.lease;
    assert_eq!(held.called_back(), [Bits::LOOKUP]);
    held.lease = second;
    assert_eq!(held.called_back(), [Bits::LOOKUP]);
    held.convert(second);
    assert_eq!(held.world.poll(asked), None);
    assert_eq!(held.take(holder, other), None, "it is being entered");
    held.convert(first);
    assert!(held.world.wait(asked).0.is_ok());
}

#[test]
fn the_rest_of_a_frame_waits_for_a_request_that_enters() {
    let mut held = Held::new();
    let (visitor, dir) = (held.visitor, held.dir);
    let fid = held.world.fid(visitor);
    let frame = [
        getattr(held.file),
        make_request(fid, dir, "new", FileKind::Regular),
        lookup(dir, "new"),
    ];
    let xid = Xid(10_000);
    let mut index = 0..;
    let tags = frame.map(|request| {
        let index = index.next().expect("endless");
        held.world.send_in(visitor, 3, xid, index, request)
    });
    for tag in tags {
        assert_eq!(held.world.poll(tag), None);
    }
    held.convert(held.lease);
    let [first, second, third] = tags.map(|tag| held.world.wait(tag).0);
    match third {
        Ok(Reply::Lookup { node, .. }) => assert_eq!(node.map(|node| node.fid), Some(fid)),
        other => panic!("{other:?}"),
    }
    assert!(first.is_ok() && second.is_ok());
}

#[test]
fn replays_do_not_enter() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let dir = world.mkdir(a, Fid::ROOT, "d");
    world.fid(b);
    world.flush();
    world.auto_flush = false;
    // The one change of a directory that needs nothing of its lease.
    world.call(b, chmod(dir)).expect("changed");
    world.crash_awaiting();
    let lost = world.lost();
    assert!(!lost.is_empty());
    world.client(a).manners = Manners::Silent;
    let lease = world.mds.try_write_lease(None, a, dir).expect("readable");
    assert!(lease.is_some());
    for done in &lost {
        assert!(world.replay(done).0.is_ok());
    }
}

#[test]
fn a_walk_leaves_closed_directories_to_its_reader() {
    let mut held = Held::new();
    let (holder, dir, sub) = (held.holder, held.dir, held.sub);
    held.world.touch(holder, sub, "below");
    held.world.flush();
    let visitor = held.visitor;
    let walked = held.world.call(visitor, walk(Fid::ROOT)).expect("walked");
    assert_eq!(held.called_back(), []);
    let Reply::Walked { pages, .. } = walked else {
        panic!("{walked:?}");
    };
    let root = pages.iter().find(|(_, page)| page.dir.fid == Fid::ROOT);
    let entries = &root.expect("a page of the root").1.entries;
    let node = |text: &str| {
        let entry = entries.iter().find(|entry| entry.name == name(text));
        entry.expect("named").node.as_ref()
    };
    assert!(node("g").is_some());
    assert_eq!(node("d"), None, "its holder may have changed its times");
    assert_eq!(node("m"), None, "and what has a name in it");
    assert!(pages.iter().all(|(_, page)| page.dir.fid != dir));
}

#[test]
fn writers_that_take_a_lease_back_twice_in_a_second_end_it_for_a_while() {
    let mut held = Held::new();
    let (visitor, dir) = (held.visitor, held.dir);
    let fids = [held.world.fid(visitor), held.world.fid(visitor)];
    let mut tag = 0;
    for (fid, text) in fids.into_iter().zip(["x", "y"]) {
        tag = held.ask(make_request(fid, dir, text, FileKind::Regular));
    }
    let lease = held.lease;
    held.convert(lease);
    held.world.wait(tag).0.expect("made");
    held.leave();
    // Both waited for one callback.
    let again = held.retake().expect("not fought over");
    let tag = held.ask(chmod(dir));
    held.convert(again);
    held.world.wait(tag).0.expect("changed");
    held.leave();
    assert_eq!(held.retake(), None);
    held.world.advance(Duration::from_secs(29));
    assert_eq!(held.retake(), None);
    held.world.advance(Duration::from_secs(2));
    assert!(held.retake().is_some());
}

#[test]
fn readers_and_rare_writers_are_no_contention() {
    let mut held = Held::new();
    let dir = held.dir;
    let requests = (0..20).map(|at| match at {
        0..10 => lookup(dir, "f"),
        _ => chmod(dir),
    });
    for request in requests.collect::<Vec<_>>() {
        if matches!(request, Request::SetAttr { .. }) {
            held.world.advance(Duration::from_secs(1));
        }
        let lease = held.retake().expect("not fought over");
        let tag = held.ask(request);
        held.convert(lease);
        held.world.wait(tag).0.expect("there");
        held.leave();
    }
}

impl Held {
    /// A client asks for the write lease: that, and what is outside.
    fn wish(&mut self, client: ClientId) -> (Option<LockHandle>, Vec<Fid>) {
        let dir = self.dir;
        match self.world.call(client, Request::TakeLease { dir }) {
            Ok(Reply::WriteLease { grant, outside, .. }) => {
                (grant.map(|grant| grant.handle), outside)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The visitor gives all its locks back.
    fn leave(&mut self) {
        let visitor = self.visitor;
        let handles = self.world.mds.locks().handles(visitor);
        self.world
            .call(visitor, Request::Cancel { handles })
            .expect("cancelled");
    }

    fn retake(&mut self) -> Option<LockHandle> {
        let (holder, dir) = (self.holder, self.dir);
        self.world.client(holder).manners = Manners::Silent;
        self.world.client(holder).asked.clear();
        self.take(holder, dir)
    }
}

#[test]
fn children_that_others_use_are_not_covered_and_need_no_entry() {
    for by_uses in [false, true] {
        let mut held = Held::new();
        let (holder, visitor, dir, file) = (held.holder, held.visitor, held.dir, held.file);
        held.convert(held.lease);
        let handle = held.world.open(visitor, file, READ).expect("there");
        held.leave();
        if by_uses {
            // More names than uses: the uses are looked through.
            for at in 0..64 {
                held.world.touch(holder, dir, &format!("n{at}"));
            }
            held.world.flush();
        }
        let handles = held.world.mds.locks().handles(holder);
        held.world
            .call(holder, Request::Cancel { handles })
            .expect("cancelled");
        let lease = held.world.mds.try_write_lease(None, holder, dir);
        let lease = lease.expect("readable").expect("free");
        let without: Vec<u64> = lease.withdrawn.iter().map(|(key, _)| *key).collect();
        assert_eq!(without, [file.0]);
        held.lease = lease.handle;
        // The holder's own looks do not bring it back.
        held.world.lookup(holder, dir, "f");
        held.world.list(holder, dir, 64);
        held.world.client(holder).manners = Manners::Silent;
        held.world.client(holder).asked.clear();
        held.world.call(visitor, getattr(file)).expect("there");
        held.world.call(visitor, chmod(file)).expect("there");
        assert_eq!(held.called_back(), []);
        held.world
            .close(visitor, file, handle, SetAttr::default())
            .expect("open");
        held.leave();
        held.world.flush();
        held.world.lookup(holder, dir, "f");
        let asked = held.ask(getattr(file));
        assert_eq!(held.world.poll(asked), None, "it is covered again");
    }
}

/// The holder believes the name, which is covered although another client uses the file.
#[test]
fn the_name_of_a_child_that_others_use_is_withdrawn_when_it_goes() {
    let mut held = Held::new();
    let (holder, visitor, dir, file) = (held.holder, held.visitor, held.dir, held.file);
    held.convert(held.lease);
    held.world.open(visitor, file, READ).expect("there");
    held.leave();
    held.world.list(holder, dir, 64);
    held.world.client(holder).manners = Manners::Silent;
    let (lease, outside) = held.wish(holder);
    assert_eq!(outside, [file]);
    held.convert(lease.expect("free"));
    held.world.client(holder).asked.clear();
    held.world
        .call(visitor, unlink(dir, "f", false))
        .expect("there");
    let asked = held.world.client(holder).asked.iter();
    let mut withdrawn = asked.filter_map(|callback| match callback {
        Callback::Withdraw { name, bits, .. } => Some((name.clone(), Bits(*bits))),
        _ => None,
    });
    let is_told = |(of, bits): (Option<base::Name>, Bits)| {
        of == Some(name("f")) && bits.contains(Bits::NAMES)
    };
    assert!(withdrawn.any(is_told));
}

#[test]
fn a_lease_is_tried_for_and_its_answer_names_what_it_does_not_cover() {
    let mut held = Held::new();
    let (holder, visitor, file) = (held.holder, held.visitor, held.file);
    assert_eq!(held.wish(visitor), (None, Vec::new()));
    assert_eq!(held.called_back(), [], "it is no reason to call back");
    held.convert(held.lease);
    assert_eq!(held.wish(visitor), (None, Vec::new()), "it is read");
    held.world.open(visitor, file, READ).expect("there");
    held.leave();
    held.world.client(holder).manners = Manners::Silent;
    let (lease, outside) = held.wish(holder);
    assert!(lease.is_some());
    assert_eq!(outside, [file]);
    assert_eq!(held.wish(holder), (lease, outside), "asked once more");
}

#[test]
fn too_many_children_in_use_keep_the_write_lease_away() {
    let mut held = Held::new();
    let (holder, visitor, dir) = (held.holder, held.visitor, held.dir);
    held.convert(held.lease);
    for at in 0..=mds::locks::BORN_WITHOUT_MAX {
        let fid = held.world.touch(holder, dir, &format!("n{at}"));
        held.world.open(visitor, fid, READ).expect("there");
    }
    held.leave();
    assert_eq!(held.retake(), None);
}

#[test]
fn a_child_that_anothers_operation_waits_for_counts_as_used() {
    let mut held = Held::new();
    let file = held.file;
    held.convert(held.lease);
    let third = held.world.connect(3);
    // A lock that is not given back: the visitor's operation waits for it.
    held.world
        .call(third, Request::GetXattrs { fid: file })
        .expect("there");
    held.world.client(third).manners = Manners::Silent;
    let asked = held.ask(Request::SetXattr {
        fid: file,
        dir: Fid::NONE,
        name: b"user.x".to_vec(),
        value: vec![1],
        mode: XattrMode::Set,
    });
    assert_eq!(held.world.poll(asked), None);
    assert_eq!(
        held.retake(),
        None,
        "it is to be withdrawn from the directory"
    );
}
