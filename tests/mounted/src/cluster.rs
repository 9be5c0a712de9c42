//! A file system of real processes on this machine.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::mount::MntFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::binary::glint;
use crate::layout::Layout;
use crate::network::{HUB, Link, make_hub};
use crate::ports::{free_address, free_address_of};
use crate::process::{Process, START_AND_END};
use crate::server::Server;
use crate::watchdog::{PATIENCE, Watch, Watchdog, abort};

/// How long a process that is killed may take to end, where nothing keeps it.
const DYING_MAX: Duration = Duration::from_secs(5);
/// Said by a mount that was asked to end and is in use.
const REFUSAL: &str = "; still mounted";

/// Servers and mounts in a directory of their own. Dropping it unmounts and ends everything, and
/// fails the test if that was not clean.
pub struct Cluster {
    dir: tempfile::TempDir,
    /// Directories with targets; the first has the MGS and the key.
    targets: Vec<PathBuf>,
    /// The first serves the MGS.
    servers: Vec<Server>,
    mounts: Vec<Mounted>,
    has_links: bool,
    far: Option<Arc<bench::Link>>,
    watchdog: Watchdog,
}

struct Mounted {
    point: PathBuf,
    process: Process,
    link: Option<Link>,
}

impl Cluster {
    /// Formats one directory and serves it; nothing is mounted.
    pub fn start() -> Cluster {
        Cluster::of(Layout::default())
    }

    /// The same with targets of these roles, each in a directory of its own: on another file system, or
    /// beside the mounts.
    pub fn start_at(places: &[(Option<&Path>, &str)]) -> Cluster {
        Cluster::of(Layout {
            places,
            ..Layout::default()
        })
    }

    /// One server and `count` mounts; a mount that does not answer is evicted after `timeout`.
    pub fn that_evicts_after(timeout: Duration, count: usize) -> Cluster {
        let mut cluster = Cluster::start_that_evicts_after(timeout);
        (0..count).for_each(|_| {
            cluster.mount();
        });
        cluster
    }

    /// The same without a mount.
    pub fn start_that_evicts_after(timeout: Duration) -> Cluster {
        Cluster::of(Layout {
            timeout: Some(timeout),
            ..Layout::default()
        })
    }

    /// The same without the usual.
    pub fn of(layout: Layout<'_>) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory for everything");
        let targets = format(dir.path(), &layout);
        if layout.has_links {
            make_hub();
        }
        let mut cluster = Cluster {
            dir,
            targets,
            servers: Vec::new(),
            mounts: Vec::new(),
            has_links: layout.has_links,
            far: layout.far.cloned(),
            watchdog: Watchdog::start(),
        };
        match layout.is_apart {
            true => {
                (0..cluster.targets.len()).for_each(|one| cluster.add_server(one..=one, &layout))
            }
            false => cluster.add_server(0..=cluster.targets.len() - 1, &layout),
        }
        cluster.restart_server();
        if layout.is_apart {
            // It knows all OSTs from its first request on.
            cluster.server(0).stop();
            cluster.server(0).restart();
        }
        cluster
    }

    /// One for these of the targets.
    fn add_server(&mut self, targets: RangeInclusive<usize>, layout: &Layout<'_>) {
        let mut options = Vec::new();
        if let Some(timeout) = layout.timeout {
            options.extend(["--timeout".to_owned(), timeout.as_secs().to_string()]);
        }
        if layout.has_links || layout.far.is_some() {
            options.push("--insecure".to_owned());
        }
        if let Some(first) = self.servers.first() {
            options.extend(["--mgs".to_owned(), first.address().to_owned()]);
        }
        let log = self
            .dir
            .path()
            .join(format!("server{}", self.servers.len()));
        // It is served there again and again.
        let address = match (layout.has_links, layout.far) {
            (_, Some(link)) => free_address_of(&link.server_address().to_string()),
            (true, None) => free_address_of(HUB),
            (false, None) => free_address(),
        };
        self.servers.push(Server::new(
            self.targets[targets].to_vec(),
            address,
            options,
            log,
            self.watchdog.clone(),
        ));
    }

    /// Makes a directory with more targets of the file system and serves it by a process of its own;
    /// the directory. Until this returns nobody has heard of them.
    pub fn add_targets(&mut self, roles: &str) -> PathBuf {
        let path = self
            .dir
            .path()
            .join(format!("targets{}", self.targets.len()));
        format_one(&path, (roles, None), self.targets.first());
        let number = self.targets.len();
        self.targets.push(path.clone());
        self.add_server(number..=number, &Layout::default());
        let server = self.servers.len() - 1;
        self.server(server).restart();
        path
    }

    /// The same with `count` mounts.
    pub fn with_mounts(count: usize) -> Cluster {
        Cluster::with_mounts_of(count, &[])
    }

    /// The same with `options` of `glint mount`.
    pub fn with_mounts_of(count: usize, options: &[&str]) -> Cluster {
        let mut cluster = Cluster::start();
        (0..count).for_each(|_| {
            cluster.mount_with(options);
        });
        cluster
    }

    /// One more mount; its number.
    pub fn mount(&mut self) -> usize {
        self.mount_with(&[])
    }

    /// The same with `options` of `glint mount`.
    pub fn mount_with(&mut self, options: &[&str]) -> usize {
        let number = self.mounts.len();
        let point = self.dir.path().join(format!("mount{number}"));
        fs::create_dir(&point).expect("a mount point can be made");
        let link = self.has_links.then(|| Link::new(number));
        let mut process = self.start_mount(&point, link.as_ref(), options);
        process.ready("mounted at ");
        self.watchdog.add(process.pid(), Some(&point));
        self.mounts.push(Mounted {
            point,
            process,
            link,
        });
        number
    }

    /// Mounts where mount `number` was, whose process has ended; or what `glint mount` says against
    /// it.
    pub fn mount_again(&mut self, number: usize) -> Result<(), String> {
        let point = self.mounts[number].point.clone();
        let link = self.mounts[number].link.as_ref();
        let mut process = self.start_mount(&point, link, &[]);
        process.ready_or_ended("mounted at ")?;
        self.watchdog.add(process.pid(), Some(&point));
        self.mounts[number].process = process;
        Ok(())
    }

    fn start_mount(&self, point: &Path, link: Option<&Link>, options: &[&str]) -> Process {
        let key = self.targets[0].join("key").display().to_string();
        let mut mount = match (link, &self.far) {
            (Some(link), _) => link.command(glint()),
            (None, Some(far)) => far.client().command(glint()),
            (None, None) => Command::new(glint()),
        };
        mount.args(["mount", self.address()]).arg(point);
        mount.args(["--key", &key]).args(options);
        if link.is_some() || self.far.is_some() {
            mount.arg("--insecure");
        }
        Process::start(point.with_extension("log"), &mut mount)
    }

    /// Where mount `number` is.
    pub fn root(&self, number: usize) -> &Path {
        &self.mounts[number].point
    }

    /// Where the server listens, that of the MGS where there are several.
    pub fn address(&self) -> &str {
        self.servers[0].address()
    }

    /// A directory beside the mounts, on the local file system.
    pub fn local(&self) -> PathBuf {
        let local = self.dir.path().join("local");
        fs::create_dir_all(&local).expect("a directory can be made");
        local
    }

    /// Runs `operation`, which fails the test with the state of all threads if it takes too long.
    pub fn timed<T>(&self, what: &str, operation: impl FnOnce() -> T) -> T {
        self.watchdog.timed(what, PATIENCE, operation)
    }

    /// The same for what may take longer.
    pub fn timed_for<T>(&self, limit: Duration, what: &str, operation: impl FnOnce() -> T) -> T {
        self.watchdog.timed(what, limit, operation)
    }

    /// Watches what other threads do, until the answer is dropped: if it takes longer than `limit`,
    /// the mounts are killed, so that their calls return.
    pub fn watch(&self, limit: Duration, what: &str) -> Watch {
        self.watchdog.watch(what, limit)
    }

    /// The directories with targets, in the order they were given.
    pub fn target_dirs(&self) -> &[PathBuf] {
        &self.targets
    }

    /// Waits until the server ends by itself, or a target of it stops, as it must soon and with a failure.
    /// What it said.
    pub fn server_gives_up(&mut self) -> String {
        self.servers[0].gives_up()
    }

    /// What the server has said since it was started; of several, that of the MGS.
    pub fn server_said(&self) -> String {
        self.servers[0].said()
    }

    /// How many mounts there are.
    pub fn mount_count(&self) -> usize {
        self.mounts.len()
    }

    /// How many processes serve targets.
    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// One of them alone; that of the MGS is the first.
    pub fn server(&mut self, number: usize) -> &mut Server {
        &mut self.servers[number]
    }

    /// Kills the server as a crash would; all of them, where there are several, here and below.
    pub fn kill_server(&mut self) {
        self.servers.iter_mut().for_each(Server::kill);
    }

    /// Ends the server cleanly.
    pub fn stop_server(&mut self) {
        self.servers.iter_mut().for_each(Server::stop);
    }

    /// Serves the same directories at the same addresses.
    pub fn restart_server(&mut self) {
        // Who is not the MGS waits for it.
        self.servers.iter_mut().rev().for_each(Server::begin);
        self.servers.iter_mut().for_each(Server::wait_until_ready);
    }

    /// What the server says that fails to start.
    pub fn server_refuses_to_start(&mut self) -> String {
        self.servers[0].begin();
        self.server_gives_up()
    }

    /// What `glint fsck` finds wrong with the targets of servers that have ended; None: nothing.
    pub fn fsck(&self) -> Option<String> {
        let mut fsck = Command::new(glint());
        let output = fsck.arg("fsck").args(&self.targets).output();
        let output = output.expect("glint runs");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (!output.status.success()).then_some(said)
    }

    /// Carries out `command` about the rules by which requests to the target `target` wait, as in
    /// `mdt.glint-MDT0`.
    pub fn rule(&self, target: &str, command: &str) {
        self.set_server_param(&format!("{target}.nrs_tbf_rule"), command);
    }

    /// Sets the servers' tunable `name`.
    pub fn set_server_param(&self, name: &str, value: &str) {
        self.param(&["set", &format!("{name}={value}")]);
    }

    /// The servers' tunable `name`, line by line.
    pub fn server_param(&self, name: &str) -> Vec<String> {
        let (said, prefix) = (self.param(&["get", name]), format!("{name}="));
        let lines = said.lines().filter_map(|line| line.strip_prefix(&prefix));
        lines.map(str::to_owned).collect()
    }

    /// Said by all servers that have such a tunable.
    fn param(&self, words: &[&str]) -> String {
        let asked = self.servers.iter().map(|server| server.param(words));
        let (said, wrong): (Vec<_>, Vec<_>) = asked.partition(Result::is_ok);
        assert!(!said.is_empty(), "{words:?}: {wrong:?}");
        said.into_iter().flatten().collect()
    }

    /// Counters of mount `number`.
    pub fn stats(&self, number: usize) -> serde_json::Value {
        self.told(number, &["stats", "--json"])
    }

    /// Files that mount `number` knows something of.
    pub fn files_known(&self, number: usize) -> u64 {
        let told = self.told(number, &["status", "--json"]);
        told[0]["sizes"][0].as_u64().expect("a number of files")
    }

    /// Files and directories that are open through mount `number`.
    pub fn open_count(&self, number: usize) -> u64 {
        let told = self.told(number, &["status", "--json"]);
        let sizes = &told[0]["sizes"];
        let of = |index: usize| sizes[index].as_u64().expect("a number of open files");
        of(1) + of(2)
    }

    /// What mount `number` has fetched ahead, walk by walk.
    pub fn walks(&self, number: usize) -> Vec<serde_json::Value> {
        let told = self.told(number, &["stats", "--walks", "--json"]);
        told.as_array().cloned().unwrap_or_default()
    }

    /// What a verb says of mount `number`, as JSON.
    fn told(&self, number: usize, verb: &[&str]) -> serde_json::Value {
        let output = Command::new(glint())
            .args(verb)
            .arg(self.root(number))
            .output()
            .expect("glint runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("it says JSON")
    }

    /// Sets a tunable of mount `number`.
    pub fn set_param(&self, number: usize, name: &str, value: u64) {
        let assignment = format!("llite.*.{name}={value}");
        let mut set = Command::new(glint());
        set.args(["param", "set", &assignment, "--mount"]);
        let status = set.arg(self.root(number)).status().expect("glint runs");
        assert!(status.success(), "{assignment}");
    }

    /// A tunable of mount `number`, as `glint param get` shows it.
    pub fn mount_param(&self, number: usize, name: &str) -> u64 {
        let mut get = Command::new(glint());
        get.args(["param", "get", &format!("llite.*.{name}"), "--mount"]);
        let output = get.arg(self.root(number)).output().expect("glint runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let value = said.trim().rsplit('=').next().map(str::parse);
        let value = value.and_then(Result::ok);
        value.unwrap_or_else(|| panic!("no value of {name}: {said:?} {output:?}"))
    }

    /// Requests that mount `number` sends during `work`, but for those about free space. Programs
    /// ask for that by the way, and the answer is kept for a moment only.
    pub fn requests(&self, number: usize, what: &str, work: impl FnOnce()) -> u64 {
        let frames = || {
            let stats = self.stats(number);
            let of_kind = |kind: &str| stats["requests"][kind].as_u64().unwrap_or(0);
            let all = stats["rpcs_sent"].as_u64().unwrap_or(0);
            all - of_kind("statfs") - of_kind("ost_statfs")
        };
        let before = frames();
        self.timed(what, work);
        let count = frames() - before;
        println!("{what}: {count} requests");
        count
    }

    /// Stops the server's process where it is: it answers nobody.
    pub fn freeze_server(&mut self) {
        self.servers.iter_mut().for_each(Server::freeze);
    }

    /// It goes on.
    pub fn thaw_server(&mut self) {
        self.servers.iter_mut().for_each(Server::thaw);
    }

    /// Stops the process of mount `number` where it is: it answers nobody.
    pub fn freeze_mount(&mut self, number: usize) {
        self.mounts[number].process.freeze();
    }

    /// It goes on.
    pub fn thaw_mount(&mut self, number: usize) {
        self.mounts[number].process.signal(Signal::SIGCONT);
    }

    /// Cuts mount `number` off from the servers, and nobody else.
    pub fn cut_off(&self, number: usize) {
        self.link(number).cut();
    }

    /// Mends that.
    pub fn mend(&self, number: usize) {
        self.link(number).mend();
    }

    fn link(&self, number: usize) -> &Link {
        let link = self.mounts[number].link.as_ref();
        link.expect("this cluster's mounts have links")
    }

    /// Kills the process of mount `number` as a crash would; a dead mount stays.
    pub fn kill_mount(&mut self, number: usize) {
        let process = &mut self.mounts[number].process;
        process.kill();
        self.watchdog.remove(process.pid());
    }

    /// The same; where its kernel waits for a read from it, so that it cannot end, the dead mount is
    /// taken off by force.
    pub fn kill_mount_by_force(&mut self, number: usize) {
        let mount = &mut self.mounts[number];
        mount.process.signal(Signal::SIGKILL);
        if !mount.process.ends_within(DYING_MAX) {
            abort(mount.process.pid(), &mount.point);
        }
        self.kill_mount(number);
    }

    /// Kills the process that serves mount `number` for its supervisor. False: none does just now.
    pub fn kill_worker(&self, number: usize) -> bool {
        self.signal_worker(number, Signal::SIGKILL)
    }

    /// Sends a signal to the process that serves mount `number` for its supervisor; false: there is
    /// none.
    pub fn signal_worker(&self, number: usize, signal: Signal) -> bool {
        let told = self.worker_pids(number).into_iter();
        told.filter(|pid| kill(Pid::from_raw(*pid as i32), signal).is_ok())
            .count()
            > 0
    }

    /// The process that serves mount `number` for its supervisor; none does between two.
    pub fn worker_pids(&self, number: usize) -> Vec<u32> {
        let supervisor = self.mounts[number].process.pid();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let numbers = children.split_whitespace();
        numbers.filter_map(|pid| pid.parse().ok()).collect()
    }

    /// A thread of the process that serves mount `number` waits inside the kernel, where nothing ends
    /// it.
    pub fn worker_is_stuck(&self, number: usize) -> bool {
        let pids = self.worker_pids(number);
        pids.into_iter().any(crate::threads::is_stuck)
    }

    /// Asks mount `number` to end.
    pub fn ask_mount_to_end(&mut self, number: usize) {
        self.mounts[number].process.signal(Signal::SIGTERM);
    }

    /// Waits for the process of mount `number` to be gone.
    pub fn wait_for_end(&mut self, number: usize) {
        let process = &mut self.mounts[number].process;
        assert!(process.ends_within(START_AND_END), "{}", process.said());
        self.watchdog.remove(process.pid());
    }

    /// What mount `number` has logged.
    pub fn said(&self, number: usize) -> String {
        self.mounts[number].process.said()
    }

    /// Waits until mount `number` has logged `words`.
    pub fn wait_for_log(&self, number: usize, words: &str) {
        let (process, start) = (&self.mounts[number].process, Instant::now());
        while !process.said().contains(words) {
            let waited = start.elapsed();
            assert!(waited < PATIENCE, "mount {number} does not say {words}");
            sleep(Duration::from_millis(10));
        }
    }

    /// Unmounts mount `number` cleanly.
    pub fn unmount(&mut self, number: usize) {
        let problem = end_mount(&mut self.mounts[number]);
        self.watchdog.remove(self.mounts[number].process.pid());
        assert_eq!(problem, None);
    }

    /// Kills the supervisor of mount `number`, and nobody else.
    pub fn kill_supervisor(&mut self, number: usize) {
        // The worker is watched from now on by nobody.
        self.mounts[number].process.kill();
    }

    /// Whether the process of mount `number` has ended.
    pub fn has_ended(&mut self, number: usize) -> bool {
        !matches!(self.mounts[number].process.child.try_wait(), Ok(None))
    }

    /// What `glint status` says of mount `number`, for people.
    pub fn status(&self, number: usize) -> String {
        let mut status = Command::new(glint());
        let output = status.arg("status").arg(self.root(number)).output();
        String::from_utf8_lossy(&output.expect("glint runs").stdout).into_owned()
    }

    /// Ends everything; what was not clean.
    fn end(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        let stuck = self.watchdog.stuck();
        if !stuck.is_empty() {
            problems.push(format!("processes {stuck:?} are in state D"));
        }
        for mount in &mut self.mounts {
            problems.extend(end_mount(mount));
        }
        problems.extend(self.servers.iter_mut().filter_map(Server::end));
        self.watchdog.end();
        problems
    }

    fn logs(&self) -> String {
        let mut text = String::new();
        let listed = fs::read_dir(self.dir.path())
            .into_iter()
            .flatten()
            .flatten();
        for path in listed.map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "log") {
                let said = fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<&str> = said.lines().collect();
                let last = lines[lines.len().saturating_sub(40)..].join("\n");
                text.push_str(&format!("--- {}\n{last}\n", path.display()));
            }
        }
        text
    }
}

/// Makes targets of these roles, each in a directory of its own below `dir` or where it says.
fn format(dir: &Path, layout: &Layout<'_>) -> Vec<PathBuf> {
    let mut targets: Vec<PathBuf> = Vec::new();
    for (number, (place, roles)) in layout.places.iter().enumerate() {
        let path = place.unwrap_or(dir).join(format!("targets{number}"));
        format_one(&path, (roles, layout.store), targets.first());
        targets.push(path);
    }
    targets
}

/// Where a test does not say what holds the bytes of objects, `MOUNTED_STORE` does: `files` tries the tests
/// over files.
fn format_one(path: &Path, (roles, store): (&str, Option<&str>), first: Option<&PathBuf>) {
    let mut format = Command::new(glint());
    format.arg("format").arg(path).args(["--role", roles]);
    let asked = std::env::var("MOUNTED_STORE").ok();
    if let Some(store) = store.or(asked.as_deref()) {
        format.args(["--store", store]);
    }
    if let Some(first) = first {
        format.arg("--join").arg(first);
    }
    let status = format.stdout(Stdio::null()).status().expect("glint runs");
    assert!(status.success(), "glint format: {status}");
}

/// A SIGTERM unmounts; what hangs is detached and killed, which is a finding.
fn end_mount(mount: &mut Mounted) -> Option<String> {
    let ended = ends_when_asked(&mut mount.process);
    let threads = match ended {
        true => String::new(),
        false => crate::threads::describe(mount.process.pid()),
    };
    if !ended {
        abort(mount.process.pid(), &mount.point);
    }
    mount.process.kill();
    // Of a process that was killed, a dead mount stays.
    let _ = nix::mount::umount2(&mount.point, MntFlags::MNT_DETACH);
    let said = mount.process.said();
    (!ended).then(|| format!("{} did not end:\n{said}\n{threads}", mount.point.display()))
}

/// Asks again where the mount was in use: for a moment a process that another test has just started has
/// what is open here, too.
fn ends_when_asked(process: &mut Process) -> bool {
    let (start, mut refusals) = (Instant::now(), process.said().matches(REFUSAL).count());
    process.signal(Signal::SIGTERM);
    while start.elapsed() < START_AND_END {
        if process.ends_within(Duration::from_millis(100)) {
            return true;
        }
        let refused = process.said().matches(REFUSAL).count();
        if refused > refusals {
            refusals = refused;
            process.signal(Signal::SIGTERM);
        }
    }
    false
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let problems = self.end();
        if std::thread::panicking() {
            eprintln!("{problems:?}\n{}", self.logs());
        } else {
            assert!(
                problems.is_empty(),
                "{}\n{}",
                problems.join("\n"),
                self.logs()
            );
        }
    }
}
