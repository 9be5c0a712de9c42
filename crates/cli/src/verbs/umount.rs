//! `glint umount` and `glint down`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use fuse::kernel::mount::{Unmount, unmount, users};

use crate::control::{Answer, Question, ask};
use crate::output::say;

/// Unmount. A mount that is in use stays as it is, and its users are listed.
#[derive(Args)]
pub struct Umount {
    /// Where it is mounted.
    point: PathBuf,
    /// Unmount although it is in use: open files are lost to their programs, and so is what they
    /// have not written yet.
    #[arg(long)]
    force: bool,
}

/// How long the serving process may take to write everything and end.
const PATIENCE: Duration = Duration::from_secs(120);

impl Umount {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let pid = match ask(&self.point, &Question::Status) {
            Ok(Answer::Status(status)) => Some(status.pid),
            _ => None,
        };
        let using = users(&self.point);
        if !using.is_empty() && !self.force {
            let mut lines = format!("{} is in use by:", self.point.display());
            for user in using {
                lines.push_str(&format!(
                    "\n  {:>7}  {}  {}",
                    user.pid,
                    user.command,
                    user.path.display()
                ));
            }
            lines.push_str("\nend these, or use --force; nothing was changed");
            return Err(lines);
        }
        let how = if self.force {
            Unmount::Abort
        } else {
            Unmount::Clean
        };
        unmount(&self.point, how).map_err(|error| error.to_string())?;
        if let Some(pid) = pid {
            wait_for(pid)?;
        }
        say(format!("{} unmounted", self.point.display()));
        Ok(())
    }
}

/// The serving process writes what is left before it ends.
fn wait_for(pid: u32) -> Result<(), String> {
    let start = Instant::now();
    let process = PathBuf::from(format!("/proc/{pid}"));
    while process.exists() {
        if start.elapsed() > PATIENCE {
            return Err(format!("process {pid} still writes; it goes on by itself"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
