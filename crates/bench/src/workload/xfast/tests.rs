//! What experiments draw from columns, and how they treat cells that were stopped or failed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::lab::{REST, conduct};
use super::*;
use crate::error::{BenchError, Result};
use crate::interrupt::StopFlag;
use crate::progress::silent;
use crate::report::{Cell, Column, Figure, Point, Sample, Statahead, StepRuns, Table};
use crate::tree::{SourceTree, TreeCount};
use crate::workload::effort::Effort;
use crate::workload::quiet::quiet;
use crate::workload::{Cold, Setting, System, Tunable};

fn effort(runs: u32, cap: Duration) -> Effort {
    Effort {
        runs,
        cap,
        stop: StopFlag::new(),
    }
}

fn usual() -> Effort {
    effort(3, Duration::from_secs(60))
}

fn tree() -> SourceTree {
    SourceTree {
        tar: PathBuf::new(),
        top: PathBuf::new(),
        count: TreeCount {
            directories: 10,
            files: 90,
            ..TreeCount::default()
        },
        origin: "a tree".to_owned(),
    }
}

fn sample(seconds: f64, rpcs: u64) -> Sample {
    Sample {
        seconds,
        rpcs: Some(rpcs),
        cpu: Some(0.5),
        statahead: Some(Statahead {
            stats: rpcs - 1,
            pages: 1,
            ..Statahead::default()
        }),
        ..Sample::default()
    }
}

fn capped() -> Sample {
    Sample {
        capped: true,
        ..sample(60.0, 9999)
    }
}

fn row<'t>(table: &'t Table, first: &Cell) -> &'t [Cell] {
    let row = table.rows.iter().find(|row| row[0] == *first);
    &row.unwrap_or_else(|| panic!("no {first:?} in {table:?}"))[1..]
}

fn round_trips(rtts: &[u64]) -> RoundTrips {
    RoundTrips {
        tree: tree(),
        rtts: rtts.iter().copied().map(Duration::from_millis).collect(),
        bandwidth: None,
        effort: usual(),
    }
}

#[test]
fn modes_are_what_the_talk_calls_them_and_set_only_what_differs() {
    let names: Vec<String> = Mode::OF_TREES.iter().map(Mode::to_string).collect();
    assert_eq!(
        names,
        [
            "off",
            "FLAT(1024, 1)",
            "FLAT(1024, 256)",
            "SAS(1024, 1)",
            "SAS(1024, 256)",
            "SAS"
        ]
    );
    assert_eq!(Mode::Off.settings(), [("statahead_max", 0)]);
    assert_eq!(
        Mode::OF_TREES[1].settings(),
        [
            ("statahead_tree_max", 0),
            ("statahead_max", 1024),
            ("batch_max", 1)
        ]
    );
    assert_eq!(Mode::Sas(None).settings(), []);
}

#[test]
fn a_capped_cell_is_more_than_and_gives_speedups_of_at_least() {
    let mut runs = Column::new("Glint");
    runs.add("find -uid 0, off, 5ms", sample(30.0, 100));
    runs.add("find -uid 0, off, 50ms", capped());
    for seconds in [0.5, 0.3, 0.4] {
        runs.add("find -uid 0, SAS, 5ms", sample(seconds, 7));
    }
    runs.add("find -uid 0, SAS, 50ms", sample(1.0, 7));
    runs.add("find -uid 0, FLAT(1024, 1), 50ms", capped());
    let section = round_trips(&[5, 50]).section(runs);
    let times = &section.tables[0];
    let off = row(times, &"off".into());
    assert_eq!(off, [Cell::Number(30.0), Cell::MoreThan(60.0)]);
    assert_eq!(row(times, &"SAS".into())[0], Cell::Number(0.4));
    assert_eq!(
        row(times, &"SAS(1024, 1)".into()),
        [Cell::Missing, Cell::Missing]
    );
    let requests = row(&section.tables[1], &"off".into());
    assert_eq!(requests, [Cell::Count(100), Cell::Missing]);
    let series = |figure: &str, mode: &str| points(&section.figures, figure, mode);
    let point = |x, y, at_least| Point { x, y, at_least };
    assert_eq!(
        series("rtt-time", "off"),
        [point(5.0, 30.0, false), point(50.0, 60.0, true)]
    );
    assert_eq!(
        series("rtt-speedup", "SAS"),
        [point(5.0, 75.0, false), point(50.0, 60.0, true)]
    );
    assert_eq!(series("rtt-speedup", "FLAT(1024, 1)"), []);
    assert_eq!(series("rtt-requests", "off"), [point(5.0, 100.0, false)]);
}

fn points(figures: &[Figure], figure: &str, series: &str) -> Vec<Point> {
    let figure = figures.iter().find(|one| one.name == figure).unwrap();
    let series = figure.series.iter().find(|one| one.name == series).unwrap();
    series.points.clone()
}

#[test]
fn listings_have_a_row_for_each_size() {
    let mut runs = Column::new("Glint");
    runs.add("ls -l, 10 files, off, cold", sample(2.0, 14));
    runs.add("ls -l, 10 files, off, warm", sample(0.5, 1));
    runs.add("ls -l, 10 files, SAS, cold", sample(1.0, 4));
    runs.add("ls -l, 20 files, off, cold", capped());
    let listing = Listing {
        files: vec![10, 20],
        effort: usual(),
    };
    let section = listing.section(runs);
    let table = &section.tables[0];
    use Cell::{Count, Missing, MoreThan, Number};
    assert_eq!(
        row(table, &Count(10)),
        [
            Number(2.0),
            Number(0.5),
            Count(14),
            Number(1.0),
            Missing,
            Count(4)
        ]
    );
    assert_eq!(
        row(table, &Count(20))[..3],
        [MoreThan(60.0), Missing, Missing]
    );
    let cold = points(&section.figures, "flat", "off, cold");
    assert_eq!((cold.len(), cold[1].at_least), (2, true));
}

#[test]
fn one_wrong_size_in_any_run_is_shown() {
    let mut runs = Column::new("Glint");
    for mode in ["off", "SAS"] {
        runs.add(&format!("ls -l, 2 writers, {mode}"), sample(1.0, 5));
        runs.add(&format!("sizes after 2 writers, {mode}"), sample(1.0, 5));
    }
    runs.skip("WRONG: ls -l, 2 writers, SAS", "1 wrong sizes".to_owned());
    let writers = Writers {
        files: 10,
        writers: vec![2, 4],
        effort: usual(),
    };
    let section = writers.section(runs);
    let cells = row(&section.tables[0], &Cell::Count(2));
    assert_eq!((&cells[3], &cells[8]), (&"right".into(), &"WRONG".into()));
    assert_eq!(row(&section.tables[0], &Cell::Count(4))[3], Cell::Missing);
}

#[test]
fn the_grid_has_no_batch_larger_than_its_window() {
    let mut runs = Column::new("Glint");
    runs.add("ls -l, names known, FLAT(64, 8)", sample(1.0, 5));
    runs.add("ls -l, cold, statahead_max 64", sample(0.5, 3));
    let grid = Grid {
        files: 10,
        effort: usual(),
    };
    let section = grid.section(runs);
    let cells = row(&section.tables[0], &Cell::Count(64));
    assert_eq!(
        cells[..3],
        [Cell::Number(0.5), Cell::Missing, Cell::Number(1.0)]
    );
    assert_eq!(cells[4..], ["".into(), "".into()]);
    let known = points(&section.figures, "grid", "names known, batch_max 8");
    assert_eq!(known.len(), 1);
}

#[test]
fn trees_are_counted_by_how_their_attributes_came() {
    let mut runs = Column::new("Glint");
    runs.add("find -uid 0, FLAT(1024, 1)", sample(1.5, 12));
    let trees = Trees {
        tree: tree(),
        copies: 4,
        effort: usual(),
    };
    let section = trees.section(runs);
    assert!(section.title.contains("400 entries in 40 directories"));
    use Cell::{Count, Number};
    assert_eq!(
        row(&section.tables[0], &"FLAT(1024, 1)".into()),
        [
            Count(12),
            Count(11),
            Count(1),
            Count(0),
            Count(0),
            Count(0),
            Number(0.5),
            Number(1.5)
        ]
    );
}

/// A local directory that says it was made cold, and notes what it is told.
struct Tuned {
    root: tempfile::TempDir,
    told: Vec<String>,
}

impl Tuned {
    fn new() -> Tuned {
        Tuned {
            root: tempfile::tempdir().unwrap(),
            told: Vec::new(),
        }
    }
}

impl System for Tuned {
    fn name(&self) -> &str {
        "tuned"
    }

    fn root(&self) -> &Path {
        self.root.path()
    }

    fn make_cold(&mut self) -> Result<Cold> {
        self.told.push("cold".to_owned());
        Ok(Cold::Done)
    }

    fn tunable(&mut self) -> Option<&mut dyn Tunable> {
        Some(self)
    }
}

impl Tunable for Tuned {
    fn tune(&mut self, settings: &[Setting]) -> Result<()> {
        let words = settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        self.told.push(words.collect::<Vec<_>>().join(" "));
        Ok(())
    }

    fn set_round_trip(&mut self, rtt: Duration) -> Result<()> {
        self.told.push(format!("{rtt:?}"));
        Ok(())
    }

    fn beside(&mut self) -> Result<PathBuf> {
        Ok(self.root.path().to_owned())
    }

    fn mounts(&mut self, count: usize) -> Result<Vec<PathBuf>> {
        Ok(vec![self.root.path().to_owned(); count])
    }
}

#[test]
fn each_run_is_tuned_and_then_cold() {
    let mut system = Tuned::new();
    let listing = Listing {
        files: vec![3],
        effort: effort(2, Duration::from_secs(60)),
    };
    let column = listing.measure(&mut system, &mut silent).unwrap();
    let off = ["statahead_max=0", "cold"];
    let on = ["", "cold"];
    assert_eq!(system.told, [off, off, on, on].concat());
    let runs = |label: &str| {
        let step = column.steps.iter().find(|runs| runs.step == label);
        step.unwrap().samples.len()
    };
    assert_eq!(runs("ls -l, 3 files, off, cold"), 2);
    assert_eq!(runs("ls -l, 3 files, SAS, warm"), 2);
}

/// The runs of a cell that would be run three times, a twentieth of a second each at most.
fn cell(system: &mut Tuned, command: &[&str]) -> StepRuns {
    let effort = effort(3, Duration::from_millis(50));
    let column = conduct(system, &effort, &mut silent, &|lab, _| {
        lab.take_cold(Mode::Off, "cell", &|| {
            let mut program = quiet(command[0]);
            program.args(&command[1..]);
            program
        })
    });
    column.unwrap().steps.remove(0)
}

#[test]
fn a_cell_that_is_stopped_or_fails_is_not_run_again() {
    let mut system = Tuned::new();
    let stopped = cell(&mut system, &["sleep", "600"]);
    assert_eq!(system.told, ["statahead_max=0", "cold"]);
    assert_eq!(stopped.samples.len(), 1);
    assert!(stopped.samples[0].capped);
    let failed = cell(&mut system, &["ls", "/no/such/file"]);
    assert_eq!(system.told.len(), 4);
    assert_eq!(failed.samples, []);
    let why = failed.skipped.unwrap();
    assert!(why.contains("/no/such/file"), "{why}");
}

#[test]
fn what_prefetch_cannot_help_is_measured_in_pairs_that_take_turns() {
    let mut system = Tuned::new();
    let harmless = Harmless {
        files: 30,
        directories: 5,
        calls: 10,
        effort: effort(2, Duration::from_secs(60)),
    };
    let column = harmless.measure(&mut system, &mut silent).unwrap();
    let (off, on) = (["statahead_max=0", "cold"], ["", "cold"]);
    let turns = [off, on, on, off].concat();
    assert_eq!(system.told.len(), 6 * turns.len());
    assert_eq!(system.told[..turns.len()], turns[..]);
    let section = harmless.section(column);
    let table = &section.tables[0];
    assert_eq!(table.rows.len(), 6);
    for row in &table.rows {
        let [.., off, on, Cell::Text(ratio)] = &row[..] else {
            panic!("no ratio in {row:?}");
        };
        assert!(
            matches!((off, on), (Cell::Number(_), Cell::Number(_))),
            "{row:?}"
        );
        assert!(
            ratio.parse::<f64>().is_ok_and(|ratio| ratio > 0.0),
            "{ratio}"
        );
        assert_eq!(row[1], Cell::Missing, "nobody counts CPU here");
    }
    assert_eq!(section.figures[1].series[0].points.len(), 2);
}

#[test]
fn a_huge_directory_is_compared_with_a_tenth_of_it() {
    let mut system = Tuned::new();
    let huge = Huge {
        files: 50,
        effort: effort(1, Duration::from_secs(60)),
    };
    let column = huge.measure(&mut system, &mut silent).unwrap();
    let wrong = column.steps.iter().find(|runs| runs.skipped.is_some());
    assert_eq!(wrong, None);
    let times = |small: f64, large: f64| {
        let mut runs = Column::new("Glint");
        runs.add("ls -U, 5 files", sample(small, 3));
        runs.add("ls -U, 50 files", sample(large, 4));
        let table = huge.section(runs).tables.remove(0);
        table.rows.last().unwrap().last().unwrap().clone()
    };
    assert_eq!(times(0.5, 6.0), Cell::from("12.0"));
    assert_eq!(times(0.5, 6.5), Cell::from("13.0 !"));
}

#[test]
fn writers_leave_right_sizes_and_no_new_files() {
    let mut system = Tuned::new();
    let writers = Writers {
        files: 5,
        writers: vec![0, 2],
        effort: effort(2, Duration::from_secs(60)),
    };
    let column = writers.measure(&mut system, &mut silent).unwrap();
    let wrong = column.steps.iter().find(|runs| runs.skipped.is_some());
    assert_eq!(wrong, None);
    let check = column.result("sizes after 2 writers, SAS").unwrap();
    assert!(check.entries.is_some_and(|turns| turns >= 2), "{check:?}");
    assert_eq!(std::fs::read_dir(system.root()).unwrap().count(), 0);
}

#[test]
fn what_goes_wrong_is_noted_after_what_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let mut system = crate::local::Directory::new("plain", directory.path());
    let listing = Listing {
        files: vec![1],
        effort: usual(),
    };
    let column = listing.measure(&mut system, &mut silent).unwrap();
    let steps: Vec<&str> = column.steps.iter().map(|runs| runs.step.as_str()).collect();
    assert_eq!(steps, ["making 1 files", REST]);
    let why = column.steps[1].skipped.as_ref().unwrap();
    assert!(why.contains("plain cannot be tuned"), "{why}");
}

#[test]
fn an_interrupt_ends_it_without_a_column() {
    let stop = StopFlag::new();
    let effort = Effort {
        stop: stop.clone(),
        ..usual()
    };
    let ended = conduct(&mut Tuned::new(), &effort, &mut silent, &|lab, _| {
        stop.set();
        lab.start(Mode::Off, "cell").map(|_| ())
    });
    assert!(matches!(ended, Err(BenchError::Interrupted)), "{ended:?}");
}
