//! A person's command at the client's end of a link: `glint bench link --rtt 5ms -- COMMAND`.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::control::Control;
use super::emulated::{FarEnd, Link, LinkConfig};
use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::process::Running;

/// In the command's environment: the server's address on the link.
pub const SERVER_VARIABLE: &str = "GLINT_LINK_SERVER";
/// In the command's environment: the path of the link's control socket.
pub const CONTROL_VARIABLE: &str = "GLINT_LINK_CONTROL";

/// How long the command may take to end once it has been asked to.
const GRACE: Duration = Duration::from_secs(5);

/// Runs a command behind a link and returns its exit code (128 + signal number if a signal ended it).
///
/// The command runs in a namespace whose only way out is the link; the server's end is in the caller's
/// namespace. A server that runs there is reached through the address in [`SERVER_VARIABLE`].
///
/// `started` is called with the link and the control socket's path before the command starts. The
/// command shares the terminal; when `stop` is set it is asked to end (SIGTERM), then made to. Use
/// [`StopFlag::on_termination`], so that Ctrl-C means what the command says it means.
pub fn run_behind_link(
    config: LinkConfig,
    words: &[OsString],
    stop: &StopFlag,
    started: impl FnOnce(&Link, &std::path::Path),
) -> Result<i32> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(BenchError::Invalid("no command given".into()));
    };
    let link = Link::create(LinkConfig {
        far_end: FarEnd::Here,
        ..config
    })?;
    let directory = tempfile::Builder::new()
        .prefix("glint-link-")
        .tempdir()
        .during(|| "making a directory for the control socket")?;
    let path = directory.path().join("control");
    let control = Control::bind(&path)?;
    started(&link, &path);
    let mut command = link.client().command(program);
    command
        .args(arguments)
        .env(SERVER_VARIABLE, link.server_address().to_string())
        .env(CONTROL_VARIABLE, &path);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| control.serve(&link, || done.load(Ordering::Acquire)));
        let ending = Running::start(&mut command).and_then(|child| finish(child, stop));
        done.store(true, Ordering::Release);
        ending.map(exit_code)
    })
}

fn finish(mut child: Running, stop: &StopFlag) -> Result<ExitStatus> {
    while !stop.is_set() {
        if child.ended_within(Duration::from_millis(100))? {
            return child.reap();
        }
    }
    child.terminate(GRACE)
}

fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
