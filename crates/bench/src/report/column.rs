//! The measured runs of one system.

use serde::{Deserialize, Serialize};

use super::statahead::Statahead;

/// One measured run of one step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// From start to end, or to when it was stopped.
    pub seconds: f64,
    /// Requests the client sent meanwhile.
    pub rpcs: Option<u64>,
    /// It was stopped at the time limit: it would have taken longer.
    pub capped: bool,
    /// The part of the tree (0 to 1) that was there to work on, if it was not the whole.
    pub part: Option<f64>,
    /// What it was done for, where a time for each is of interest.
    pub entries: Option<u64>,
    /// Bytes of memory that the client's process took meanwhile, less what it gave back.
    pub memory: Option<i64>,
    /// Seconds of CPU that the client's process used meanwhile.
    pub cpu: Option<f64>,
    /// The same of the servers' process.
    pub server_cpu: Option<f64>,
    /// The most memory that the client's process was seen to have meanwhile, in bytes.
    pub memory_peak: Option<u64>,
    /// The same of the servers' process.
    pub server_memory_peak: Option<u64>,
    /// What the client fetched ahead meanwhile.
    pub statahead: Option<Statahead>,
}

impl Sample {
    /// Seconds of CPU that client and servers used.
    pub fn all_cpu(&self) -> Option<f64> {
        Some(self.cpu? + self.server_cpu?)
    }
}

/// The runs of one step on one system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRuns {
    /// The row.
    pub step: String,
    /// Every run.
    pub samples: Vec<Sample>,
    /// Why there are none, or fewer than asked for.
    pub skipped: Option<String>,
}

/// One system's column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The system.
    pub name: String,
    /// In the order they were first met.
    pub steps: Vec<StepRuns>,
    /// Why nothing was measured at all.
    pub absent: Option<String>,
}

impl Column {
    /// A column to be filled.
    pub fn new(name: impl Into<String>) -> Column {
        Column {
            name: name.into(),
            steps: Vec::new(),
            absent: None,
        }
    }

    /// A column of a system that could not be measured.
    pub fn absent(name: impl Into<String>, why: impl Into<String>) -> Column {
        Column {
            absent: Some(why.into()),
            ..Column::new(name)
        }
    }

    /// Keeps a sample.
    pub fn add(&mut self, step: &str, sample: Sample) {
        self.runs(step).samples.push(sample);
    }

    /// Says why a step was not run.
    pub fn skip(&mut self, step: &str, why: String) {
        self.runs(step).skipped = Some(why);
    }

    /// The median of a step's runs, with the most requests that any of them made; if any was
    /// capped, that one.
    pub fn result(&self, step: &str) -> Option<Sample> {
        let runs = self.steps.iter().find(|runs| runs.step == step)?;
        if let Some(capped) = runs.samples.iter().find(|sample| sample.capped) {
            return Some(*capped);
        }
        let mut sorted = runs.samples.clone();
        sorted.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let middle = Sample {
            rpcs: sorted.iter().filter_map(|sample| sample.rpcs).max(),
            ..*sorted.get(sorted.len() / 2)?
        };
        if sorted.len() % 2 == 1 {
            return Some(middle);
        }
        let below = sorted[sorted.len() / 2 - 1];
        Some(Sample {
            seconds: f64::midpoint(below.seconds, middle.seconds),
            ..middle
        })
    }

    /// Every run of a step.
    pub fn samples(&self, step: &str) -> &[Sample] {
        let runs = self.steps.iter().find(|runs| runs.step == step);
        runs.map_or(&[], |runs| &runs.samples)
    }

    /// Adds the runs of another measurement of the same system.
    pub fn extend(&mut self, later: Column) {
        for StepRuns {
            step,
            samples,
            skipped,
        } in later.steps
        {
            let runs = self.runs(&step);
            runs.samples.extend(samples);
            runs.skipped = skipped.or(runs.skipped.take());
        }
        self.absent = later.absent.or(self.absent.take());
    }

    fn runs(&mut self, step: &str) -> &mut StepRuns {
        let at = self.steps.iter().position(|runs| runs.step == step);
        let at = at.unwrap_or_else(|| {
            self.steps.push(StepRuns {
                step: step.to_string(),
                samples: Vec::new(),
                skipped: None,
            });
            self.steps.len() - 1
        });
        &mut self.steps[at]
    }
}
