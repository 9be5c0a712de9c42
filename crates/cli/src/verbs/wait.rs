//! Waiting in the foreground for the end: a signal, or what the process serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A flag that SIGTERM, SIGINT and SIGHUP set.
pub fn stop_flag() -> Result<Arc<AtomicBool>, String> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, flag.clone())
            .map_err(|error| format!("cannot take signals: {error}"))?;
    }
    Ok(flag)
}

/// Waits until the flag is set or `ended` says so.
pub fn wait(flag: &AtomicBool, mut ended: impl FnMut() -> bool) {
    while !flag.load(Ordering::SeqCst) && !ended() {
        std::thread::sleep(Duration::from_millis(100));
    }
}
