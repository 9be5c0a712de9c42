//! Staying in the foreground until the end: a signal, the end of what the process serves, or the end
//! of the process that started it.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::output::complain;

/// How long an end takes before it is said what it waits for.
const ENDING_PATIENCE: Duration = Duration::from_secs(2);
/// How long a clean end may take once the parent is gone.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(10);

/// Says when to end.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Set by SIGTERM, SIGINT and SIGHUP from now on.
    pub fn on_signals() -> Result<Stop, String> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, flag.clone())
                .map_err(|error| format!("cannot take signals: {error}"))?;
        }
        Ok(Stop(flag))
    }

    /// Runs what begins the process, which may wait for others. A wish meanwhile ends the process at
    /// once: a start that breaks off is as one that was killed, which the next one copes with.
    pub fn or_begin<T>(&self, begin: impl FnOnce() -> T) -> T {
        let (wished, begun) = (self.0.clone(), Arc::new(AtomicBool::new(false)));
        let is_begun = begun.clone();
        std::thread::spawn(move || {
            while !is_begun.load(Ordering::SeqCst) {
                if wished.load(Ordering::SeqCst) {
                    complain("ended before it served");
                    std::process::exit(0);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let result = begin();
        begun.store(true, Ordering::SeqCst);
        result
    }

    /// Set as well when standard input ends, which a parent holds open while it lives. If the process still
    /// runs some seconds later, `last_resort` is called and the process ends.
    pub fn with_parent(&self, last_resort: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let flag = self.0.clone();
        let watch = move || {
            let mut byte = [0];
            // An error says as well that nobody is there.
            while std::io::stdin().read(&mut byte).is_ok_and(|read| read > 0) {}
            flag.store(true, Ordering::SeqCst);
            std::thread::sleep(ORPHAN_PATIENCE);
            last_resort();
            std::process::exit(1);
        };
        let thread = std::thread::Builder::new()
            .name("parent".to_owned())
            .spawn(watch);
        thread
            .map(drop)
            .map_err(|error| format!("a thread could not be started: {error}"))
    }

    /// Waits until it is set or `ended` says so.
    pub fn wait(&self, mut ended: impl FnMut() -> bool) {
        while !self.0.load(Ordering::SeqCst) && !ended() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// It is set.
    pub fn is_wished(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Forgets a wish that could not be fulfilled.
    fn clear(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Runs what ends the process. If that takes long, says that it is `waiting`, and for what; if
    /// the wish comes again after that, calls `last_resort` and ends the process with a failure.
    pub fn fulfil<T>(
        &self,
        end: impl FnOnce() -> T,
        waiting: impl FnOnce() -> String + Send + 'static,
        last_resort: impl FnOnce() + Send + 'static,
    ) -> T {
        let (wished, done) = (self.0.clone(), Arc::new(AtomicBool::new(false)));
        let ended = done.clone();
        std::thread::spawn(move || {
            std::thread::sleep(ENDING_PATIENCE);
            if ended.load(Ordering::SeqCst) {
                return;
            }
            complain(waiting());
            wished.store(false, Ordering::SeqCst);
            while !ended.load(Ordering::SeqCst) {
                if wished.load(Ordering::SeqCst) {
                    last_resort();
                    std::process::exit(1);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let result = end();
        done.store(true, Ordering::SeqCst);
        self.clear();
        result
    }
}
