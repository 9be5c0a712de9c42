//! What a durable commit writes, counted: the example `commit_cost`, in small.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

#[path = "../examples/commit_cost/measured.rs"]
mod measured;

use measured::CountingDisk;
use storage::MemDisk;

#[test]
fn a_log_record_is_one_flush_and_few_bytes_where_rows_are_two_and_many() {
    let filled = measured::fill(CountingDisk::new(MemDisk::new()), 20_000).unwrap();
    let disk = CountingDisk::new(MemDisk::new());
    for objects_each in [1, 64] {
        let rows = measured::rows(&filled, 20_000, 20, objects_each).unwrap();
        let logged = measured::log_records(&disk, 20, objects_each).unwrap();
        // The blocks, and a record of whole blocks.
        let bytes = (objects_each + (64 + 128 * objects_each).div_ceil(4096)) * 4096;
        assert_eq!((logged.bytes, logged.flushes), (bytes, 1.0));
        assert_eq!(logged.times.len(), 20);
        assert!(rows.flushes >= 2.0, "{rows:?}");
        assert!(
            rows.bytes > 4 * logged.bytes || objects_each > 1,
            "{rows:?}"
        );
    }
}
