//! Tasks that work side by side, until all are done or the time is over.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{During, Result};
use crate::report::Sample;
use crate::workload::measured::{Measurement, Turn};

/// How often it is looked whether they are done.
const LOOK: Duration = Duration::from_millis(5);

/// What a task does in its turn, and whether it has more to do.
pub(super) type Task<'t> = Box<dyn FnMut() -> io::Result<Turn> + Send + 't>;

/// What all tasks know of each other.
struct Together {
    is_over: AtomicBool,
    turns: AtomicU64,
    at_work: AtomicU64,
    failed: Mutex<Option<io::Error>>,
}

impl Together {
    fn work(&self, mut task: Task) {
        while !self.is_over.load(Ordering::Relaxed) {
            match task() {
                Ok(Turn::Again) => self.turns.fetch_add(1, Ordering::Relaxed),
                Ok(Turn::Done) => break,
                Err(error) => {
                    let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
                    self.is_over.store(true, Ordering::Relaxed);
                    break;
                }
            };
        }
        self.at_work.fetch_sub(1, Ordering::Release);
    }
}

/// Has all tasks work until they are done, `time` is over, or the measurement is to stop. Entries are turns.
pub(super) fn together(
    measurement: &mut Measurement,
    step: &str,
    tasks: Vec<Task>,
    time: Duration,
) -> Result<Sample> {
    let all = Together {
        is_over: AtomicBool::new(false),
        turns: AtomicU64::new(0),
        at_work: AtomicU64::new(tasks.len() as u64),
        failed: Mutex::new(None),
    };
    let start = Instant::now();
    let sample = std::thread::scope(|scope| {
        for task in tasks {
            scope.spawn(|| all.work(task));
        }
        let sample = measurement.turns(step, &mut || {
            if start.elapsed() >= time {
                all.is_over.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(LOOK);
            Ok(match all.at_work.load(Ordering::Acquire) {
                0 => Turn::Done,
                _ => Turn::Again,
            })
        });
        // An interrupt is no reason for them to go on.
        all.is_over.store(true, Ordering::Relaxed);
        sample
    })?;
    let failed = all.failed.into_inner();
    if let Some(error) = failed.unwrap_or_else(PoisonError::into_inner) {
        return Err(error).during(|| step.to_owned());
    }
    Ok(Sample {
        entries: Some(all.turns.load(Ordering::Relaxed)),
        ..sample
    })
}
