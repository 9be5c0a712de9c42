//! How long a program that never rests is kept waiting.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use nix::unistd::truncate;

use crate::cluster::Cluster;

/// The pause between two beats.
const REST: Duration = Duration::from_millis(5);
/// What is promised (README.md, A server that dies).
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// One on each of the first two mounts of a cluster, and how long a process that died may keep them
/// waiting.
pub struct Pulses([Pulse; 2]);

impl Pulses {
    /// Begins.
    pub fn begin(cluster: &Cluster) -> Pulses {
        Pulses([0, 1].map(|mount| {
            let path = cluster.root(mount).join(format!("pulse{mount}"));
            fs::write(path.with_extension("file"), "..").expect("a file can be made");
            Pulse::begin(path)
        }))
    }

    /// Ends them. Panics if one failed, or was kept waiting for too long beyond the moment at which all
    /// that had died had begun again. `begun`: all such moments.
    pub fn end(self, begun: &[Instant]) {
        let pauses = self.0.iter().flat_map(|pulse| pulse.waits_beyond(begun));
        let mut pauses: Vec<Duration> = pauses.chain([Duration::ZERO]).collect();
        pauses.sort();
        let (half, longest) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
        println!("pauses: half {half:?}, longest {longest:?}");
        self.0.into_iter().for_each(Pulse::end);
        assert!(longest <= PAUSE_MAX, "somebody waited for {longest:?}");
    }
}

/// Makes and removes a directory, and cuts a file, over and over: each beat is a question to an MDT and
/// to an OST. No file is open: a process that is started meanwhile would close its own copy of it, and
/// wait for a mount that waits for that process.
struct Pulse {
    beats: Arc<Mutex<Beats>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Beats {
    /// When those that took their time were answered, and what they took.
    slow: Vec<(Instant, Duration)>,
    failed: Option<String>,
    ended: bool,
}

/// Beats that took longer are remembered.
const SLOW: Duration = Duration::from_millis(20);

impl Pulse {
    /// Begins, with the directory `path`.
    fn begin(path: PathBuf) -> Pulse {
        let beats = Arc::<Mutex<Beats>>::default();
        let of_thread = beats.clone();
        let thread = spawn(move || beat(&of_thread, &path));
        Pulse {
            beats,
            thread: Some(thread),
        }
    }

    /// Of each beat that was on its way at one of these moments, or several: how long it took beyond
    /// the last one.
    fn waits_beyond(&self, moments: &[Instant]) -> Vec<Duration> {
        let beats = lock(&self.beats);
        let waits = beats.slow.iter().filter_map(|(end, took)| {
            let during = |moment: &&Instant| **moment <= *end && **moment + *took >= *end;
            let last = moments.iter().filter(during).max()?;
            Some(*end - *last)
        });
        waits.collect()
    }

    /// Ends it. Panics if a beat failed.
    fn end(mut self) {
        lock(&self.beats).ended = true;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it beats");
        }
        let failed = lock(&self.beats).failed.take();
        assert_eq!(failed, None, "what never rests has failed");
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // Not waited for: what it asks may hang, which the process that drops it may be about to
        // tell.
        lock(&self.beats).ended = true;
    }
}

fn beat(beats: &Mutex<Beats>, path: &Path) {
    let file = path.with_extension("file");
    loop {
        let begin = Instant::now();
        let result = beat_once(path, &file);
        let mut beats = lock(beats);
        let took = begin.elapsed();
        if took >= SLOW {
            beats.slow.push((begin + took, took));
        }
        if let Err(error) = result {
            beats.failed = Some(error.to_string());
        }
        if beats.ended || beats.failed.is_some() {
            return;
        }
        drop(beats);
        sleep(REST);
    }
}

fn beat_once(path: &Path, file: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    fs::remove_dir(path)?;
    truncate(file, 1)?;
    Ok(truncate(file, 2)?)
}

/// Changed in steps that cannot fail.
fn lock(beats: &Mutex<Beats>) -> MutexGuard<'_, Beats> {
    beats.lock().unwrap_or_else(PoisonError::into_inner)
}
