//! Signals set the flag; a process has one set of handlers, so this is a test program of its own.
#![allow(clippy::unwrap_used)] // A test may panic, in its helpers too.

use std::process::Command;
use std::time::{Duration, Instant};

use bench::{BenchError, StopFlag};

fn send(signal: &str) {
    let pid = std::process::id().to_string();
    let script = format!("kill -{signal} {pid}");
    assert!(
        Command::new("sh")
            .args(["-c", &script])
            .status()
            .unwrap()
            .success()
    );
}

fn becomes_set(flag: &StopFlag) -> bool {
    let start = Instant::now();
    while !flag.is_set() && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    flag.is_set()
}

#[test]
fn signals_set_the_flag_and_an_interactive_command_keeps_its_interrupt() {
    let flag = StopFlag::on_termination().unwrap();
    send("INT");
    // Delivered before kill returns or soon after: if it set the flag, the next part would see it.
    assert!(flag.check().is_ok());
    let same = StopFlag::on_signals().unwrap();
    assert!(!same.is_set());
    send("INT");
    assert!(becomes_set(&same));
    assert!(matches!(flag.check(), Err(BenchError::Interrupted)));
}
