//! How much an experiment does.

use std::time::Duration;

use crate::interrupt::StopFlag;

/// How much is done for each cell.
#[derive(Debug, Clone)]
pub struct Effort {
    /// How often it is measured.
    pub runs: u32,
    /// How long a run may take.
    pub cap: Duration,
    /// Set to end early.
    pub stop: StopFlag,
}
