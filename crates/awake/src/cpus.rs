//! Keeps the CPUs of a virtual machine awake while requests come at once: waking a halted one takes 20 to 60
//! us instead of 2. Only with the idle driver `haltpoll`, by an open `/dev/cpu_dma_latency`, and never on
//! real hardware, whose siblings it would slow down.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{debug, info};

const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const LATENCY: &str = "/dev/cpu_dma_latency";

/// CPUs give themselves up again when nothing was expected at once for one to two of these.
const REST: Duration = Duration::from_millis(50);

/// Microseconds within which a CPU has to be awake: what is asked for, and when it no longer matters.
const AT_ONCE: i32 = 0;
const WHENEVER: i32 = -1;

/// The next request is expected at once. Keeps this machine's CPUs awake for a moment, where they
/// would give themselves up and this process may ask for it.
pub fn keep_cpus() {
    static CPUS: OnceLock<Option<Arc<Cpus>>> = OnceLock::new();
    if let Some(cpus) = CPUS.get_or_init(open) {
        cpus.keep();
    }
}

fn open() -> Option<Arc<Cpus>> {
    let driver = fs::read_to_string(IDLE_DRIVER).unwrap_or_default();
    if driver.trim_end() != "haltpoll" {
        return None;
    }
    let latency = OpenOptions::new().write(true).open(LATENCY);
    match latency.and_then(Cpus::start) {
        Ok(cpus) => Some(cpus),
        Err(error) => {
            info!(
                %error,
                "idle CPUs of this virtual machine give themselves up at once, and small requests \
                 take longer for it: {LATENCY} cannot be used, which needs root"
            );
            None
        }
    }
}

/// What this process asks of all CPUs.
#[derive(Debug)]
struct Cpus {
    /// The thread that keeps them awake has said so since the last look.
    wanted: AtomicBool,
    /// They are kept awake.
    kept: Mutex<bool>,
    begun: Condvar,
    latency: File,
}

impl Cpus {
    fn start(latency: File) -> io::Result<Arc<Cpus>> {
        let cpus = Arc::new(Cpus {
            wanted: AtomicBool::new(false),
            kept: Mutex::new(false),
            begun: Condvar::new(),
            latency,
        });
        let looked_after = cpus.clone();
        thread::Builder::new()
            .name("cpus".into())
            .spawn(move || looked_after.look_after())?;
        Ok(cpus)
    }

    fn keep(&self) {
        // Mostly said already.
        if self.wanted.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut kept = self.lock();
        if !std::mem::replace(&mut *kept, true) {
            self.ask(AT_ONCE);
            self.begun.notify_one();
        }
    }

    /// Lets them go where they are no longer wanted.
    fn look_after(&self) {
        loop {
            let kept = self.lock();
            let kept = self.begun.wait_while(kept, |kept| !*kept);
            drop(kept.unwrap_or_else(PoisonError::into_inner));
            thread::sleep(REST);
            let mut kept = self.lock();
            if !self.wanted.swap(false, Ordering::AcqRel) {
                *kept = false;
                self.ask(WHENEVER);
            }
        }
    }

    fn ask(&self, microseconds: i32) {
        if let Err(error) = (&self.latency).write_all(&microseconds.to_ne_bytes()) {
            debug!(%error, "{LATENCY} did not take what was written");
        }
    }

    /// The value changes in one step.
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::Instant;

    #[test]
    fn kept_while_wanted_and_let_go_after() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let asked = || {
            let mut bytes = Vec::new();
            let mut file = File::open(file.path()).unwrap();
            file.read_to_end(&mut bytes).unwrap();
            let (words, _) = bytes.as_chunks();
            words
                .iter()
                .copied()
                .map(i32::from_ne_bytes)
                .collect::<Vec<_>>()
        };
        let cpus = Cpus::start(file.reopen().unwrap()).unwrap();
        assert!(asked().is_empty());
        let began = Instant::now();
        while began.elapsed() < 3 * REST {
            cpus.keep();
            assert_eq!(asked().first(), Some(&AT_ONCE));
        }
        while asked().last() != Some(&WHENEVER) {
            assert!(began.elapsed() < 200 * REST, "never let go");
            thread::sleep(REST);
        }
        cpus.keep();
        assert_eq!(asked().last(), Some(&AT_ONCE));
    }
}
