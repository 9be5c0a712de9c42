//! What of an answer is covered, where something was withdrawn since it was asked for.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use wire::SizeState;

use super::*;
use crate::cache::local_changes::NameChange;
use crate::cache::withdrawn::Withdrawn;
use crate::rig::attr_at;
use crate::session::locks::Locks;

const DIR: Fid = Fid(7);

fn state() -> State {
    State::new(Locks::new([]), Arc::new(AtomicU64::new(0)))
}

fn grant(fid: Fid, bits: Bits) -> Grant {
    Grant {
        handle: LockHandle(fid.0),
        fid,
        mode: Mode::PR.index() as u8,
        bits: bits.0,
        version: 0,
    }
}

fn node(number: u64) -> Node {
    let mut attr = attr_at(TargetIndex(0));
    attr.size_state = SizeState::Strict;
    Node {
        fid: Fid(number),
        attr,
        cover: Cover::Parent,
    }
}

fn name(number: u64) -> Name {
    Name::try_from(&*format!("file{number}")).expect("valid")
}

/// A page of the files with these numbers, under a lease on all of it.
fn page(numbers: &[u64]) -> Page {
    let mut attr = attr_at(TargetIndex(0));
    attr.kind = FileKind::Directory;
    let entries = numbers.iter().map(|number| DirEntry {
        cookie: *number,
        name: name(*number),
        fid: Fid(*number),
        kind: FileKind::Regular,
        node: Some(node(*number)),
        is_outside: false,
    });
    Page {
        lease: Lease::Held(grant(DIR, Bits::LEASE)),
        dir: DirState {
            fid: DIR,
            attr,
            version: 0,
        },
        entries: entries.collect(),
        end: true,
        covers_list: true,
    }
}

/// The files of the page whose attributes are valid once it is taken.
fn valid(state: &mut State, page: &Page, mark: Mark) -> Vec<u64> {
    state.cache.inode(DIR).directory();
    let nodes = page.entries.iter().filter_map(|entry| entry.node.as_ref());
    nodes.for_each(|node| state.take_node(node, mark));
    let files = page.entries.iter().map(|entry| entry.fid);
    files
        .filter(|fid| state.attr_valid(*fid))
        .map(|fid| fid.0)
        .collect()
}

#[test]
fn a_page_is_kept_but_for_the_names_that_it_says_are_changing() {
    let mut state = state();
    let mark = state.cache.mark(DIR);
    let mut page = page(&[11, 12]);
    page.entries[1].is_outside = true;
    for covers_list in [false, true] {
        page.covers_list = covers_list;
        let cover = state.take_page_lease(&page, mark).expect("a lease");
        assert!(!cover.list && cover.outside == HashSet::from([name(12)]));
    }
    page.entries[1].is_outside = false;
    let cover = state.take_page_lease(&page, mark).expect("a lease");
    assert!(cover.list && cover.outside.is_empty());
}

#[test]
fn a_page_is_kept_but_for_what_was_withdrawn_since_it_was_asked_for() {
    let mut state = state();
    let (mark, page) = (state.cache.mark(DIR), page(&[11, 12, 13]));
    let withdrawn = |bits, name, child| Withdrawn { bits, name, child };
    let child = withdrawn(Bits::CHILD, None, Fid(12));
    state.cache.withdraw_entry(DIR, child);
    let cover = state.take_page_lease(&page, mark).expect("a lease");
    assert!(cover.list && cover.outside.is_empty());
    assert_eq!(valid(&mut state, &page, mark), [11, 13]);
    let gone = withdrawn(Bits::LEASE, Some(name(13)), Fid(13));
    state.cache.withdraw_entry(DIR, gone);
    let cover = state.take_page_lease(&page, mark).expect("a lease");
    assert!(!cover.list && cover.outside == HashSet::from([name(13)]));
    // Asked later it tells the truth.
    let later = state.cache.mark(DIR);
    assert!(
        state
            .take_page_lease(&page, later)
            .is_some_and(|cover| cover.list)
    );
    assert_eq!(valid(&mut state, &page, later), [11, 12, 13]);
    state.cache.withdraw_from(DIR);
    assert!(state.take_page_lease(&page, later).is_none());
}

#[test]
fn a_directorys_own_lock_does_not_cover_what_is_older_than_a_change_in_it() {
    let sub = Fid(21);
    let mut state = state();
    let mut node = node(sub.0);
    node.attr.kind = FileKind::Directory;
    node.cover = Cover::Own(grant(sub, own_bits(FileKind::Directory)));
    let mark = state.cache.mark(DIR);
    let made = Withdrawn {
        bits: Bits::LIST.union(Bits::NAMES),
        name: Some(name(1)),
        child: Fid::NONE,
    };
    state.cache.withdraw_entry(sub, made);
    state.take_node(&node, mark);
    assert!(!state.attr_valid(sub));
    let later = state.cache.mark(DIR);
    state.take_node(&node, later);
    assert!(state.attr_valid(sub));
}

#[test]
fn an_answer_from_before_a_move_does_not_set_the_directory_back() {
    let (mut state, elsewhere) = (state(), Fid(8));
    let asked = state.cache.mark(DIR);
    let (before, mut after) = (node(11), node(11));
    after.attr.version += 1;
    state.take_node(&before, asked);
    state.take_node(&after, state.cache.mark(elsewhere));
    state.take_node(&before, asked);
    assert_eq!(state.cache.inode(Fid(11)).dir(), elsewhere);
    after.attr.version += 1;
    state.take_node(&after, state.cache.mark(DIR));
    assert_eq!(state.cache.inode(Fid(11)).dir(), DIR, "it has come back");
}

#[test]
fn a_list_from_before_a_move_does_not_set_the_directory_back() {
    let (mut state, elsewhere) = (state(), Fid(8));
    let (asked, page) = (state.cache.mark(DIR), page(&[11]));
    state
        .cache
        .name_changed(DIR, NameChange::Removed(name(11)), true);
    state.cache.inode(Fid(11)).seen_in(elsewhere);
    state.take_listed(&page.entries[0], asked);
    assert_eq!(state.cache.inode(Fid(11)).dir(), elsewhere);
    state.take_listed(&page.entries[0], state.cache.mark(DIR));
    assert_eq!(state.cache.inode(Fid(11)).dir(), DIR, "it has come back");
}
