//! Objects of files that a crash took from the target, and that their maker did not make again.
//! They are found and removed, and no others.

mod support;

use std::time::Duration;

use base::{ClientId, Fid, TargetIndex, Transno};
use layout::ObjectId;
use mds::fsck::objects::{Claim, claim};
use mds::keys::Table;
use mds::mutation::{Mutation, apply};
use mds::records::{NO_CLIENT, SequenceOwner};
use mds::{OstInquiry, Output, Rules};
use rpc::serving::Machine;
use rpc::window::RECOVERY_WINDOW;
use rpc::{ClientUuid, PeerInfo};
use storage::{Batch, KeyRange};
use support::*;
use wire::mdt::SetAttr;

const OST: TargetIndex = TargetIndex(0);
/// So often an OST is asked.
const TIMES: usize = 6;

/// A client that made files, and what a crash left of them.
struct Lost {
    world: World,
    /// Of these files one is durable, one is durable and was removed, one is lost.
    kept: ObjectId,
    removed: ObjectId,
    lost: ObjectId,
}

fn object(fid: Fid) -> ObjectId {
    ObjectId { fid, stripe: 0 }
}

fn first_of(object: ObjectId) -> ObjectId {
    ObjectId {
        fid: Fid::new(object.fid.sequence(), 0),
        stripe: 0,
    }
}

/// A file with bytes.
fn write(world: &mut World, client: ClientId, text: &str) -> ObjectId {
    let (node, handle) = world.create_open(client, Fid::ROOT, text, WRITE);
    let closed = world.close(client, node.fid, handle, SetAttr::default());
    closed.expect("closed");
    object(node.fid)
}

fn crashed() -> Lost {
    let mut world = World::with(Rules::default(), 56);
    let (a, b) = (world.connect(1), world.connect(2));
    world.mkdir(b, Fid::ROOT, "d");
    let kept = write(&mut world, a, "kept");
    let removed = write(&mut world, a, "removed");
    world.unlink(a, Fid::ROOT, "removed").expect("gone");
    world.flush();
    world.auto_flush = false;
    let lost = write(&mut world, a, "lost");
    world.crash_awaiting();
    world.outputs.clear();
    Lost {
        world,
        kept,
        removed,
        lost,
    }
}

/// The maker of the files does not come back in time.
fn given_up() -> Lost {
    let mut lost = crashed();
    lost.world.ready(ClientId(2));
    assert_eq!(asked(&mut lost.world), [], "it may come back");
    lost.world.advance(RECOVERY_WINDOW);
    lost
}

/// Which objects an OST was asked to list, from which on.
fn asked(world: &mut World) -> Vec<ObjectId> {
    let is_list = |output: &mut Output| matches!(output, Output::List { .. });
    let asked = world.outputs.extract_if(.., is_list);
    let from = asked.filter_map(|output| match output {
        Output::List { ost, from, .. } => (ost == OST).then_some(from),
        _ => None,
    });
    from.collect()
}

/// Which objects an OST was told to remove.
fn condemned(world: &mut World) -> Vec<ObjectId> {
    let is_destroy = |output: &mut Output| matches!(output, Output::Destroy { .. });
    let told = world.outputs.extract_if(.., is_destroy);
    let objects = told.filter_map(|output| match output {
        Output::Destroy { objects, .. } => Some(objects.into_iter().map(|(object, _)| object)),
        _ => None,
    });
    objects.flatten().collect()
}

fn list(world: &mut World, from: ObjectId, objects: &[ObjectId], next: Option<ObjectId>) {
    let (tick, wall, mut out) = (world.tick, world.wall, Vec::new());
    let told = (objects, next);
    world.mds.listed(tick, wall, (OST, from), told, &mut out);
    world.outputs.extend(out);
}

fn is_over(world: &World) -> bool {
    let none = world
        .mds
        .store()
        .is_empty(Table::LeakSearches, &KeyRange::all());
    none.expect("readable")
}

#[test]
fn objects_of_files_that_nobody_makes_again_are_removed_and_no_others() {
    let Lost {
        mut world,
        kept,
        removed,
        lost,
    } = given_up();
    let from = first_of(lost);
    assert_eq!(asked(&mut world), [from]);
    // What is removed anyway, and what is of no sequence that was given to anybody, is left.
    let (told, strange) = (condemned(&mut world), object(Fid::new(1 << 30, 1)));
    assert_eq!(told, [removed]);
    list(&mut world, from, &[kept, removed, lost, strange], None);
    world.flush();
    let (tick, wall, mut out) = (world.tick, world.wall, Vec::new());
    world.mds.destroyed(tick, wall, OST, &[removed], &mut out);
    world.outputs.extend(out);
    assert_eq!(condemned(&mut world), [lost]);
    world.check();
}

#[test]
fn a_lost_object_is_removed_when_it_is_durable_that_its_maker_was_given_up() {
    let Lost {
        mut world, lost, ..
    } = given_up();
    let from = first_of(lost);
    assert_eq!(asked(&mut world), [from]);
    condemned(&mut world);
    list(&mut world, from, &[lost], None);
    let nothing_was_durable = condemned(&mut world);
    assert_eq!(nothing_was_durable, []);
    // A crash: it is waited for once more, and makes the file again.
    world.crash_awaiting();
    world.outputs.clear();
    assert!(is_over(&world));
    for done in world.lost() {
        assert!(world.replay(&done).0.is_ok());
    }
    for client in [1, 2] {
        world.ready(ClientId(client));
    }
    world.flush();
    assert!(world.lookup(ClientId(2), Fid::ROOT, "lost").is_some());
    assert_eq!(asked(&mut world), []);
}

#[test]
fn it_is_asked_for_late_ones_more_and_more_seldom_and_then_no_more() {
    let Lost {
        mut world, lost, ..
    } = given_up();
    let (from, begun) = (first_of(lost), world.tick);
    let mut times = Vec::new();
    while !is_over(&world) && times.len() <= TIMES {
        if asked(&mut world) == [from] {
            times.push(world.tick.since(begun).as_secs());
            list(&mut world, from, &[], None);
        }
        // Those without a record are asked for once.
        let again = asked(&mut world);
        assert_eq!(again.len(), usize::from(times == [0]));
        let told = |from: &ObjectId| list(&mut world, *from, &[], None);
        again.iter().for_each(told);
        let Some(next) = world.mds.next_deadline() else {
            break;
        };
        world.advance(next.since(world.tick).max(Duration::from_secs(1)));
    }
    assert_eq!(times.len(), TIMES, "{times:?}");
    assert_eq!(times[..3], [0, 5, 25]);
    assert!(times[TIMES - 1] > 20 * 60, "{times:?}");
    world.flush();
    world.crash();
    assert_eq!(asked(&mut world), [], "nor in the next life");
}

#[test]
fn a_search_goes_on_after_a_crash_and_where_an_ost_was_away() {
    let Lost {
        mut world, lost, ..
    } = given_up();
    let from = first_of(lost);
    world.flush();
    assert_eq!(asked(&mut world), [from]);
    world
        .mds
        .ost_failed(world.tick, OST, OstInquiry::List, &mut Vec::new());
    world.flush();
    assert_eq!(asked(&mut world), []);
    world.advance(Duration::from_secs(5));
    assert_eq!(asked(&mut world), [from]);
    assert!(
        world
            .mds
            .unfinished()
            .iter()
            .any(|what| what.contains("lost files"))
    );
    world.crash();
    world.advance(Duration::from_secs(1));
    assert_eq!(asked(&mut world), [from]);
    condemned(&mut world);
    list(&mut world, from, &[], None);
    assert_eq!(asked(&mut world), [from], "those that lost their record");
    list(&mut world, from, &[lost], None);
    world.flush();
    assert!(
        !world
            .mds
            .unfinished()
            .iter()
            .any(|what| what.contains("lost files"))
    );
}

#[test]
fn a_list_goes_on_where_it_ended_but_never_back() {
    let Lost {
        mut world,
        kept,
        lost,
        ..
    } = given_up();
    let from = first_of(lost);
    assert_eq!(asked(&mut world), [from]);
    list(&mut world, from, &[kept], Some(lost));
    assert_eq!(asked(&mut world), [lost]);
    list(&mut world, lost, &[], Some(kept));
    assert_eq!(asked(&mut world), [from], "that was no way on");
    // Now for those that lost their record.
    list(&mut world, from, &[], Some(lost));
    assert_eq!(asked(&mut world), [lost]);
    list(&mut world, lost, &[], None);
    assert_eq!(asked(&mut world), []);
    world.advance(Duration::from_secs(5));
    assert_eq!(asked(&mut world), [from]);
    let elsewhere = object(Fid::new(lost.fid.sequence() + 1, 1));
    list(&mut world, from, &[], Some(elsewhere));
    assert_eq!(asked(&mut world), []);
    list(&mut world, elsewhere, &[], None);
    world.set_osts(&[OST, TargetIndex(1)]);
    world.advance(Duration::from_secs(1));
    let is_new = |output: &Output| {
        matches!(
            output,
            Output::List {
                ost: TargetIndex(1),
                ..
            }
        )
    };
    assert!(world.outputs.iter().any(is_new), "an OST that was added");
}

#[test]
fn nothing_is_searched_for_where_nothing_was_lost() {
    let mut lost = crashed();
    let world = &mut lost.world;
    for done in world.lost() {
        assert!(world.replay(&done).0.is_ok());
    }
    for client in [1, 2] {
        world.ready(ClientId(client));
    }
    world.flush();
    // Who is given up without a crash has lost nothing that was not removed.
    world.evict(ClientId(1));
    world.flush();
    world.crash();
    assert_eq!(asked(world), []);
    assert!(is_over(world));
}

/// A repair was in doubt about objects of a client's files, and the client goes.
#[test]
fn what_a_repair_was_in_doubt_of_is_left() {
    for comes in [false, true] {
        let mut lost = crashed();
        let (world, sequence) = (&mut lost.world, lost.lost.fid.sequence());
        let nobody = SequenceOwner { client: NO_CLIENT };
        let mut batch = Batch::new();
        apply(vec![Mutation::PutLeakSearch(sequence, nobody)], &mut batch);
        world.kv.commit(batch).expect("sound");
        world.ready(ClientId(2));
        match comes {
            true => {
                world.ready(ClientId(1));
                world.goodbye(ClientId(1));
            }
            false => world.advance(RECOVERY_WINDOW),
        }
        world.flush();
        assert_eq!(asked(world), []);
        assert!(is_over(world));
        let claim = claim(world.mds.store(), OST, lost.lost);
        assert!(matches!(claim, Ok(Claim::Awaited)), "{claim:?}");
    }
}

/// The target is an older copy of what it was.
#[test]
fn a_target_that_an_ost_knows_more_of_stops() {
    let Lost { mut world, .. } = given_up();
    let begun = world.outputs.iter().find_map(|output| match output {
        Output::List { watermark, .. } => Some(watermark.begun),
        _ => None,
    });
    let (begun, mut out) = (begun.expect("asked"), Vec::new());
    let newer = Transno(begun.0 + 9);
    world.mds.is_behind(world.tick, OST, newer, &mut out);
    let Some(Output::Halt(halted)) = out.last() else {
        panic!("{out:?}")
    };
    let why = halted.0.to_string();
    assert!(
        why.contains("OST0 was told") && why.contains("older copy"),
        "{why}"
    );
    let (tick, wall, mut out) = (world.tick.after(RECOVERY_WINDOW), world.wall, Vec::new());
    world.mds.tick(tick, wall, &mut out);
    assert_eq!(out, [], "and asks nobody any more");
}

/// The target told a client that it was given up, and a crash took that, with what the client had made.
#[test]
fn who_was_told_that_it_was_given_up_is_given_up_again() {
    let mut lost = crashed();
    let world = &mut lost.world;
    // It is not there yet.
    let client = world.clients.remove(&1).expect("known");
    world.crash_awaiting();
    let told = PeerInfo {
        uuid: ClientUuid([1; 16]),
        incarnation: 1,
        address: "10.0.0.1:700".to_owned(),
        uid: None,
        credential: rpc::Credential::Client,
        was_given_up: true,
    };
    Machine::connected(&mut world.mds, ClientId(1), &told).expect("readable");
    world.clients.insert(1, client);
    world.drop_sequence(ClientId(1));
    for client in [1, 2] {
        world.ready(ClientId(client));
    }
    world.flush();
    assert_eq!(asked(world), [first_of(lost.lost)]);
    // It is one like any other from now on.
    world.auto_flush = true;
    world.touch(ClientId(1), Fid::ROOT, "new");
    world.crash_awaiting();
    let awaited = world.mds.recovery().awaited();
    assert!(awaited.into_iter().any(|one| *one == told.uuid));
    // Who was waited for in vain comes back so, too, and that is no news.
    Machine::connected(&mut world.mds, ClientId(3), &told).expect("readable");
}
