//! A file that has lost bytes replaces no other before that was reported.

use base::{LockHandle, TargetIndex, TargetKind};
use wire::attr::{Cover, DirState, Grant, Node};
use wire::mdt::{Access, Caller, RenameMode, Request};

use super::*;
use crate::cache::handle::HandleId;
use crate::cache::listed::Listed;
use crate::calls::write::WriteWish;
use crate::executor::block_on;
use crate::mount::Mounted;
use crate::rig::attr_at;
use crate::rig::servers::{Heard, Servers};
use crate::session::client::{NewNode, Place};
use crate::session::locks::WRITE_LEASE;

const DIR: Fid = Fid(6);
const FILE: Fid = Fid(7);
const OTHER: Fid = Fid(8);

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a name")
}

fn place(dir: Fid, at: &str) -> Place {
    Place {
        dir,
        name: name(at),
        caller: Caller::default(),
    }
}

/// Renames `new`, perhaps over `old`.
fn rename(client: &Client, dir: Fid) -> Result<(), FsError> {
    let client = client.clone();
    let (from, to) = (place(dir, "new"), name("old"));
    let renamed = async move {
        client
            .rename(from, dir, to, RenameMode::Replace, false)
            .await
    };
    block_on(renamed).map(drop)
}

/// A file `new` with bytes that no server has.
fn written(mount: &Mounted) -> (Fid, HandleId) {
    let client = mount.client().clone();
    block_on(async move {
        let access = Access {
            read: true,
            write: true,
            exec: false,
        };
        let at = place(Fid::ROOT, "new");
        let made = client.create(at, 0o644, access, false).await;
        let (entry, handle) = made.expect("it is answered");
        client.fsync(handle).await.expect("it is durable");
        let wish = WriteWish::default();
        let written = client
            .write(entry.fid, Some(handle), 0, b"bytes", wish)
            .await;
        written.expect("it stays here");
        (entry.fid, handle)
    })
}

fn fsync(client: &Client, handle: HandleId) -> Result<(), FsError> {
    let client = client.clone();
    block_on(async move { client.fsync(handle).await })
}

fn is_write(heard: &Heard) -> bool {
    matches!(heard, Heard::Ost(wire::ost::Request::Write { .. }))
}

fn is_lookup(heard: &Heard) -> bool {
    matches!(heard, Heard::Mdt(Request::Lookup { .. }, _))
}

fn renames(servers: &Servers) -> usize {
    let is_rename = |heard: &Heard| matches!(heard, Heard::Mdt(Request::Rename { .. }, _));
    servers.heard().into_iter().filter(is_rename).count()
}

/// The MDT gives the client up, which has heard of that.
fn evict(servers: &Servers) {
    servers.evict(TargetKind::Mdt);
    servers.wait_for(1, |heard| *heard == Heard::Ready);
}

// SEMANTICS: op.rename, crash.eviction
#[test]
fn a_file_that_lost_bytes_to_an_eviction_replaces_none_before_that_was_reported() {
    for is_open in [true, false] {
        let servers = Servers::start();
        let mount = servers.mount(None);
        let client = mount.client();
        let (_, handle) = written(&mount);
        servers.hold(is_write);
        if !is_open {
            client.release(handle);
        }
        evict(&servers);
        servers.answer();
        assert_eq!(rename(client, Fid::ROOT), Err(FsError::Io));
        assert_eq!(renames(&servers), 0, "open: {is_open}");
        assert_eq!(rename(client, Fid::ROOT), Ok(()));
        assert_eq!(renames(&servers), 1, "open: {is_open}");
        if is_open {
            assert_eq!(fsync(client, handle), Err(FsError::Io), "not reported here");
        }
    }
}

#[test]
fn a_loss_that_an_fsync_has_reported_keeps_no_file_from_replacing_another() {
    let servers = Servers::start();
    let mount = servers.mount(None);
    let (_, handle) = written(&mount);
    servers.hold(is_write);
    evict(&servers);
    servers.answer();
    assert_eq!(fsync(mount.client(), handle), Err(FsError::Io));
    assert_eq!(rename(mount.client(), Fid::ROOT), Ok(()));
}

/// Nothing is known then of what the name leads to.
#[test]
fn a_lookup_that_an_eviction_ends_lets_no_file_replace_another() {
    let servers = Servers::start();
    let mount = servers.mount(None);
    written(&mount);
    servers.hold(|heard| is_write(heard) || is_lookup(heard));
    let client = mount.client().clone();
    let renaming = std::thread::spawn(move || rename(&client, Fid::ROOT));
    servers.wait_for(1, is_lookup);
    evict(&servers);
    servers.answer();
    assert_eq!(renaming.join().expect("it ends"), Err(FsError::Io));
    assert_eq!(renames(&servers), 0);
}

/// A directory whose names the client may change alone.
fn leased(client: &Client, files: &[(&str, Fid)]) {
    client.set_param("wbc", 1).expect("there is one");
    let grant = Grant {
        handle: LockHandle(5),
        fid: DIR,
        mode: Mode::EX.index() as u8,
        bits: WRITE_LEASE.0,
        version: 1,
    };
    let (kind, size_state) = (FileKind::Directory, SizeState::Strict);
    let attr = attr_at(TargetIndex(0));
    let directory = DirState {
        fid: DIR,
        attr: Attr {
            kind,
            nlink: 2,
            ..attr.clone()
        },
        version: 1,
    };
    let mut state = client.lock();
    let mark = state.cache.mark(DIR);
    assert!(state.take_write_lease(&grant, &[], mark));
    state.take_leased_dir(&directory, true);
    let mut entries = Vec::new();
    for (cookie, (at, fid)) in (1 << 20..).zip(files) {
        let (fid, kind) = (*fid, FileKind::Regular);
        let attr = Attr {
            size_state,
            ..attr.clone()
        };
        let cover = Cover::Parent;
        state.take_node(&Node { fid, attr, cover }, mark);
        let name = name(at);
        entries.push((cookie, Listed { name, fid, kind }));
    }
    let directory = state.cache.inode(DIR).directory();
    directory.extend(0, entries.into_iter(), true);
}

fn lose(client: &Client, fid: Fid) {
    client.lock().cache.add_write_error(fid, FsError::Io);
}

// SEMANTICS: op.rename
#[test]
fn under_a_write_lease_a_file_that_lost_bytes_replaces_none_before_that_was_reported() {
    let servers = Servers::start();
    let mount = servers.mount(None);
    let client = mount.client();
    leased(client, &[("new", FILE), ("old", OTHER)]);
    lose(client, FILE);
    assert_eq!(rename(client, DIR), Err(FsError::Io));
    assert_eq!(rename(client, DIR), Ok(()));
    assert_eq!(renames(&servers), 0, "it is done here");
}

#[test]
fn a_new_file_that_lost_bytes_replaces_none_before_that_was_reported() {
    let servers = Servers::start();
    let mount = servers.mount(None);
    let client = mount.client();
    leased(client, &[]);
    let made = ["new", "old"].map(|at| {
        let client = client.clone();
        let file = NewNode {
            kind: FileKind::Regular,
            mode: 0o644,
            rdev: 0,
            target: Vec::new(),
        };
        block_on(async move {
            // FIDs are there since then.
            client.0.mint(DIR).await.expect("it is answered");
            client
                .make(place(DIR, at), file)
                .await
                .expect("it is made")
                .fid
        })
    });
    lose(client, made[0]);
    assert_eq!(rename(client, DIR), Err(FsError::Io));
    assert_eq!(rename(client, DIR), Ok(()));
    assert_eq!(renames(&servers), 0, "it is done here");
}

/// The rename has returned. It is undone, and reported.
#[test]
fn bytes_that_are_lost_after_a_rename_under_a_write_lease_undo_it() {
    let servers = Servers::start();
    let mount = servers.mount(None);
    let client = mount.client();
    leased(client, &[("new", FILE), ("old", OTHER)]);
    assert_eq!(rename(client, DIR), Ok(()));
    lose(client, FILE);
    let syncing = client.clone();
    let _ = block_on(async move { syncing.sync().await });
    let is_told = |heard: &Heard| matches!(heard, Heard::Mdt(Request::Update { .. }, _));
    assert!(
        !servers.heard().iter().any(is_told),
        "{:?}",
        servers.heard()
    );
}

/// The MDT decides whether a directory may go, and knows only of removals that were reported.
#[test]
fn a_directory_is_removed_after_what_was_in_it_although_no_lease_says_where_its_name_leads() {
    let servers = Servers::start();
    let mount = servers.mount(None);
    let client = mount.client().clone();
    leased(&client, &[("old", OTHER)]);
    servers.name(name("dir"), DIR);
    block_on(async move {
        let removed = client.unlink(place(DIR, "old"), false).await;
        assert_eq!(removed, Ok(OTHER));
        let _ = client.unlink(place(Fid::ROOT, "dir"), true).await;
    });
    let heard = servers.heard();
    let is_set = |heard: &Heard| matches!(heard, Heard::Mdt(Request::Update { .. }, _));
    let is_removal = |heard: &Heard| matches!(heard, Heard::Mdt(Request::Unlink { .. }, _));
    let (set, removal) = (
        heard.iter().position(is_set),
        heard.iter().position(is_removal),
    );
    assert!(
        set.is_some() && removal.is_none_or(|removal| set < Some(removal)),
        "{heard:?}"
    );
}
