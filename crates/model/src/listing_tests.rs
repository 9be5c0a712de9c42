//! The checker of listings takes what could be and nothing else.

use super::*;

const DIR: u64 = 1;
const FILE: u64 = 100;
const OTHER: u64 = 101;

fn span(begin: u64, end: u64) -> Span {
    Span { begin, end }
}

fn name(name: &str, leads_to: Option<u64>) -> Change {
    Change::Name {
        dir: DIR,
        name: name.to_owned(),
        leads_to,
    }
}

/// `stays` is there from the start and stays.
fn history(changes: &[(Span, Change)]) -> History {
    let mut history = History::new();
    history.record(Span::START, name("stays", Some(FILE)));
    history.record(Span::START, Change::Mode(FILE, 0o644));
    history.record(Span::START, Change::Size(FILE, 5));
    for (span, change) in changes {
        history.record(*span, change.clone());
    }
    history
}

/// A listing from 100 to 200 of these names and files.
fn listing(entries: &[(&str, u64)]) -> Listing {
    let entry = |(name, ino): &(&str, u64)| Entry {
        name: (*name).to_owned(),
        ino: *ino,
        read_by: 150,
    };
    Listing {
        dir: DIR,
        span: span(100, 200),
        entries: entries.iter().map(entry).collect(),
    }
}

fn listed(changes: &[(Span, Change)], entries: &[(&str, u64)]) -> Result<(), Impossible> {
    history(changes).check_listing(&listing(entries))
}

/// A look from 100 to 200.
fn look(name: &str, found: Option<Found>) -> Look {
    Look {
        dir: DIR,
        name: name.to_owned(),
        span: span(100, 200),
        found,
    }
}

fn found(mode: u32, size: u64) -> Option<Found> {
    Some(Found {
        ino: FILE,
        mode,
        size: Some(size),
    })
}

#[test]
fn what_is_there_all_the_time_is_listed_once() {
    let missing = Impossible::Missing("stays".to_owned());
    let twice = Impossible::Twice("stays".to_owned());
    assert_eq!(listed(&[], &[("stays", FILE)]), Ok(()));
    assert_eq!(listed(&[], &[]), Err(missing));
    assert_eq!(listed(&[], &[("stays", FILE), ("stays", FILE)]), Err(twice));
}

#[test]
fn what_is_never_there_is_not_listed() {
    let with = |changes: &[(Span, Change)]| listed(changes, &[("stays", FILE), ("f", OTHER)]);
    assert!(matches!(with(&[]), Err(Impossible::NeverThere(_))));
    // Removed before the listing began.
    let made = (span(1, 2), name("f", Some(OTHER)));
    let gone = [made.clone(), (span(3, 99), name("f", None))];
    assert!(matches!(with(&gone), Err(Impossible::NeverThere(_))));
    // Its removal had not returned when the listing began.
    let going = [made, (span(3, 101), name("f", None))];
    assert_eq!(with(&going), Ok(()));
    // Made after it had been read, within the listing all the same.
    let late = [(span(151, 160), name("f", Some(OTHER)))];
    assert!(matches!(with(&late), Err(Impossible::NeverThere(_))));
    let in_time = [(span(150, 160), name("f", Some(OTHER)))];
    assert_eq!(with(&in_time), Ok(()));
}

#[test]
fn what_comes_or_goes_meanwhile_may_be_listed_or_not() {
    let stays = ("stays", FILE);
    for change in [Some(OTHER), None] {
        let changes = [
            (span(1, 2), name("f", change.map_or(Some(OTHER), |_| None))),
            (span(120, 130), name("f", change)),
        ];
        assert_eq!(listed(&changes, &[stays]), Ok(()));
        assert_eq!(listed(&changes, &[stays, ("f", OTHER)]), Ok(()));
    }
}

#[test]
fn a_name_that_is_replaced_is_there_all_the_time_and_leads_to_either() {
    let changes = [
        (span(1, 2), name("f", Some(OTHER))),
        (span(120, 130), name("f", Some(102))),
    ];
    let with = |entries: &[(&str, u64)]| {
        let entries = [&[("stays", FILE)], entries].concat();
        listed(&changes, &entries)
    };
    assert_eq!(with(&[]), Err(Impossible::Missing("f".to_owned())));
    assert_eq!(with(&[("f", OTHER)]), Ok(()));
    assert_eq!(with(&[("f", 102)]), Ok(()));
    assert!(matches!(
        with(&[("f", FILE)]),
        Err(Impossible::NeverThere(_))
    ));
    let both = with(&[("f", OTHER), ("f", 102)]);
    assert_eq!(both, Err(Impossible::Twice("f".to_owned())));
}

#[test]
fn what_is_removed_and_made_again_meanwhile_may_come_twice() {
    let changes = [
        (span(1, 2), name("f", Some(OTHER))),
        (span(110, 112), name("f", None)),
        (span(120, 130), name("f", Some(102))),
    ];
    let entries = [("stays", FILE), ("f", OTHER), ("f", 102)];
    assert_eq!(listed(&changes, &entries), Ok(()));
}

#[test]
fn a_name_is_absent_only_at_a_moment_when_it_was() {
    let absent = |changes: &[(Span, Change)], name: &str| {
        let seen = history(changes).check_look(&look(name, None));
        assert!(matches!(seen, Ok(()) | Err(Impossible::Leads(_))));
        seen.is_ok()
    };
    assert!(!absent(&[], "stays"));
    assert!(absent(&[], "f"));
    // A negative answer from before it was made.
    assert!(!absent(&[(span(10, 99), name("f", Some(OTHER)))], "f"));
    assert!(absent(&[(span(10, 101), name("f", Some(OTHER)))], "f"));
    assert!(absent(&[(span(190, 300), name("stays", None))], "stays"));
    assert!(!absent(&[(span(201, 300), name("stays", None))], "stays"));
}

#[test]
fn attributes_are_of_a_moment_of_the_look() {
    let changes = [
        (span(50, 60), Change::Mode(FILE, 0o600)),
        (span(90, 110), Change::Size(FILE, 6)),
        (span(150, 160), Change::Size(FILE, 7)),
        (span(201, 202), Change::Size(FILE, 8)),
    ];
    let seen = |mode, size| history(&changes).check_look(&look("stays", found(mode, size)));
    for size in [5, 6, 7] {
        assert_eq!(seen(0o600, size), Ok(()), "{size}");
    }
    assert!(matches!(seen(0o600, 8), Err(Impossible::Size(_))), "later");
    assert!(matches!(seen(0o644, 7), Err(Impossible::Mode(_))), "before");
    let other = Found {
        ino: OTHER,
        mode: 0o600,
        size: None,
    };
    let other = history(&changes).check_look(&look("stays", Some(other)));
    assert!(
        matches!(other, Err(Impossible::Leads(_))),
        "another's inode"
    );
}

#[test]
fn a_size_is_over_when_the_first_change_that_began_after_it_has_returned() {
    let changes = [
        (span(10, 20), Change::Size(FILE, 6)),
        (span(21, 99), Change::Size(FILE, 7)),
    ];
    let seen = |size| history(&changes).check_look(&look("stays", found(0o644, size)));
    assert!(seen(5).is_err() && seen(6).is_err() && seen(7).is_ok());
}

#[test]
fn calls_that_overlap_may_have_been_in_either_order() {
    let changes = [
        (span(10, 40), Change::Size(FILE, 6)),
        (span(20, 50), Change::Size(FILE, 7)),
    ];
    let seen = |size| history(&changes).check_look(&look("stays", found(0o644, size)));
    assert!(seen(5).is_err() && seen(6).is_ok() && seen(7).is_ok());
}

#[test]
fn what_a_crash_may_have_undone_is_either() {
    let changes = [
        (span(10, 40), name("f", Some(OTHER))),
        (span(10, 40), name("f", None)),
    ];
    let seen = |leads: Option<u64>| {
        let entries = [("stays", FILE), ("f", OTHER)];
        listed(&changes, &entries[..1 + leads.into_iter().count()])
    };
    assert_eq!((seen(None), seen(Some(OTHER))), (Ok(()), Ok(())));
}

#[test]
fn directories_are_known_by_number() {
    let mut elsewhere = listing(&[("stays", FILE)]);
    elsewhere.dir = 2;
    let wrong = history(&[]).check_listing(&elsewhere);
    assert!(matches!(wrong, Err(Impossible::NeverThere(_))));
    elsewhere.entries.clear();
    assert_eq!(history(&[]).check_listing(&elsewhere), Ok(()));
}
