//! Mounting as an ordinary user, through fusermount3. As root the test makes a user and starts itself as that
//! user, in a mount namespace of its own where /dev/fuse is open to all, as on a desktop. Otherwise it runs
//! as its own user. The part of the user is played by `user_mount play …`.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails where something is missing"
)]

mod memory;

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fuse::kernel::mount::{Unmount, unmount};
use fuse::kernel::{Mount, MountError, MountOptions, Session, SessionConfig, mount};
use memory::MemoryFs;
use nix::mount::{MntFlags, MsFlags};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{User, geteuid};
use tempfile::TempDir;

const NONE: Option<&str> = None;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;
type Case = (&'static str, fn(&Stage) -> Outcome);

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some("play") {
        return play(&arguments[2..]);
    }
    // As the standard harness does, for `make test NAME=`.
    if arguments.iter().any(|argument| argument == "--list") {
        println!("user_mount: test");
        return Ok(());
    }
    let Some(stage) = Stage::new()? else {
        return Err(
            "fusermount3 is not installed: install the package fuse3 to run this test".into(),
        );
    };
    let cases: [Case; 7] = [
        ("a user mounts, uses and unmounts", mounts_uses_and_unmounts),
        (
            "readers share a device that cannot be cloned",
            readers_share_a_device,
        ),
        (
            "a device that may not be opened is named",
            refused_device_is_named,
        ),
        ("allow_other is refused with advice", allow_other_is_refused),
        ("a missing fusermount3 is named", missing_helper_is_named),
        (
            "a directory of somebody else is refused",
            foreign_directory_is_refused,
        ),
        (
            "a busy mount stays, a dead one goes",
            busy_stays_and_dead_goes,
        ),
    ];
    for (name, case) in cases {
        case(&stage).map_err(|error| format!("{name}: {error}"))?;
        println!("test {name} ... ok");
    }
    Ok(())
}

/// The user's part: `serve POINT [allow_other]` or `unmount POINT`. Errors go to standard output.
fn play(arguments: &[String]) -> Outcome {
    let outcome = match arguments {
        [verb, point, rest @ ..] if verb == "serve" => serve(Path::new(point), !rest.is_empty()),
        [verb, point] if verb == "unmount" => unmount(Path::new(point), Unmount::Clean)
            .map(drop)
            .map_err(Into::into),
        _ => Err("play what?".into()),
    };
    match outcome {
        Ok(()) => println!("done"),
        Err(error) => println!("error: {}", error.to_string().replace('\n', "; ")),
    }
    Ok(())
}

/// Mounts, waits for a line, serves until another line comes. `hold` tries to unmount while busy.
fn serve(point: &Path, allow_other: bool) -> Outcome {
    let options = MountOptions {
        allow_other,
        ..MountOptions::default()
    };
    let (mounted, device) = mount(point, &options)?;
    println!("mounted");
    std::io::stdin().read_line(&mut String::new())?;
    let session = Session::start(device, MemoryFs::new(), SessionConfig::default())?;
    fs::write(mounted.point().join("file"), "by the user")?;
    println!(
        "ready {}",
        fs::read_to_string(mounted.point().join("file"))?
    );
    for line in std::io::stdin().lines() {
        if line? == "hold" {
            let error = unmount_while_held(&mounted)?;
            println!("held: {}", error.to_string().replace('\n', "; "));
        } else {
            break;
        }
    }
    mounted.unmount(Unmount::Clean)?;
    session.join();
    Ok(())
}

/// Another process holds the mount. Were it this one, killing it would never end: its exit would
/// close the file, which asks the server, which is itself.
fn unmount_while_held(mounted: &Mount) -> Outcome<MountError> {
    let mut holder = Command::new("sleep")
        .arg("1000")
        .current_dir(mounted.point())
        .spawn()?;
    let outcome = mounted.unmount(Unmount::Clean);
    holder.kill()?;
    holder.wait()?;
    outcome.err().ok_or("unmounted though busy".into())
}

/// A user, a directory of theirs, and this program where they can run it.
struct Stage {
    user: Option<User>,
    directory: TempDir,
    program: PathBuf,
    /// What stands in for /dev/fuse.
    device: PathBuf,
}

impl Stage {
    /// `None` where fusermount3 is missing.
    fn new() -> Outcome<Option<Stage>> {
        if Command::new("fusermount3")
            .arg("--version")
            .output()
            .is_err()
        {
            return Ok(None);
        }
        let directory = TempDir::new()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let program = directory.path().join("user_mount");
        fs::copy(std::env::current_exe()?, &program)?;
        let device = directory.path().join("dev/fuse");
        let mut stage = Stage {
            user: None,
            directory,
            program,
            device,
        };
        if geteuid().is_root() {
            stage.enter_namespace()?;
            stage.user = Some(make_user()?);
        }
        Ok(Some(stage))
    }

    /// From here on mounts are seen by this process and its children only.
    fn enter_namespace(&self) -> Outcome {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        nix::mount::mount(NONE, "/", NONE, flags, NONE)?;
        let directory = self.directory.path().join("dev");
        fs::create_dir(&directory)?;
        nix::mount::mount(
            Some("tmpfs"),
            &directory,
            Some("tmpfs"),
            MsFlags::empty(),
            NONE,
        )?;
        mknod(
            &self.device,
            SFlag::S_IFCHR,
            Mode::empty(),
            makedev(10, 229),
        )?;
        self.open_device_to(0o666)?;
        let bind = MsFlags::MS_BIND;
        Ok(nix::mount::mount(
            Some(&self.device),
            "/dev/fuse",
            NONE,
            bind,
            NONE,
        )?)
    }

    fn open_device_to(&self, mode: u32) -> Outcome {
        Ok(fs::set_permissions(
            &self.device,
            fs::Permissions::from_mode(mode),
        )?)
    }

    /// A fresh directory of the user's.
    fn point(&self, name: &str) -> Outcome<PathBuf> {
        let point = self.directory.path().join(name);
        fs::create_dir(&point)?;
        if let Some(user) = &self.user {
            chown(&point, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        Ok(point)
    }

    fn command(&self, verb: &str, point: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["play", verb]).arg(point).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(user) = &self.user {
            for point in [Path::new("/dev/fuse"), &self.directory.path().join("dev")] {
                let undone = nix::mount::umount2(point, MntFlags::MNT_DETACH);
                assert_eq!(undone, Ok(()), "{}", point.display());
            }
            let removed = Command::new("userdel").arg(&user.name).status();
            assert!(
                removed.is_ok_and(|status| status.success()),
                "user {} stays",
                user.name
            );
        }
    }
}

fn make_user() -> Outcome<User> {
    let name = format!("glint-test-{}", std::process::id());
    let arguments = [
        "--no-create-home",
        "--home-dir",
        "/nonexistent",
        "--shell",
        "/bin/false",
    ];
    let made = Command::new("useradd")
        .args(arguments)
        .arg(&name)
        .status()?;
    if !made.success() {
        return Err(format!("useradd {name} failed").into());
    }
    Ok(User::from_name(&name)?.ok_or("the user made is not there")?)
}

/// A running part and the lines it says.
struct Part {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Part {
    fn start(command: &mut Command) -> Outcome<Part> {
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Part { child, lines })
    }

    fn hears(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn say(&mut self, line: &str) -> Outcome {
        Ok(writeln!(
            self.child.stdin.as_mut().ok_or("no input")?,
            "{line}"
        )?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn expect(said: &str, part: &str) -> Outcome {
    match said.contains(part) {
        true => Ok(()),
        false => Err(format!("said {said:?}, not {part:?}").into()),
    }
}

/// Has the user mount and serve `point`.
fn serving(stage: &Stage, point: &Path) -> Outcome<Part> {
    let mut part = Part::start(&mut stage.command("serve", point))?;
    expect(&part.hears()?, "mounted")?;
    part.say("serve")?;
    expect(&part.hears()?, "ready by the user")?;
    Ok(part)
}

fn ends_clean(mut part: Part, point: &Path) -> Outcome {
    part.say("end")?;
    expect(&part.hears()?, "done")?;
    expect(&fs::read_dir(point)?.count().to_string(), "0")
}

fn mounts_uses_and_unmounts(stage: &Stage) -> Outcome {
    let point = stage.point("plain")?;
    let part = serving(stage, &point)?;
    ends_clean(part, &point)
}

fn readers_share_a_device(stage: &Stage) -> Outcome {
    if stage.user.is_none() {
        return Ok(());
    }
    let point = stage.point("shared")?;
    let mut part = Part::start(&mut stage.command("serve", &point))?;
    expect(&part.hears()?, "mounted")?;
    stage.open_device_to(0o600)?;
    part.say("serve")?;
    expect(&part.hears()?, "ready by the user")?;
    stage.open_device_to(0o666)?;
    ends_clean(part, &point)
}

fn refused_device_is_named(stage: &Stage) -> Outcome {
    if stage.user.is_none() {
        return Ok(());
    }
    let point = stage.point("refused")?;
    stage.open_device_to(0o600)?;
    let mut part = Part::start(&mut stage.command("serve", &point))?;
    let said = part.hears()?;
    stage.open_device_to(0o666)?;
    expect(&said, "/dev/fuse may not be opened")
}

fn allow_other_is_refused(stage: &Stage) -> Outcome {
    if fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"))
    {
        return Err("/etc/fuse.conf has user_allow_other: remove it for this test".into());
    }
    let point = stage.point("others")?;
    let mut part = Part::start(stage.command("serve", &point).arg("allow_other"))?;
    expect(
        &part.hears()?,
        "put a line `user_allow_other` into /etc/fuse.conf",
    )
}

fn missing_helper_is_named(stage: &Stage) -> Outcome {
    let point = stage.point("no-helper")?;
    let mut part = Part::start(stage.command("serve", &point).env("PATH", "/nonexistent"))?;
    expect(&part.hears()?, "fusermount3 is missing")
}

fn foreign_directory_is_refused(stage: &Stage) -> Outcome {
    if stage.user.is_none() {
        return Ok(());
    }
    let point = stage.directory.path().join("foreign");
    fs::create_dir(&point)?;
    let mut part = Part::start(&mut stage.command("serve", &point))?;
    expect(
        &part.hears()?,
        "may not be mounted on or unmounted by this user",
    )
}

fn busy_stays_and_dead_goes(stage: &Stage) -> Outcome {
    let point = stage.point("busy")?;
    let mut part = serving(stage, &point)?;
    part.say("hold")?;
    let said = part.hears()?;
    expect(&said, "is in use")?;
    expect(&said, "(sleep) works in")?;
    part.child.kill()?;
    part.child.wait()?;
    // It gives way to a new one, and so does that.
    let mut again = serving(stage, &point)?;
    again.child.kill()?;
    again.child.wait()?;
    let mut undo = Part::start(&mut stage.command("unmount", &point))?;
    expect(&undo.hears()?, "done")
}
