//! What remains of a process, from what /proc says of its threads.

use std::process::Command;

use super::*;

fn status(name: &str, state: &str, pending: &str) -> String {
    format!(
        "Name:\t{name}\nState:\t{state}\nPid:\t7\nSigQ:\t1/9\nSigPnd:\t{pending}\nShdPnd:\t100\n"
    )
}

#[test]
fn who_waits_is_told_from_who_may_still_do_something() {
    let of = |name, state, pending| Thread::in_status(&status(name, state, pending));
    let killed = "0000000000000100";
    assert_eq!(of("fuse-notify-3", "D (disk sleep)", killed), Thread::Waits);
    assert_eq!(of("exe", "Z (zombie)", "0000000000000000"), Thread::Over);
    let lives = [
        // Not killed.
        ("fuse-notify-3", "D (disk sleep)", "0000000000000000"),
        ("fuse-notify-3", "D (disk sleep)", "0000000000000200"),
        // On its way out.
        ("fuse-notify-3", "R (running)", killed),
        // It may be writing to a disk.
        ("ost-sync", "D (disk sleep)", killed),
        ("exe", "S (sleeping)", "0000000000000000"),
    ];
    for (name, state, pending) in lives {
        assert_eq!(of(name, state, pending), Thread::Boots, "{name} {state}");
    }
    assert_eq!(Thread::in_status(""), Thread::Boots);
}

#[test]
fn who_failed_and_whom_that_killed_do_nothing_more() {
    let of = |name, state, pending| {
        Thread::in_status(&(status(name, state, pending) + "CoreDumping:\t1\n"))
    };
    let (killed, none) = ("0000000000000100", "0000000000000000");
    // The one that failed waits for the others.
    assert_eq!(of("exe", "D (disk sleep)", none), Thread::Failed);
    assert_eq!(of("ost-sync", "I (idle)", none), Thread::Failed);
    assert_eq!(of("fuse-notify-0", "D (disk sleep)", killed), Thread::Waits);
    assert_eq!(of("ost-sync", "D (disk sleep)", killed), Thread::Boots);
    assert_eq!(of("exe", "R (running)", none), Thread::Boots);
}

#[test]
fn a_process_that_lives_or_has_ended_has_no_remains() {
    assert_eq!(Remains::of(Pid::this()), None);
    let mut ended = Command::new("true").spawn().unwrap();
    let id = Pid::from_raw(ended.id() as i32);
    while thread_of(id, id) != Some(Thread::Over) {
        std::thread::yield_now();
    }
    assert_eq!(Remains::of(id), None, "it is over as a whole");
    ended.wait().unwrap();
    assert_eq!(Remains::of(id), None);
}
