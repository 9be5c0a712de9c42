//! Processes that do nothing but hold namespaces.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// What a script ends with that is to be such a process: it is ready, and ends with its input.
pub const HOLD: &str = "echo ready; read end";

/// `unshare KIND sh -euc SCRIPT`, ready.
pub fn hold(kind: &str, script: &str) -> Child {
    let mut holder = Command::new("unshare")
        .args([kind, "sh", "-euc", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare runs");
    let said = holder.stdout.take().expect("it is piped");
    let mut line = String::new();
    let read = BufReader::new(said).read_line(&mut line);
    assert!(read.is_ok() && line == "ready\n", "no namespaces: {line}");
    holder
}
