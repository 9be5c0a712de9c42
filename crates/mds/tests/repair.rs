//! What fsck finds it mends, and leaves everything else as it is.

mod support;

use std::collections::BTreeSet;

use base::{BootEpoch, Fid, Rng, SeededRng, TargetIndex, Timestamp, Transno};
use mds::fsck::objects::{Claim, claim};
use mds::fsck::{self, Mend};
use mds::keys::{self, STATE, Spot, Table};
use mds::mutation::Mutation;
use mds::records::{Bytes, Destroy, Dirent, Inode, Orphan, Place, State};
use storage::KeyRange;
use support::planted::{Namespace, Planted};
use support::*;
use wire::FileKind;
use wire::hash::NameHasher;

/// Where the namespace differs from what it was.
fn changed(before: &Namespace, after: &Namespace) -> BTreeSet<String> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |path: &&String| before.get(*path) != after.get(*path);
    paths.into_iter().filter(differs).cloned().collect()
}

/// Plants what `plan` says, and repairs: fsck finds nothing any more, and nothing has changed but
/// `paths`. Gives the namespace before and after.
fn mends(plan: impl FnOnce(&Planted) -> Vec<Mutation>, paths: &[&str]) -> (Namespace, Namespace) {
    let mut planted = Planted::new();
    let before = planted.namespace();
    planted.plant(plan(&planted));
    assert_ne!(planted.issues(), [], "nothing was planted");
    let done = planted.repair();
    assert_eq!(done.left, [], "mended: {:?}", done.mended);
    assert_ne!(done.mended, []);
    planted.world.check();
    let after = planted.namespace();
    let expected: BTreeSet<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    assert_eq!(changed(&before, &after), expected, "{:?}", done.mended);
    assert_eq!(planted.repair().mended, [], "a second time");
    (before, after)
}

fn orphan() -> Orphan {
    Orphan {
        since: Timestamp::default(),
    }
}

fn destroy() -> Destroy {
    Destroy {
        open_epoch: 1,
        transno: Transno(1),
    }
}

fn found(fid: Fid) -> String {
    format!("/lost+found/#{fid}")
}

#[test]
fn a_name_without_a_file_goes() {
    let plan = |planted: &Planted| {
        let spot = planted.spot(planted.file);
        let inode = None;
        let dirent = Dirent {
            inode,
            ..planted.dirent(spot)
        };
        vec![Mutation::PutDirent(spot, dirent)]
    };
    let (_, after) = mends(plan, &["/d", "/d/f"]);
    assert!(!after.contains_key("/d/f"));
    assert_eq!(after["/d"].attr.nlink, 3);
}

#[test]
fn a_file_without_a_name_is_found() {
    let planted = Planted::new();
    let (sub, linked) = (planted.sub, planted.linked);
    let below = |dir: &str| {
        [
            dir.to_owned(),
            format!("{dir}/deep"),
            format!("{dir}/deep/g"),
        ]
    };
    let (old, new) = (below("/d/sub"), below(&found(sub)));
    let mut paths = vec!["", "/d", "/lost+found"];
    paths.extend(old.iter().chain(&new).map(String::as_str));
    let remove = |planted: &Planted| vec![Mutation::RemoveDirent(planted.spot(planted.sub))];
    let (before, after) = mends(remove, &paths);
    let moved = |path: &str| after[path].fid;
    for (old, new) in old.iter().zip(&new) {
        assert_eq!(before[old].fid, moved(new));
        assert_eq!(before[old].xattrs, after[new].xattrs);
    }
    assert_eq!(before["/d/sub/deep/g"], after[&new[2]]);
    let lost_found = &after["/lost+found"].attr;
    assert_eq!(
        (lost_found.mode, lost_found.uid, lost_found.nlink),
        (0o700, 0, 3)
    );
    let names = |planted: &Planted| {
        let links = planted.world.mds.store();
        let mut spots = Vec::new();
        let range = KeyRange::prefix(&keys::fid(linked));
        let scanned = links.scan(Table::Links, &range, |key, _: Bytes| {
            spots.extend(keys::parse_link(key).map(|(_, spot)| spot));
            Ok(std::ops::ControlFlow::Continue(()))
        });
        scanned.expect("readable");
        spots.into_iter().map(Mutation::RemoveDirent).collect()
    };
    let (before, after) = mends(
        names,
        &["", "/d", "/d/l", "/m", "/lost+found", &found(linked)],
    );
    let (was, is) = (&before["/m"].attr, &after[&found(linked)].attr);
    assert_eq!((is.nlink, is.size, is.mtime), (1, was.size, was.mtime));
}

#[test]
fn an_orphan_that_nobody_remembers_is_found() {
    let fid = Planted::new().orphan;
    let plan = |planted: &Planted| vec![Mutation::RemoveOrphan(planted.orphan)];
    mends(plan, &["", "/lost+found", &found(fid)]);
    let put = |planted: &Planted| {
        // A removed directory that holds names.
        let mut inode = planted.inode(planted.sub);
        inode.nlink = 0;
        vec![
            Mutation::RemoveDirent(planted.spot(planted.sub)),
            Mutation::PutInode(planted.sub, inode),
            Mutation::PutPlace(planted.sub, Place::Own),
            Mutation::PutOrphan(planted.sub, orphan()),
        ]
    };
    let dir = found(Planted::new().sub);
    let (deep, last) = (format!("{dir}/deep"), format!("{dir}/deep/g"));
    let old = ["/d/sub", "/d/sub/deep", "/d/sub/deep/g"];
    let paths = [&["", "/d", "/lost+found", &dir, &deep, &last][..], &old].concat();
    mends(put, &paths);
}

#[test]
fn counts_are_made_anew() {
    let plan = |planted: &Planted| {
        let (mut dir, mut linked) = (planted.inode(planted.dir), planted.inode(planted.linked));
        (dir.entries, dir.nlink, linked.nlink) = (70, 80, 90);
        vec![
            Mutation::PutInode(planted.dir, dir),
            Mutation::PutInode(planted.linked, linked),
        ]
    };
    let (before, after) = mends(plan, &["/d", "/d/l", "/m"]);
    for path in ["/d", "/m"] {
        let version = after[path].attr.version;
        assert!(
            version > before[path].attr.version,
            "caches must not be trusted"
        );
        let mut was = before[path].clone();
        was.attr.version = version;
        assert_eq!(was, after[path]);
    }
    let plan = |planted: &Planted| {
        let state: Option<State> = planted
            .world
            .mds
            .store()
            .get(Table::State, STATE)
            .expect("read");
        let state = State {
            files: 99,
            next_sequence: Fid::SEQUENCE_FIRST,
            ..state.expect("there")
        };
        vec![Mutation::PutState(state)]
    };
    mends(plan, &[]);
}

#[test]
fn a_ring_of_directories_is_broken_at_one_place() {
    let planted = Planted::new();
    let ring = |planted: &Planted| {
        let spot = planted.spot(planted.dir);
        let moved = Spot {
            dir: planted.sub,
            ..spot
        };
        vec![
            Mutation::RemoveDirent(spot),
            Mutation::PutDirent(moved, planted.dirent(spot)),
            Mutation::PutPlace(planted.dir, Place::Directory(moved)),
        ]
    };
    let top = found(planted.dir);
    let old = [
        "/d",
        "/d/sub",
        "/d/sub/deep",
        "/d/sub/deep/g",
        "/d/f",
        "/d/l",
    ];
    let new: Vec<String> = old
        .iter()
        .map(|path| path.replacen("/d", &top, 1))
        .collect();
    let mut paths = vec!["", "/lost+found"];
    paths.extend(old);
    paths.extend(new.iter().map(String::as_str));
    let (before, after) = mends(ring, &paths);
    assert_eq!(before["/d/f"], after[&format!("{top}/f")]);
    assert_eq!(before["/d/sub"].fid, after[&format!("{top}/sub")].fid);
}

#[test]
fn a_place_follows_the_names() {
    let plan = |planted: &Planted| {
        let spot = planted.spot(planted.sub);
        let wrong = Spot {
            dir: Fid::ROOT,
            ..spot
        };
        vec![
            Mutation::PutPlace(planted.sub, Place::Directory(wrong)),
            Mutation::PutPlace(planted.file, Place::Own),
            Mutation::RemovePlace(planted.linked),
            Mutation::PutPlace(Fid::ROOT, Place::Own),
        ]
    };
    mends(plan, &[]);
}

#[test]
fn of_two_records_the_newest_stays() {
    let plan = |planted: &Planted| {
        let mut inode = planted
            .dirent(planted.spot(planted.file))
            .inode
            .expect("inline");
        (inode.version, inode.mode) = (0, 0o777);
        let old = Mutation::PutInode(planted.file, inode);
        let several = planted.inode(planted.linked);
        let spot = planted.spot(planted.symlink);
        let dirent = planted.dirent(spot);
        let own = dirent.inode.clone().expect("inline");
        let out = Dirent {
            inode: None,
            ..dirent
        };
        vec![
            old,
            Mutation::PutInode(planted.symlink, own),
            Mutation::PutDirent(spot, out),
            Mutation::PutPlace(planted.symlink, Place::Own),
            Mutation::PutInode(planted.linked, several),
        ]
    };
    mends(plan, &[]);
}

#[test]
fn a_name_goes_where_lookup_finds_it() {
    let rename = |planted: &Planted| {
        let spot = planted.spot(planted.file);
        let name = name("other");
        let dirent = Dirent {
            name,
            ..planted.dirent(spot)
        };
        vec![Mutation::PutDirent(spot, dirent)]
    };
    let (before, after) = mends(rename, &["/d/f", "/d/other"]);
    assert_eq!(before["/d/f"], after["/d/other"]);
    // There is another one of that name already.
    let rename = |planted: &Planted| {
        let spot = planted.spot(planted.file);
        let name = name("sub");
        let dirent = Dirent {
            name,
            ..planted.dirent(spot)
        };
        vec![Mutation::PutDirent(spot, dirent)]
    };
    let path = found(Planted::new().file);
    mends(rename, &["", "/d", "/d/f", "/lost+found", &path]);
    let twin = |planted: &Planted| {
        let spot = planted.spot(planted.file);
        let cookie = spot.cookie + 1;
        vec![Mutation::PutDirent(
            Spot { cookie, ..spot },
            planted.dirent(spot),
        )]
    };
    mends(twin, &["/d"]);
}

#[test]
fn names_in_what_is_no_directory() {
    let plan = |planted: &Planted| {
        let spot = planted.spot(planted.sub);
        let dirent = planted.dirent(spot);
        let moved = Spot {
            dir: planted.file,
            ..spot
        };
        vec![
            Mutation::RemoveDirent(spot),
            Mutation::PutDirent(moved, dirent),
            Mutation::PutPlace(planted.sub, Place::Directory(moved)),
        ]
    };
    let dir = found(Planted::new().sub);
    let (deep, last) = (format!("{dir}/deep"), format!("{dir}/deep/g"));
    let old = ["/d/sub", "/d/sub/deep", "/d/sub/deep/g"];
    let paths = [&["", "/d", "/lost+found", &dir, &deep, &last][..], &old].concat();
    mends(plan, &paths);
}

#[test]
fn a_directory_whose_record_is_lost_keeps_its_names() {
    let lose = |planted: &Planted| vec![Mutation::RemoveInode(planted.deep)];
    let (before, after) = mends(lose, &["/d/sub/deep"]);
    let (was, is) = (&before["/d/sub/deep"], &after["/d/sub/deep"]);
    assert_eq!((is.fid, &is.xattrs), (was.fid, &was.xattrs));
    assert_eq!((is.attr.mode, is.attr.uid), (0o700, 0));
    let (_, after) = mends(|_| vec![Mutation::RemoveInode(Fid::ROOT)], &[""]);
    assert_eq!(after[""].attr.nlink, 3);
}

#[test]
fn a_directory_keeps_one_name() {
    let twice = |planted: &Planted| {
        let dirent = planted.dirent(planted.spot(planted.sub));
        let name = name("again");
        let cookie = NameHasher::new(42).hash(&name) << 7;
        let spot = Spot {
            dir: Fid::ROOT,
            cookie,
        };
        vec![Mutation::PutDirent(spot, Dirent { name, ..dirent })]
    };
    mends(twice, &[""]);
}

#[test]
fn leftovers_go() {
    let plan = |planted: &Planted| {
        let nobody = Fid::new(Fid::SEQUENCE_FIRST, 5000);
        let spot = Spot {
            dir: Fid::ROOT,
            cookie: 500,
        };
        vec![
            Mutation::PutXattr(nobody, b"user.x".to_vec(), Vec::new()),
            Mutation::PutLink(nobody, spot),
            Mutation::PutLink(planted.file, spot),
            Mutation::PutPlace(nobody, Place::Own),
            Mutation::PutTarget(nobody, b"x".to_vec()),
            Mutation::PutTarget(planted.file, b"x".to_vec()),
            Mutation::PutOrphan(nobody, orphan()),
            Mutation::PutOrphan(planted.file, orphan()),
            Mutation::PutOrphan(planted.dir, orphan()),
            Mutation::PutDestroy(TargetIndex(0), planted.file, 0, destroy()),
        ]
    };
    mends(plan, &[]);
}

#[test]
fn attributes_and_targets_are_counted() {
    let plan = |planted: &Planted| {
        vec![
            Mutation::PutXattr(planted.file, b"user.x".to_vec(), b"1".to_vec()),
            Mutation::RemoveXattrs(planted.deep),
            Mutation::RemoveTarget(planted.symlink),
        ]
    };
    let (_, after) = mends(plan, &["/d/f", "/d/sub/deep", "/s"]);
    assert_eq!(after["/d/f"].xattrs.len(), 1);
    assert!(!after["/d/sub/deep"].attr.has_xattrs);
    assert_eq!(after["/s"].target.as_deref(), Some(&b"#target lost"[..]));
}

#[test]
fn what_is_called_lost_found_already_is_used_or_left_alone() {
    let mut planted = Planted::new();
    let a = planted.client;
    planted.world.touch(a, Fid::ROOT, "lost+found");
    planted.plant(vec![Mutation::RemoveDirent(planted.spot(planted.sub))]);
    assert_eq!(planted.repair().left, []);
    planted.world.check();
    assert_eq!(
        planted.world.names(a, Fid::ROOT),
        ["d", "lost+found", "lost+found.1", "m", "s"]
    );
    planted.plant(vec![Mutation::RemoveDirent(planted.spot(planted.deep))]);
    planted.repair();
    let dir = planted
        .world
        .lookup(a, Fid::ROOT, "lost+found.1")
        .expect("made")
        .fid;
    assert_eq!(planted.world.list(a, dir, 9).len(), 2);
    // Its own FID is nobody's.
    let made = planted.world.touch(a, dir, "new");
    assert_ne!(made.sequence(), dir.sequence());
}

#[test]
fn what_is_damaged_ends_a_repair_before_it_begins() {
    let planted = Planted::new();
    let spot = planted.spot(planted.sub);
    let mut batch = storage::Batch::new();
    let table = mds::store::table_id(Table::Dirents);
    batch.put(table, keys::dirent(spot), vec![9, 9]);
    batch.delete(mds::store::table_id(Table::Places), keys::fid(planted.file));
    planted
        .world
        .mds
        .store()
        .commit(batch)
        .expect("a sound disk");
    let store = planted.world.mds.store();
    let before = store.kv().committed();
    let done = fsck::repair(store, NameHasher::new(42), BootEpoch(7), planted.world.wall);
    assert!(done.is_err());
    assert_eq!(store.kv().committed(), before, "nothing is written");
}

#[test]
fn a_repair_is_a_boot_of_its_own() {
    let mut planted = Planted::new();
    let committed = planted.world.mds.last_transno();
    planted.plant(vec![Mutation::RemovePlace(planted.file)]);
    planted.repair();
    let survived = planted.world.mds.survived(BootEpoch(6)).expect("readable");
    assert_eq!(survived, committed, "its changes are not those of clients");
    assert!(planted.world.mds.last_transno() > committed);
}

#[test]
fn lines_say_what_was_wrong_and_what_was_done() {
    let mut planted = Planted::new();
    planted.plant(vec![Mutation::RemoveDirent(planted.spot(planted.sub))]);
    let dir = planted.sub;
    let done = planted.repair();
    let lines: Vec<String> = done
        .mended
        .iter()
        .map(|issue| issue.told_as_mended())
        .collect();
    let line = format!(
        "mended: {dir}: has 0 names, orphan: false; it is {} now",
        found(dir)
    );
    assert!(lines.contains(&line), "{lines:?}");
    assert!(
        done.mended
            .iter()
            .any(|issue| issue.mend == Some(Mend::NameInLostFound(dir)))
    );
}

#[test]
fn objects_are_nobodys_only_when_that_is_certain() {
    let mut planted = Planted::new();
    let (ost, file, client) = (TargetIndex(0), planted.file, planted.client);
    let part = |planted: &Planted, fid, stripe| {
        let object = layout::ObjectId { fid, stripe };
        claim(planted.world.mds.store(), ost, object).expect("readable")
    };
    let claim = |planted: &Planted, fid| part(planted, fid, 0);
    let [other, never] = [file.sequence(), file.sequence() + 5000].map(|s| Fid::new(s, 9999));
    assert_eq!(claim(&planted, other), Claim::Awaited, "its maker is there");
    let dir = claim(&planted, planted.dir);
    assert_eq!(dir, Claim::Awaited, "an open may be repeated");
    planted.world.goodbye(client);
    assert_eq!(claim(&planted, other), Claim::Nobodys);
    assert_eq!(claim(&planted, never), Claim::Awaited, "never granted");
    assert_eq!(claim(&planted, file), Claim::Named);
    planted.plant(vec![Mutation::PutDestroy(ost, never, 0, destroy())]);
    assert_eq!(claim(&planted, never), Claim::ToBeRemoved);
    let dir = claim(&planted, planted.dir);
    assert_eq!(dir, Claim::Superfluous, "a directory has none");
    assert_eq!(part(&planted, file, 1), Claim::Superfluous);
    planted.plant(vec![Mutation::RemoveDirent(planted.spot(file))]);
    assert_eq!(planted.repair().left, []);
    assert_eq!(
        claim(&planted, file),
        Claim::Awaited,
        "its bytes may be all that is left"
    );
}

/// A larger target: directories in directories, files with one name and several, symlinks.
fn populate(planted: &mut Planted, rng: &mut SeededRng) -> Vec<Fid> {
    let (a, mut dirs) = (planted.client, vec![Fid::ROOT, planted.dir, planted.sub]);
    let mut all = vec![
        planted.file,
        planted.linked,
        planted.symlink,
        planted.orphan,
    ];
    for number in 0..40_u32 {
        let dir = dirs[rng.below(dirs.len() as u64) as usize];
        let text = format!("n{number}");
        match rng.below(5) {
            0 => dirs.push(planted.world.mkdir(a, dir, &text)),
            1 => all.push(planted.world.make(a, dir, &text, FileKind::Symlink)),
            2 => {
                let fid = planted.world.touch(a, dir, &text);
                planted
                    .world
                    .link(a, fid, Fid::ROOT, &format!("{text}-too"))
                    .expect("linked");
                all.push(fid);
            }
            _ => all.push(planted.world.touch(a, dir, &text)),
        }
    }
    all.extend(dirs);
    all
}

/// The spots of all names.
fn spots(planted: &Planted) -> Vec<Spot> {
    let mut spots = Vec::new();
    let scanned =
        planted
            .world
            .mds
            .store()
            .scan(Table::Dirents, &KeyRange::all(), |key, _: Dirent| {
                spots.extend(keys::parse_dirent(key));
                Ok(std::ops::ControlFlow::Continue(()))
            });
    scanned.expect("readable");
    spots
}

/// Any one record goes, or says something else.
fn harm(planted: &Planted, all: &[Fid], rng: &mut SeededRng) -> Option<Mutation> {
    let spots = spots(planted);
    let spot = spots[rng.below(spots.len() as u64) as usize];
    let other = spots[rng.below(spots.len() as u64) as usize];
    let dirent = planted.dirent(spot);
    let fid = all[rng.below(all.len() as u64) as usize];
    let inode: Option<Inode> = planted
        .world
        .mds
        .store()
        .get(Table::Inodes, &keys::fid(fid))
        .ok()?;
    let kinds = [FileKind::Directory, FileKind::Regular, FileKind::Symlink];
    let kind = kinds[rng.below(3) as usize];
    Some(match rng.below(18) {
        0 => Mutation::RemoveDirent(spot),
        1 => Mutation::RemoveInode(fid),
        2 => Mutation::RemovePlace(fid),
        3 => Mutation::RemoveLink(fid, spot),
        4 => Mutation::RemoveTarget(fid),
        5 => Mutation::RemoveOrphan(planted.orphan),
        6 => Mutation::PutDirent(spot, Dirent { fid, ..dirent }),
        7 => Mutation::PutDirent(spot, Dirent { kind, ..dirent }),
        8 => Mutation::PutDirent(spot, Dirent { inode, ..dirent }),
        9 => Mutation::PutDirent(
            spot,
            Dirent {
                inode: None,
                ..dirent
            },
        ),
        10 => Mutation::PutDirent(other, dirent),
        11 => Mutation::PutDirent(Spot { dir: fid, ..spot }, dirent),
        12 => Mutation::PutInode(
            fid,
            Inode {
                nlink: 9,
                entries: 9,
                ..inode?
            },
        ),
        13 => Mutation::PutInode(fid, Inode { kind, ..inode? }),
        14 => Mutation::PutPlace(fid, Place::Directory(spot)),
        15 => Mutation::PutLink(fid, other),
        16 => Mutation::PutOrphan(fid, orphan()),
        _ => Mutation::PutDestroy(TargetIndex(0), fid, 0, destroy()),
    })
}

/// `cuts`: how often the power fails in the middle of a repair. How often it did.
fn harmed_at_random(seed: u64, cuts: u64) -> u64 {
    let mut rng = SeededRng::new(seed);
    let mut planted = Planted::new();
    let all = populate(&mut planted, &mut rng);
    for _ in 0..=rng.below(12) {
        let harm = harm(&planted, &all, &mut rng);
        planted.plant(harm.into_iter().collect());
    }
    let harmed = planted.issues();
    let cut = (0..cuts).filter(|_| planted.interrupt(rng.below(8), seed));
    let cut = cut.count() as u64;
    let done = planted.repair();
    assert_eq!(
        done.left,
        [],
        "seed {seed}: {harmed:?}, mended: {:?}",
        done.mended
    );
    planted.world.check();
    let after = planted.namespace();
    let (a, dirs) = (
        planted.client,
        after.values().filter(|shown| shown.attr.nlink > 1),
    );
    for shown in dirs.filter(|shown| shown.attr.kind == FileKind::Directory) {
        planted.world.touch(a, shown.fid, "made later");
    }
    planted.world.check();
    assert_eq!(planted.repair().mended, [], "seed {seed}");
    cut
}

#[test]
fn any_harm_is_mended() {
    (0..120).for_each(|seed| assert_eq!(harmed_at_random(seed, 0), 0));
}

/// What was mended stays, and the rest is found again.
#[test]
fn a_repair_that_was_cut_off_goes_on() {
    let cut: u64 = (200..260).map(|seed| harmed_at_random(seed, 3)).sum();
    assert!(cut > 30, "the power failed {cut} times");
}

/// `make soak`.
#[test]
#[ignore = "takes minutes"]
fn soak_any_harm_is_mended() {
    let cut: u64 = (1000..20_000)
        .map(|seed| harmed_at_random(seed, seed % 4))
        .sum();
    assert!(cut > 0);
}
