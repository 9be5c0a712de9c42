//! Programs that are not ours, run with a deadline.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How long a program may take, unless it is said.
const DEADLINE: Duration = Duration::from_secs(180);

/// Runs `script` in `dir` with `sh -eux`. Panics with what it said if it fails or does not end.
pub fn run(dir: &Path, script: &str) {
    run_for(DEADLINE, dir, script);
}

/// The same for what may take longer.
pub fn run_for(limit: Duration, dir: &Path, script: &str) {
    let said = tempfile::NamedTempFile::new().expect("a file for output");
    let output = |file: &File| Stdio::from(file.try_clone().expect("a second handle"));
    let mut child = Command::new("sh")
        .args(["-euxc", script])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(output(said.as_file()))
        .stderr(output(said.as_file()))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .process_group(0)
        .spawn()
        .expect("sh runs");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break Some(status);
        }
        if start.elapsed() > limit {
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            break None;
        }
        sleep(Duration::from_millis(10));
    };
    let said = std::fs::read(said.path()).expect("output can be read");
    let said = String::from_utf8_lossy(&said);
    let status = status.unwrap_or_else(|| panic!("`{script}` did not end:\n{said}"));
    assert!(status.success(), "{status}\n{said}");
}

/// What `script` says, run in `dir` with `sh`; it has nothing to complain of.
pub fn output(dir: &Path, script: &str) -> String {
    let mut sh = Command::new("sh");
    let output = sh.args(["-c", script]).current_dir(dir).output();
    let output = output.expect("sh runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
