//! Watermarks: the target and its OSTs recognize an older copy of each other.

mod support;

use std::time::Duration;

use base::{Fid, TargetIndex, Transno};
use mds::watermarks::{Acknowledged, seen};
use mds::{OstInquiry, Output, Rules};
use support::*;
use wire::ost::Watermark;

const OST: TargetIndex = TargetIndex(0);
const SECOND: Duration = Duration::from_secs(1);

fn world() -> World {
    World::with(Rules::default(), 56)
}

/// What OSTs were told: how far the target has come, and how far they had.
fn told(world: &mut World) -> Vec<(TargetIndex, Watermark, Transno)> {
    let is_word = |output: &mut Output| matches!(output, Output::Watermark { .. });
    let words = world.outputs.extract_if(.., is_word);
    let words = words.filter_map(|output| match output {
        Output::Watermark {
            ost,
            watermark,
            seen,
        } => Some((ost, watermark, seen)),
        _ => None,
    });
    words.collect()
}

fn answer(world: &mut World, ours: Transno, committed: u64) {
    let (now, mut out) = ((world.tick, world.wall), Vec::new());
    let told = Acknowledged {
        ours,
        committed: Transno(committed),
    };
    world.mds.watermark_heard(now, OST, told, &mut out);
    world.outputs.extend(out);
}

/// The one word to the one OST there is.
fn only(world: &mut World) -> (Watermark, Transno) {
    match told(world)[..] {
        [(OST, watermark, seen)] => (watermark, seen),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn an_ost_is_told_at_once_of_a_boot_and_soon_of_changes() {
    let mut world = world();
    let client = world.connect(1);
    world.advance(SECOND);
    let (watermark, seen) = only(&mut world);
    assert_eq!(
        (watermark.committed, seen),
        (world.mds.last_committed(), Transno(0))
    );
    world.touch(client, Fid::ROOT, "a");
    world.flush();
    world.advance(SECOND * 100);
    assert_eq!(told(&mut world), [], "one word at a time");
    answer(&mut world, watermark.committed, 0);
    assert_eq!(told(&mut world), []);
    world.advance(SECOND);
    let (watermark, _) = only(&mut world);
    assert_eq!(watermark.committed, world.mds.last_committed());
    answer(&mut world, watermark.committed, 0);
    world.advance(SECOND * 59);
    assert_eq!(told(&mut world), [], "nothing has changed");
    world.advance(SECOND);
    assert_eq!(only(&mut world).0, watermark, "and the OST may have");
}

#[test]
fn an_ost_that_cannot_be_told_is_told_later() {
    let mut world = world();
    world.advance(SECOND);
    only(&mut world);
    world
        .mds
        .ost_failed(world.tick, OST, OstInquiry::Watermark, &mut Vec::new());
    world.advance(SECOND * 4);
    assert_eq!(told(&mut world), []);
    world.advance(SECOND);
    only(&mut world);
    world
        .mds
        .ost_failed(world.tick, OST, OstInquiry::Watermark, &mut Vec::new());
    world.set_osts(&[OST, TargetIndex(1)]);
    world.advance(SECOND);
    let osts: Vec<_> = told(&mut world).into_iter().map(|(ost, ..)| ost).collect();
    assert_eq!(osts, [OST, TargetIndex(1)], "there is a way to them now");
}

#[test]
fn how_far_an_ost_had_come_is_known_after_a_crash() {
    let mut world = world();
    world.advance(SECOND);
    let (watermark, _) = only(&mut world);
    answer(&mut world, watermark.committed, 30);
    world.flush();
    world.crash();
    world.advance(SECOND);
    assert_eq!(only(&mut world).1, Transno(30));
    let known = seen(world.mds.store()).expect("readable");
    assert_eq!(known.into_iter().collect::<Vec<_>>(), [(OST, Transno(30))]);
}

#[test]
fn what_is_said_to_an_ost_about_it_changes_nothing_that_is_said_again() {
    let mut world = world();
    world.advance(SECOND);
    let (watermark, _) = only(&mut world);
    answer(&mut world, watermark.committed, 30);
    world.flush();
    world.advance(SECOND);
    let (watermark, seen) = only(&mut world);
    assert_eq!(seen, Transno(30));
    answer(&mut world, watermark.committed, 30);
    world.flush();
    world.advance(SECOND * 2);
    assert_eq!(told(&mut world), [], "else there would be no end");
}
