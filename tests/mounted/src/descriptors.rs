//! Open files of one test of several that share a process.

use std::fs::read_dir;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::close;

/// Gives the calling thread, and those that it starts, descriptors of their own. To be called first in a
/// test that closes a file and depends on that: a program that another test starts meanwhile has all files
/// of the process open until it is executed.
pub fn own_descriptors() {
    unshare(CloneFlags::CLONE_FILES).expect("a thread can have descriptors of its own");
    // What other tests have open is not to stay open here.
    let open = read_dir("/proc/thread-self/fd").expect("descriptors can be listed");
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // That of the list is closed already.
        let _ = close(number);
    }
}
