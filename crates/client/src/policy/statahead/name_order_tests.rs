//! Tests of names asked for in sorted order.

use super::*;

const ABOVE: Fid = Fid(7 << 24);
const DIR: Fid = Fid(7 << 24 | 1);
const NOW: Tick = Tick(0);
const NOTHING: Extent = Extent {
    listed: 0,
    covered: 0,
};

fn name(number: u32) -> Name {
    Name::try_from(&*format!("{number:05}")).expect("valid")
}

/// The first `listed` of so many entries are known.
fn known(listed: u64, of: u64) -> Extent {
    let covered = match listed == of {
        true => u64::MAX,
        false => (1 << 63) / of * listed,
    };
    Extent { listed, covered }
}

/// The name is not at hand. If it is asked for alone it exists; else how many entries are fetched.
fn miss(order: &mut NameOrder, dir: Fid, number: u32, known: Extent) -> Option<u32> {
    match order.missed((ABOVE, dir), &name(number), known, NOW) {
        Step::Alone => {
            order.answered(dir, &name(number), true);
            None
        }
        Step::Wait(_) => panic!("nothing is on its way"),
        Step::List(page) => {
            assert_eq!(page.fetch.cookie, known.covered);
            Some(page.fetch.entries)
        }
    }
}

/// So many names of a directory of so many entries are asked for in order: requests sent.
fn requests(names: u32, entries: u64) -> u64 {
    let (mut order, mut extent, mut sent) = (NameOrder::default(), NOTHING, 0);
    for n in 0..names {
        // Which of them are in the list as far as it is known depends on hashes.
        if extent.covered == u64::MAX || u64::from(n) * 37 % entries < extent.listed {
            order.hit(DIR, NOW);
            continue;
        }
        sent += 1;
        if let Some(more) = miss(&mut order, DIR, n, extent) {
            extent = known((extent.listed + u64::from(more)).min(entries), entries);
            order.came(DIR, extent);
            sent += u64::from(extent.covered != u64::MAX);
        }
    }
    sent
}

#[test]
fn the_third_name_in_order_brings_the_list() {
    assert_eq!(requests(25, 25), 3);
    assert_eq!(requests(2, 25), 2);
}

#[test]
fn a_long_list_comes_when_enough_of_it_was_asked_for() {
    assert!(requests(1000, 1000) <= 22);
    assert!(requests(60_000, 60_000) <= 1000 + 20);
    for few in [3, 10, 1000] {
        assert_eq!(
            requests(few, 1_000_000),
            u64::from(few) + 1,
            "one page too many"
        );
    }
}

#[test]
fn names_that_do_not_exist_or_are_in_no_order_bring_nothing() {
    let mut order = NameOrder::default();
    for n in 0..100 {
        let step = order.missed((ABOVE, DIR), &name(n), NOTHING, NOW);
        assert!(matches!(step, Step::Alone), "{n}");
        order.answered(DIR, &name(n), n % 3 == 0);
    }
    for n in (0..100).rev() {
        assert_eq!(miss(&mut order, ABOVE, n, NOTHING), None);
    }
}

#[test]
fn several_go_through_one_directory_each_in_its_part() {
    let mut order = NameOrder::default();
    for n in 0..2 {
        for part in [3000, 2000, 1000] {
            assert_eq!(miss(&mut order, DIR, part + n, NOTHING), None);
        }
    }
    assert_eq!(miss(&mut order, DIR, 1002, NOTHING), Some(ENTRIES_FIRST));
    let waits = order.missed((ABOVE, DIR), &name(2002), NOTHING, NOW);
    assert!(matches!(waits, Step::Wait(_)));
}

/// A directory above that is gone through by name.
fn followed() -> NameOrder {
    let mut order = NameOrder::default();
    (0..2).for_each(|n| assert_eq!(miss(&mut order, ABOVE, n, NOTHING), None));
    assert!(miss(&mut order, ABOVE, 2, NOTHING).is_some());
    order.came(ABOVE, known(50, 50));
    order
}

#[test]
fn below_a_directory_that_is_gone_through_lists_come_at_once_and_grow() {
    let mut order = followed();
    let sizes = (1..=6).map(|n| {
        let dir = Fid(n);
        let size = miss(&mut order, dir, 9, NOTHING).expect("at once");
        order.came(dir, known(20, 20));
        (0..20).for_each(|_| order.hit(dir, NOW));
        size
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [64, 128, 256, 512, 1024, 1024]);
}

#[test]
fn who_uses_little_of_what_comes_below_gets_it_no_more() {
    let mut order = followed();
    let lists = (1..100).filter(|n| {
        let dir = Fid(*n);
        let size = miss(&mut order, dir, 9, NOTHING);
        order.came(dir, known(20, 20));
        order.hit(dir, NOW);
        size.is_some()
    });
    assert_eq!(lists.count(), usize::from(UNUSED_MAX));
}

#[test]
fn a_list_that_is_lost_again_and_again_is_fetched_no_more() {
    let mut order = NameOrder::default();
    let lists = (0..100).filter(|n| {
        let size = miss(&mut order, DIR, *n, NOTHING);
        size.is_some_and(|_| {
            order.came(DIR, known(10, 10));
            true
        })
    });
    assert_eq!(lists.count(), usize::from(LOST_MAX));
}

#[test]
fn a_page_that_nothing_covers_is_used_once() {
    let mut order = NameOrder::default();
    (0..2).for_each(|n| assert_eq!(miss(&mut order, DIR, n, NOTHING), None));
    assert!(miss(&mut order, DIR, 2, NOTHING).is_some());
    order.came(DIR, NOTHING);
    assert_eq!(miss(&mut order, DIR, 3, NOTHING), None);
}
