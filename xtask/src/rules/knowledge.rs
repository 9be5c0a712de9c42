//! Which crate may know disks, sockets, errno numbers, arguments, the environment and clocks. All other
//! crates get them as arguments or through a trait.

use crate::finding::Finding;
use crate::repository::Repository;
use crate::source::{Mention, Source};

/// One piece of knowledge about the world outside.
struct Knowledge {
    what: &'static str,
    /// A path mentioned is this, or goes on from it with `::`; a final `*` stands for the rest of a
    /// name in capitals.
    paths: &'static [&'static str],
    /// Folders (ending in `/`) and files that have it.
    owners: &'static [&'static str],
}

const TABLE: &[Knowledge] = &[
    Knowledge {
        what: "the local file system",
        paths: &["std::fs", "std::os::unix::fs", "rustix::fs", "tokio::fs"],
        owners: &[
            "crates/storage/",
            "crates/bench/",
            "xtask/",
            // The oracle's runner makes calls on mounts.
            "crates/model/src/directory.rs",
            "crates/model/src/compare.rs",
            // /dev/cpu_dma_latency, /sys.
            "crates/awake/src/cpus.rs",
            // /dev/fuse, /proc, /etc/fuse.conf, mount points.
            "crates/fuse/src/kernel/device.rs",
            "crates/fuse/src/kernel/mount/",
            // /proc says whether a waiting caller has a signal.
            "crates/fuse/src/translate/caller.rs",
            // Names of the instance, the log, the key file and the mount point.
            "crates/cli/",
        ],
    },
    Knowledge {
        what: "sockets",
        paths: &[
            "std::net::TcpStream",
            "std::net::TcpListener",
            "std::net::UdpSocket",
            "std::net::ToSocketAddrs",
            "std::os::unix::net",
            "nix::sys::socket",
            "tokio::net",
            "socket2",
        ],
        owners: &[
            "crates/rpc/",
            // The link emulator's namespaces, and peers' servers.
            "crates/bench/",
            // Verbs speak to a running mount on its control socket.
            "crates/cli/src/control.rs",
            "crates/cli/src/control/asking.rs",
            "crates/cli/src/control/listening.rs",
            // Those of a killed process are shut.
            "crates/cli/src/supervisor/",
            // fusermount3 hands the device over on a socket.
            "crates/fuse/src/kernel/mount/",
        ],
    },
    Knowledge {
        what: "errno numbers",
        paths: &["libc::E*", "nix::errno", "Errno::E*"],
        owners: &[
            "crates/fuse/",
            "crates/storage/",
            "crates/rpc/src/transport/",
            "crates/bench/",
            "crates/cli/",
            "crates/model/src/directory.rs",
        ],
    },
    Knowledge {
        what: "arguments and environment",
        paths: &[
            "std::env::args",
            "std::env::args_os",
            "std::env::var",
            "std::env::var_os",
            "std::env::vars",
            "std::env::vars_os",
        ],
        owners: &["crates/cli/", "crates/sim/src/main.rs", "xtask/"],
    },
    Knowledge {
        what: "the machine's clocks",
        paths: &["std::time::Instant", "std::time::SystemTime"],
        owners: &[
            "crates/base/src/clock.rs",
            "crates/threads/",
            "crates/sim/",
            "crates/bench/",
            "crates/cli/",
            "crates/rpc/",
            "crates/storage/",
            "crates/fuse/",
            "crates/client/",
            "crates/mds/src/serve/",
            "crates/mds/src/serve.rs",
            "crates/oss/src/serve/",
            "crates/oss/src/serve.rs",
            // How long a planted bug lives.
            "xtask/",
        ],
    },
    // What a simulation runs waits, starts threads and asks the time through the seam only.
    Knowledge {
        what: "the machine's threads, waits and present time",
        paths: &[
            "std::thread",
            "std::sync::Condvar",
            "std::sync::mpsc",
            "Instant::now",
            "std::time::Instant::now",
            "SystemTime::now",
        ],
        owners: &[
            "crates/threads/",
            "crates/sim/src/scheduler.rs",
            // Where runs of different seeds go on beside each other.
            "crates/sim/src/processor.rs",
            "crates/sim/src/main.rs",
            "crates/awake/",
            "crates/base/src/clock.rs",
            "crates/bench/",
            "crates/cli/",
            "crates/fuse/",
            // Files, which no simulation has: it keeps objects in memory.
            "crates/storage/src/disk/file.rs",
            "crates/storage/src/objects/stream.rs",
            "crates/storage/src/fence/keeper.rs",
            "crates/storage/src/room.rs",
            "xtask/",
        ],
    },
];

/// Looks at every path that code outside tests mentions.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let product = repository.sources.iter().filter(|source| !source.is_test);
    product.flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Vec<Finding> {
    let strange = TABLE
        .iter()
        .filter(|known| !known.is_owned_by(&source.path));
    strange
        .flat_map(|known| {
            let mentions = source.mentions.iter();
            let mut refused: Vec<_> = mentions.filter_map(|m| known.refuse(source, m)).collect();
            refused.dedup_by_key(|finding| finding.line);
            refused
        })
        .collect()
}

impl Knowledge {
    fn is_owned_by(&self, path: &str) -> bool {
        self.owners.iter().any(|owner| match owner.ends_with('/') {
            true => path.starts_with(owner),
            false => path == *owner,
        })
    }

    fn refuse(&self, source: &Source, mention: &Mention) -> Option<Finding> {
        let meant = self.paths.iter().any(|path| matches(path, &mention.path));
        let what = format!(
            "`{}`: {} may be known only to {}; take it as an argument or ask one of these",
            mention.path,
            self.what,
            self.owners.join(", ")
        );
        meant.then(|| Finding::new(&source.path, mention.line, what))
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => path.strip_prefix(start).is_some_and(|rest| {
            !rest.is_empty()
                && rest
                    .chars()
                    .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
        }),
        None => path
            .strip_prefix(pattern)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    fn findings(path: &str, text: &str) -> usize {
        check(&repository(&[(path, text)])).len()
    }

    #[test]
    fn only_owners_know() {
        let text = "use std::{fs::File, io};\n";
        assert_eq!(findings("crates/mds/src/lib.rs", text), 1);
        assert_eq!(findings("crates/storage/src/lib.rs", text), 0);
        assert_eq!(findings("crates/mds/tests/a.rs", text), 0);
    }

    #[test]
    fn the_simulated_wait_through_the_seam_only() {
        for text in [
            "use std::sync::{Arc, Condvar};\n",
            "fn f() { std::thread::spawn(g); }",
            "use std::time::Instant;\nfn f() { Instant::now(); }",
        ] {
            for path in ["crates/rpc/src/a.rs", "crates/storage/src/kv/a.rs"] {
                assert_eq!(findings(path, text), 1, "{path}: {text}");
            }
            assert_eq!(findings("crates/threads/src/a.rs", text), 0);
        }
        let path = "crates/client/src/a.rs";
        assert_eq!(findings(path, "fn f() { threads::now(); }"), 0);
    }

    #[test]
    fn errno_numbers_are_told_from_other_constants() {
        let path = "crates/client/src/lib.rs";
        assert_eq!(findings(path, "fn f() -> i32 { libc::ENOENT }"), 1);
        assert_eq!(
            findings(path, "fn f() { libc::Epoch; std::envelope::x; }"),
            0
        );
    }

    #[test]
    fn a_longer_name_is_another_name() {
        assert!(matches("std::fs", "std::fs::read") && matches("std::fs", "std::fs"));
        assert!(!matches("std::fs", "std::fsx"));
    }
}
