//! Tables from columns, and tasks side by side.

use std::time::Duration;

use super::contest::{rate, table};
use super::*;
use crate::interrupt::StopFlag;
use crate::report::{Cell, Column, Sample};
use crate::workload::effort::Effort;

#[test]
fn a_table_has_a_row_for_each_step_and_a_column_for_each_system() {
    let mut first = Column::new("one");
    first.add(
        "make",
        Sample {
            seconds: 0.5,
            entries: Some(100),
            ..Sample::default()
        },
    );
    let second = Column::absent("two", "it fell over");
    let steps = ["make".to_owned()];
    let table = table("A second", "", &steps, &[first, second], rate);
    assert_eq!(table.head, ["work", "one", "two"]);
    assert_eq!(
        table.rows,
        [[Cell::from("make"), Cell::Count(200), Cell::Missing]]
    );
}

#[test]
fn metadata_is_made_and_removed_by_every_task() {
    let effort = Effort {
        runs: 1,
        cap: Duration::from_secs(60),
        stop: StopFlag::new(),
    };
    let metadata = Metadata {
        tasks: vec![1, 3],
        entries: 30,
        effort,
    };
    let place = tempfile::tempdir().unwrap();
    let mut local = crate::local::Directory::new("here", place.path());
    let column = metadata.measure(&mut local, &mut |_| {}).unwrap();
    assert_eq!(column.steps.len(), 12, "{column:?}");
    for runs in &column.steps {
        assert_eq!(runs.samples[0].entries, Some(30), "{runs:?}");
        assert!(!runs.samples[0].capped);
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    assert_eq!(metadata.section(vec![column]).tables[0].rows.len(), 12);
}
