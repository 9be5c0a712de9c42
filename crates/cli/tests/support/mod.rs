//! Running `glint` as a person would.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub mod loops;
#[path = "../../../../tests/mounted/src/ports.rs"]
pub mod ports;
pub mod served;
pub mod stored;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user that is not root and owns nothing.
pub const NOBODY: u32 = 65534;

/// In a mount namespace of its own: /dev/fuse for everybody, as most machines have it.
pub const OPEN_DEVICE: &str =
    "mknod device c 10 229 && chmod 666 device && mount --bind device /dev/fuse";

/// What a run of `glint` came to.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// It failed, and the message has each of these parts.
    #[track_caller]
    pub fn failed_saying(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in {self:?}");
        }
        assert!(!self.err.contains("panicked"), "{self:?}");
    }

    /// It worked; what it printed.
    #[track_caller]
    pub fn worked(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.out
    }
}

/// The program under test.
pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_glint")
}

/// Runs a command to its end.
#[track_caller]
pub fn finish(command: &mut Command) -> Ran {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let started = Instant::now();
    while child
        .try_wait()
        .expect("a child can be waited for")
        .is_none()
    {
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{command:?} did not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("its output");
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs `glint` with these words in a directory.
#[track_caller]
pub fn glint(dir: &Path, words: &[&str]) -> Ran {
    finish(Command::new(program()).args(words).current_dir(dir))
}

/// A `glint` that stays, ended and unmounted when dropped.
pub struct Staying {
    child: Child,
    point: Option<PathBuf>,
    log: PathBuf,
}

impl Staying {
    /// Starts it and waits for its line.
    #[track_caller]
    pub fn start(dir: &Path, words: &[&str]) -> Staying {
        Staying::run(Command::new(program()).args(words), dir)
    }

    #[track_caller]
    pub fn run(command: &mut Command, dir: &Path) -> Staying {
        let log = dir.join(format!(
            "log{}",
            std::fs::read_dir(dir).expect("listed").count()
        ));
        let file = std::fs::File::create(&log).expect("a log");
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("again"))
            .stderr(file);
        let child = command.current_dir(dir).spawn().expect("it starts");
        let mut staying = Staying {
            child,
            point: None,
            log,
        };
        let line = staying.wait_for_line();
        let point = line
            .split_once("mounted at ")
            .map(|(_, point)| point.trim().into());
        staying.point = point;
        staying
    }

    fn wait_for_line(&mut self) -> String {
        let started = Instant::now();
        loop {
            let said = self.said();
            let mut lines = said.lines();
            let ready = |line: &&str| line.contains("mounted at ") || line.starts_with("serving ");
            if let Some(line) = lines.find(ready).filter(|_| said.ends_with('\n')) {
                return line.to_owned();
            }
            let ended = self.child.try_wait().expect("a child can be waited for");
            assert!(
                ended.is_none() && started.elapsed() < PATIENCE,
                "{ended:?}: {said}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Where a server says that it listens.
    pub fn address(&self) -> String {
        let said = self.said();
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("serving glint at "));
        line.expect("an address").to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).expect("it runs");
    }

    /// Waits for its end; its exit code.
    #[track_caller]
    pub fn ended(&mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status.code();
            }
            assert!(
                started.elapsed() < PATIENCE,
                "it does not end: {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(point) = &self.point {
            let _ = finish(Command::new("umount").arg("-l").arg(point));
        }
    }
}

/// A directory in memory, where a sync waits for no disk. Of a process that is killed all is there as it was
/// written, on a disk as in memory.
pub struct InMemory(tempfile::TempDir);

impl InMemory {
    #[track_caller]
    pub fn new() -> InMemory {
        let dir = tempfile::tempdir().expect("a directory");
        let mut mount = Command::new("mount");
        finish(mount.args(["-t", "tmpfs", "tmpfs"]).arg(dir.path())).worked();
        InMemory(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = finish(Command::new("umount").arg("-l").arg(self.path()));
    }
}

/// A process that ends with the test.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// True where the rest of a test can't run.
pub fn needs_root() -> bool {
    let missing = !nix::unistd::geteuid().is_root();
    if missing {
        eprintln!("not tested: needs root");
    }
    missing
}

/// A directory that an ordinary user owns, and a copy of the program that it may run.
pub fn directory_of_nobody() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("glint");
    // By another process: one that another test starts now would keep a copy that is written here
    // open, and such a file cannot be executed.
    let mut cp = Command::new("cp");
    assert!(cp.arg(program()).arg(&copy).status().expect("cp").success());
    std::fs::create_dir(dir.path().join("mnt")).expect("a mount point");
    for path in [dir.path().to_owned(), dir.path().join("mnt")] {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    (dir, copy)
}

/// A command of that user.
pub fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY);
    command
}

/// Waits until something is so.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Compiles C that takes the place of functions of the system's library in programs that preload it;
/// its file, in a directory of the test's.
#[track_caller]
pub fn preloaded(dir: &Path, source: &str) -> PathBuf {
    std::fs::write(dir.join("preloaded.c"), source).expect("the source");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o", "preloaded.so", "preloaded.c"]);
    finish(compile.current_dir(dir)).worked();
    dir.join("preloaded.so")
}

/// Runs a line of shell in a directory.
#[track_caller]
pub fn shell(dir: &Path, line: &str) -> Ran {
    finish(Command::new("sh").args(["-c", line]).current_dir(dir))
}
