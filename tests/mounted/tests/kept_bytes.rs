//! Bytes that a mount keeps until they are durable have a bound, also in a file that is written to
//! without a pause.
// SEMANTICS: crash.server

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mounted::Cluster;

const MIB: u64 = 1 << 20;
/// Kept in memory, of all files.
const KEPT: u64 = 32 * MIB;
/// Beyond it goes what comes while room is being made.
const MORE: u64 = UNSENT;
/// Not yet sent, at most.
const UNSENT: u64 = 8 * MIB;
const WRITTEN: u64 = 384 * MIB;
/// Processes that write to the file, each to a part of its own.
const WRITERS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_file_written_without_a_pause_is_kept_within_bounds() {
    let cluster = Cluster::with_mounts(1);
    // Nothing is made durable but where somebody asks for it.
    cluster.set_server_param("ost.*.commit_ms", "60000");
    cluster.set_server_param("ost.*.commit_bytes", &(1_u64 << 30).to_string());
    cluster.set_param(0, "dirty_max", UNSENT);
    cluster.set_param(0, "cache_bytes_max", KEPT);
    let file = File::create(cluster.root(0).join("file")).unwrap();
    let undurable = || cluster.stats(0)["undurable_bytes"].as_u64().unwrap();
    cluster.timed_for(PATIENCE, "a long file", || {
        let is_written = AtomicBool::new(false);
        let most = thread::scope(|scope| {
            let most = scope.spawn(|| {
                let mut most = 0;
                while !is_written.load(Ordering::Relaxed) {
                    most = undurable().max(most);
                    thread::sleep(Duration::from_millis(20));
                }
                most
            });
            let write = |writer: u64| {
                let part = WRITTEN / WRITERS;
                for at in (0..part).step_by(MIB as usize) {
                    let bytes = vec![writer as u8 + 1; MIB as usize];
                    file.write_all_at(&bytes, writer * part + at).unwrap();
                }
            };
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| scope.spawn(move || write(writer)))
                .collect();
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            is_written.store(true, Ordering::Relaxed);
            most.join().unwrap()
        });
        assert!(most > MIB, "{most} bytes kept at most: nothing was seen");
        assert!(most <= KEPT + MORE, "{most} bytes kept");
        file.sync_all().unwrap();
        assert_eq!(undurable(), 0);
    });
}
