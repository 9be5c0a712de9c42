//! Programs that are run for their time alone.

use std::process::{Command, Stdio};

/// A program in the plain locale, whose output nobody reads.
pub(super) fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
