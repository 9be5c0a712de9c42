//! What reports look like.

use super::*;

fn sample(seconds: f64) -> Sample {
    Sample {
        seconds,
        ..Sample::default()
    }
}

fn report() -> Report {
    let mut glint = Column::new("Glint");
    for seconds in [3.0, 1.0, 2.0] {
        let rpcs = Some(seconds as u64 * 10);
        glint.add(
            "tar -x",
            Sample {
                rpcs,
                ..sample(seconds)
            },
        );
    }
    glint.add(
        "find",
        Sample {
            rpcs: Some(7),
            ..sample(0.0123)
        },
    );
    let mut ext4 = Column::new("ext4");
    ext4.add("tar -x", sample(0.5));
    ext4.skip("find", "it is broken".into());
    ext4.skip("du", "it is broken".into());
    let mut slow = Column::new("slow");
    slow.add(
        "tar -x",
        Sample {
            capped: true,
            part: Some(0.25),
            ..sample(120.04)
        },
    );
    slow.add(
        "find",
        Sample {
            part: Some(0.25),
            ..sample(15.0)
        },
    );
    let mut report = Report::new("A walk", ["tar -x", "find", "du", "never"]);
    report.machine = "2 processors".into();
    report.columns = vec![glint, slow, ext4, Column::absent("sshfs", "not installed")];
    report.baseline = Some("ext4".into());
    report
}

#[test]
fn text_is_aligned_and_says_why_cells_are_empty() {
    let expected = "\
A walk
2 processors

step    Glint s  x ext4  RPCs  slow s  x ext4  ext4 s  sshfs s  x ext4
tar -x     2.00    4.00    30   >120*       -   0.500        -       -
find      0.012       -     7   15.0*       -       -        -       -
du            -       -     -       -       -       -        -       -

  \">\" means stopped at the time limit: it takes longer
  slow: \"*\" means on 25.0 % of the tree, as far as tar had come
  ext4: not run: it is broken (find; du)
  sshfs: not run: not installed
";
    assert_eq!(report().text(), expected);
}

#[test]
fn markdown_has_a_rule_and_as_many_bars_in_each_row() {
    let markdown = report().markdown();
    let rows: Vec<&str> = markdown
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    assert_eq!(rows.len(), 5);
    assert!(rows[1].starts_with("|--------|--------:|"), "{}", rows[1]);
    let bars = |row: &&str| row.matches('|').count();
    assert!(rows.iter().all(|row| bars(row) == 10), "{markdown}");
}

#[test]
fn json_holds_every_run_and_is_read_back() {
    let report = report();
    let json = report.json().unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    assert!(json.contains("\"skipped\": \"it is broken\""));
}

#[test]
fn the_result_is_the_median_and_a_cap_wins() {
    let mut column = Column::new("x");
    assert_eq!(column.result("s"), None);
    column.add("s", sample(1.0));
    column.add("s", sample(4.0));
    assert_eq!(column.result("s").unwrap().seconds, 2.5);
    column.add(
        "s",
        Sample {
            capped: true,
            ..sample(120.0)
        },
    );
    assert!(column.result("s").unwrap().capped);
}

#[test]
fn a_time_for_each_entry_where_there_are_entries() {
    let mut column = Column::new("Glint");
    column.add(
        "create",
        Sample {
            entries: Some(1000),
            ..sample(0.5)
        },
    );
    let mut other = Column::new("ext4");
    other.add(
        "create",
        Sample {
            entries: Some(500),
            ..sample(0.5)
        },
    );
    let mut report = Report::new("flat", ["create"]);
    report.columns = vec![column, other];
    report.baseline = Some("ext4".into());
    let text = report.text();
    // Unlike numbers of files give no ratio.
    let row = text
        .lines()
        .find(|line| line.starts_with("create"))
        .unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells, ["create", "0.500", "-", "500.0", "0.500", "1000.0"]);
}

#[test]
fn runs_of_a_system_that_is_measured_again_stand_in_its_column() {
    let mut report = report();
    let mut again = Column::new("Glint");
    again.add("find", sample(1.0));
    again.add("du", sample(2.0));
    report.keep(again);
    report.keep(Column::new("tmpfs"));
    let names: Vec<&str> = report.columns.iter().map(|column| &*column.name).collect();
    assert_eq!(names, ["Glint", "slow", "ext4", "sshfs", "tmpfs"]);
    let runs = |step| report.columns[0].samples(step).len();
    assert_eq!((runs("tar -x"), runs("find"), runs("du")), (3, 2, 1));
}

#[test]
fn a_picture_has_a_row_for_each_step_and_a_mark_for_each_result() {
    let svg = report().svg().unwrap();
    let count = |part: &str| svg.matches(part).count();
    assert_eq!(count("<circle"), 4, "{svg}");
    // Of the step that was stopped, and in the legend.
    assert_eq!(count("<polygon"), 2, "{svg}");
    for words in ["A walk", "tar -x", "find", "Glint", "ext4", "slow"] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    assert!(!svg.contains("never"), "{svg}");
    assert_eq!(svg, report().svg().unwrap());
}

#[test]
fn a_column_takes_the_place_of_the_one_of_its_name() {
    let mut report = report();
    let before = report.columns.len();
    report.replace(Column::new("Glint"));
    report.replace(Column::new("another"));
    assert_eq!(report.columns.len(), before + 1);
    assert!(report.columns[0].steps.is_empty());
}
