//! Runs of the simulator, and how long each took to see that something is wrong.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How much of what was seen a table shows.
const SIGN_CHARS_MAX: usize = 90;

/// What the simulator saw first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// After how long.
    pub after: Duration,
    /// How many clusters it simulated, if it said in which it was.
    pub clusters: Option<u64>,
    /// In words.
    pub sign: String,
}

/// Some runs: of each what it saw, if anything.
#[derive(Debug, Default)]
pub struct Hunt {
    /// In the order of the seeds.
    pub runs: Vec<Option<Sighting>>,
}

impl Hunt {
    /// Runs that saw something.
    pub fn found(&self) -> usize {
        self.runs.iter().flatten().count()
    }

    /// How long the middle one of the runs took; none, if that saw nothing. Of two in the middle the later.
    pub fn median(&self) -> Option<Duration> {
        self.middle(|sighting| sighting.after)
    }

    /// How many clusters it took the middle one of the runs: that does not depend on what else the
    /// machine does.
    pub fn median_clusters(&self) -> Option<u64> {
        self.middle(|sighting| sighting.clusters.unwrap_or(u64::MAX))
            .filter(|clusters| *clusters < u64::MAX)
    }

    fn middle<T: Ord + Copy>(&self, of: impl Fn(&Sighting) -> T) -> Option<T> {
        let mut all: Vec<T> = self.runs.iter().flatten().map(of).collect();
        all.sort_unstable();
        all.get(self.runs.len() / 2).copied()
    }

    /// What was seen first, as far as a table has room for it.
    pub fn first_sign(&self) -> Option<&str> {
        let first = self.runs.iter().flatten().min_by_key(|s| s.after)?;
        let end = first.sign.char_indices().nth(SIGN_CHARS_MAX);
        Some(&first.sign[..end.map_or(first.sign.len(), |(end, _)| end)])
    }
}

impl Sighting {
    /// Runs `simulator` from `seed` on until it sees something, or for `limit`.
    pub fn wait_for(
        simulator: &Path,
        limit: Duration,
        seed: u64,
    ) -> Result<Option<Sighting>, String> {
        let failed = |error: std::io::Error| format!("cannot run {}: {error}", simulator.display());
        let begun = Instant::now();
        let mut child = Command::new(simulator)
            .args([limit.as_secs().to_string(), seed.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let said = child.stdout.take();
        let (tell, hear) = mpsc::channel();
        let listener = thread::spawn(move || {
            let lines = said
                .into_iter()
                .flat_map(|said| BufReader::new(said).lines());
            let sign = lines.map_while(Result::ok).find_map(|line| sign_of(&line));
            // Nobody waits any longer if the time is over.
            let _ = tell.send(sign);
        });
        let heard = hear.recv_timeout(limit);
        let after = begun.elapsed();
        let sign = match heard {
            Ok(Some(sign)) => Some(sign),
            // It is at its end: by itself, or by what the bug did to it.
            Ok(None) => {
                let status = child.wait().map_err(failed)?;
                (!status.success()).then(|| format!("the simulator ended: {status}"))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        };
        // It has ended already, or is of no use any more.
        let _ = child.kill();
        child.wait().map_err(failed)?;
        listener.join().map_err(|_| "cannot hear the simulator")?;
        Ok(sign.map(|sign| Sighting {
            after,
            clusters: seed_of(&sign).map(|seen| seen.saturating_sub(seed) + 1),
            sign,
        }))
    }
}

/// What a line of the simulator says to be wrong.
fn sign_of(line: &str) -> Option<String> {
    let (seed, what) = line.strip_prefix("seed ")?.split_once(": ")?;
    // A bar would end a table's cell.
    let is_number = seed.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| format!("seed {seed}: {}", what.replace('|', "/")))
}

/// In which cluster a sign was.
fn seed_of(sign: &str) -> Option<u64> {
    sign.strip_prefix("seed ")?.split_once(": ")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunt(seconds: &[Option<u64>]) -> Hunt {
        let sighting = |after| Sighting {
            after: Duration::from_secs(after),
            clusters: (after > 2).then_some(after * 4),
            sign: format!("after {after}"),
        };
        let runs = seconds.iter().map(|after| after.map(sighting));
        Hunt {
            runs: runs.collect(),
        }
    }

    #[test]
    fn the_middle_run_counts_and_one_that_saw_nothing_took_for_ever() {
        let median = |seconds: &[Option<u64>]| hunt(seconds).median().map(|m| m.as_secs());
        assert_eq!(median(&[Some(9), Some(1), Some(5)]), Some(5));
        assert_eq!(median(&[None, Some(1), Some(5)]), Some(5));
        assert_eq!(median(&[None, Some(1), None]), None);
        assert_eq!(median(&[Some(2), Some(1)]), Some(2));
        assert_eq!(median(&[]), None);
        let clusters = |seconds: &[Option<u64>]| hunt(seconds).median_clusters();
        assert_eq!(clusters(&[Some(9), None, Some(5)]), Some(36));
        assert_eq!(clusters(&[Some(9), Some(1), None]), None);
        let some = hunt(&[None, Some(7), Some(3)]);
        assert_eq!((some.found(), some.first_sign()), (2, Some("after 3")));
    }

    #[test]
    fn only_a_line_about_a_seed_is_a_sign() {
        let sign = sign_of("seed 17: no order | of the calls: x");
        assert_eq!(sign.unwrap(), "seed 17: no order / of the calls: x");
        assert_eq!(sign_of("  all of it: make sim-trace SEED=17"), None);
        assert_eq!(
            sign_of("51 runs from seed 1 in 15 s: 0 with a violation"),
            None
        );
    }

    #[test]
    fn a_simulator_is_heard_ended_in_time_and_missed_where_it_breaks() {
        let folder = std::env::temp_dir().join(format!("planted-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let wait = |name: &str, script: &str, limit: u64| {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            let found = Sighting::wait_for(&path, Duration::from_secs(limit), 7).unwrap();
            found.map(|sighting| (sighting.sign, sighting.clusters))
        };
        let seen = wait("sees", "echo x; echo seed 1$2: wrong; exec sleep 600", 60);
        assert_eq!(seen, Some(("seed 17: wrong".to_owned(), Some(11))));
        assert_eq!(wait("sees_nothing", "echo 5 runs", 60), None);
        assert!(wait("breaks", "kill -ABRT $$", 60).is_some());
        assert_eq!(wait("hangs", "exec sleep 600", 1), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
