//! What goes when there is too much, and what stays.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::Name;
use wire::FileKind;

use super::*;
use crate::cache::listed::Listed;
use crate::session::dir_handle::DirHandle;
use crate::session::locks::Locks;

const DIR: Fid = Fid(7);
/// Enough that some are near no reader.
const FILES: u64 = NEAR as u64 + 60_000;

fn fid(number: u64) -> Fid {
    Fid(1000 + number)
}

/// A directory whose list is known, each file known to the kernel if `in_kernel`, and a reader who
/// has come to `at`.
fn with_list(in_kernel: bool, at: u64) -> State {
    let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
    let entries = (1..=FILES).map(|number| {
        let listed = Listed {
            name: Name::try_from(&*format!("file{number}")).expect("valid"),
            fid: fid(number),
            kind: FileKind::Regular,
        };
        (number, listed)
    });
    state.cache.inode(DIR).directory().extend(0, entries, true);
    state.cache.has_grown(DIR);
    for number in 1..=FILES {
        let inode = state.cache.inode(fid(number));
        inode.seen_in(DIR);
        inode.inherit_lookups(u64::from(in_kernel));
    }
    let mut open = DirHandle::new(DIR);
    open.read_to(at);
    state.add_dir(open);
    state
}

/// As the timer does it: what the kernel is asked to let go.
fn shrink(state: &mut State, max: usize) -> Vec<Fid> {
    let mut let_go = Vec::new();
    for _ in 0..STEPS_MAX {
        let mut shrunk = state.shrink(max, let_go.len());
        let_go.append(&mut shrunk.let_go);
        if !shrunk.more {
            break;
        }
    }
    let_go
}

fn list(state: &State) -> &Directory {
    state.cache.directory_of(DIR).expect("known")
}

#[test]
fn what_a_reader_has_passed_goes_once_the_kernel_has_let_it_go() {
    let mut state = with_list(true, FILES);
    let (max, stamp) = (state.cache.len() - 20_000, state.cache.stamp());
    let let_go = shrink(&mut state, max);
    let expected: Vec<Fid> = (1..=20_000).map(fid).collect();
    assert_eq!(let_go, expected);
    assert!(list(&state).is_complete() && state.cache.stamp() == stamp);
    // One is in use.
    for fid in &let_go[1..] {
        state.cache.inode(*fid).unrefer(1);
    }
    let again = shrink(&mut state, max);
    assert_eq!(again, [fid(1)]);
    assert_eq!(state.cache.len(), max + 1);
    assert!(
        state.cache.stamp() > stamp,
        "answers under way are not believed"
    );
    assert!(!list(&state).knows_after(1) && list(&state).knows_after(20_000));
    assert_eq!(list(&state).listed(), FILES - 19_999);
}

#[test]
fn what_the_kernel_does_not_have_goes_at_once_but_not_what_is_near() {
    let mut state = with_list(false, FILES);
    assert_eq!(shrink(&mut state, 1000), []);
    assert_eq!(shrink(&mut state, 1000), [], "nor later");
    let near = NEAR as u64 + 1;
    assert_eq!(list(&state).listed(), near);
    assert_eq!(state.cache.len() as u64, near + 1);
    // The reader goes on, and then back.
    let mut state = with_list(false, 1);
    assert_eq!(shrink(&mut state, 1000), []);
    assert!(list(&state).knows_after(0) && list(&state).knows_after(near - 1));
    assert!(!list(&state).knows_after(near));
    assert_eq!(list(&state).listed(), near);
}

#[test]
fn within_the_bound_nothing_goes() {
    let mut state = with_list(false, FILES);
    let max = state.cache.len();
    assert_eq!(shrink(&mut state, max), []);
    assert!(list(&state).is_complete() && state.cache.len() == max);
}

#[test]
fn files_of_no_long_list_go_when_nobody_needs_them() {
    let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
    (0..1000).for_each(|number| state.cache.inode(fid(number)).inherit_lookups(number % 2));
    assert_eq!(shrink(&mut state, 700), []);
    assert_eq!(state.cache.len(), 700);
    assert_eq!(shrink(&mut state, 100), []);
    assert_eq!(state.cache.len(), 500, "the kernel has the others");
}
