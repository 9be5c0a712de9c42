//! `-o`: what a mount is like, in the words of `mount(8)` and in words of our own. Used by `glint mount`,
//! `glint up` and `mount -t glint`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fuse::kernel::KernelLevel;
use rpc::{Link, Policy};

use crate::mounting::MountWish;
use crate::output::shown;

/// One word of `-o`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountOption {
    Hard,
    Soft,
    Timeout(Duration),
    ReadOnly(bool),
    AllowOther,
    LazySize,
    Suid(bool),
    Dev(bool),
    Exec(bool),
    Atime(bool),
    Key(PathBuf),
    Insecure,
    /// For `mount`, `systemd` and people: it changes nothing here.
    Idle(String),
    Kernel(KernelLevel),
    /// Every frame takes this much longer for a round trip: for measurements.
    Delay(Duration),
}

impl FromStr for MountOption {
    type Err = String;

    fn from_str(text: &str) -> Result<MountOption, String> {
        Ok(match text.split_once('=').unwrap_or((text, "")) {
            ("hard", "") => MountOption::Hard,
            ("soft", "") => MountOption::Soft,
            ("timeout", seconds) => {
                let seconds = seconds.parse();
                let seconds = seconds.map_err(|_| "timeout= takes a number of seconds")?;
                MountOption::Timeout(Duration::from_secs(seconds))
            }
            ("ro", "") => MountOption::ReadOnly(true),
            ("rw", "") => MountOption::ReadOnly(false),
            ("allow_other", "") => MountOption::AllowOther,
            ("lazysize", "") => MountOption::LazySize,
            ("suid", "") => MountOption::Suid(true),
            ("nosuid", "") => MountOption::Suid(false),
            ("dev", "") => MountOption::Dev(true),
            ("nodev", "") => MountOption::Dev(false),
            ("exec", "") => MountOption::Exec(true),
            ("noexec", "") => MountOption::Exec(false),
            ("atime" | "relatime", "") => MountOption::Atime(true),
            ("noatime", "") => MountOption::Atime(false),
            ("key", "") => return Err("key= takes the file with the key".to_owned()),
            ("key", file) => MountOption::Key(file.into()),
            ("insecure", "") => MountOption::Insecure,
            ("kernel", "5.14") => MountOption::Kernel(KernelLevel::Linux5_14),
            ("kernel", "6.1") => MountOption::Kernel(KernelLevel::Linux6_1),
            ("delay", time) => {
                let time = bench::link::parse_duration(time);
                MountOption::Delay(time.map_err(|error| error.to_string())?)
            }
            (word, value) if is_idle(word, value) => MountOption::Idle(text.to_owned()),
            _ => return Err(format!("there is no option '{}'; {THERE_ARE}", shown(text))),
        })
    }
}

/// What there is instead.
const THERE_ARE: &str = "there are hard, soft, timeout=SECONDS, ro, rw, allow_other, key=FILE, insecure, \
                         lazysize, suid, dev, exec, noexec, atime, noatime, kernel=5.14 and kernel=6.1";

/// Said to `mount` by people and tables, and by `mount` of what is mounted.
fn is_idle(word: &str, value: &str) -> bool {
    let alone = [
        "defaults",
        "async",
        "auto",
        "noauto",
        "nofail",
        "_netdev",
        "user",
        "nouser",
        "users",
        "nousers",
        "owner",
        "noowner",
        "group",
        "nogroup",
        "nodiratime",
        "diratime",
        "norelatime",
        "default_permissions",
    ];
    let with_value = ["comment", "user_id", "group_id", "max_read", "user"];
    let is_others = word.starts_with("x-") || word.starts_with("X-");
    is_others || value.is_empty() && alone.contains(&word) || with_value.contains(&word)
}

impl MountOption {
    /// Both are words on the same matter, and differ.
    pub(super) fn contradicts(&self, other: &MountOption) -> bool {
        use MountOption::{Hard, Soft};
        let is_same_matter = match (self, other) {
            (Hard, Soft) | (Soft, Hard) => true,
            (MountOption::Idle(_), MountOption::Idle(_)) => false,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        };
        is_same_matter && self != other
    }
}

/// As it is written after `-o`.
impl fmt::Display for MountOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountOption::Hard => f.write_str("hard"),
            MountOption::Soft => f.write_str("soft"),
            MountOption::Timeout(time) => write!(f, "timeout={}", time.as_secs()),
            MountOption::ReadOnly(true) => f.write_str("ro"),
            MountOption::ReadOnly(false) => f.write_str("rw"),
            MountOption::AllowOther => f.write_str("allow_other"),
            MountOption::LazySize => f.write_str("lazysize"),
            MountOption::Suid(true) => f.write_str("suid"),
            MountOption::Suid(false) => f.write_str("nosuid"),
            MountOption::Dev(true) => f.write_str("dev"),
            MountOption::Dev(false) => f.write_str("nodev"),
            MountOption::Exec(true) => f.write_str("exec"),
            MountOption::Exec(false) => f.write_str("noexec"),
            MountOption::Atime(true) => f.write_str("atime"),
            MountOption::Atime(false) => f.write_str("noatime"),
            MountOption::Key(file) => write!(f, "key={}", file.display()),
            MountOption::Insecure => f.write_str("insecure"),
            MountOption::Idle(text) => f.write_str(text),
            MountOption::Kernel(KernelLevel::Linux5_14) => f.write_str("kernel=5.14"),
            MountOption::Kernel(KernelLevel::Linux6_1) => f.write_str("kernel=6.1"),
            // Only tests ask for others, and not by a word.
            MountOption::Kernel(other) => write!(f, "kernel={other:?}"),
            MountOption::Delay(time) => write!(f, "delay={time:?}"),
        }
    }
}

/// What `-o` said.
#[derive(Debug)]
pub struct Options {
    pub policy: Policy,
    pub delay: Option<Arc<Link>>,
    read_only: bool,
    allow_other: bool,
    lazy_size: bool,
    pub key: Option<PathBuf>,
    pub insecure: bool,
    setuid: bool,
    devices: bool,
    exec: bool,
    access_times: bool,
    kernel: KernelLevel,
}

impl Options {
    /// Says which words contradict each other.
    pub fn of(words: &[MountOption]) -> Result<Options, String> {
        refuse_contradictions(words)?;
        let mut options = Options {
            policy: Policy::Hard,
            delay: None,
            read_only: false,
            allow_other: nix::unistd::geteuid().is_root(),
            lazy_size: false,
            key: None,
            insecure: false,
            setuid: false,
            devices: false,
            exec: true,
            access_times: true,
            kernel: KernelLevel::Running,
        };
        let (mut soft, mut timeout) = (false, Duration::from_secs(30));
        for word in words {
            match word {
                MountOption::Hard => soft = false,
                MountOption::Soft => soft = true,
                MountOption::Timeout(time) => timeout = *time,
                MountOption::ReadOnly(only) => options.read_only = *only,
                MountOption::AllowOther => options.allow_other = true,
                MountOption::LazySize => options.lazy_size = true,
                MountOption::Suid(has) => options.setuid = *has,
                MountOption::Dev(has) => options.devices = *has,
                MountOption::Exec(has) => options.exec = *has,
                MountOption::Atime(has) => options.access_times = *has,
                MountOption::Key(file) => options.key = Some(file.clone()),
                MountOption::Insecure => options.insecure = true,
                MountOption::Idle(_) => {}
                MountOption::Kernel(level) => options.kernel = *level,
                MountOption::Delay(time) => options.delay = Some(Link::new(*time, None)),
            }
        }
        if soft {
            options.policy = Policy::Soft { timeout };
        }
        let is_root = nix::unistd::geteuid().is_root();
        match !is_root && (options.setuid || options.devices) {
            true => Err("only root can mount with suid or dev".to_owned()),
            false => Ok(options),
        }
    }

    /// What to ask of the kernel.
    pub fn wish(&self, point: PathBuf, timeout: Option<Duration>) -> MountWish {
        MountWish {
            point,
            source: None,
            name: None,
            setuid: self.setuid,
            devices: self.devices,
            exec: self.exec,
            access_times: self.access_times,
            allow_other: self.allow_other,
            read_only: self.read_only,
            lazy_size: self.lazy_size,
            kernel: self.kernel,
            timeout,
        }
    }
}

/// Of a matter on which there are two different words nobody can say which was meant.
fn refuse_contradictions(words: &[MountOption]) -> Result<(), String> {
    for (at, word) in words.iter().enumerate() {
        let other = words[..at].iter().find(|other| other.contradicts(word));
        if let Some(other) = other {
            return Err(format!(
                "-o {other} and -o {word} contradict each other; leave one of them out"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<Options, String> {
        let words: Vec<MountOption> = words.iter().map(|word| word.parse().unwrap()).collect();
        Options::of(&words)
    }

    #[test]
    fn words_are_understood_in_any_order() {
        let policy = |words| options(words).unwrap().policy;
        assert_eq!(policy(&[]), Policy::Hard);
        let timeout = Duration::from_secs(7);
        assert_eq!(policy(&["timeout=7", "soft"]), Policy::Soft { timeout });
        assert!(options(&["ro", "ro"]).unwrap().read_only);
    }

    #[test]
    fn what_tables_of_mounts_say_is_understood_and_rights_are_given_only_if_asked_for() {
        let words = "nosuid,nodev,noexec,noatime,_netdev,defaults,ro,x-systemd.automount,key=/k";
        let words: Vec<&str> = words.split(',').collect();
        let options = options(&words).unwrap();
        assert_eq!(options.key.as_deref(), Some(std::path::Path::new("/k")));
        let wish = options.wish("/mnt".into(), None);
        assert!(wish.read_only && !wish.exec && !wish.access_times);
        assert!(!wish.setuid && !wish.devices);
        let wish = super::Options::of(&[]).unwrap().wish("/mnt".into(), None);
        assert!(!wish.setuid && !wish.devices && wish.exec && wish.access_times);
    }

    #[test]
    fn words_that_contradict_each_other_are_refused() {
        for words in [
            ["soft", "hard"],
            ["ro", "rw"],
            ["timeout=3", "timeout=4"],
            ["kernel=6.1", "kernel=5.14"],
            ["suid", "nosuid"],
        ] {
            let said = options(&words).unwrap_err();
            let both = format!("-o {} and -o {} contradict", words[0], words[1]);
            assert!(said.starts_with(&both), "{said}");
        }
    }

    #[test]
    fn unknown_words_are_refused() {
        for wrong in [
            "",
            "sotf",
            "timeout=long",
            "ro=1",
            "kernel=2.4",
            "delay=5",
            "key=",
            "sync",
        ] {
            assert!(wrong.parse::<MountOption>().is_err(), "{wrong:?}");
        }
        let said = "sotf".parse::<MountOption>().unwrap_err();
        assert!(said.contains("'sotf'") && said.contains("soft"), "{said}");
    }
}
