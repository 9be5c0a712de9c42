//! What others call ageing: a source tree checked out commit after commit, and files made and removed on a
//! target that stays 90 % full. Read back cold, against a fresh copy.

use allocator::{GROUP_BLOCKS, Options};
use base::{Rng, SeededRng};

use super::array::Array;
use super::medium::Medium;
use super::parameters::Parameters;
use super::target::Target;
use super::trees::{Change, Tree, blocks_of};
use crate::error::Result;
use crate::interrupt::StopFlag;
use crate::tree::{Sizes, directory_sizes};

/// Files that a reader has asked for at once, as one frame carries them.
const TOGETHER: usize = 512;
/// Measurements after the first.
const MEASUREMENTS: u64 = 5;
/// Files that a commit changes: two to the power of this at most.
const COMMIT_ORDER_MAX: u32 = 8;
/// Files of a directory at the start of the churn.
const CHURNED_DIRECTORY: usize = 20;
/// Files that one step of the churn makes and removes, at most.
const CHURNED_AT_ONCE: u64 = 8;
/// Times that idle time goes through all files.
const ROUNDS: u64 = 2;
/// Per cent of the target that is used.
const FULL_PERCENT: u64 = 90;

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worn {
    /// Steps done until then.
    pub steps: u64,
    /// Files written since the start, as a part of all files.
    pub rewritten: f64,
    /// Seconds to read all, as it lies.
    pub aged: f64,
    /// Seconds to read a fresh copy.
    pub fresh: f64,
    /// The same for a reader that asks for one file after the other.
    pub aged_singly: f64,
    /// And of the copy.
    pub fresh_singly: f64,
}

/// What idle time made of a worn target: once or more through all files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tidied {
    /// Times through all files since the wear ended.
    pub rounds: u64,
    /// Bytes moved by then, as a part of all.
    pub moved: f64,
    /// Seconds that the disk was busy with it.
    pub seconds: f64,
    /// Seconds to read all, 512 files at once.
    pub read: f64,
    /// Seconds to read a fresh copy.
    pub fresh: f64,
}

/// A kind of wear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wear {
    /// So many commits of a tree of so many entries.
    Git {
        /// Directories, files, links.
        entries: u64,
        /// Checked out one after the other.
        commits: u64,
    },
    /// A target of so many groups.
    Churn {
        /// Of 128 MiB.
        groups: u32,
    },
}

struct Worker<'w> {
    parameters: Parameters,
    groups: u32,
    target: Target,
    tree: Tree,
    sizes: Sizes,
    rng: SeededRng,
    written: u64,
    stop: &'w StopFlag,
}

impl Wear {
    /// Wears a target out, and then leaves it idle. `progress` gets the steps done, of how many.
    pub fn run(
        self,
        parameters: Parameters,
        seed: u64,
        stop: &StopFlag,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Vec<Worn>, Vec<Tidied>)> {
        let mut rng = SeededRng::new(seed);
        let mut sizes = Sizes::new(&mut rng);
        let (groups, directories) = match self {
            Wear::Git { entries, .. } => (groups_for(entries), directory_sizes(seed, entries)),
            Wear::Churn { groups } => (groups, filling(groups, &mut sizes)),
        };
        let mut target = Target::empty(groups, Options::default());
        let tree = Tree::write(&mut target, &directories)?;
        let mut worker = Worker {
            parameters,
            groups,
            target,
            tree,
            sizes,
            rng,
            written: 0,
            stop,
        };
        let steps = match self {
            Wear::Git { commits, .. } => commits,
            // Each makes 4.5 files on average: half of all files are rewritten.
            Wear::Churn { .. } => worker.tree.files() / CHURNED_AT_ONCE,
        };
        let mut worn = vec![worker.measure(0)?];
        let between = steps.div_ceil(MEASUREMENTS).max(1);
        for step in 1..=steps {
            match self {
                Wear::Git { .. } => worker.commit()?,
                Wear::Churn { .. } => worker.churn()?,
            }
            if step % between == 0 || step == steps {
                worn.push(worker.measure(step)?);
                progress(step, steps);
            }
        }
        let tidied = worker.tidy()?;
        Ok((worn, tidied))
    }
}

/// A target of which the tree of `entries` takes a third.
fn groups_for(entries: u64) -> u32 {
    // 16.5 kB a file on average, and the group's rest.
    (entries * 50_000 / (128 << 20)) as u32 + 2
}

/// Directories of files until the target is as full as it stays.
fn filling(groups: u32, sizes: &mut Sizes) -> Vec<Vec<u64>> {
    let mut left = u64::from(groups) * u64::from(GROUP_BLOCKS) * FULL_PERCENT / 100;
    let mut directories = Vec::new();
    loop {
        let files: Vec<u64> = (0..CHURNED_DIRECTORY).map(|_| sizes.next()).collect();
        let blocks: u64 = files.iter().map(|bytes| blocks_of(*bytes)).sum();
        match left.checked_sub(blocks) {
            Some(rest) => left = rest,
            None => return directories,
        }
        directories.push(files);
    }
}

impl Worker<'_> {
    /// Half of the commits change one file, a quarter two, an eighth four and so on, in one directory. Some
    /// directories change often: the product of two random numbers picks one. One file of sixteen is new,
    /// and as many go.
    fn commit(&mut self) -> Result<()> {
        self.stop.check()?;
        let order = self.rng.next_u64().trailing_ones().min(COMMIT_ORDER_MAX);
        let count = 1 << order;
        let directories = self.tree.directories() as u64;
        let place = self.rng.below(directories) * self.rng.below(directories) / directories;
        let others = self.rng.below(count + 16) / 16;
        self.change(Change {
            directory: place as usize,
            replaced: count,
            added: others,
            removed: others,
        })
    }

    /// Some files of any directory go until there is room, and as many are made in another.
    fn churn(&mut self) -> Result<()> {
        self.stop.check()?;
        let directories = self.tree.directories() as u64;
        let count = 1 + self.rng.below(CHURNED_AT_ONCE);
        let full = u64::from(self.groups) * u64::from(GROUP_BLOCKS) * (100 - FULL_PERCENT) / 100;
        while self.target.free_blocks() < full {
            let directory = self.rng.below(directories) as usize;
            self.change(Change {
                directory,
                replaced: 0,
                added: 0,
                removed: count,
            })?;
        }
        let directory = self.rng.below(directories) as usize;
        self.change(Change {
            directory,
            replaced: 0,
            added: count,
            removed: 0,
        })
    }

    fn change(&mut self, change: Change) -> Result<()> {
        self.written +=
            self.tree
                .change(&mut self.target, change, &mut self.sizes, &mut self.rng)?;
        Ok(())
    }

    fn tidy(&mut self) -> Result<Vec<Tidied>> {
        let blocks: u64 = self.target.files().map(|file| file.blocks()).sum();
        let (mut tidied, mut moved, mut seconds) = (Vec::new(), 0, 0.0);
        for rounds in 1..=ROUNDS {
            let mut array = Array::new(self.parameters);
            moved += self.tree.tidy(&mut self.target, &mut array, TOGETHER)?;
            seconds += array.drain()?;
            let worn = self.measure(0)?;
            tidied.push(Tidied {
                rounds,
                moved: moved as f64 / blocks as f64,
                seconds,
                read: worn.aged,
                fresh: worn.fresh,
            });
        }
        Ok(tidied)
    }

    fn measure(&self, steps: u64) -> Result<Worn> {
        let mut other = Target::empty(self.groups, Options::default());
        let copy = self.tree.copy(&self.target, &mut other)?;
        let seconds = |tree: &Tree, target: &Target, together: usize| {
            self.stop.check()?;
            let mut array = Array::new(self.parameters);
            Ok(tree.read(target, &mut array, together)?.seconds)
        };
        Ok(Worn {
            steps,
            rewritten: self.written as f64 / self.tree.files() as f64,
            aged: seconds(&self.tree, &self.target, TOGETHER)?,
            fresh: seconds(&copy, &other, TOGETHER)?,
            aged_singly: seconds(&self.tree, &self.target, 1)?,
            fresh_singly: seconds(&copy, &other, 1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worn(wear: Wear) -> (Vec<Worn>, Vec<Tidied>) {
        let parameters = Parameters::default();
        wear.run(parameters, 1, &StopFlag::new(), &mut |_, _| {})
            .unwrap()
    }

    #[test]
    fn commits_scatter_a_tree_a_little() {
        let wear = Wear::Git {
            entries: 4000,
            commits: 100,
        };
        let (worn, tidied) = worn(wear);
        assert_eq!(worn.len(), 6);
        let (first, last) = (worn[0], worn[5]);
        assert!((first.aged / first.fresh - 1.0).abs() < 0.01, "{first:?}");
        let ratio = last.aged / last.fresh;
        assert!((1.1..5.0).contains(&ratio), "{last:?}");
        assert!(last.aged_singly > 5.0 * last.aged);
        assert_eq!(worn.last().unwrap().steps, 100);
        // Idle time mends it, and then has nothing to do.
        let (first, end) = (tidied[0], tidied[tidied.len() - 1]);
        assert!(end.read < 1.1 * end.fresh, "{tidied:?}");
        assert!(first.moved > 0.0 && end.moved < 1.5, "{tidied:?}");
    }

    #[test]
    fn a_target_that_stays_full_ages_more_with_each_step() {
        let (worn, tidied) = worn(Wear::Churn { groups: 1 });
        let ratios: Vec<f64> = worn.iter().map(|worn| worn.aged / worn.fresh).collect();
        assert!(ratios[0] < 1.1 && ratios[5] > 2.0, "{ratios:?}");
        assert!(ratios[..4].is_sorted(), "{ratios:?}");
        assert!(worn[5].rewritten > 0.4, "{worn:?}");
        // There is no run to move files to, and nothing becomes worse.
        let end = tidied[tidied.len() - 1];
        assert!(end.read <= 1.01 * worn[5].aged, "{worn:?} {tidied:?}");
    }
}
