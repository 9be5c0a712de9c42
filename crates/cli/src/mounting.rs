//! A mount being served: client, kernel rim and control socket together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use base::{Clock, TargetName};
use client::params::Params;
use client::{Client, MountConfig, Mounted, TakeoverState, Unwritten};
use fuse::kernel::mount::{MountOptions, Unmount, mount_on};
use fuse::kernel::{
    Device, InitFlags, InitOffer, KernelLevel, Mount, Session, SessionConfig, mount,
};
use fuse::translate::FileSystem;
use fuse::translate::gate::Gate;
use handover::Records;

use crate::control::ending::{Ending, FORCED};
use crate::control::of_mount::ServedMount;
use crate::control::of_targets::ServedTargets;
use crate::control::{Audience, ControlServer, path_for_dir, path_for_mount, path_for_process};
use crate::descriptors::Descriptors;
use crate::foreground::Stop;
use crate::memory;
use crate::output::complain;
use crate::supervisor::Held;

/// How long mounting waits for the root's attributes, from a server that may be away.
const ROOT_PATIENCE: Duration = Duration::from_secs(5);

/// Said when servers are away at the end.
const LEAVING: &str = "still waiting for servers to take what they do not have yet; stop it once \
                       more to leave at once: what was written since the last fsync may be lost";

/// Where to mount, and how.
pub struct MountWish {
    /// The directory.
    pub point: PathBuf,
    /// Where it is mounted from, for people; None: it is served here.
    pub source: Option<String>,
    /// The file system must be called so.
    pub name: Option<String>,
    /// Programs may get the rights of another user.
    pub setuid: bool,
    /// Devices may be opened.
    pub devices: bool,
    /// Programs may be run.
    pub exec: bool,
    /// The kernel may want times of access to be kept.
    pub access_times: bool,
    /// Other users may use it.
    pub allow_other: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// Sizes of files that are written to elsewhere may be old.
    pub lazy_size: bool,
    /// The kernel to act as if under.
    pub kernel: KernelLevel,
    /// How long its servers may take to answer at the beginning, if not as long as it takes.
    pub timeout: Option<Duration>,
}

impl MountWish {
    /// What the kernel is told of it.
    pub fn options(&self, fsname: &str) -> MountOptions {
        MountOptions {
            source: match &self.source {
                Some(source) => format!("{source}:/{fsname}"),
                None => fsname.to_owned(),
            },
            allow_other: self.allow_other,
            read_only: self.read_only,
            setuid: self.setuid,
            devices: self.devices,
            exec: self.exec,
            access_times: self.access_times,
            ..MountOptions::default()
        }
    }

    /// It is the file system that was meant.
    fn check_name(&self, fsname: &str) -> Result<(), String> {
        match &self.name {
            Some(name) if name != fsname => Err(format!(
                "the file system there is called '{fsname}', not '{name}'"
            )),
            _ => Ok(()),
        }
    }
}

/// A mount.
pub struct Mounting {
    mounted: Arc<std::sync::Mutex<Mounted>>,
    mount: Arc<Mount>,
    session: Option<Session>,
    client: Client,
    gate: Arc<Gate>,
    /// Where the next process of a supervised mount finds what it needs.
    records: Option<Records>,
    ending: Arc<Ending>,
    _control: ControlServer,
}

impl Mounting {
    /// Joins the file system and mounts it, or goes on with the mount of a process before, on what a
    /// supervisor holds too. `beside`: what this process serves, and from where.
    pub fn start(
        config: &MountConfig,
        wish: &MountWish,
        beside: Option<(ServedTargets, &Path)>,
        (held, descriptors): (Option<Held>, Descriptors),
        clock: Arc<dyn Clock>,
    ) -> Result<Mounting, String> {
        let (began, gate) = (Instant::now(), Arc::new(Gate::default()));
        let mounted = Mounted::join(config, gate.clone(), clock).map_err(|e| e.to_string())?;
        descriptors.suffice_to_mount(mounted.config().targets.len())?;
        let client = mounted.client().clone();
        let fsname = mounted.config().fsname.clone();
        wish.check_name(&fsname)?;
        let mounted = Arc::new(std::sync::Mutex::new(mounted));
        if config.takeover.is_some() {
            // A process that fails leaves as one that is killed: it says no goodbye, and keeps what it
            // knows for the next.
            std::mem::forget(mounted.clone());
        }
        tune(client.params(), wish)?;
        let files = FileSystem::new(gate.clone()).map_err(|error| error.to_string())?;
        files.serve(client.clone());
        // Who takes over has calls waiting.
        if config
            .takeover
            .as_ref()
            .is_none_or(|left| left.incarnation() == 1)
        {
            let mounted = mounted.lock().unwrap_or_else(|p| p.into_inner());
            wait_for_root(&mounted, wish.timeout, began)?;
        }
        let files = Arc::new(files);
        let options = wish.options(&fsname);
        let (devices, by) = held.map(|held| (held.devices, held.by)).unzip();
        let (mount, session) = match config.takeover.as_ref().zip(devices) {
            Some((takeover, devices)) => supervised(takeover, devices, wish, &options, &files)?,
            None => alone(wish, &options, &files)?,
        };
        if let Err(error) = mount.set_read_ahead(1 << 20) {
            tracing::debug!("read-ahead of the kernel stays as it is: {error}");
        }
        memory::spare_write_back(&mount);
        let (targets, dir) = beside.unzip();
        let (mount, ending) = (Arc::new(mount), Arc::<Ending>::default());
        let records = config.takeover.as_ref().map(|left| left.records().clone());
        let served = ServedMount {
            mount: mount.clone(),
            records: records.clone(),
            ending: ending.clone(),
            client: client.clone(),
            fsname,
            files,
            uuid: config.secret.uuid().to_string(),
            targets,
            by,
        };
        let control = answer_questions(served, wish, dir)?;
        Ok(Mounting {
            mounted,
            mount,
            session: Some(session),
            client,
            gate,
            records,
            ending,
            _control: control,
        })
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        self.mount.point()
    }

    /// Somebody unmounted it.
    fn has_ended(&self) -> bool {
        self.session.as_ref().is_none_or(Session::has_ended)
    }

    /// Takes it off, where it still is, and fails all that it is asked. No other process goes on.
    fn abort(&self) -> impl FnOnce() + Send + 'static {
        let (mount, records) = (self.mount.clone(), self.records.clone());
        let ending = self.ending.clone();
        move || {
            if let Some(records) = &records {
                client::end_serving(records);
            }
            drop(mount.unmount(Unmount::Abort));
            ending.tell(Err(FORCED.to_owned()));
        }
    }

    /// Serves until somebody unmounts it or `stop` wishes it, and it could be taken off. `stopped`, which is
    /// asked again and again, says which targets do not come back while this process lives.
    pub fn serve(&mut self, stop: &Stop, mut stopped: impl FnMut() -> Vec<TargetName> + Send) {
        loop {
            stop.wait(|| {
                stopped();
                self.has_ended()
            });
            let abort = self.abort();
            match stop.fulfil(|| self.stop(&mut stopped), LEAVING, abort) {
                Ok(()) => return,
                Err(reason) => complain(format!("{reason}; still mounted")),
            }
        }
    }

    /// Unmounts and leaves the file system; what targets that have `stopped` do not have is lost. `Err`: it
    /// is in use and stays.
    fn stop(
        &mut self,
        stopped: &mut (impl FnMut() -> Vec<TargetName> + Send),
    ) -> Result<(), String> {
        match self.has_ended() {
            true => self.mount.note_gone(),
            false => {
                let unmounted = self.mount.unmount(Unmount::Clean);
                unmounted.map_err(|error| error.to_string())?;
            }
        }
        let client = self.client.clone();
        let forsake = || {
            let gone = stopped().into_iter();
            gone.for_each(|target| client.forsake(target));
        };
        let left = beside(forsake, || self.leave());
        if let Some(records) = &self.records {
            // Whatever this process says at its end, another has nothing to go on with.
            client::end_serving(records);
        }
        self.ending
            .note(left.map_err(|unwritten| unwritten.to_string()));
        Ok(())
    }

    /// Answers what the kernel has asked, and makes all of it durable.
    fn leave(&mut self) -> Result<(), Unwritten> {
        if let Some(session) = self.session.take() {
            session.join();
        }
        self.gate.close();
        let mut mounted = self.mounted.lock().unwrap_or_else(|p| p.into_inner());
        mounted.leave()
    }

    /// How the end went: what is lost, if anything is.
    pub fn outcome(&self) -> Result<(), String> {
        self.ending.outcome().unwrap_or(Ok(()))
    }
}

/// Does something, and `look`s again and again meanwhile.
fn beside<T>(mut look: impl FnMut() + Send, run: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        // Dropped at the end, whatever that is.
        let (_running, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
                look();
            }
        });
        run()
    })
}

/// As long as the answer lives; also for the targets of `dir`, if this process serves such.
fn answer_questions(
    served: ServedMount,
    wish: &MountWish,
    dir: Option<&Path>,
) -> Result<ControlServer, String> {
    let audience = match wish.allow_other {
        true => Audience::Everybody,
        false => Audience::Own,
    };
    let mut control = ControlServer::start(path_for_mount(&served.mount)?, audience, served)?;
    control.also_at(path_for_process()?)?;
    if let Some(dir) = dir {
        control.also_at(path_for_dir(dir)?)?;
    }
    Ok(control)
}

/// Mounts, and serves the mount as long as this process lives.
fn alone(
    wish: &MountWish,
    options: &MountOptions,
    files: &Arc<FileSystem>,
) -> Result<(Mount, Session), String> {
    let (mount, device) = mount(&wish.point, options).map_err(|error| error.to_string())?;
    let config = SessionConfig {
        kernel: wish.kernel,
        ..SessionConfig::default()
    };
    let session = Session::start(device, files.clone(), config);
    Ok((mount, session.map_err(|error| error.to_string())?))
}

/// Who uses the mount finds its metadata server met, or has been told that it is away. With a `timeout`
/// nobody mounts in vain.
fn wait_for_root(
    mounted: &Mounted,
    timeout: Option<Duration>,
    began: Instant,
) -> Result<(), String> {
    let patience = timeout.unwrap_or(ROOT_PATIENCE);
    // The time in which the management service answered counts.
    let left = timeout.map_or(patience, |timeout| timeout.saturating_sub(began.elapsed()));
    if mounted.meet_root(left) {
        return Ok(());
    }
    let away = format!("mdt0 has not answered for {} s", patience.as_secs());
    if timeout.is_some() {
        return Err(format!(
            "{away}; start glint serve where it is, or look at glint status there, and mount again"
        ));
    }
    complain(format!("{away}; mounted, and calls wait for it"));
    Ok(())
}

/// Serves what another process may go on serving. Mounts, if this is the first.
fn supervised(
    takeover: &TakeoverState,
    devices: Vec<Device>,
    wish: &MountWish,
    options: &MountOptions,
    files: &Arc<FileSystem>,
) -> Result<(Mount, Session), String> {
    let first = devices.first().ok_or("the supervisor left no device")?;
    let (mount, offer) = match client::offer(takeover.records()) {
        Some((minor, flags, max_readahead)) => {
            let flags = InitFlags(flags);
            let mount = Mount::adopt(&wish.point).map_err(|error| error.to_string())?;
            let offer = InitOffer {
                minor,
                flags,
                max_readahead,
            };
            (mount, offer)
        }
        None => {
            let mount = mount_on(&wish.point, options, first).map_err(|error| error.to_string())?;
            let offer = Session::prepare(&devices, &**files, wish.kernel);
            let offer = offer.map_err(|error| error.to_string())?;
            let agreed = (offer.minor, offer.flags.0, offer.max_readahead);
            client::note_offer(takeover.records(), agreed);
            (mount, offer)
        }
    };
    let inherited = takeover.incarnation() > 1;
    let session = Session::resume(devices, &offer, files.clone(), inherited);
    let session = session.map_err(|error| error.to_string())?;
    let granted = session.granted();
    if granted.resends() && granted.increments_epoch() {
        client::begin_serving(takeover.records());
    } else {
        tracing::warn!(
            "this kernel cannot send requests again, or forget all names, as Linux 6.16 can: if \
             this process is killed, no other goes on"
        );
    }
    Ok((mount, session))
}

/// About what a file's name and attributes take in memory.
const ENTRY_BYTES: u64 = 400;

/// As the person wishes, and as the memory allows.
fn tune(params: &Params, wish: &MountWish) -> Result<(), String> {
    params.set("lazy_size", u64::from(wish.lazy_size))?;
    if let Some(bytes) = memory::limit() {
        fit(params, bytes);
    }
    Ok(())
}

/// Takes an eighth of `memory` for cached bytes; and no more than that for unwritten ones, and for
/// names and attributes.
fn fit(params: &Params, memory: u64) {
    let share = memory / 8;
    // Out of bounds only on machines too small to serve anything.
    let _ = params.set("cache_bytes_max", share);
    if share < params.dirty_max() {
        let _ = params.set("dirty_max", share);
    }
    if share / ENTRY_BYTES < params.cache_entries_max() {
        let _ = params.set("cache_entries_max", share / ENTRY_BYTES);
    }
}
