//! Random operations of several clients, against the oracle after each; fsck after each.

mod support;

use base::{ClientId, Fid, FsError, Name, Rng, SeededRng};
use model::Model;
use proptest::prelude::*;
use support::*;
use wire::mdt::{
    Access, Caller, NewFile, OpenHandle, OpenIntent, RenameMode, Reply, Request, SetAttr, SetTime,
    XattrMode,
};
use wire::{Cover, FileKind};

/// The product's allocator: every step is mostly allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NAMES: u64 = 6;
const CLIENTS: u64 = 3;
const CALLERS: [Caller; 3] = [
    ROOT_USER,
    Caller {
        uid: 1000,
        gid: 100,
    },
    Caller {
        uid: 1001,
        gid: 100,
    },
];

/// The server and the oracle side by side.
struct Pair {
    world: World,
    model: Model,
    rng: SeededRng,
    /// Every directory and file ever made: also those that are gone.
    dirs: Vec<Fid>,
    files: Vec<Fid>,
    opens: Vec<(ClientId, Fid, OpenHandle)>,
}

impl Pair {
    fn new(seed: u64, world: World) -> Pair {
        let mut world = world;
        for client in 1..=CLIENTS {
            world.connect(client);
            world.mirrors.insert(client, Default::default());
        }
        let model = Model::new(FORMATTED, ROOT_USER);
        let rng = SeededRng::new(seed);
        Pair {
            world,
            model,
            rng,
            dirs: vec![Fid::ROOT],
            files: Vec::new(),
            opens: Vec::new(),
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len() as u64) as usize]
    }

    fn client(&mut self) -> ClientId {
        ClientId(1 + self.rng.below(CLIENTS))
    }

    fn dir(&mut self) -> Fid {
        let dirs = self.dirs.clone();
        self.pick(&dirs)
    }

    fn any(&mut self) -> Fid {
        let all = [&self.dirs[..], &self.files[..]].concat();
        self.pick(&all)
    }

    fn name(&mut self) -> Name {
        name(&format!("n{}", self.rng.below(NAMES)))
    }

    /// Sends a request; others' questions are answered in any order, with reads in between.
    fn call(&mut self, client: ClientId, request: Request) -> Result<Reply, FsError> {
        let tag = self.world.send(client, request);
        loop {
            if let Some((result, _)) = self.world.poll(tag) {
                return result;
            }
            match self.rng.below(4) {
                0 => self.world.flush(),
                1 => self.peek(),
                _ if self.world.questions.is_empty() => self.world.flush(),
                _ => self.world.answer_one(&mut self.rng),
            }
        }
    }

    /// Somebody looks while a change is under way: it must be answered, and may be covered.
    fn peek(&mut self) {
        let (client, dir, name) = (self.client(), self.dir(), self.name());
        let tag = match self.rng.below(2) {
            0 => self.world.send(client, Request::Lookup { dir, name }),
            _ => {
                let (cookie, entries_max, bytes_max) = (0, 10, 1 << 16);
                let attrs_max = 10;
                let request = Request::ReadDir {
                    dir,
                    cookie,
                    attrs_max,
                    entries_max,
                    bytes_max,
                };
                self.world.send(client, request)
            }
        };
        // An answer that waits, for a holder or the disk, is of no further interest.
        let _ = self.world.poll(tag);
    }

    fn step(&mut self) {
        let client = self.client();
        self.world.wall.nanos += 1;
        // Slow enough that directories are not always fought over, and sometimes are.
        let pause = std::time::Duration::from_millis(self.rng.below(3000));
        self.world.tick = self.world.tick.after(pause);
        match self.rng.below(15) {
            0..=3 => self.create(client),
            13 => self.create_nameless(client),
            4 => self.link(client),
            5..=6 => self.unlink(client),
            7..=8 => self.rename(client),
            9 => self.set_attr(client),
            10 => self.open(client),
            11 => self.close(),
            12 => self.xattr(client),
            _ => self.read(client),
        }
        let idle = self.world.questions.is_empty();
        if !idle && self.rng.below(2) == 0 {
            self.world.answer_one(&mut self.rng);
        }
    }

    fn create_nameless(&mut self, client: ClientId) {
        let (dir, caller) = (self.dir(), self.pick(&CALLERS));
        let file = NewFile {
            fid: self.world.fid(client),
            kind: FileKind::Regular,
            mode: self.pick(&[0o600, 0o2775]),
            rdev: 0,
            target: Vec::new(),
        };
        let access = Access {
            read: true,
            write: true,
            exec: false,
        };
        let request = Request::CreateNameless {
            dir,
            file: file.clone(),
            caller,
            open: access,
        };
        let result = self.call(client, request);
        self.model.now = self.world.wall;
        let expected = self.model.create_nameless(dir, &file, caller, true);
        assert_eq!(result.as_ref().err(), expected.as_ref().err(), "in {dir}");
        if let Ok(Reply::Created { handle, .. }) = result {
            self.files.push(file.fid);
            self.opens.push((client, file.fid, handle));
        }
    }

    fn create(&mut self, client: ClientId) {
        let (dir, name) = (self.dir(), self.name());
        let kinds = [
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::CharDevice,
        ];
        let kind = self.pick(&kinds);
        let mode = self.pick(&[0o644, 0o755, 0o1777, 0o2775, 0o4755]);
        let caller = self.pick(&CALLERS);
        let target = if kind == FileKind::Symlink {
            b"to".to_vec()
        } else {
            Vec::new()
        };
        let rdev = if kind == FileKind::CharDevice { 259 } else { 0 };
        let file = NewFile {
            fid: self.world.fid(client),
            kind,
            mode,
            rdev,
            target,
        };
        let access = Access {
            read: true,
            write: self.rng.below(2) == 0,
            exec: false,
        };
        let open = (kind == FileKind::Regular && self.rng.below(2) == 0).then_some(access);
        let request = Request::Create {
            dir,
            name: name.clone(),
            file: file.clone(),
            caller,
            open,
        };
        let result = self.call(client, request);
        self.model.now = self.world.wall;
        let expected = self.model.create(dir, &name, &file, caller);
        assert_eq!(
            result.as_ref().err(),
            expected.as_ref().err(),
            "create {name} in {dir}"
        );
        let Ok(Reply::Created { handle, .. }) = result else {
            return;
        };
        if kind == FileKind::Directory {
            self.dirs.push(file.fid);
        } else {
            self.files.push(file.fid);
        }
        if open.is_some() {
            self.model.open(file.fid).expect("just made");
            self.opens.push((client, file.fid, handle));
        }
    }

    fn link(&mut self, client: ClientId) {
        let (fid, dir, name) = (self.any(), self.dir(), self.name());
        let result = self.call(
            client,
            Request::Link {
                fid,
                dir,
                name: name.clone(),
            },
        );
        self.model.now = self.world.wall;
        let expected = self.model.link(fid, dir, &name);
        assert_eq!(
            result.err(),
            expected.err(),
            "link {fid} to {name} in {dir}"
        );
    }

    fn unlink(&mut self, client: ClientId) {
        let (dir, name) = (self.dir(), self.name());
        let directory = self.rng.below(3) == 0;
        let caller = self.pick(&CALLERS);
        let request = Request::Unlink {
            dir,
            name: name.clone(),
            directory,
            caller,
        };
        let result = self.call(client, request);
        self.model.now = self.world.wall;
        let expected = self.model.unlink(dir, &name, directory, caller);
        assert_eq!(
            result.err(),
            expected.err(),
            "unlink {name} in {dir}, {directory}"
        );
    }

    fn rename(&mut self, client: ClientId) {
        let (from, source) = (self.dir(), self.name());
        let to = if self.rng.below(2) == 0 {
            from
        } else {
            self.dir()
        };
        let target = self.name();
        let modes = [
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ];
        let mode = self.pick(&modes);
        let caller = self.pick(&CALLERS);
        let leaves = mode != RenameMode::Exchange && self.rng.below(4) == 0;
        let whiteout = leaves.then(|| self.world.fid(client));
        let request = Request::Rename {
            source_dir: from,
            source: source.clone(),
            target_dir: to,
            target: target.clone(),
            mode,
            caller,
            whiteout,
        };
        let result = self.call(client, request);
        self.model.now = self.world.wall;
        let (old, new) = ((from, &source), (to, &target));
        let expected = match whiteout {
            Some(left) => self.model.rename_leaving(left, old, new, mode, caller),
            None => self.model.rename(old, new, mode, caller),
        };
        if let Ok(Reply::Renamed {
            whiteout: Some(left),
            ..
        }) = &result
        {
            self.files.push(left.fid);
        }
        let what = format!("rename {source} in {from} to {target} in {to} {mode:?}");
        assert_eq!(result.err(), expected.err(), "{what}");
    }

    fn set_attr(&mut self, client: ClientId) {
        let fid = self.any();
        let time = self.world.wall;
        let change = match self.rng.below(3) {
            0 => SetAttr {
                mode: Some(self.pick(&[0o600, 0o1777, 0o2755])),
                ..SetAttr::default()
            },
            1 => SetAttr {
                mtime: Some(SetTime::At(time)),
                ..SetAttr::default()
            },
            _ => SetAttr {
                privileges: wire::mdt::Privileges::Drop,
                ..SetAttr::default()
            },
        };
        let is_dir = self.dirs.contains(&fid);
        if is_dir && change.privileges != wire::mdt::Privileges::Keep {
            return;
        }
        let request = Request::SetAttr {
            fid,
            dir: Fid::NONE,
            change: change.clone(),
            caller: ROOT_USER,
            under: base::LockHandle(0),
        };
        let result = self.call(client, request);
        self.model.now = self.world.wall;
        let expected = self.model.set_attr(fid, &change);
        assert_eq!(result.err(), expected.err(), "set {fid} {change:?}");
    }

    fn open(&mut self, client: ClientId) {
        let fid = self.any();
        let access = Access {
            read: true,
            write: self.rng.below(2) == 0,
            exec: false,
        };
        let request = Request::Open {
            fid,
            dir: Fid::NONE,
            access,
            intent: OpenIntent::First,
        };
        let result = self.call(client, request);
        let named = self.model.get(fid).is_ok_and(|node| node.nlink > 0);
        // Without a name it is there for those who have it open.
        let there = named
            || self
                .opens
                .iter()
                .any(|open| (open.0, open.1) == (client, fid));
        match result {
            Ok(Reply::Opened { handle, .. }) => {
                assert!(there);
                self.model.open(fid).expect("there");
                self.opens.push((client, fid, handle));
            }
            Ok(other) => panic!("{other:?}"),
            Err(FsError::IsDirectory) => assert!(access.write && self.dirs.contains(&fid)),
            Err(error) => assert_eq!((error, there), (FsError::Stale, false)),
        }
    }

    fn close(&mut self) {
        if self.opens.is_empty() {
            return;
        }
        let at = self.rng.below(self.opens.len() as u64) as usize;
        let (client, fid, handle) = self.opens.swap_remove(at);
        let (change, under) = (SetAttr::default(), base::LockHandle(0));
        let result = self.call(
            client,
            Request::Close {
                fid,
                dir: Fid::NONE,
                handle,
                change,
                under,
            },
        );
        assert!(result.is_ok(), "{result:?}");
        self.model.close(fid).expect("open");
    }

    fn xattr(&mut self, client: ClientId) {
        let fid = self.any();
        let name = format!("user.{}", self.rng.below(2)).into_bytes();
        let name = if self.rng.below(8) == 0 {
            b"trusted.t".to_vec()
        } else {
            name
        };
        let (result, expected) = if self.rng.below(3) == 0 {
            let request = Request::RemoveXattr {
                fid,
                dir: Fid::NONE,
                name: name.clone(),
            };
            let result = self.call(client, request);
            self.model.now = self.world.wall;
            (result, self.model.remove_xattr(fid, &name))
        } else {
            let mode = self.pick(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
            let value = vec![self.rng.below(256) as u8; 3];
            let request = Request::SetXattr {
                fid,
                dir: Fid::NONE,
                name: name.clone(),
                value: value.clone(),
                mode,
            };
            let result = self.call(client, request);
            self.model.now = self.world.wall;
            (result, self.model.set_xattr(fid, &name, &value, mode))
        };
        assert_eq!(result.err(), expected.err(), "xattr of {fid}");
    }

    fn read(&mut self, client: ClientId) {
        let (dir, name) = (self.dir(), self.name());
        let result = self.call(
            client,
            Request::Lookup {
                dir,
                name: name.clone(),
            },
        );
        let found = match result {
            Ok(Reply::Lookup { node, .. }) => node.map(|node| node.fid).ok_or(FsError::NotFound),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(
            found,
            self.model.lookup(dir, &name),
            "lookup {name} in {dir}"
        );
    }

    /// The server dies; what its clients do then leaves all as it was.
    fn crash(&mut self) {
        self.world.answer_questions();
        self.world.crash_and_replay(&mut self.rng);
        for (client, fid, handle) in &mut self.opens {
            let again = Request::Open {
                fid: *fid,
                dir: Fid::NONE,
                access: READ,
                intent: OpenIntent::Reopen,
            };
            let Ok(Reply::Opened { handle: new, .. }) = self.world.call(*client, again) else {
                panic!("{fid} was open");
            };
            *handle = new;
        }
        self.world.advance(mds::GRACE);
    }

    /// Everything that some client keeps under its locks is true.
    fn check_mirrors(&self) {
        for (client, mirror) in &self.world.mirrors {
            for ((dir, name), fid) in &mirror.names {
                let truth = self.model.lookup(*dir, name).ok();
                assert_eq!(*fid, truth, "client {client} on {name} in {dir}");
            }
            for (fid, (attr, dir)) in &mirror.attrs {
                let Ok(truth) = self.model.get(*fid) else {
                    // What has no name and was closed by all changes no more: a client may still
                    // see it as it was last, like a process in a removed directory.
                    assert_eq!(attr.nlink, 0, "client {client} keeps {fid}");
                    continue;
                };
                let kept = (attr.mode, attr.uid, attr.gid, attr.nlink, attr.ctime);
                let there = (truth.mode, truth.uid, truth.gid, truth.nlink, truth.ctime);
                assert_eq!(kept, there, "client {client} on {fid} in {dir:?}");
                assert_eq!(
                    Some(attr.mtime),
                    truth.mtime,
                    "client {client} on {fid} in {dir:?}"
                );
                assert_eq!(attr.has_xattrs, !truth.xattrs.is_empty(), "{client} {fid}");
            }
        }
    }

    /// Everything the oracle knows, the server says too.
    fn compare(&mut self) {
        self.world.answer_questions();
        let a = ClientId(1);
        let known: Vec<(Fid, model::Node)> = self
            .model
            .files()
            .map(|(fid, node)| (fid, node.clone()))
            .collect();
        for (fid, expected) in known {
            let node = self
                .world
                .getattr(a, fid)
                .unwrap_or_else(|e| panic!("{fid}: {e}"));
            let attr = &node.attr;
            let seen = (
                attr.kind, attr.mode, attr.uid, attr.gid, attr.nlink, attr.rdev,
            );
            let e = &expected;
            assert_eq!(
                seen,
                (e.kind, e.mode, e.uid, e.gid, e.nlink, e.rdev),
                "{fid}"
            );
            assert_eq!(attr.ctime, e.ctime, "ctime of {fid}");
            assert_eq!(Some(attr.mtime), e.mtime, "mtime of {fid}");
            assert_eq!(attr.has_xattrs, !e.xattrs.is_empty(), "{fid}");
            if node.cover == Cover::Parent {
                assert!(e.nlink == 1 && e.kind != FileKind::Directory);
            }
            if e.kind == FileKind::Directory {
                self.compare_dir(a, fid);
            }
        }
        for fid in self.dirs.iter().chain(&self.files) {
            let there = self.model.get(*fid).is_ok();
            assert_eq!(self.world.getattr(a, *fid).is_ok(), there, "{fid}");
        }
    }

    fn compare_dir(&mut self, client: ClientId, dir: Fid) {
        let listed = self.world.list(client, dir, 4);
        let mut seen: Vec<(Name, Fid, FileKind)> = listed
            .into_iter()
            .map(|entry| (entry.name, entry.fid, entry.kind))
            .collect();
        seen.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(seen, self.model.list(dir).expect("a directory"), "{dir}");
        let parent = self.world.call(client, Request::LookupParent { dir });
        if self.model.get(dir).is_ok_and(|node| node.nlink > 0) {
            assert_eq!(node_of(parent).map(|node| node.fid), self.model.parent(dir));
        }
    }
}

fn run(seed: u64, steps: u32, world: World) {
    let mut pair = Pair::new(seed, world);
    for step in 0..steps {
        pair.step();
        pair.world.check();
        pair.check_mirrors();
        if step % 8 == 0 {
            pair.compare();
        }
    }
    pair.compare();
    // What the oracle has, a restart keeps; open files without names end with the grace period.
    pair.world.answer_questions();
    pair.world.flush();
    pair.world.crash();
    pair.world.check();
    for (_, fid, _) in std::mem::take(&mut pair.opens) {
        pair.model.close(fid).expect("open");
    }
    pair.world.advance(mds::GRACE);
    pair.world.check();
    pair.compare();
}

/// The same; the server dies now and then.
fn run_with_crashes(seed: u64, steps: u32, world: World) {
    let mut pair = Pair::new(seed, world);
    for step in 0..steps {
        pair.step();
        if pair.rng.below(12) == 0 {
            pair.crash();
            pair.world.check();
            pair.compare();
        }
        pair.check_mirrors();
        if step % 8 == 0 {
            pair.compare();
        }
    }
    pair.compare();
}

#[test]
fn what_a_crash_takes_is_done_again() {
    for seed in 0..64 {
        run_with_crashes(seed, 200, World::new());
        run_with_crashes(1000 + seed, 200, World::colliding());
    }
}

/// Seeds that failed once.
#[test]
fn known_seeds_agree() {
    // A directory moves into what was removed from inside it.
    run(15_263_248_301_936_525_876, 120, World::new());
    // The last close of a removed directory that another client has in its cache.
    let collide = World::with(mds::Rules::default(), 1);
    run(13_541_960_481_355_998_020, 60, collide);
    // A page comes when the lease that it was made under is gone and another was given.
    run(3_224_601_005_390_110_940, 120, World::new());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn clients_and_oracle_agree(seed in any::<u64>()) {
        run(seed, 120, World::new());
    }

    #[test]
    fn colliding_names_change_nothing(seed in any::<u64>()) {
        run(seed, 60, World::with(mds::Rules::default(), 1));
    }
}
