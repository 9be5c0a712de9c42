//! Programs that keep writing in a directory until told to end. Each is a shell that appends a line to a file
//! or makes a new one. The number of its turns says which, so that sizes can be checked afterwards.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::sizes::Sizes;
use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::process::Running;
use crate::scratch::own_directory;

/// Names have this and their number, so that all are equally long.
const FIRST: u64 = 100_000_000;
/// A line with its end.
const LINE: &str = "a line that is as long as every other line that is appended...";
/// One turn in so many makes a new file.
const CREATE_TURN: u64 = 8;
/// New files of each writer; then it only appends.
const CREATED_MAX: u64 = 20;
/// How long all of them may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_millis(5);

/// Everything is built into the shell, so that a turn starts no process. It ends with the process
/// that started it, also if that is killed.
const SCRIPT: &str = r#"
number=$1 writers=$2 files=$3 first=$4 every=$5 creating=$6 line=$7 signals=$8
turn=0
while [ ! -e "$signals/end" ] && [ -e "/proc/$PPID" ]; do
    if [ $((turn % every)) -eq 0 ] && [ "$turn" -lt "$creating" ]; then
        file=new$number.$turn
    else
        file=file$((first + (turn * writers + number) % files))
    fi
    echo "$line" >> "$file" || exit 1
    turn=$((turn + 1))
    [ "$turn" -ne 1 ] || : > "$signals/started.$number"
done
echo "$turn" > "$signals/turns.$number"
"#;

/// The name of a file that was there from the beginning.
pub(super) fn name(number: u64) -> String {
    format!("file{}", FIRST + number)
}

/// What `writers` writers do in a directory of `files` files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) writers: u64,
    pub(super) files: u64,
}

impl Work {
    fn file(self, number: u64, turn: u64) -> String {
        match turn.is_multiple_of(CREATE_TURN) && turn < CREATED_MAX * CREATE_TURN {
            true => format!("new{number}.{turn}"),
            false => name((turn * self.writers + number) % self.files),
        }
    }

    /// Adds what the writers have written, each so many turns.
    pub(super) fn add(self, turns: &[u64], sizes: &mut Sizes) {
        let line = LINE.len() as u64 + 1;
        for (number, turns) in (0..).zip(turns) {
            for turn in 0..*turns {
                *sizes.entry(self.file(number, turn)).or_default() += line;
            }
        }
    }

    fn command(self, number: u64, directory: &Path, signals: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "writer"]);
        let numbers = [number, self.writers, self.files, FIRST, CREATE_TURN];
        shell.args(numbers.map(|number| number.to_string()));
        shell.arg((CREATED_MAX * CREATE_TURN).to_string());
        shell.arg(LINE).arg(signals).current_dir(directory);
        shell.stdin(Stdio::null()).stdout(Stdio::null());
        shell
    }
}

/// Writers at work; killed on drop.
pub(super) struct Appenders {
    // Ended before the files by which they are told to.
    running: Vec<Running>,
    signals: TempDir,
    stop: StopFlag,
}

impl Appenders {
    /// Starts them, and waits until each has written something.
    pub(super) fn start(work: Work, directory: &Path, stop: &StopFlag) -> Result<Appenders> {
        let signals = own_directory(&std::env::temp_dir())?;
        let mut appenders = Appenders {
            running: Vec::new(),
            signals,
            stop: stop.clone(),
        };
        for number in 0..work.writers {
            let mut command = work.command(number, directory, appenders.signals.path());
            let errors = appenders.signal("errors", number);
            let errors = File::create(&errors).during(|| format!("making {}", errors.display()))?;
            let running = Running::start_group(command.stderr(errors))?;
            appenders.running.push(running);
        }
        let start = Instant::now();
        for number in 0..work.writers {
            appenders.wait_for(number, start)?;
        }
        Ok(appenders)
    }

    fn signal(&self, what: &str, number: u64) -> PathBuf {
        self.signals.path().join(format!("{what}.{number}"))
    }

    fn wait_for(&self, number: u64, start: Instant) -> Result<()> {
        let running = &self.running[number as usize];
        while !self.signal("started", number).exists() {
            self.stop.check()?;
            if running.ended_within(TURN)? || start.elapsed() > PATIENCE {
                return Err(self.failed(number, "did not start to write"));
            }
        }
        Ok(())
    }

    fn failed(&self, number: u64, ending: &str) -> BenchError {
        let said = fs::read_to_string(self.signal("errors", number)).unwrap_or_default();
        BenchError::Failed {
            program: format!("writer {number}"),
            ending: ending.to_owned(),
            said: said.trim().to_owned(),
        }
    }

    /// Tells them to end. How many turns each has done.
    pub(super) fn end(mut self) -> Result<Vec<u64>> {
        let end = self.signals.path().join("end");
        fs::write(&end, "").during(|| format!("making {}", end.display()))?;
        let start = Instant::now();
        let mut turns = Vec::new();
        for number in 0..self.running.len() as u64 {
            while !self.running[number as usize].ended_within(TURN)? {
                self.stop.check()?;
                if start.elapsed() > PATIENCE {
                    return Err(self.failed(number, "did not end"));
                }
            }
            let status = self.running[number as usize].reap()?;
            let said = fs::read_to_string(self.signal("turns", number)).unwrap_or_default();
            match said.trim().parse() {
                Ok(done) if status.success() => turns.push(done),
                _ => return Err(self.failed(number, "could not write")),
            }
        }
        Ok(turns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the shell's files are in the end.
    fn found(directory: &Path) -> Sizes {
        let entries = fs::read_dir(directory).unwrap().flatten();
        entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, entry.metadata().unwrap().len())
            })
            .collect()
    }

    #[test]
    fn sizes_are_what_the_turns_say() {
        let directory = tempfile::tempdir().unwrap();
        let work = Work {
            writers: 3,
            files: 5,
        };
        let mut sizes = Sizes::new();
        for number in 0..work.files {
            File::create(directory.path().join(name(number))).unwrap();
            sizes.insert(name(number), 0);
        }
        let appenders = Appenders::start(work, directory.path(), &StopFlag::new()).unwrap();
        let turns = appenders.end().unwrap();
        assert!(turns.len() == 3 && turns.iter().all(|turns| *turns > 0));
        work.add(&turns, &mut sizes);
        assert_eq!(found(directory.path()), sizes);
    }

    #[test]
    fn a_writer_that_cannot_write_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let work = Work {
            writers: 1,
            files: 1,
        };
        // In the way of the first file that is made.
        fs::create_dir(directory.path().join("new0.0")).unwrap();
        let error = Appenders::start(work, directory.path(), &StopFlag::new())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("writer 0 did not start"), "{error}");
        assert!(error.contains("new0.0"), "{error}");
    }
}
