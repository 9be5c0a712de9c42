//! How long a program that never rests is kept waiting.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// The pause between two beats.
const REST: Duration = Duration::from_millis(5);

/// Makes and removes a directory over and over: each beat is a question to a server.
pub struct Pulse {
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
    /// Begins in `dir`, with `name`.
    pub fn begin(dir: &Path, name: &str) -> Pulse {
        let beats = Arc::<Mutex<Beats>>::default();
        let (of_thread, path) = (beats.clone(), dir.join(name));
        let thread = spawn(move || beat(&of_thread, &path));
        Pulse {
            beats,
            thread: Some(thread),
        }
    }

    /// Of each beat that was on its way at one of these moments, or several: how long it took beyond
    /// the last one.
    pub fn waits_beyond(&self, moments: &[Instant]) -> Vec<Duration> {
        let beats = lock(&self.beats);
        let waits = beats.slow.iter().filter_map(|(end, took)| {
            let during = |moment: &&Instant| **moment <= *end && **moment + *took >= *end;
            let last = moments.iter().filter(during).max()?;
            Some(*end - *last)
        });
        waits.collect()
    }

    /// Ends it. Panics if a beat failed.
    pub fn end(mut self) {
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
        // Not waited for: what it asks may hang, which whoever drops it may be about to tell.
        lock(&self.beats).ended = true;
    }
}

fn beat(beats: &Mutex<Beats>, path: &PathBuf) {
    loop {
        let begin = Instant::now();
        let result = fs::create_dir(path).and_then(|()| fs::remove_dir(path));
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

/// Changed in steps that cannot fail.
fn lock(beats: &Mutex<Beats>) -> MutexGuard<'_, Beats> {
    beats.lock().unwrap_or_else(PoisonError::into_inner)
}
