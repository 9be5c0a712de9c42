//! What a durable commit of one object costs (docs/adr/0020-extents.md): `commit_cost FILE OBJECTS`. The
//! files FILE.records and FILE.log are made and removed at the end.

mod measured;

use std::path::PathBuf;
use std::time::Instant;

use measured::{Costs, CountingDisk};
use storage::FileDisk;

const COMMITS: u64 = 200;

type Anyhow = Result<(), Box<dyn std::error::Error>>;

fn main() -> Anyhow {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, objects] = &arguments[..] else {
        return Err("usage: commit_cost FILE OBJECTS".into());
    };
    let records = PathBuf::from(format!("{file}.records"));
    let log = PathBuf::from(format!("{file}.log"));
    let objects: u64 = objects.parse()?;
    let start = Instant::now();
    let kv = measured::fill(CountingDisk::new(FileDisk::create(&records)?), objects)?;
    println!(
        "{objects} objects: filled in {:.1} s, records take {} MB",
        start.elapsed().as_secs_f64(),
        std::fs::metadata(&records)?.len() >> 20
    );
    for objects_each in [1, 64] {
        let costs = measured::rows(&kv, objects, COMMITS, objects_each)?;
        print(&format!("rows, {objects_each} objects a commit"), costs);
    }
    let log_disk = CountingDisk::new(FileDisk::create(&log)?);
    for objects_each in [1, 64] {
        let costs = measured::log_records(&log_disk, COMMITS, objects_each)?;
        print(
            &format!("log record, {objects_each} objects a commit"),
            costs,
        );
    }
    std::fs::remove_file(records)?;
    Ok(std::fs::remove_file(log)?)
}

fn print(what: &str, costs: Costs) {
    let ms = |share: usize| {
        let at = (costs.times.len() - 1) * share / 100;
        costs.times[at].as_secs_f64() * 1e3
    };
    println!(
        "{what:<32} {:>9} bytes, {:.2} flushes, {:.2} ms median, {:.2} ms p99",
        costs.bytes,
        costs.flushes,
        ms(50),
        ms(99)
    );
}
