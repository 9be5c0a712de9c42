//! A gate that runs beside the tests, on processors that they leave idle.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::summary::Outcome;

/// A target of the Makefile that runs.
#[derive(Debug)]
pub struct Meanwhile {
    name: String,
    child: Child,
    output: PathBuf,
    began: Instant,
}

impl Meanwhile {
    /// Starts `make TARGET` below everything else: the kernel gives it a processor that nobody wants.
    pub fn start(root: &Path, target: &str) -> Result<Meanwhile, String> {
        let name = format!("make {target}");
        let output = root.join("target").join(format!("{target}.output"));
        let failed = |error: std::io::Error| format!("cannot run {name}: {error}");
        let said = File::create(&output).map_err(failed)?;
        let child = Command::new("chrt")
            .args(["--idle", "0", "nice", "-n", "19", "make", target])
            .current_dir(root)
            // It is no part of the make that runs this.
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .stdin(Stdio::null())
            .stdout(said.try_clone().map_err(failed)?)
            .stderr(said)
            .spawn()
            .map_err(failed)?;
        Ok(Meanwhile {
            name,
            child,
            output,
            began: Instant::now(),
        })
    }

    /// Waits for its end.
    pub fn end(mut self) -> Result<Outcome, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.name);
        let status = self.child.wait().map_err(failed)?;
        let output = std::fs::read(&self.output).map_err(failed)?;
        Ok(Outcome {
            is_success: status.success(),
            wall: self.began.elapsed(),
            processor: None,
            output: String::from_utf8_lossy(&output).into_owned(),
            name: self.name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_gate_says_and_whether_it_passes_is_kept() {
        let folder = std::env::temp_dir().join(format!("glint-xtask-make-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("target")).unwrap();
        let rules = "good:\n\t@echo fine\nbad:\n\t@echo broken; false\n";
        std::fs::write(folder.join("Makefile"), rules).unwrap();
        let end = |target| Meanwhile::start(&folder, target).and_then(Meanwhile::end);
        let (good, bad) = (end("good"), end("bad"));
        std::fs::remove_dir_all(&folder).unwrap();
        let (good, bad) = (good.unwrap(), bad.unwrap());
        assert!(good.is_success && good.output == "fine\n", "{good:?}");
        assert!(!bad.is_success && bad.output.contains("broken"), "{bad:?}");
    }
}
