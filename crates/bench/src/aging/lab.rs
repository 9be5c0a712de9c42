//! The parts of `glint bench aging`: which plans each runs, and the section that comes of them.

use std::path::PathBuf;

use allocator::PreallocTable;

use super::array::Array;
use super::claims::{Claim, claims, reads_back, reads_back_tidied, stays_above};
use super::device::{Device, Erase};
use super::medium::Medium;
use super::paper::{self, Aged, FILES, Plan};
use super::parameters::{Knob, Parameters};
use super::sections;
use super::wear::Wear;
use crate::error::{BenchError, Result};
use crate::interrupt::StopFlag;
use crate::progress::{Event, Progress};
use crate::report::Section;

/// Groups of the target of part churn, at most.
const CHURNED_GROUPS: u32 = 16;

/// What the lab measures on.
#[derive(Debug, Clone, PartialEq)]
pub enum Disk {
    /// The model, in virtual time.
    Model(Parameters),
    /// A directory or a block device.
    Real(PathBuf, Erase),
}

/// How much, and on what.
#[derive(Debug, Clone)]
pub struct Lab {
    /// The disk.
    pub disk: Disk,
    /// Groups of 128 MiB of the tested area.
    pub groups: u32,
    /// Sizes of preallocation tables, in MiB.
    pub tables_mib: Vec<u64>,
    /// Entries of the tree of part git.
    pub entries: u64,
    /// Commits of it.
    pub commits: u64,
    /// By how much the model's numbers are changed, in per cent.
    pub scale: u32,
    /// Of everything that is random.
    pub seed: u64,
    /// Set to end early.
    pub stop: StopFlag,
}

impl Lab {
    fn parameters(&self) -> Parameters {
        match &self.disk {
            Disk::Model(parameters) => *parameters,
            // Of the jobs' streams alone.
            Disk::Real(..) => Parameters::default(),
        }
    }

    /// Parts that ask about the model have no meaning on a real disk.
    fn needs_model(&self, part: &str) -> Result<()> {
        match self.disk {
            Disk::Model(_) => Ok(()),
            Disk::Real(..) => Err(BenchError::Invalid(format!(
                "part {part} is for the model disk; leave --on out, or name other parts"
            ))),
        }
    }

    /// A source tree, one commit after the other.
    pub fn git(&self, progress: &mut Progress) -> Result<Section> {
        let wear = Wear::Git {
            entries: self.entries,
            commits: self.commits,
        };
        let title = format!(
            "a source tree of {} entries, {} commits checked out one after the other",
            self.entries, self.commits
        );
        self.wear("git", title, wear, progress)
    }

    /// Files made and removed on a full target.
    pub fn churn(&self, progress: &mut Progress) -> Result<Section> {
        let groups = CHURNED_GROUPS.min(self.groups);
        let wear = Wear::Churn { groups };
        let title = format!(
            "{groups} groups that stay 90 % full of small files, half of them written anew"
        );
        self.wear("churn", title, wear, progress)
    }

    fn wear(
        &self,
        name: &str,
        title: String,
        wear: Wear,
        progress: &mut Progress,
    ) -> Result<Section> {
        self.needs_model(name)?;
        let parameters = self.parameters();
        let (worn, tidied) = wear.run(parameters, self.seed, &self.stop, &mut |done, of| {
            progress(Event::Line(format!("{name}: {done} of {of} steps")));
        })?;
        let claims: Vec<Claim> = reads_back(&worn)
            .into_iter()
            .chain(reads_back_tidied(&tidied))
            .collect();
        let notes = [
            "512 files are asked for at once and read in the order of their places; or one after the other.",
            "Sizes are a kernel source tree's. Times are the disk's alone, without programs and network.",
        ];
        Ok(sections::wear(
            name,
            title,
            (&worn, &tidied),
            &claims,
            &notes,
        ))
    }

    fn run(&self, plan: &Plan, progress: &mut Progress) -> Result<Aged> {
        let plan = Plan {
            seed: self.seed,
            ..plan.clone()
        };
        let mut medium: Box<dyn Medium> = match &self.disk {
            Disk::Model(_) => Box::new(Array::new(plan.parameters)),
            Disk::Real(path, erase) => Box::new(Device::open(path, plan.groups, *erase)?),
        };
        let aged = plan.run(medium.as_mut(), &self.stop, &mut |done| {
            progress(Event::Live(format!("{}: {done} of {FILES}", plan.name)));
        })?;
        let worst = aged.worst();
        progress(Event::Line(format!(
            "{}: at least {:.1} % of the clean write rate, {:.1} % of the read rate",
            aged.name,
            worst.write * 100.0,
            worst.read * 100.0
        )));
        Ok(aged)
    }

    fn run_all(&self, plans: &[Plan], progress: &mut Progress) -> Result<Vec<Aged>> {
        plans.iter().map(|plan| self.run(plan, progress)).collect()
    }

    fn plan(&self, mib: u64) -> Result<Plan> {
        Plan::of_table(mib, self.groups, self.parameters())
    }

    fn default_plan(&self, name: &str, known: bool) -> Result<Plan> {
        Ok(Plan {
            name: name.to_owned(),
            fill_table: PreallocTable::default(),
            job_table: PreallocTable::default(),
            known,
            ..self.plan(1)?
        })
    }

    fn area(&self) -> String {
        format!(
            "{FILES} files at once on {} groups ({} GiB), then one deleted at a time",
            self.groups,
            self.groups / 8
        )
    }

    /// The paper's experiment.
    pub fn tables(&self, progress: &mut Progress) -> Result<Section> {
        let plans = self.tables_mib.iter().map(|mib| self.plan(*mib));
        let plans = plans.collect::<Result<Vec<Plan>>>()?;
        let aged = self.run_all(&plans, progress)?;
        Ok(sections::tables(self.area(), &aged, &claims(&aged)))
    }

    /// Files whose writers say how long they will be.
    pub fn known(&self, progress: &mut Progress) -> Result<Section> {
        let plans = [
            self.default_plan("default, length known", true)?,
            self.default_plan("default, length open", false)?,
        ];
        let aged = self.run_all(&plans, progress)?;
        let known = stays_above(&aged[0], "length known: rates stay (ours)", 0.97, 0.95);
        Ok(sections::question(
            "known",
            "files of known and of open length with the default table",
            &aged,
            &[known],
            &["The default table has 256 KiB to 16 MiB, by the size of the file."],
        ))
    }

    /// The paper's questions for further research.
    pub fn open(&self, progress: &mut Progress) -> Result<Section> {
        let mixed = |mib: u64| -> Result<Plan> {
            Ok(Plan {
                name: format!("holes of 1 MiB, {mib} MiB"),
                fill_table: paper::table(1)?,
                ..self.plan(mib)?
            })
        };
        let large = |mib: u64| -> Result<Plan> {
            Ok(Plan {
                name: format!("requests of 4 MiB, {mib} MiB"),
                request_mib: 4,
                ..self.plan(mib)?
            })
        };
        let deep = Plan {
            name: "128 MiB sorted together, 8 MiB".to_owned(),
            parameters: self.parameters().scaled(Knob::Queue, 2.0),
            ..self.plan(8)?
        };
        let plans = [mixed(1)?, mixed(8)?, mixed(64)?, large(1)?, large(8)?, deep];
        let aged = self.run_all(&plans, progress)?;
        Ok(sections::question(
            "open",
            "small holes under large tables, requests of 4 MiB, and a longer queue",
            &aged,
            &[],
            &[
                "Holes of 1 MiB: the target was filled with a table of 1 MiB, and jobs run with the other.",
                "Requests of 4 MiB: as many MiB at once as with requests of 1 MiB.",
            ],
        ))
    }

    /// The conclusions with each number of the model larger and smaller.
    pub fn scale(&self, progress: &mut Progress) -> Result<Section> {
        self.needs_model("scale")?;
        let usual = self.parameters();
        let times = f64::from(self.scale) / 100.0;
        let mut rows = vec![("as it is".to_owned(), self.conclusions(usual, progress)?)];
        for knob in Knob::ALL {
            for (sign, times) in [("-", 1.0 - times), ("+", 1.0 + times)] {
                let name = format!("{} {sign}{} %", knob.name(), self.scale);
                progress(Event::Line(name.clone()));
                let claims = self.conclusions(usual.scaled(knob, times), progress)?;
                rows.push((name, claims));
            }
        }
        Ok(sections::scale(self.scale, &rows))
    }

    fn conclusions(&self, parameters: Parameters, progress: &mut Progress) -> Result<Vec<Claim>> {
        let mut aged = Vec::new();
        for mib in [1, 2, 4, 8, 64] {
            let plan = Plan {
                parameters,
                ..self.plan(mib)?
            };
            aged.push(self.run(&plan, &mut |event| {
                if let Event::Live(_) = event {
                    progress(event);
                }
            })?);
        }
        Ok(claims(&aged))
    }
}
