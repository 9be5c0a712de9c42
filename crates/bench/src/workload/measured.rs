//! One workload on one system: the directory it works in, and the measuring of its steps.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::system::{Cold, System};
use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::process::{Ending, ProcessId, time};
use crate::progress::{Event, Progress};
use crate::report::{Column, Sample, Statahead};

/// How long removing a workload's files may take.
const REMOVE_CAP: Duration = Duration::from_secs(600);

/// Counts the directories made by this process, for their names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// The directory that one run of a workload works in; removed on drop.
#[derive(Debug)]
struct WorkDirectory {
    path: PathBuf,
    /// The system's files go with it.
    throwaway: bool,
    /// No other run follows.
    last: bool,
    stop: StopFlag,
}

impl WorkDirectory {
    /// For run number `number` of `runs`.
    fn create(
        system: &dyn System,
        number: u32,
        runs: u32,
        stop: &StopFlag,
    ) -> Result<WorkDirectory> {
        let unique = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("glint-bench-{}-{unique}", std::process::id());
        let path = system.root().join(name);
        std::fs::create_dir(&path).during(|| format!("making {}", path.display()))?;
        Ok(WorkDirectory {
            path,
            throwaway: system.is_throwaway(),
            last: number + 1 >= runs,
            stop: stop.clone(),
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        if self.throwaway && (self.last || self.stop.is_set()) {
            return;
        }
        // In a process of its own, so that a file system that hangs cannot hang us. It runs on when
        // the stop flag is set: leaving nothing behind is part of stopping.
        let mut remove = Command::new("rm");
        remove.arg("-rf").arg(&self.path);
        remove.stdout(Stdio::null()).stdin(Stdio::null());
        let _ = time(&mut remove, REMOVE_CAP, &StopFlag::new(), &mut |_| {});
    }
}

/// How often a workload runs, and what ends it early.
pub(super) struct Plan<'a> {
    pub(super) runs: u32,
    /// How long a step may take.
    pub(super) cap: Duration,
    pub(super) stop: &'a StopFlag,
}

/// One system's column: the workload `run`, each time in a directory of its own.
pub(super) fn measure(
    system: &mut dyn System,
    plan: &Plan<'_>,
    progress: &mut Progress,
    run: &dyn Fn(&mut Measurement<'_, '_>, &Path) -> Result<()>,
) -> Result<Column> {
    let name = system.name().to_string();
    let mut measurement = Measurement {
        system,
        column: Column::new(name),
        cap: plan.cap,
        stop: plan.stop,
        progress,
    };
    for number in 0..plan.runs.max(1) {
        let directory = WorkDirectory::create(measurement.system, number, plan.runs, plan.stop)?;
        let done = run(&mut measurement, directory.path());
        // Files go with the directory, or with the system when the caller drops it.
        (measurement.progress)(leaving(measurement.system.name(), plan.stop));
        done?;
    }
    Ok(measurement.column)
}

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Again,
    Done,
}

/// How things stood before a step, and the most memory since.
struct Before {
    rpcs: Option<u64>,
    statahead: Option<Statahead>,
    client: Use,
    server: Use,
}

/// What a process had used.
struct Use {
    process: Option<ProcessId>,
    cpu: Option<f64>,
    memory: Option<u64>,
    peak: Option<u64>,
}

impl Use {
    fn of(process: Option<ProcessId>) -> Use {
        let memory = process.and_then(ProcessId::memory);
        Use {
            process,
            cpu: process.and_then(ProcessId::cpu),
            memory,
            peak: memory,
        }
    }

    fn look(&mut self) {
        self.peak = self.peak.max(self.process.and_then(ProcessId::memory));
    }

    /// CPU since; none if the process is another one now.
    fn cpu_since(&self, now: &Use) -> Option<f64> {
        let same = self.process == now.process;
        Some((now.cpu.filter(|_| same)? - self.cpu?).max(0.0))
    }
}

impl Before {
    fn of(system: &mut dyn System) -> Before {
        let statahead = system.statahead();
        let (client, server) = (system.client_process(), system.server_process());
        Before {
            rpcs: system.rpcs_sent(),
            statahead,
            client: Use::of(client),
            server: Use::of(server),
        }
    }

    /// To be called now and then.
    fn look(&mut self) {
        self.client.look();
        self.server.look();
    }

    /// What was added; the time is not known here.
    fn since(mut self, system: &mut dyn System) -> Sample {
        self.look();
        // Before the question for counters, which costs some too.
        let (client, server) = (system.client_process(), system.server_process());
        let (client, server) = (Use::of(client), Use::of(server));
        let rpcs = |after: u64| Some(after.saturating_sub(self.rpcs?));
        let memory = |after: u64| Some(after as i64 - self.client.memory? as i64);
        let statahead = |after: Statahead| Some(after.since(&self.statahead?));
        Sample {
            rpcs: system.rpcs_sent().and_then(rpcs),
            memory: client.memory.and_then(memory),
            cpu: self.client.cpu_since(&client),
            server_cpu: self.server.cpu_since(&server),
            memory_peak: self.client.peak,
            server_memory_peak: self.server.peak,
            statahead: system.statahead().and_then(statahead),
            ..Sample::default()
        }
    }
}

/// Runs the steps of one system's column.
pub struct Measurement<'a, 'p> {
    pub(super) system: &'a mut dyn System,
    pub(super) column: Column,
    pub(super) cap: Duration,
    pub(super) stop: &'a StopFlag,
    pub(super) progress: &'a mut Progress<'p>,
}

impl Measurement<'_, '_> {
    /// Empties the caches. False when that cannot be done, which is noted for the step.
    pub(super) fn make_cold(&mut self, step: &str) -> Result<bool> {
        self.stop.check()?;
        match self.system.make_cold() {
            Ok(Cold::Done) => Ok(true),
            Ok(Cold::Impossible(why)) => {
                self.column.skip(step, why);
                Ok(false)
            }
            Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
            Err(error) => {
                self.column.skip(step, error.to_string());
                Ok(false)
            }
        }
    }

    /// Times a command and counts its requests. `codes` are the exit codes that mean success. None
    /// when it failed, which is noted for the step.
    pub(super) fn command(
        &mut self,
        step: &str,
        command: &mut Command,
        codes: &[i32],
        done: &dyn Fn() -> Option<f64>,
    ) -> Result<Option<Sample>> {
        let name = self.system.name().to_string();
        let program = command.get_program().to_string_lossy().into_owned();
        let mut before = Before::of(self.system);
        let progress = &mut *self.progress;
        let ran = time(command, self.cap, self.stop, &mut |elapsed| {
            before.look();
            progress(Event::Live(live_line(&name, step, elapsed, done())));
        });
        let ran = match ran.and_then(|ran| ran.expect(&program, codes)) {
            Ok(ran) => ran,
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                (self.progress)(Event::Line(format!("{name}: {step}: {error}")));
                self.column.skip(step, error.to_string());
                return Ok(None);
            }
        };
        Ok(Some(Sample {
            seconds: ran.elapsed.as_secs_f64(),
            capped: ran.ending == Ending::Capped,
            ..before.since(self.system)
        }))
    }

    /// The same for work that is done here, in turns until it says that it is done.
    pub(super) fn turns(
        &mut self,
        step: &str,
        work: &mut dyn FnMut() -> Result<Turn>,
    ) -> Result<Sample> {
        let mut before = Before::of(self.system);
        let start = Instant::now();
        let mut shown = start;
        let (mut turn, mut capped) = (Turn::Again, false);
        while turn == Turn::Again && !capped {
            turn = work()?;
            self.stop.check()?;
            capped = turn == Turn::Again && start.elapsed() >= self.cap;
            if shown.elapsed() >= Duration::from_millis(100) {
                shown = Instant::now();
                before.look();
                let line = live_line(self.system.name(), step, start.elapsed(), None);
                (self.progress)(Event::Live(line));
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(Sample {
            seconds,
            capped,
            ..before.since(self.system)
        })
    }

    /// Requests sent since an earlier answer of [`System::rpcs_sent`].
    pub(super) fn rpcs_since(&mut self, before: Option<u64>) -> Option<u64> {
        let after = self.system.rpcs_sent()?;
        Some(after.saturating_sub(before?))
    }

    /// Keeps a sample and says it.
    pub(super) fn keep(&mut self, step: &str, sample: Sample) {
        let name = self.system.name();
        let rpcs = sample.rpcs.map(|rpcs| format!(", {rpcs} RPCs"));
        let capped = if sample.capped {
            " (stopped there)"
        } else {
            ""
        };
        let line = format!(
            "{name}: {step}: {:.3} s{}{capped}",
            sample.seconds,
            rpcs.unwrap_or_default()
        );
        self.column.add(step, sample);
        let column = self.column.clone();
        (self.progress)(Event::Measured { line, column });
    }
}

/// What follows a run: it can take as long as making the files did.
fn leaving(name: &str, stop: &StopFlag) -> Event {
    match stop.is_set() {
        true => Event::Line(format!(
            "interrupted: cleaning up; removing the files of {name} takes longest"
        )),
        false => Event::Live(format!("{name}: removing its files")),
    }
}

fn live_line(name: &str, step: &str, elapsed: Duration, done: Option<f64>) -> String {
    let part = done.map(|part| format!(", {:.0} %", part * 100.0));
    let seconds = elapsed.as_secs_f64();
    format!("{name}: {step}: {seconds:.1} s{}", part.unwrap_or_default())
}
