//! fsck finds what is planted, and says where.

mod support;

use base::{Fid, TargetIndex, Timestamp, Transno};
use mds::fsck::{self, Severity};
use mds::keys::{STATE, Spot, Table};
use mds::mutation::Mutation;
use mds::records::{Destroy, Orphan, Place, State};
use support::planted::Planted;
use support::*;
use wire::hash::NameHasher;

/// Plants `mutations`; fsck must say `what` of `fid` at `path`.
trait Finds {
    fn finds(self, mutations: Vec<Mutation>, fid: Fid, path: Option<&str>, what: &str);
}

impl Finds for Planted {
    fn finds(self, mutations: Vec<Mutation>, fid: Fid, path: Option<&str>, what: &str) {
        self.plant(mutations);
        let issues = self.issues();
        let found = issues
            .iter()
            .find(|issue| issue.fid == fid && issue.what.contains(what));
        let found = found.unwrap_or_else(|| panic!("{what}: {issues:?}"));
        assert_eq!(found.path.as_deref(), path, "{found}");
    }
}

#[test]
fn a_name_without_a_file() {
    let planted = Planted::new();
    let (file, spot) = (planted.file, planted.spot(planted.file));
    let mut dirent = planted.dirent(spot);
    dirent.inode = None;
    planted.finds(
        vec![Mutation::PutDirent(spot, dirent)],
        file,
        Some("d/f"),
        "no record",
    );
}

#[test]
fn a_file_without_a_name() {
    let planted = Planted::new();
    let (sub, spot) = (planted.sub, planted.spot(planted.sub));
    planted.finds(vec![Mutation::RemoveDirent(spot)], sub, None, "has 0 names");
}

#[test]
fn wrong_counts() {
    let planted = Planted::new();
    let (dir, mut inode) = (planted.dir, planted.inode(planted.dir));
    inode.entries += 1;
    planted.finds(
        vec![Mutation::PutInode(dir, inode)],
        dir,
        Some("d"),
        "counts 4 entries, has 3",
    );
    let planted = Planted::new();
    let (linked, mut inode) = (planted.linked, planted.inode(planted.linked));
    inode.nlink = 3;
    let put = vec![Mutation::PutInode(linked, inode)];
    planted.finds(put, linked, Some("m"), "counts 3 links, has 2");
    let planted = Planted::new();
    let state: Option<State> = planted
        .world
        .mds
        .store()
        .get(Table::State, STATE)
        .expect("read");
    let state = State {
        files: 99,
        ..state.expect("there")
    };
    planted.finds(
        vec![Mutation::PutState(state)],
        Fid::NONE,
        None,
        "counts 99 files",
    );
}

#[test]
fn a_ring_of_directories() {
    let planted = Planted::new();
    let (dir, sub) = (planted.dir, planted.sub);
    let spot = planted.spot(dir);
    let dirent = planted.dirent(spot);
    let cookie = spot.cookie;
    let moved = Spot { dir: sub, cookie };
    let mutations = vec![
        Mutation::RemoveDirent(spot),
        Mutation::PutDirent(moved, dirent),
        Mutation::PutPlace(dir, Place::Directory(moved)),
    ];
    planted.finds(mutations, dir, None, "do not lead to the root");
}

#[test]
fn a_wrong_parent() {
    let planted = Planted::new();
    let (sub, spot) = (planted.sub, planted.spot(planted.sub));
    let place = Place::Directory(Spot {
        dir: Fid::ROOT,
        cookie: spot.cookie,
    });
    planted.finds(
        vec![Mutation::PutPlace(sub, place)],
        sub,
        Some("d/sub"),
        "is at",
    );
}

#[test]
fn names_where_lookup_cannot_find_them() {
    let planted = Planted::new();
    let (dir, spot) = (planted.dir, planted.spot(planted.file));
    let mut dirent = planted.dirent(spot);
    dirent.name = name("other");
    planted.finds(
        vec![Mutation::PutDirent(spot, dirent)],
        dir,
        Some("d"),
        "cookie of another name",
    );
    let planted = Planted::new();
    let (dir, spot) = (planted.dir, planted.spot(planted.file));
    let twin = Spot {
        cookie: spot.cookie + 1,
        ..spot
    };
    let dirent = planted.dirent(spot);
    planted.finds(
        vec![Mutation::PutDirent(twin, dirent)],
        dir,
        Some("d"),
        "the name f twice",
    );
}

#[test]
fn leftovers() {
    let planted = Planted::new();
    let file = planted.file;
    let xattr = Mutation::PutXattr(file, b"user.x".to_vec(), Vec::new());
    planted.finds(
        vec![xattr],
        file,
        Some("d/f"),
        "miscounts extended attributes",
    );
    let planted = Planted::new();
    let orphan = Orphan {
        since: Timestamp::default(),
    };
    planted.finds(
        vec![Mutation::PutOrphan(file, orphan)],
        file,
        Some("d/f"),
        "orphan: true",
    );
    let planted = Planted::new();
    let destroy = Destroy {
        open_epoch: 1,
        transno: Transno(1),
    };
    let put = Mutation::PutDestroy(TargetIndex(0), file, 0, destroy);
    planted.finds(vec![put], file, Some("d/f"), "to be removed but it exists");
    let planted = Planted::new();
    let link = Mutation::PutLink(
        file,
        Spot {
            dir: Fid::ROOT,
            cookie: 500,
        },
    );
    planted.finds(
        vec![link],
        file,
        Some("d/f"),
        "a link record without a name",
    );
}

#[test]
fn errors_come_before_warnings() {
    assert!(Severity::Error > Severity::Warning);
    let world = Planted::new().world;
    let foreign = NameHasher::new(43);
    let issues = fsck::check(world.mds.store(), foreign).expect("readable");
    assert!(
        issues
            .iter()
            .all(|issue| issue.severity == Severity::Error && !issue.what.is_empty())
    );
    assert!(
        issues
            .iter()
            .any(|issue| issue.to_string().starts_with("error: [0x"))
    );
}
