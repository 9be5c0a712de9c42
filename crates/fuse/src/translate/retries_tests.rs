//! Tests of [`super::Retries`]: what counts as a second attempt, and for which questions.

use std::cell::Cell;

use super::*;

const A: Fid = Fid(7);
const B: Fid = Fid(8);

fn name(fid: Fid, kind: FileKind) -> FoundName {
    FoundName { fid, kind }
}

/// Threads of whose calls the kernel says nothing.
fn unknown() -> Retries {
    Retries::new(|_| None)
}

thread_local! {
    static CALL: Cell<&'static str> = const { Cell::new("link") };
}

/// All threads are in the call that `CALL` names.
fn known() -> Retries {
    Retries::new(|_| Some(CALL.get().into()))
}

#[test]
fn only_a_second_attempt_is_believed_and_only_for_its_questions() {
    let retries = unknown();
    let (attributes, found) = (Question::Attributes, Some(name(A, FileKind::Directory)));
    retries.looked_up(1, found);
    assert!(!retries.has_found(1, A, attributes), "a first attempt");
    retries.told(1, None);
    assert!(!retries.has_found(1, A, attributes), "not looked up again");
    retries.looked_up(1, found);
    retries.looked_up(1, None);
    assert!(!retries.has_found(1, B, attributes) && !retries.has_found(2, A, attributes));
    assert!(retries.has_come_to_directory(1, A) && !retries.has_come_to_directory(1, B));
    assert!((0..OF_DIRECTORY).all(|_| retries.has_found(1, A, attributes)));
    assert!(!retries.has_found(1, A, attributes), "the next call");
}

/// How many of these questions about a file, one after the other, are those of the call that found
/// it.
fn of_one_call(questions: &[Question]) -> usize {
    let retries = unknown();
    retries.told(1, None);
    retries.looked_up(1, Some(name(A, FileKind::Regular)));
    let belongs = |question: &&Question| retries.has_found(1, A, **question);
    questions.iter().take_while(belongs).count()
}

#[test]
fn the_next_call_about_a_file_is_told_from_the_second_attempt() {
    use Question::{Attributes, Capability, Change, NoCapability, Open, Use};
    assert_eq!(of_one_call(&[Attributes, Open, Change]), 3, "O_TRUNC");
    assert_eq!(of_one_call(&[Attributes, Use]), 2, "getxattr");
    assert_eq!(of_one_call(&[Attributes, Change]), 2, "chmod");
    assert_eq!(of_one_call(&[Capability, Change]), 2, "chown");
    assert_eq!(
        of_one_call(&[Capability, NoCapability, Change]),
        3,
        "chown of what has a capability"
    );
    assert_eq!(
        of_one_call(&[Attributes, Open, Capability, Change]),
        4,
        "O_TRUNC of what has a capability"
    );
    assert_eq!(of_one_call(&[Capability, Capability]), 1);
    assert_eq!(of_one_call(&[Attributes, Attributes]), 1, "stat, twice");
    assert_eq!(of_one_call(&[Use, Attributes]), 1);
    assert_eq!(of_one_call(&[Open, Use]), 1);
    assert_eq!(of_one_call(&[Change, Change]), 1);
}

/// A call of `link` in its second attempt, and then a look at the new name, which another mount has
/// removed.
#[test]
fn a_call_after_the_second_attempt_is_not_believed() {
    let file = Some(name(A, FileKind::Regular));
    let after = |questions: &[Question], goes_on: &dyn Fn(&Retries)| {
        let retries = unknown();
        retries.told(1, None);
        retries.looked_up(1, file);
        for question in questions {
            assert!(retries.has_found(1, A, *question), "{question:?}");
        }
        goes_on(&retries);
        retries.has_found(1, A, Question::Attributes)
    };
    let looks_up = |retries: &Retries| retries.looked_up(1, file);
    assert!(!after(&[Question::Use], &|retries| retries.ended(1)));
    for last in [
        Question::Open,
        Question::Capability,
        Question::Use,
        Question::Change,
    ] {
        assert!(!after(&[last], &looks_up), "{last:?}");
    }
    // `link` asks for the attributes of its file, and looks the new directory up then.
    let retries = unknown();
    retries.told(1, None);
    retries.looked_up(1, file);
    assert!(retries.has_found(1, A, Question::Attributes));
    retries.looked_up(1, Some(name(B, FileKind::Directory)));
    assert!(retries.has_found(1, A, Question::Use));
}

#[test]
fn an_attempt_is_over_when_its_thread_is_in_another_call() {
    let retries = known();
    let file = Some(name(A, FileKind::Regular));
    let looks_up = || {
        CALL.set("link");
        retries.told(1, None);
        retries.looked_up(1, file);
    };
    looks_up();
    assert!(retries.has_found(1, A, Question::Attributes));
    CALL.set("stat");
    assert!(!retries.has_found(1, A, Question::Use) && retries.none());
    looks_up();
    CALL.set("stat");
    assert!(!retries.is_second(1) && retries.none());
}

#[test]
fn a_path_begins_at_a_directory_that_is_not_looked_up_in_the_second_attempt() {
    let (known, unknown) = (known(), unknown());
    for retries in [&known, &unknown] {
        assert!(!retries.begins_at(1, A), "a first attempt");
        retries.told(1, None);
        retries.looked_up(1, Some(name(B, FileKind::Directory)));
    }
    assert!(known.begins_at(1, A) && !known.begins_at(1, B) && !unknown.begins_at(1, A));
    assert!(known.has_come_to_directory(1, A) && !unknown.has_come_to_directory(1, A));
}

/// What the kernel says of a thread in `linkat`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const LINKAT: &str = if cfg!(target_arch = "x86_64") {
    "265 0x0"
} else {
    "37 0x0"
};

#[test]
fn a_second_attempt_that_begins_with_the_same_question_came_by_a_descriptor() {
    use Question::{Attributes, Capability, Change, Open};
    let (known, unknown) = (known(), unknown());
    let told = |question| [&known, &unknown].map(|retries| retries.told_of(1, 0, (A, question)));
    CALL.set("open");
    assert!(!known.begins_at_file(1, A, Open), "a first attempt");
    told(Attributes);
    assert!(!unknown.begins_at_file(1, A, Attributes));
    assert!(!known.begins_at_file(1, B, Attributes) && !known.begins_at_file(1, A, Open));
    assert!(known.begins_at_file(1, A, Attributes) && known.has_found(1, A, Open));
    assert!(!known.begins_at_file(1, A, Attributes), "the next call");
    told(Capability);
    assert!(
        !known.begins_at_file(1, A, Change),
        "the first attempt goes on"
    );
    told(Open);
    known.looked_up(1, None);
    assert!(
        !known.begins_at_file(1, A, Open),
        "a name that leads nowhere"
    );
    for kind in [FileKind::Regular, FileKind::Symlink] {
        told(Open);
        known.looked_up(1, Some(name(B, kind)));
        assert!(!known.begins_at_file(1, A, Open), "{kind:?}");
    }
}

/// The kernel asks for capabilities before a change of owner, and goes on where that fails.
#[test]
fn a_second_attempt_asks_again_what_has_led_the_first_one_astray() {
    use Question::{Capability, Change};
    let known = known();
    CALL.set("chown");
    known.told_of(1, 0, (A, Capability));
    assert!(!known.begins_at_file(1, A, Change));
    known.told_of(1, 0, (A, Change));
    assert!(known.begins_at_file(1, A, Capability) && known.has_found(1, A, Change));
    assert!(!known.has_found(1, A, Change), "the next call");
    known.told_of(1, 0, (A, Capability));
    assert!(
        !known.begins_at_file(1, A, Change),
        "that is another attempt"
    );
}

#[test]
fn a_second_attempt_to_link_a_descriptor_has_looked_up_the_new_name_only() {
    use Question::{Attributes, Link};
    let known = known();
    CALL.set(LINKAT);
    known.told_of(1, 0, (A, Attributes));
    assert!(!known.has_looked_up(1) && !known.begins_at_file(1, A, Attributes));
    assert!(
        !known.begins_at_file(1, A, Link),
        "the first attempt goes on"
    );
    known.told_of(1, 0, (A, Link));
    known.looked_up(1, Some(name(B, FileKind::Directory)));
    known.looked_up(1, None);
    assert!(known.has_looked_up(1) && known.begins_at_file(1, A, Attributes));
    assert!(known.has_found(1, A, Link) && !known.has_found(1, A, Link));
    known.told_of(1, 0, (A, Link));
    known.looked_up(1, Some(name(B, FileKind::Regular)));
    assert!(
        !known.begins_at_file(1, A, Link),
        "it was asked for by name"
    );
}

#[test]
fn a_path_may_be_long() {
    let retries = known();
    retries.told(1, None);
    (0..250).for_each(|fid| retries.looked_up(1, Some(name(Fid(fid), FileKind::Directory))));
    retries.looked_up(1, Some(name(A, FileKind::Regular)));
    (0..250).for_each(|fid| retries.looked_up(1, Some(name(Fid(fid), FileKind::Directory))));
    assert!(retries.has_found(1, A, Question::Use));
}

#[test]
fn a_path_goes_on_behind_a_symlink() {
    let retries = unknown();
    retries.told(1, None);
    retries.looked_up(1, Some(name(A, FileKind::Symlink)));
    assert!(retries.has_found(1, A, Question::Use));
    retries.looked_up(1, Some(name(B, FileKind::Regular)));
    assert!(retries.has_found(1, B, Question::Open));
}

#[test]
fn an_attempt_ends_with_its_names() {
    let retries = unknown();
    retries.told(1, None);
    (0..NAMES_OF_UNKNOWN).for_each(|_| retries.looked_up(1, None));
    assert!(!retries.is_second(1) && retries.none());
    let retries = known();
    retries.told(1, None);
    (0..NAMES).for_each(|_| retries.looked_up(1, None));
    assert!(retries.none());
}

#[test]
fn a_second_attempt_knows_where_its_names_have_led() {
    let retries = known();
    CALL.set("rename");
    let [x, y] = ["x", "y"].map(|name| Name::new(name).unwrap());
    let (source, target) = ((A, &x), (A, &y));
    retries.leads(1, source, Some(B));
    assert_eq!(retries.led(1, b"x"), Some(Vec::new()), "a first attempt");
    retries.told_at(1, 0, target);
    assert!(retries.asks_again(1, target) && !retries.asks_again(1, source));
    assert!(!retries.asks_again(2, target), "another thread");
    retries.looked_up(1, Some(name(B, FileKind::Regular)));
    retries.leads(1, source, Some(B));
    assert!(!retries.asks_again(1, target), "the second attempt");
    assert_eq!(retries.led(1, b"x"), Some(vec![(A, B)]));
    assert!(retries.has_led_elsewhere(1, target, B) && !retries.has_led_elsewhere(1, source, B));
    retries.leads(1, source, None);
    assert!(!retries.has_led_elsewhere(1, target, B));
    retries.leads(1, source, Some(B));
    CALL.set("stat");
    assert!(!retries.has_led_elsewhere(1, target, B), "another call");
}
