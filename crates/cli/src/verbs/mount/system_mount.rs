//! `mount -t glint` and `umount`: this program under the names by which mount(8) and umount(8) look for a
//! helper. Its arguments and exit codes are those that mount(8) describes.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use fuse::kernel::mount::{Unmount, at, mounts, remount, resolve, unmount};

use super::options::{MountOption, Options};
use crate::output::complain;

/// Of mount(8): the call was wrong.
const WRONG: u8 = 1;
/// Of mount(8): it could not be mounted.
const FAILED: u8 = 32;

/// Which helper this process was started as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    Mount,
    Umount,
}

impl Helper {
    /// From the name that it was called by.
    pub fn called(name: &Path) -> Option<Helper> {
        match name.file_name()?.to_str()? {
            "mount.glint" | "mount.fuse.glint" => Some(Helper::Mount),
            "umount.glint" | "umount.fuse.glint" => Some(Helper::Umount),
            _ => None,
        }
    }

    /// Does it, with the arguments of this process.
    pub fn run(self) -> ExitCode {
        let done = match self {
            Helper::Mount => MountCall::parse().run(),
            Helper::Umount => UmountCall::parse().run(),
        };
        match done {
            Ok(code) => ExitCode::from(code),
            Err(reason) => {
                complain(reason);
                ExitCode::from(FAILED)
            }
        }
    }
}

/// Mount a Glint file system: called by mount(8).
#[derive(Parser)]
#[command(name = "mount.glint", version)]
struct MountCall {
    /// `HOST[:PORT][,HOST…]:/[NAME]`
    source: OsString,
    /// Where to mount.
    point: PathBuf,
    /// Those of `glint mount -o`, log=FILE, and remount with ro, rw, suid, nosuid and so on.
    #[arg(short, value_delimiter = ',')]
    options: Vec<String>,
    /// Unknown options are passed over.
    #[arg(short)]
    sloppy: bool,
    /// Say what is done.
    #[arg(short)]
    verbose: bool,
    /// Do nothing.
    #[arg(short)]
    fake: bool,
    /// There is no table to write to.
    #[arg(short = 'n')]
    no_table: bool,
    /// As mount(8) passes it on.
    #[arg(short = 't', hide = true)]
    kind: Option<OsString>,
    /// As mount(8) passes it on.
    #[arg(short = 'N', hide = true)]
    namespace: Option<OsString>,
}

/// What mount(8) means where it says nothing else. Before util-linux 2.39 it leaves these words out.
const USUAL: &str = "rw,suid,dev,exec,relatime";

/// What `-o` said to mount(8), of which the last word on a matter counts.
#[derive(Default)]
struct Words {
    ours: Vec<MountOption>,
    log: Option<String>,
    remount: bool,
}

impl Words {
    fn of(options: &[String], sloppy: bool) -> Result<Words, String> {
        let mut words = Words::default();
        for text in options.iter().filter(|text| !text.is_empty()) {
            if text == "remount" {
                words.remount = true;
                continue;
            }
            if let Some(log) = text.strip_prefix("log=") {
                words.log = Some(log.to_owned());
                continue;
            }
            match text.parse::<MountOption>() {
                Ok(word) => words.say(word),
                Err(_) if sloppy => {}
                Err(reason) => return Err(reason),
            }
        }
        Ok(words)
    }

    /// With the words on what a mount allows that `self` does not say.
    ///
    /// `user_id=` stands only in the kernel's list of a mount's options. With that word mount(8) has listed
    /// all that is to be, and means the usual where a word is missing. Otherwise the mount stays as it is.
    fn changing(self, point: &Path) -> Result<Words, String> {
        let is_listed = |word: &MountOption| matches!(word, MountOption::Idle(text) if text.starts_with("user_id="));
        let mut before = USUAL.to_owned();
        if !self.ours.iter().any(is_listed) {
            before = format!("{before},{}", options_of(point)?);
        }
        let before: Vec<String> = before.split(',').map(str::to_owned).collect();
        let mut words = Words::of(&before, true)?;
        self.ours.into_iter().for_each(|word| words.say(word));
        Ok(words)
    }

    fn say(&mut self, word: MountOption) {
        self.ours.retain(|other| !other.contradicts(&word));
        self.ours.push(word);
    }
}

/// What the mount on `point` allows, as the kernel says it.
fn options_of(point: &Path) -> Result<String, String> {
    let point = resolve(point).map_err(|error| error.to_string())?;
    let mounts = mounts().map_err(|error| format!("cannot read the list of mounts: {error}"))?;
    // That nothing is mounted there is said by the change itself.
    Ok(at(&mounts, &point).map_or_else(String::new, |entry| entry.options.clone()))
}

impl MountCall {
    fn run(self) -> Result<u8, String> {
        let words = match Words::of(&self.options, self.sloppy) {
            Ok(words) => words,
            Err(reason) => {
                complain(reason);
                return Ok(WRONG);
            }
        };
        if self.fake {
            return Ok(0);
        }
        if words.remount {
            let words = words.changing(&self.point)?;
            let wish = Options::of(&words.ours)?.wish(self.point, None);
            let done = remount(&wish.point, &wish.options(""));
            return done.map(|()| 0).map_err(|error| error.to_string());
        }
        let mut glint = this_program();
        glint.arg("mount").arg(&self.source).arg(&self.point);
        glint.arg("--daemon");
        if let Some(log) = &words.log {
            glint.arg("--log").arg(log);
        }
        for word in &words.ours {
            glint.arg("-o").arg(word.to_string());
        }
        if !self.verbose {
            glint.stdout(Stdio::null());
        }
        finish(&mut glint)
    }
}

/// Unmount a Glint file system: called by umount(8).
#[derive(Parser)]
#[command(name = "umount.glint", version)]
struct UmountCall {
    /// Where it is mounted.
    point: PathBuf,
    /// Although it is in use.
    #[arg(short)]
    force: bool,
    /// Out of sight at once; served until its last user leaves.
    #[arg(short)]
    lazy: bool,
    /// Say what is done.
    #[arg(short)]
    verbose: bool,
    /// There is no table to write to.
    #[arg(short = 'n')]
    no_table: bool,
    /// Read-only, if it can't be unmounted: that it is not.
    #[arg(short = 'r')]
    read_only: bool,
    /// As umount(8) passes it on.
    #[arg(short = 't', hide = true)]
    kind: Option<OsString>,
    /// As umount(8) passes it on.
    #[arg(short = 'N', hide = true)]
    namespace: Option<OsString>,
}

impl UmountCall {
    fn run(self) -> Result<u8, String> {
        if self.lazy {
            let done = unmount(&self.point, Unmount::Lazy);
            return done.map(|_| 0).map_err(|error| error.to_string());
        }
        let mut glint = this_program();
        let point = std::path::absolute(&self.point).map_err(|error| error.to_string())?;
        glint.arg("umount").arg(point);
        // This process and the other may work in it. There is a root directory always.
        let _ = std::env::set_current_dir("/");
        if self.force {
            glint.arg("--force");
        }
        if !self.verbose {
            glint.stdout(Stdio::null());
        }
        finish(&mut glint)
    }
}

/// By its own name.
fn this_program() -> Command {
    let mut program = Command::new("/proc/self/exe");
    program.arg0("glint").stdin(Stdio::null());
    program
}

fn finish(glint: &mut Command) -> Result<u8, String> {
    let status = glint.status();
    let status = status.map_err(|error| format!("cannot start glint: {error}"))?;
    Ok(match status.code() {
        Some(0) => 0,
        Some(2) => WRONG,
        _ => FAILED,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_name_says_what_is_asked() {
        let called = |name| Helper::called(Path::new(name));
        assert_eq!(called("/sbin/mount.glint"), Some(Helper::Mount));
        assert_eq!(called("umount.fuse.glint"), Some(Helper::Umount));
        assert_eq!(called("/usr/bin/glint"), None);
        MountCall::command().debug_assert();
        UmountCall::command().debug_assert();
    }

    #[test]
    fn the_last_word_counts_and_an_unknown_one_is_named() {
        let words = |options: &str, sloppy| {
            let options: Vec<String> = options.split(',').map(str::to_owned).collect();
            Words::of(&options, sloppy)
        };
        let known = words("rw,suid,ro,nosuid,remount,log=/l", false).unwrap();
        assert_eq!(
            known.ours,
            [MountOption::ReadOnly(true), MountOption::Suid(false)]
        );
        assert!(known.remount && known.log.as_deref() == Some("/l"));
        let unknown = words("ro,acl", false).err().unwrap();
        assert!(unknown.contains("'acl'"), "{unknown}");
        assert_eq!(words("ro,acl", true).unwrap().ours.len(), 1);
    }
}
