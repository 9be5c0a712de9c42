//! One test program while it runs: its output goes to a file and is shown when it has ended.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::program::Program;
use super::summary::Outcome;

/// What every test program is started with.
#[derive(Debug, Clone, Copy)]
pub struct How<'a> {
    /// The binary under test.
    pub glint: Option<&'a Path>,
    /// The simulator, for tests that want a busy machine.
    pub simulator: Option<&'a Path>,
    /// Part of the names of the tests to run; none: all.
    pub test: Option<&'a str>,
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    program: Program,
    child: Child,
    output: PathBuf,
    times: PathBuf,
    began: Instant,
}

impl Running {
    /// Starts it under `.ci/limit`, which ends a program that hangs and says where it hung.
    pub fn start(program: Program, how: How) -> Result<Running, String> {
        let beside = |what: &str| program.path.with_extension(what);
        let (output, times) = (beside("output"), beside("times"));
        let failed = |error: std::io::Error| format!("cannot run {}: {error}", program.name);
        let said = File::create(&output).map_err(failed)?;
        let limit = concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/limit");
        let mut command = Command::new(limit);
        if let Some(glint) = how.glint {
            command.env("GLINT_BINARY", glint);
        }
        if let Some(simulator) = how.simulator {
            command.env("GLINT_BUSY", simulator);
        }
        let child = command
            .arg(&program.path)
            .args(how.test)
            .current_dir(&program.folder)
            .env("TIMES", &times)
            .stdin(Stdio::null())
            .stdout(said.try_clone().map_err(failed)?)
            .stderr(said)
            .spawn()
            .map_err(failed)?;
        Ok(Running {
            began: Instant::now(),
            program,
            child,
            output,
            times,
        })
    }

    /// The program's.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// What came of it, or itself while it still runs.
    pub fn poll(mut self) -> Result<Result<Outcome, Running>, String> {
        let status = self.child.try_wait();
        let status = status.map_err(|error| format!("{}: {error}", self.program.name))?;
        match status {
            Some(status) => self.end(status).map(Ok),
            None => Ok(Err(self)),
        }
    }

    fn end(self, status: ExitStatus) -> Result<Outcome, String> {
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        let output = read(&self.output)?;
        // A program that had to be ended has no times.
        let processor = read(&self.times).ok().as_deref().and_then(processor_time);
        Ok(Outcome {
            name: self.program.name,
            is_success: status.success(),
            wall: self.began.elapsed(),
            processor,
            output,
        })
    }
}

/// User and system seconds, as `.ci/limit` writes them.
fn processor_time(text: &str) -> Option<Duration> {
    let seconds = text.split_whitespace().map(|word| word.parse::<f64>().ok());
    let seconds = seconds.sum::<Option<f64>>()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_add_up() {
        assert_eq!(
            processor_time("1.25 0.50\n"),
            Some(Duration::from_millis(1750))
        );
        assert_eq!(processor_time("1.25 x"), None);
    }
}
