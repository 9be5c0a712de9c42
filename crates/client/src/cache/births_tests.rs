//! Tests of births: which of them are sent, in which order, and what their end leaves.

use super::*;

const DIR: Fid = Fid(7);

fn birth(dir: Fid, name: &str, since: u64) -> Birth {
    Birth::new(dir, Name::new(name.as_bytes()).expect("good"), Tick(since))
}

const ALL: &[Wish] = &[Wish::Until(u64::MAX)];

#[test]
fn what_was_made_first_is_sent_first_and_once() {
    let mut births = Births::default();
    births.add(Fid(9), birth(DIR, "d", 1));
    births.add(Fid(8), birth(Fid(9), "f", 2));
    assert_eq!(births.send(ALL, 1).births, [Fid(9)]);
    assert_eq!(births.send(ALL, 9).births, [Fid(8)]);
    assert_eq!(births.send(ALL, 9).births, []);
    births.send_again(Fid(8));
    assert_eq!(births.send(ALL, 9).births, [Fid(8)]);
    let last = births.newest();
    births.end(Fid(9));
    assert!(!births.are_reported_until(last) && births.oldest() == Some(Tick(2)));
    births.end(Fid(8));
    assert!(births.are_reported_until(last) && births.is_empty());
}

/// Two directories, one in the other, and three files: two in the inner one.
fn tree() -> Births {
    let mut births = Births::default();
    for (fid, dir, name) in [
        (Fid(10), DIR, "outer"),
        (Fid(11), DIR, "beside"),
        (Fid(12), Fid(10), "inner"),
        (Fid(13), Fid(12), "a"),
        (Fid(14), Fid(12), "b"),
    ] {
        births.add(fid, birth(dir, name, fid.0));
    }
    births
}

#[test]
fn a_file_goes_with_all_above_it_and_nothing_beside_it() {
    let mut births = tree();
    assert_eq!(
        births.send(&[Wish::Of(Fid(14))], 9).births,
        [Fid(10), Fid(12), Fid(14)]
    );
    for fid in [10, 12, 14] {
        births.end(Fid(fid));
    }
    assert!(births.have_no(Wish::Of(Fid(14))) && !births.have_no(Wish::Of(Fid(12))));
}

#[test]
fn a_directory_goes_with_what_is_in_it_and_not_with_what_is_below_that() {
    let mut births = tree();
    assert_eq!(births.send(&[Wish::Of(DIR)], 9).births, [Fid(10), Fid(11)]);
    for fid in [10, 11] {
        births.end(Fid(fid));
    }
    assert!(births.have_no(Wish::Of(DIR)) && births.have_no(Wish::Of(Fid(11))));
    assert_eq!(
        births.send(&[Wish::Of(Fid(12))], 9).births,
        [Fid(12), Fid(13), Fid(14)]
    );
}

#[test]
fn a_file_that_was_renamed_goes_with_the_directories_above_its_new_name() {
    let mut births = tree();
    let name = |text: &str| Name::new(text.as_bytes()).expect("good");
    births.add(Fid(15), birth(DIR, "newer", 15));
    births.rename(Fid(13), (Fid(12), &name("a")), (Fid(15), name("c")));
    assert_eq!(births.in_directory(Fid(12)), [Fid(14)]);
    assert_eq!(
        births.send(&[Wish::Of(Fid(13))], 9).births,
        [Fid(15), Fid(13)]
    );
    // A directory that is older than the one above it.
    births.rename(Fid(12), (Fid(10), &name("inner")), (Fid(11), name("d")));
    let sent = births.send(ALL, 9).births;
    assert_eq!(sent, [Fid(10), Fid(11), Fid(12), Fid(14)]);
    assert!(births.is_inside(Fid(12), Fid(11)) && !births.is_inside(Fid(11), Fid(12)));
    assert!(births.is_inside(Fid(12), Fid(12)) && !births.is_inside(DIR, DIR));
}

#[test]
fn a_file_goes_after_the_directories_of_all_its_names() {
    let mut births = tree();
    let name = |text: &str| Name::new(text.as_bytes()).expect("good");
    births.link(Fid(13), (Fid(11), name("more")));
    births.link(Fid(13), (Fid(12), name("most")));
    assert!(births.may_link(Fid(13), Fid(11)) && !births.may_link(Fid(13), DIR));
    assert_eq!(births.in_directory(Fid(11)), [Fid(13)]);
    births.unlink(Fid(13), (Fid(12), &name("a")));
    let sent = births.send(&[Wish::Of(Fid(11))], 9).births;
    assert_eq!(sent, [Fid(11), Fid(10), Fid(12), Fid(13)]);
    let names = births.get(Fid(13)).map(|birth| birth.names().count());
    assert_eq!(names, Some(2));
    births.unlink(Fid(13), (Fid(12), &name("most")));
    assert_eq!(births.in_directory(Fid(12)), [Fid(14)]);
    assert_eq!(births.end(Fid(13)).map(|birth| birth.dir), Some(Fid(11)));
    assert_eq!(births.in_directory(Fid(11)), []);
}

#[test]
fn single_files_go_before_what_is_old() {
    let mut births = tree();
    let wishes = [Wish::MadeBy(Tick(13)), Wish::Of(Fid(11))];
    assert_eq!(births.send(&wishes, 9).births, [Fid(11)]);
    assert_eq!(births.send(&wishes, 9).births, [Fid(10), Fid(12), Fid(13)]);
    assert!(births.have_no(Wish::MadeBy(Tick(9))));
    assert!(!births.have_no(Wish::MadeBy(Tick(10))));
}

#[test]
fn a_file_goes_with_the_name_that_it_takes_and_what_was_in_that() {
    let mut births = Births::default();
    let removal = |dir, text: &str, fid| Removal {
        dir,
        name: Name::new(text.as_bytes()).expect("good"),
        fid: Fid(fid),
        cookie: 1,
        ctime: base::Timestamp::default(),
    };
    births.remove(removal(Fid(20), "in", 21), Tick(1));
    births.remove(removal(DIR, "d", 20), Tick(2));
    births.remove(removal(DIR, "other", 22), Tick(3));
    births.add(Fid(30), birth(DIR, "d", 4));
    let sending = births.send(&[Wish::Of(Fid(30))], 9);
    assert_eq!((sending.births, sending.edits), (vec![Fid(30)], vec![1, 2]));
    assert!(!births.have_no(Wish::MadeBy(Tick(1))) && births.are_names_of(DIR));
    births.edits_mut().end(1);
    births.edits_mut().end(2);
    births.end(Fid(30));
    assert_eq!(births.oldest(), Some(Tick(3)));
    assert_eq!(births.send(ALL, 9).edits, [3]);
    assert_eq!(births.len(), 1);
}

fn moved(fid: u64, from: &str, to: &str) -> Move {
    let name = |text: &str| Name::new(text.as_bytes()).expect("good");
    Move {
        dir: DIR,
        fid: Fid(fid),
        from: name(from),
        cookie: 1,
        to: name(to),
        ctime: base::Timestamp::default(),
    }
}

#[test]
fn a_file_takes_the_name_of_another_when_it_is_known_and_its_bytes_are_durable() {
    let mut births = Births::default();
    births.add(Fid(30), birth(DIR, "lock", 1));
    let removal = Removal {
        dir: DIR,
        name: Name::new(b"config").expect("good"),
        fid: Fid(20),
        cookie: 1,
        ctime: base::Timestamp::default(),
    };
    births.remove(removal, Tick(2));
    births.move_known(moved(30, "lock", "config"), Bytes::Undurable, Tick(2));
    // The next of that name, which is to take another.
    births.add(Fid(31), birth(DIR, "lock", 3));
    births.move_known(moved(31, "lock", "other"), Bytes::Durable, Tick(3));
    let sending = births.send(&[Wish::Of(Fid(31))], 9);
    assert_eq!((sending.births, sending.edits), (vec![Fid(30)], vec![]));
    births.end(Fid(30));
    for wish in [Wish::Of(DIR), Wish::NameOf(Fid(30)), ALL[0]] {
        let sending = births.send(&[wish], 9);
        assert!(sending.births.is_empty() && sending.edits.is_empty());
        assert_eq!(sending.undurable, BTreeSet::from([3]));
    }
    births.edits_mut().set_bytes(3, Bytes::Durable);
    let sending = births.send(ALL, 9);
    assert_eq!((sending.births, sending.edits), (vec![Fid(31)], vec![2, 3]));
    for number in [2, 3] {
        births.edits_mut().end(number);
    }
    assert!(births.have_no(Wish::NameOf(Fid(30))) && !births.have_no(Wish::Of(DIR)));
    births.end(Fid(31));
    assert_eq!(births.send(ALL, 9).edits, [5]);
}

#[test]
fn a_path_begins_where_the_mdt_knows_the_directory() {
    let mut births = Births::default();
    births.add(Fid(9), birth(DIR, "d", 1));
    births.add(Fid(8), birth(Fid(9), "f", 2));
    assert_eq!(births.path(Fid(8)), format!("{DIR}/d/f"));
    assert_eq!(births.all(), [Fid(9), Fid(8)]);
    let mut dirs: Vec<Fid> = births.dirs().into_iter().collect();
    dirs.sort_unstable();
    assert_eq!(dirs, [DIR, Fid(9)]);
}

#[test]
fn a_directory_is_concerned_as_long_as_something_in_it_is_unborn() {
    let mut births = Births::default();
    births.add(Fid(8), birth(DIR, "a", 1));
    births.add(Fid(9), birth(DIR, "b", 1));
    assert!(births.concern(DIR) && !births.is_unborn(DIR) && births.concern(Fid(8)));
    assert_eq!(births.end(Fid(8)).map(|birth| birth.dir), Some(DIR));
    assert!(births.are_in(DIR));
    births.end(Fid(9));
    assert!(!births.concern(DIR) && births.end(Fid(9)).is_none());
}

#[test]
fn of_a_directory_that_has_lost_its_new_files_the_time_is_reported() {
    let mut births = tree();
    let (first, last) = (
        Timestamp { secs: 5, nanos: 0 },
        Timestamp { secs: 6, nanos: 0 },
    );
    births.date(DIR, last);
    births.date(DIR, first);
    births.date(Fid(10), last);
    for fid in [14, 13, 12, 11, 10] {
        assert!(!births.have_no(Wish::Of(DIR)));
        births.end(Fid(fid));
    }
    assert!(births.are_in(DIR) && !births.is_empty());
    assert_eq!(births.send(ALL, 9).births, []);
    assert_eq!(births.due_dates(ALL), [DIR, Fid(10)]);
    assert_eq!(births.due_dates(&[Wish::Of(DIR)]), [DIR]);
    assert_eq!(births.due_dates(&[Wish::MadeBy(Tick(13))]), []);
    assert_eq!(births.oldest(), Some(Tick(14)));
    assert!(!births.end_date(DIR, first) && births.dated(DIR) == Some(last));
    assert!(births.end_date(DIR, last) && births.end_date(Fid(10), last));
    assert!(births.have_no(Wish::Of(DIR)) && births.is_empty());
    assert!(births.are_reported_until(births.newest()));
}
