//! The workloads on real file systems: every step runs, is counted, is capped, and nothing is left.
#![allow(clippy::unwrap_used)] // A test may panic, in its helpers too.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bench::local::{Directory, Ext4, Tmpfs};
use bench::peer::Sshfs;
use bench::progress::silent;
use bench::workload::flat::{CREATE, LIST_COLD, LIST_WARM, STEPS, UNLINK};
use bench::{
    BenchError, Cold, Column, Event, FlatConfig, Link, LinkConfig, LinkSettings, Report, Result,
    SourceTree, Step, StopFlag, System, WalkConfig, flat, walk,
};

fn tree(cache: &Path, entries: u64) -> SourceTree {
    SourceTree::generated(cache, 1, entries, &StopFlag::new(), &mut silent).unwrap()
}

/// None where this machine cannot have it.
fn made<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(system) => Some(system),
        Err(error @ BenchError::Unavailable { .. }) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn entries(path: &Path) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

#[test]
fn every_step_runs_on_ext4_and_tmpfs_and_the_table_shows_it() {
    let (base, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = WalkConfig {
        runs: 2,
        ..WalkConfig::new(tree(cache.path(), 500), StopFlag::new())
    };
    let Some(mut ext4) = made(Ext4::create(base.path(), 1 << 30, 10_000)) else {
        return;
    };
    let Some(mut tmpfs) = made(Tmpfs::create(base.path(), 1 << 30)) else {
        return;
    };
    let mut report = Report::new("walk", Step::ALL.map(Step::label));
    report
        .columns
        .push(walk(&mut ext4, &config, &mut silent).unwrap());
    report
        .columns
        .push(walk(&mut tmpfs, &config, &mut silent).unwrap());
    // What a walk leaves on a system whose files go with it is in nobody's way.
    report
        .columns
        .push(walk(&mut tmpfs, &config, &mut silent).unwrap());
    report.columns.pop();
    report.baseline = Some("tmpfs".into());
    println!("{}", report.text());
    for step in Step::ALL {
        let runs = |column: usize| {
            let steps = &report.columns[column].steps;
            let runs = steps.iter().find(|runs| runs.step == step.label());
            runs.map_or(0, |runs| runs.samples.len())
        };
        let all = 2 * step.times();
        assert_eq!(runs(0), all, "{step:?}");
        assert_eq!(
            runs(1),
            if step.label().ends_with("cold") {
                0
            } else {
                all
            }
        );
    }
    assert!(
        report
            .text()
            .contains("it is in memory (find -uid 0, cold; du -s, cold;")
    );
    drop((ext4, tmpfs));
    assert_eq!(entries(base.path()), 0);
}

/// A directory whose every step costs ten requests more than the one before.
struct Counting {
    inner: Directory,
    asked: u64,
    sync: &'static str,
}

impl System for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn root(&self) -> &Path {
        self.inner.root()
    }

    fn make_cold(&mut self) -> Result<Cold> {
        Ok(Cold::Done)
    }

    fn sync_command(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", self.sync]);
        command
    }

    fn rpcs_sent(&mut self) -> Option<u64> {
        self.asked += 1;
        Some(self.asked * self.asked)
    }
}

fn counting(root: &Path, sync: &'static str) -> Counting {
    Counting {
        inner: Directory::new("", root),
        asked: 0,
        sync,
    }
}

#[test]
fn requests_are_counted_step_by_step_and_the_directory_is_clean_afterwards() {
    let (base, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = WalkConfig::new(tree(cache.path(), 100), StopFlag::new());
    let mut system = counting(base.path(), "true");
    let column = walk(&mut system, &config, &mut silent).unwrap();
    let mut asked = 0;
    for step in Step::ALL {
        asked += 2 * step.times() as u64;
        // The last of a step's runs made the most.
        let expected = asked * asked - (asked - 1) * (asked - 1);
        assert_eq!(column.result(step.label()).unwrap().rpcs, Some(expected));
    }
    assert_eq!(entries(base.path()), 0);
}

#[test]
fn a_failing_step_is_noted_and_the_others_go_on() {
    let (base, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = WalkConfig::new(tree(cache.path(), 100), StopFlag::new());
    let mut system = counting(base.path(), "echo no space >&2; exit 5");
    let column = walk(&mut system, &config, &mut silent).unwrap();
    let label = Step::SyncUnpacked.label();
    assert_eq!(column.result(label), None);
    let skipped = &column
        .steps
        .iter()
        .find(|runs| runs.step == label)
        .unwrap()
        .skipped;
    assert_eq!(
        skipped.as_deref(),
        Some("sh failed with exit code 5: no space")
    );
    assert!(column.result(Step::Remove.label()).is_some());
}

#[test]
fn a_step_that_takes_too_long_is_capped() {
    let (base, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = WalkConfig {
        cap: Duration::from_secs(1),
        steps: vec![Step::SyncUnpacked, Step::FindWarm],
        ..WalkConfig::new(tree(cache.path(), 100), StopFlag::new())
    };
    let mut system = counting(base.path(), "sleep 600");
    let column = walk(&mut system, &config, &mut silent).unwrap();
    let sample = column.result(Step::SyncUnpacked.label()).unwrap();
    assert!(sample.capped && sample.seconds >= 1.0 && sample.seconds < 30.0);
    assert!(!column.result(Step::FindWarm.label()).unwrap().capped);
    assert_eq!(column.steps.len(), 3, "only the steps asked for, and tar");
}

#[test]
fn a_warm_walk_is_left_out_where_the_cold_one_was_stopped() {
    let (base, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = WalkConfig {
        cap: Duration::ZERO,
        steps: vec![Step::FindCold, Step::FindWarm],
        ..WalkConfig::new(tree(cache.path(), 100), StopFlag::new())
    };
    // Stopped at once, tar may leave nothing to be looked through; and find may end all the same.
    let walks = (0..20).map(|_| {
        let mut system = counting(base.path(), "true");
        walk(&mut system, &config, &mut silent).unwrap()
    });
    let cold = |column: &Column| column.result(Step::FindCold.label()).map(|run| run.capped);
    let mut found = walks.filter_map(|column| cold(&column).map(|is_stopped| (column, is_stopped)));
    let (column, is_stopped) = found.next().expect("tar never makes the top");
    let warm = Step::FindWarm.label();
    let warm = column.steps.iter().find(|runs| runs.step == warm).unwrap();
    assert_eq!(warm.samples.is_empty(), is_stopped);
    let why = is_stopped.then_some("find -uid 0, cold did not end");
    assert_eq!(warm.skipped.as_deref(), why);
}

#[test]
fn a_tar_that_is_capped_marks_the_rest_as_partial() {
    let (base, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = WalkConfig {
        cap: Duration::from_millis(1),
        steps: vec![Step::FindWarm],
        ..WalkConfig::new(tree(cache.path(), 20_000), StopFlag::new())
    };
    let mut system = Directory::new("disk", base.path());
    let column = walk(&mut system, &config, &mut silent).unwrap();
    let sample = column.result(Step::Unpack.label()).unwrap();
    assert!(sample.capped);
    assert!(sample.part.is_some_and(|part| part < 1.0), "{sample:?}");
    // find fails if the top is not there yet, and is partial if it is.
    if let Some(find) = column.result(Step::FindWarm.label()) {
        assert_eq!(find.part, sample.part);
    }
    assert_eq!(entries(base.path()), 0);
}

#[test]
fn an_interrupt_ends_it_and_cleans_up() {
    let (base, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = WalkConfig::new(tree(cache.path(), 200), StopFlag::new());
    let mut system = counting(base.path(), "sleep 600");
    let stop = config.stop.clone();
    let mut said = Vec::new();
    let mut on_progress = |event: Event| match event {
        Event::Live(line) if line.contains("sync after tar") => stop.set(),
        Event::Live(_) | Event::Measured { .. } => {}
        Event::Line(line) => said.push(line),
    };
    let result = walk(&mut system, &config, &mut on_progress);
    assert!(matches!(result, Err(BenchError::Interrupted)));
    assert_eq!(entries(base.path()), 0);
    let last = said.last().unwrap();
    assert!(last.contains("interrupted: cleaning up"), "{last}");
}

#[test]
fn a_flat_directory_is_made_listed_and_removed() {
    let base = tempfile::tempdir().unwrap();
    let config = FlatConfig {
        files: 1_000,
        only_create: false,
        runs: 1,
        cap: Duration::from_secs(120),
        stop: StopFlag::new(),
    };
    let mut system = counting(base.path(), "true");
    let column = flat(&mut system, &config, &mut silent).unwrap();
    for step in STEPS {
        assert_eq!(column.result(step).unwrap().entries, Some(1_000), "{step}");
    }
    assert_eq!(entries(base.path()), 0);
    let capped = FlatConfig {
        cap: Duration::ZERO,
        ..config.clone()
    };
    let mut system = Directory::new("disk", base.path());
    let column = flat(&mut system, &capped, &mut silent).unwrap();
    let created = column.result(CREATE).unwrap();
    assert!(created.capped && created.entries.unwrap() < 1_000);
    assert!(column.result(LIST_COLD).is_none());
    assert_eq!(column.result(LIST_WARM).unwrap().entries, created.entries);
    assert!(column.result(UNLINK).is_some());
    assert_eq!(entries(base.path()), 0);
    let none = FlatConfig { files: 0, ..config };
    assert!(flat(&mut system, &none, &mut silent).is_err());
}

#[test]
fn sshfs_works_over_a_link_and_leaves_nothing() {
    let (base, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = LinkSettings {
        rtt: Duration::from_millis(1),
        ..LinkSettings::default()
    };
    let config = LinkConfig {
        settings,
        ..LinkConfig::default()
    };
    let Some(link) = made(Link::create(config)) else {
        return;
    };
    let stop = StopFlag::new();
    let Some(mut sshfs) = made(Sshfs::create(&link, base.path(), &stop)) else {
        return;
    };
    let root = sshfs.root().to_path_buf();
    let config = WalkConfig {
        steps: vec![Step::FindCold, Step::FindWarm, Step::Remove],
        ..WalkConfig::new(tree(cache.path(), 200), stop.clone())
    };
    let before = link.traffic().to_server.bytes;
    let column = walk(&mut sshfs, &config, &mut silent).unwrap();
    for step in [Step::Unpack, Step::FindCold, Step::FindWarm, Step::Remove] {
        assert!(
            column.result(step.label()).is_some(),
            "{step:?}: {column:?}"
        );
    }
    let carried = link.traffic().to_server.bytes - before;
    assert!(
        carried >= config.tree.count.bytes,
        "{carried} bytes crossed the link"
    );
    // A tar that is stopped is completed at the server, so that find sees the whole tree.
    let capped = WalkConfig {
        cap: Duration::from_millis(300),
        steps: vec![Step::FindCold],
        ..config.clone()
    };
    let column = walk(&mut sshfs, &capped, &mut silent).unwrap();
    assert!(column.result(Step::Unpack.label()).unwrap().part.is_some());
    let found = column.result(Step::FindCold.label()).unwrap();
    assert_eq!(found.part, None);
    let top = |entry: std::fs::DirEntry| entry.path().join(&config.tree.top).join("Makefile");
    let mut runs = std::fs::read_dir(&root).unwrap().flatten().map(top);
    assert!(runs.any(|file| file.exists()));
    drop(sshfs);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(root.to_str().unwrap()));
    assert_eq!(entries(base.path()), 0);
}
