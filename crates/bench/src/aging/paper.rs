//! The paper's experiment on one preallocation table: fill, delete a file of twenty at a time, and measure.

use allocator::{Options, PreallocTable};
use base::SeededRng;
use serde::{Deserialize, Serialize};

use super::jobs::{self, Work};
use super::medium::{MIB_BLOCKS, Medium};
use super::parameters::Parameters;
use super::target::{File, FileId, Target};
use crate::error::{BenchError, Result};
use crate::interrupt::StopFlag;

/// Files that fill the target.
pub const FILES: u64 = 20;
/// Part of the area that a job writes: less than one deletion frees.
const JOB_PERCENT: u64 = 4;

/// What is done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// In tables and figures.
    pub name: String,
    /// Groups of the tested area.
    pub groups: u32,
    /// While the target is filled.
    pub fill_table: PreallocTable,
    /// While jobs run.
    pub job_table: PreallocTable,
    /// All writers say how long their files will be.
    pub known: bool,
    /// MiB of a request.
    pub request_mib: u64,
    /// Of streams, and of the model disk.
    pub parameters: Parameters,
    /// Of the order of requests.
    pub seed: u64,
}

/// Rates in MB/s.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Of the optimal write job.
    pub write: f64,
    /// Of the optimal read job.
    pub read: f64,
}

/// One deletion later.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Per cent of the area.
    pub free: f64,
    /// Measured then.
    pub rates: Rates,
}

/// Runs of one length in the files that fill the target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Contiguous {
    /// Rounded up.
    pub mib: u64,
    /// How many.
    pub runs: u64,
    /// Their part of all space.
    pub part: f64,
}

/// The used part of each MiB of the area, 0 to 255.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// When.
    pub when: String,
    /// From the start of the area.
    pub used: Vec<u8>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aged {
    /// The plan's.
    pub name: String,
    /// On the empty target.
    pub clean: Rates,
    /// From full to nearly empty.
    pub steps: Vec<Step>,
    /// How the files lay, the shortest runs first.
    pub contiguous: Vec<Contiguous>,
    /// Before, filled, and half free.
    pub maps: Vec<Map>,
}

impl Aged {
    /// The least of all steps, as parts of the clean rates.
    pub fn worst(&self) -> Rates {
        let worst = |of: fn(&Rates) -> f64| {
            let parts = self.steps.iter().map(|step| of(&step.rates));
            parts.fold(f64::INFINITY, f64::min) / of(&self.clean)
        };
        Rates {
            write: worst(|rates| rates.write),
            read: worst(|rates| rates.read),
        }
    }

    /// After the first deletion, as parts of the clean rates.
    pub fn first(&self) -> Rates {
        let first = self.steps.first().map(|step| step.rates);
        let first = first.unwrap_or_default();
        Rates {
            write: first.write / self.clean.write,
            read: first.read / self.clean.read,
        }
    }

    /// The part of all space in runs of `mib`.
    pub fn part_in_runs_of(&self, mib: u64) -> f64 {
        let runs = self.contiguous.iter().filter(|runs| runs.mib == mib);
        runs.map(|runs| runs.part).fold(0.0, |sum, part| sum + part)
    }
}

impl Plan {
    /// The usual one for a table of one size.
    pub fn of_table(mib: u64, groups: u32, parameters: Parameters) -> Result<Plan> {
        let table = table(mib)?;
        Ok(Plan {
            name: format!("{mib} MiB"),
            groups,
            fill_table: table.clone(),
            job_table: table,
            known: false,
            request_mib: 1,
            parameters,
            seed: 1,
        })
    }

    /// Does it. `progress` gets the steps done.
    pub fn run(
        &self,
        medium: &mut dyn Medium,
        stop: &StopFlag,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Aged> {
        let options = Options {
            table: self.fill_table.clone(),
            ..Options::default()
        };
        let mut run = Run {
            plan: self,
            target: Target::empty(self.groups, options),
            medium,
            work: Work {
                known: self.known,
                ..Work::optimal(&self.parameters, self.request_mib, stop)
            },
            rng: SeededRng::new(self.seed),
            maps: Vec::new(),
        };
        run.all(progress)
    }
}

/// A table of one size.
pub fn table(mib: u64) -> Result<PreallocTable> {
    let text = (mib * MIB_BLOCKS).to_string();
    text.parse()
        .map_err(|error| BenchError::Invalid(format!("a table of {mib} MiB: {error}")))
}

struct Run<'r> {
    plan: &'r Plan,
    target: Target,
    medium: &'r mut dyn Medium,
    work: Work,
    rng: SeededRng,
    maps: Vec<Map>,
}

impl Run<'_> {
    fn all(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Aged> {
        self.target.set_table(self.plan.job_table.clone());
        let clean = self.job()?;
        self.target.set_table(self.plan.fill_table.clone());
        self.map("empty");
        let files = self.fill()?;
        self.map("full");
        let contiguous = contiguous(self.target.files());
        self.target.set_table(self.plan.job_table.clone());
        let mut steps = Vec::new();
        for (done, file) in (1..).zip(files) {
            self.target.remove(file)?;
            let free = self.target.free_blocks() as f64;
            steps.push(Step {
                free: free * 100.0 / self.target.allocator().blocks() as f64,
                rates: self.job()?,
            });
            if done == FILES / 2 {
                self.map("half free");
            }
            progress(done);
        }
        Ok(Aged {
            name: self.plan.name.clone(),
            clean,
            steps,
            contiguous,
            maps: std::mem::take(&mut self.maps),
        })
    }

    fn map(&mut self, when: &str) {
        self.maps.push(Map {
            when: when.to_owned(),
            used: self.target.used_of_each_mib(),
        });
    }

    fn fill(&mut self) -> Result<Vec<FileId>> {
        let work = Work {
            streams: FILES as usize,
            ..self.work.clone()
        };
        let requests = self.target.free_blocks() / FILES / work.request;
        let (files, _) = jobs::write(
            &mut self.target,
            self.medium,
            &work,
            requests,
            &mut self.rng,
        )?;
        Ok(files)
    }

    /// Writes files, reads them, and removes them.
    fn job(&mut self) -> Result<Rates> {
        let blocks = self.target.allocator().blocks() * JOB_PERCENT / 100;
        let requests = blocks / self.work.streams as u64 / self.work.request;
        if requests == 0 {
            let why = "the area is too small for a job; give it more groups";
            return Err(BenchError::Invalid(why.to_owned()));
        }
        let (target, medium, rng) = (&mut self.target, &mut *self.medium, &mut self.rng);
        let (files, written) = jobs::write(target, medium, &self.work, requests, rng)?;
        let read = jobs::read(target, medium, &self.work, &files, rng)?;
        for file in files {
            target.remove(file)?;
        }
        Ok(Rates {
            write: written.rate(),
            read: read.rate(),
        })
    }
}

/// How long runs of files are, by whole MiB.
fn contiguous<'f>(files: impl Iterator<Item = &'f File>) -> Vec<Contiguous> {
    let mut runs = std::collections::BTreeMap::<u64, (u64, u64)>::new();
    for extent in files.flat_map(File::extents) {
        let blocks = u64::from(extent.blocks);
        let (count, sum) = runs.entry(blocks.div_ceil(MIB_BLOCKS)).or_default();
        *count += 1;
        *sum += blocks;
    }
    let all: u64 = runs.values().map(|(_, sum)| sum).sum();
    let one = |(mib, (runs, sum))| Contiguous {
        mib,
        runs,
        part: sum as f64 / all.max(1) as f64,
    };
    runs.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::array::Array;
    use super::*;

    const GROUPS: u32 = 120;

    fn aged(plan: &Plan) -> Aged {
        let mut array = Array::new(plan.parameters);
        plan.run(&mut array, &StopFlag::new(), &mut |_| {}).unwrap()
    }

    fn of_table(mib: u64) -> Aged {
        aged(&Plan::of_table(mib, GROUPS, Parameters::default()).unwrap())
    }

    #[test]
    fn small_tables_age_and_large_ones_do_not() {
        let tables = [1, 2, 8, 16].map(of_table);
        let [small, two, large, default] = &tables;
        let first = small.first();
        assert!(first.write < 0.6 && first.read < 0.6, "{first:?}");
        let ordered = |of: fn(&Rates) -> f64| {
            let worst = [small, two, large].map(|aged| of(&aged.worst()));
            assert!(worst.is_sorted() && worst[0] < worst[1], "{worst:?}");
        };
        ordered(|rates| rates.write);
        ordered(|rates| rates.read);
        let worst = default.worst();
        assert!(worst.write >= 0.97 && worst.read >= 0.95, "{worst:?}");
        for (mib, aged) in [(1, small), (8, large)] {
            let part = aged.part_in_runs_of(mib);
            assert!(part > 0.5, "{mib} MiB: {part}");
            let parts: f64 = aged.contiguous.iter().map(|runs| runs.part).sum();
            assert!((parts - 1.0).abs() < 1e-9);
            assert_eq!(aged.steps.len(), 20);
        }
    }

    #[test]
    fn eight_mib_stay_where_whole_windows_are_sorted_together() {
        // With 64 requests of eight streams most holes of 8 MiB are visited twice.
        let parameters = Parameters {
            queue_mib: 128.0,
            ..Parameters::default()
        };
        let worst = aged(&Plan::of_table(8, 2 * GROUPS, parameters).unwrap()).worst();
        assert!(worst.write >= 0.89 && worst.read >= 0.82, "{worst:?}");
        let fewer = of_table(8).worst();
        assert!(fewer.write < worst.write, "{fewer:?}");
    }

    #[test]
    fn the_same_plan_gives_the_same_numbers() {
        assert_eq!(of_table(2), of_table(2));
    }

    #[test]
    fn files_of_known_length_do_not_age() {
        let plan = Plan {
            fill_table: PreallocTable::default(),
            job_table: PreallocTable::default(),
            known: true,
            ..Plan::of_table(1, GROUPS, Parameters::default()).unwrap()
        };
        let worst = aged(&plan).worst();
        assert!(worst.write >= 0.97 && worst.read >= 0.95, "{worst:?}");
    }

    #[test]
    fn an_area_too_small_for_a_job_is_refused() {
        let plan = Plan {
            request_mib: 128,
            ..Plan::of_table(1, 2, Parameters::default()).unwrap()
        };
        let mut array = Array::new(plan.parameters);
        let error = plan.run(&mut array, &StopFlag::new(), &mut |_| {});
        assert!(error.unwrap_err().to_string().contains("more groups"));
    }
}
