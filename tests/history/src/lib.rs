//! A history checker. Processes on several mounts make calls (`programs`) under faults; each call is stamped
//! at its begin and its end (`event`), and the whole history is compared with one local file system
//! (`check`). A violation comes with the calls that contradict it.

pub mod check;
pub mod clock;
pub mod event;
pub mod object;
pub mod outage;
pub mod programs;
pub mod record;
pub mod recorder;
pub mod report;
pub mod run;
