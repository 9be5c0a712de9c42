//! Glint as a system to be measured.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bench::process::ProcessId;
use bench::{
    BenchError, Cold, Link, LinkSettings, Result, Setting, Statahead, StopFlag, System, Tunable,
};
use client::stats::Snapshot;
use client::{Pattern, WalkReport};
use fuse::kernel::mount::{MountError, Unmount, unmount};

use super::served::{Child, Served, Way};
use crate::control::{self, Answer, ParamValue, Question, ask};

/// How long the last users of a mount may take to leave.
const BUSY_PATIENCE: Duration = Duration::from_secs(20);
/// How long a mount may take to write what it holds.
const FLUSH_PATIENCE: Duration = Duration::from_secs(300);

/// What distinguishes one column of Glint from another.
pub struct Flavour {
    /// The column's name.
    pub name: &'static str,
    /// Tunables set after each mount.
    pub params: &'static [Setting],
    /// What `glint serve` is told besides.
    pub serve: &'static [&'static str],
}

/// As it comes.
pub const PLAIN: Flavour = Flavour {
    name: "Glint",
    params: &[],
    serve: &[],
};
/// One request a stat, as `llite.*.statahead_max=0` says.
pub const NO_PREFETCH: Flavour = Flavour {
    name: "Glint, no prefetch",
    params: &[("statahead_max", 0)],
    serve: &[],
};
/// Names and attributes are written back, as `llite.*.wbc=1` says.
pub const WRITE_BACK: Flavour = Flavour {
    name: "Glint, wbc=1",
    params: &[("wbc", 1)],
    serve: &[],
};
/// Each change is a request, as `llite.*.wbc=0` says.
pub const WRITE_THROUGH: Flavour = Flavour {
    name: "Glint, wbc=0",
    params: &[("wbc", 0)],
    serve: &[],
};
/// Nothing is durable and nothing is kept to be done again.
pub const UNDURABLE: Flavour = Flavour {
    name: "Glint, undurable",
    params: &[],
    serve: &["--undurable"],
};

/// A served and mounted Glint. Everything ends when it is dropped.
pub struct Glint<'l> {
    // Dropped in this order: the mounts, then the server.
    mount: RefCell<Mount>,
    /// Mounted when it is first asked for, until the next cold start: it would hold locks.
    beside: RefCell<Mount>,
    /// As far away as the first, until the next cold start.
    further: Vec<Mount>,
    served: Served<'l>,
    point: PathBuf,
    flavour: &'static Flavour,
    /// Set besides, since.
    tuning: Vec<Setting>,
    way: Way,
    stop: StopFlag,
}

/// A mount and its process.
struct Mount {
    point: PathBuf,
    child: Option<Child>,
}

impl<'l> Glint<'l> {
    /// Serves and mounts a new file system in `dir`, an empty directory. Without a link, `rtt` is
    /// added by a transport that delays.
    pub fn create(
        flavour: &'static Flavour,
        dir: &Path,
        link: Option<&'l Link>,
        rtt: Duration,
        stop: &StopFlag,
    ) -> Result<Glint<'l>> {
        let way = match link {
            Some(_) => Way::Link,
            None => way_without_link(rtt),
        };
        let served =
            Served::start(dir, link, flavour.serve, stop).map_err(|error| failed(error, stop))?;
        let mut glint = Glint {
            mount: RefCell::new(Mount::prepare(dir.join("mnt"))?),
            point: dir.join("mnt"),
            beside: RefCell::new(Mount::prepare(dir.join("beside"))?),
            further: Vec::new(),
            served,
            flavour,
            tuning: Vec::new(),
            way,
            stop: stop.clone(),
        };
        glint.mount()?;
        Ok(glint)
    }

    fn start(&self, point: &Path, way: Way) -> Result<Child> {
        let child = self.served.mount(point, way, &self.stop);
        child.map_err(|error| failed(error, &self.stop))
    }

    fn end(&self, mount: &RefCell<Mount>) -> Result<()> {
        let ended = mount.borrow_mut().end(&self.stop);
        ended.map_err(|error| failed(error, &self.stop))
    }

    fn end_further(&mut self) -> Result<()> {
        for mut mount in std::mem::take(&mut self.further) {
            let ended = mount.end(&self.stop);
            ended.map_err(|error| failed(error, &self.stop))?;
            std::fs::remove_dir(&mount.point).map_err(|source| BenchError::Io {
                doing: format!("removing {}", mount.point.display()),
                source,
            })?;
        }
        Ok(())
    }

    fn mount(&mut self) -> Result<()> {
        let child = self.start(&self.point, self.way)?;
        self.mount.get_mut().child = Some(child);
        self.set_all(&self.point)
    }

    fn set_all(&self, point: &Path) -> Result<()> {
        let settings = self.flavour.params.iter().chain(&self.tuning);
        settings
            .copied()
            .try_for_each(|setting| self.set(point, setting))
    }

    fn set(&self, point: &Path, (name, value): Setting) -> Result<()> {
        let name = name.to_owned();
        let question = Question::SetParam { name, value };
        let answer = ask(point, &question);
        answer
            .map(|_| ())
            .map_err(|error| failed(error, &self.stop))
    }

    /// What a tunable is unless somebody sets it.
    fn unset(&self, name: &'static str) -> Result<Setting> {
        let own = self.flavour.params.iter().find(|(own, _)| *own == name);
        if let Some(own) = own {
            return Ok(*own);
        }
        let answer = ask(&self.point, &Question::ListParams);
        let Answer::Params(params) = answer.map_err(|error| failed(error, &self.stop))? else {
            return Err(failed(
                "the mount answered something else".to_owned(),
                &self.stop,
            ));
        };
        let whole = |param: &&ParamValue| param.name.rsplit('.').next() == Some(name);
        let default = params.iter().find(whole).map(|param| &param.default);
        let number = |value: &control::Setting| match value {
            control::Setting::Number(number) => Some((name, *number)),
            control::Setting::Text(_) => None,
        };
        default
            .and_then(number)
            .ok_or_else(|| failed(format!("a mount has no {name}"), &self.stop))
    }

    /// The mount next to the server.
    fn mount_beside(&self) -> Result<PathBuf> {
        let mut beside = self.beside.borrow_mut();
        if beside.child.is_none() {
            beside.child = Some(self.start(&beside.point, Way::Beside)?);
        }
        Ok(beside.point.clone())
    }
}

impl Tunable for Glint<'_> {
    fn tune(&mut self, settings: &[Setting]) -> Result<()> {
        let before = std::mem::replace(&mut self.tuning, settings.to_vec());
        if self.mount.get_mut().child.is_none() {
            return Ok(());
        }
        let named = |name: &str| settings.iter().any(|(other, _)| *other == name);
        for (name, _) in before.into_iter().filter(|(name, _)| !named(name)) {
            self.set(&self.point, self.unset(name)?)?;
        }
        self.tuning
            .iter()
            .try_for_each(|setting| self.set(&self.point, *setting))
    }

    fn set_round_trip(&mut self, rtt: Duration) -> Result<()> {
        match self.served.link() {
            Some(link) => link.set(LinkSettings {
                rtt,
                ..link.settings()
            }),
            None => {
                self.way = way_without_link(rtt);
                Ok(())
            }
        }
    }

    fn beside(&mut self) -> Result<PathBuf> {
        self.mount_beside()
    }

    fn mounts(&mut self, count: usize) -> Result<Vec<PathBuf>> {
        for number in self.further.len() + 1..count {
            let point = self.point.with_file_name(format!("mnt{number}"));
            let mut mount = Mount::prepare(point)?;
            mount.child = Some(self.start(&mount.point, self.way)?);
            self.set_all(&mount.point)?;
            self.further.push(mount);
        }
        let further = self.further.iter().map(|mount| mount.point.clone());
        Ok(std::iter::once(self.point.clone()).chain(further).collect())
    }
}

fn way_without_link(rtt: Duration) -> Way {
    match rtt.is_zero() {
        true => Way::Link,
        false => Way::Delay(rtt),
    }
}

/// The stop flag turns any failure into an interrupt: children fail because they are ended.
fn failed(said: String, stop: &StopFlag) -> BenchError {
    match stop.check() {
        Err(interrupted) => interrupted,
        Ok(()) => BenchError::Failed {
            program: "glint".to_owned(),
            ending: "could not be measured".to_owned(),
            said,
        },
    }
}

impl System for Glint<'_> {
    fn name(&self) -> &str {
        self.flavour.name
    }

    fn root(&self) -> &Path {
        &self.point
    }

    fn make_cold(&mut self) -> Result<Cold> {
        self.end(&self.beside)?;
        self.end_further()?;
        self.end(&self.mount)?;
        self.mount()?;
        Ok(Cold::Done)
    }

    fn sync_command(&self) -> Command {
        // The path of a running program is known.
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "glint".into()));
        command.args(["fs", "sync"]).arg(self.root());
        command
    }

    fn rpcs_sent(&mut self) -> Option<u64> {
        rpcs_sent(&self.point)
    }

    fn client_process(&mut self) -> Option<ProcessId> {
        let child = self.mount.get_mut().child.as_ref()?;
        Some(child.process())
    }

    fn server_process(&mut self) -> Option<ProcessId> {
        Some(self.served.process())
    }

    fn statahead(&mut self) -> Option<Statahead> {
        let stats = stats_of(&self.point)?;
        Some(statahead(&stats, tree_walks(&self.point)?))
    }

    fn tunable(&mut self) -> Option<&mut dyn Tunable> {
        Some(self)
    }

    fn back_door(&self) -> Option<PathBuf> {
        // Two mounts at work in the same directories would keep leases off them for a while.
        self.end(&self.mount).ok()?;
        // Without it, the measurement goes on with the part of the tree that is there.
        self.mount_beside().ok()
    }

    fn is_throwaway(&self) -> bool {
        true
    }
}

/// Requests that a mount has sent.
pub fn rpcs_sent(point: &Path) -> Option<u64> {
    stats_of(point).map(|stats| stats.rpcs_sent)
}

fn stats_of(point: &Path) -> Option<Box<Snapshot>> {
    match ask(point, &Question::Stats) {
        Ok(Answer::Stats(stats)) => Some(stats),
        _ => None,
    }
}

/// Walks of trees that it follows, or did half a minute ago.
fn tree_walks(point: &Path) -> Option<u64> {
    let Ok(Answer::Walks(walks)) = ask(point, &Question::Walks) else {
        return None;
    };
    use Pattern::{Bfs, Dfs, DfsName};
    let of_tree = |walk: &&WalkReport| matches!(walk.pattern, Dfs | DfsName | Bfs);
    Some(walks.iter().filter(of_tree).count() as u64)
}

fn statahead(stats: &Snapshot, tree_walks_followed: u64) -> Statahead {
    let requests = |kind: &str| stats.requests.get(kind).copied().unwrap_or(0);
    Statahead {
        stats: requests("lookup") + requests("getattr"),
        pages: requests("readpage"),
        walk_stalls: stats.walk_stalls,
        statahead_tree_walks: stats.statahead_tree_walks,
        statahead_tree_total: stats.statahead_tree_total,
        statahead_tree_hit: stats.statahead_tree_hit,
        tree_walks_followed,
        statahead_total: stats.statahead_total,
        statahead_wrong: stats.statahead_wrong,
        statahead_entries: stats.statahead_entries,
        statahead_batches: stats.statahead_batches,
        hit_total: stats.hit_total,
        miss_total: stats.miss_total,
    }
}

impl Mount {
    fn prepare(point: PathBuf) -> Result<Mount> {
        std::fs::create_dir(&point).map_err(|source| BenchError::Io {
            doing: format!("making {}", point.display()),
            source,
        })?;
        Ok(Mount { point, child: None })
    }

    /// Unmounts cleanly, which writes everything.
    fn end(&mut self, stop: &StopFlag) -> std::result::Result<(), String> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let start = Instant::now();
        let unmounted = loop {
            stop.check().map_err(|error| error.to_string())?;
            match unmount(&self.point, Unmount::Clean) {
                Err(MountError::Busy { .. }) if start.elapsed() < BUSY_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                other => break other,
            }
        };
        if let Err(error) = unmounted {
            self.child = Some(child);
            return Err(error.to_string());
        }
        child.ended(FLUSH_PATIENCE, stop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // What is in it is thrown away: nothing need reach the servers.
            let _ = unmount(&self.point, Unmount::Abort);
            child.terminate(Duration::ZERO);
        }
    }
}
