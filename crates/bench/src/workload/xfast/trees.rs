//! `find -uid 0` over several source trees: nothing ahead, one directory at a time, whole trees.

use std::fs;
use std::path::{Path, PathBuf};

use super::experiment::Experiment;
use super::lab::Lab;
use super::mode::Mode;
use crate::error::{During, Result};
use crate::report::{Cell, Column, Sample, Section, Table};
use crate::tree::SourceTree;
use crate::workload::effort::Effort;
use crate::workload::walk::{find, unpack};

/// Copies of one tree.
#[derive(Debug, Clone)]
pub struct Trees {
    /// The tree.
    pub tree: SourceTree,
    /// How many of it.
    pub copies: u32,
    /// For each cell.
    pub effort: Effort,
}

fn label(mode: Mode) -> String {
    format!("find -uid 0, {mode}")
}

/// One of a sample's counts.
type Count = fn(&Sample) -> Option<u64>;

/// What a row says of how the attributes came.
const COUNTS: [(&str, Count); 6] = [
    ("RPCs", |sample| sample.rpcs),
    ("stats", |sample| Some(sample.statahead?.stats)),
    ("pages", |sample| Some(sample.statahead?.pages)),
    ("tree walks", |sample| {
        Some(sample.statahead?.tree_walks_followed)
    }),
    ("stretches", |sample| {
        Some(sample.statahead?.statahead_tree_walks)
    }),
    ("directories in these", |sample| {
        Some(sample.statahead?.statahead_tree_total)
    }),
];

/// Unpacks copies of a tree below `directory`. None when it failed, or not all of it is there.
pub(super) fn make_trees(
    lab: &mut Lab,
    tree: &SourceTree,
    copies: u32,
    directory: PathBuf,
) -> Result<Option<PathBuf>> {
    for copy in 0..copies {
        let directory = directory.join(copy.to_string());
        fs::create_dir_all(&directory).during(|| format!("making {}", directory.display()))?;
        let there = lab.building(|measurement| unpack(measurement, &tree.tar, &directory))?;
        if there != Some(None) {
            return Ok(None);
        }
    }
    Ok(Some(directory))
}

impl Experiment for Trees {
    fn name(&self) -> &'static str {
        "trees"
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, lab: &mut Lab, directory: &Path) -> Result<()> {
        let source = directory.join("src");
        let Some(source) = make_trees(lab, &self.tree, self.copies, source)? else {
            return Ok(());
        };
        for mode in Mode::OF_TREES {
            lab.take_cold(mode, &label(mode), &|| find(&source))?;
        }
        Ok(())
    }

    fn section(&self, runs: Column) -> Section {
        let count = &self.tree.count;
        let copies = u64::from(self.copies);
        Section {
bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!(
                "cold find -uid 0 over {copies} times {}: {} entries in {} directories",
                self.tree.origin,
                copies * count.entries(),
                copies * count.directories
            ),
            tables: vec![table(&runs)],
            figures: Vec::new(),
            notes: vec![
                "RPCs: request frames, a batch counted once; stats: requests for attributes of one \
                 name, those of a batch each; pages: of one directory; stretches: of the tree, with \
                 many directories in one answer"
                    .to_owned(),
                "what fetches ahead (the talk's threads): in FLAT mode a context for each directory, \
                 which ends when that is closed; in SAS mode one for each tree walk, with one stretch \
                 under way at a time"
                    .to_owned(),
                "CPU: of the mount's process".to_owned(),
            ],
            runs: vec![runs],
        }
    }
}

fn table(runs: &Column) -> Table {
    let counts = COUNTS.iter().map(|(name, _)| *name);
    let head = ["mode"]
        .into_iter()
        .chain(counts)
        .chain(["CPU s", "time s"]);
    let mut table = Table::new("Medians", head);
    for mode in Mode::OF_TREES {
        let result = runs.result(&label(mode));
        let counts = COUNTS.iter().map(|(_, of)| Cell::count(result, of));
        let mut row = vec![Cell::Text(mode.to_string())];
        row.extend(counts);
        row.push(Cell::cpu(result));
        row.push(Cell::seconds(result));
        table.rows.push(row);
    }
    table
}
