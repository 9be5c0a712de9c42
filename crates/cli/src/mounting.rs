//! A mount being served: client, kernel rim and control socket together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use base::{Clock, TargetName};
use client::params::Params;
use client::{Client, MountConfig, Mounted, TakeoverState, Unwritten};
use fuse::kernel::mount::{Elsewhere, MountOptions, Unmount, elsewhere, mount_on};
use fuse::kernel::{
    Device, InitFlags, InitOffer, KernelLevel, Mount, Session, SessionConfig, mount,
};
use fuse::translate::FileSystem;
use fuse::translate::gate::Gate;
use handover::Records;
use rpc::Policy;

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

/// How often it is looked whether the end is wished, or the process's targets have stopped.
const LOOK: Duration = Duration::from_millis(50);

/// How often it is looked who keeps a mount that is off here.
const LOOK_ELSEWHERE: Duration = Duration::from_secs(1);

/// The wait for the kernel's last word to a mount.
const LAST_WORD: Duration = Duration::from_millis(10);

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
    /// Joins the file system and mounts it, or takes over the mount of a process before from the supervisor.
    /// The argument `beside` holds the targets that this process serves, and their directory.
    pub fn start(
        config: &MountConfig,
        wish: &MountWish,
        beside: Option<(ServedTargets, &Path)>,
        (held, descriptors): (Option<Held>, Descriptors),
        (clock, stop): (Arc<dyn Clock>, &Stop),
    ) -> Result<Mounting, String> {
        let (began, gate) = (Instant::now(), Arc::new(Gate::default()));
        let joined = join(config, wish, gate.clone(), (descriptors, clock))?;
        let (client, fsname) = (joined.client().clone(), joined.config().fsname.clone());
        let mounted = Arc::new(std::sync::Mutex::new(joined));
        let takes_over = |left: &Arc<TakeoverState>| left.incarnation() > 1;
        let takes_over = config.takeover.as_ref().is_some_and(takes_over);
        // A process that fails leaves as one that is killed: it says no goodbye, and keeps what it knows for
        // the next.
        let leave_like_killed = || std::mem::forget(mounted.clone());
        if takes_over {
            leave_like_killed();
        }
        tune(client.params(), wish)?;
        client.inherit_params();
        let files = FileSystem::new(gate.clone()).map_err(|error| error.to_string())?;
        files.serve(client.clone());
        // A process that takes over has calls waiting.
        if !takes_over {
            let mounted = mounted.lock().unwrap_or_else(|p| p.into_inner());
            wait_for_root(&mounted, config.policy, wish.timeout, began)?;
        }
        let files = Arc::new(files);
        let options = wish.options(&fsname);
        let (devices, by) = held.map(|held| (held.devices, held.by)).unzip();
        let (mount, service) = match config.takeover.as_ref().zip(devices) {
            Some((takeover, devices)) => supervised(takeover, devices, wish, &options, &files)?,
            None => alone(wish, &options)?,
        };
        let (targets, dir) = beside.unzip();
        let (mount, ending) = (Arc::new(mount), Arc::<Ending>::default());
        let records = config.takeover.as_ref().map(|left| left.records().clone());
        let served = ServedMount {
            mount: mount.clone(),
            records: records.clone(),
            ending: ending.clone(),
            client: client.clone(),
            fsname,
            files: files.clone(),
            uuid: config.secret.uuid().to_string(),
            targets,
            by,
        };
        // A takeover may wait for servers: `glint status` tells which.
        let control = answer_questions(served, wish, dir)?;
        let mut mounting = Mounting {
            mounted: mounted.clone(),
            mount,
            session: None,
            client,
            gate,
            records,
            ending,
            _control: control,
        };
        mounting.session = Some(mounting.begin(service, files, stop)?);
        if config.takeover.is_some() && !takes_over {
            leave_like_killed();
        }
        if let Err(error) = mounting.mount.set_read_ahead(1 << 20) {
            tracing::debug!("read-ahead of the kernel stays as it is: {error}");
        }
        memory::spare_write_back(&mounting.mount);
        Ok(mounting)
    }

    /// Begins to serve. A takeover may wait for servers, and `stop` may ask for the end meanwhile.
    fn begin(
        &self,
        service: Service,
        files: Arc<FileSystem>,
        stop: &Stop,
    ) -> Result<Session, String> {
        if !service.takes_over() {
            return service.begin(files);
        }
        std::thread::scope(|scope| {
            // Dropped when the takeover is over.
            let (_taking_over, is_over) = mpsc::channel::<()>();
            scope.spawn(move || self.end_meanwhile(stop, &is_over));
            service.begin(files)
        })
    }

    /// Takes the mount off if `stop` asks for it before the takeover `is_over`. What the process before had
    /// not sent is with the servers when it is over; until then a second wish ends the process.
    fn end_meanwhile(&self, stop: &Stop, is_over: &mpsc::Receiver<()>) {
        while is_over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if !stop.is_wished() {
                continue;
            }
            let end = || {
                if self.mount.is_mounted() {
                    let unmounted = self.mount.unmount(Unmount::Clean);
                    unmounted.map_err(|error| error.to_string())?;
                }
                // Nothing is sent: this fails as soon as the takeover is over.
                let _ = is_over.recv();
                Ok::<(), String>(())
            };
            if let Err(reason) = stop.fulfil(end, self.waiting(), self.abort()) {
                complain(format!("{reason}; still mounted"));
            }
        }
    }

    /// What an end that takes long waits for, in words.
    fn waiting(&self) -> impl FnOnce() -> String + Send + 'static {
        let (client, mount) = (self.client.clone(), self.mount.clone());
        move || match keeper(&mount, &client) {
            Some(Keeper::Using(there)) => format!(
                "off here, and still used in {there}; stop it once more to leave at once: calls there \
                 fail then"
            ),
            _ => format!("{LEAVING} ({})", client.backlog()),
        }
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        self.mount.point()
    }

    /// Somebody unmounted it.
    fn has_ended(&self) -> bool {
        self.session.as_ref().is_none_or(Session::has_ended)
    }

    /// The other mount namespace that keeps what is off here, where no process uses it: that must not hold up
    /// the end. It is looked again when some time has passed since it was `looked` last.
    fn left_to(&self, looked: &mut Instant) -> Option<Elsewhere> {
        if looked.elapsed() < LOOK_ELSEWHERE {
            return None;
        }
        *looked = Instant::now();
        match keeper(&self.mount, &self.client)? {
            Keeper::Idle(there) => Some(there),
            Keeper::Using(_) => None,
        }
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

    /// Serves until the mount is taken off, by another process or because `stop` asks for it. The function
    /// `stopped`, called again and again, returns the targets that do not come back while this process lives.
    pub fn serve(&mut self, stop: &Stop, mut stopped: impl FnMut() -> Vec<TargetName> + Send) {
        loop {
            let mut looked = Instant::now();
            stop.wait(|| {
                stopped();
                self.has_ended() || self.left_to(&mut looked).is_some()
            });
            let (waiting, abort) = (self.waiting(), self.abort());
            match stop.fulfil(|| self.stop(&mut stopped), waiting, abort) {
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
        let is_idle = || matches!(keeper(&self.mount, &self.client), Some(Keeper::Idle(_)));
        match self.has_ended() || is_idle() {
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
            self.outwait(session);
        }
        self.gate.close();
        let mut mounted = self.mounted.lock().unwrap_or_else(|p| p.into_inner());
        mounted.leave()
    }

    /// Waits until the kernel asks nothing more. With this process its device goes, and calls in mount
    /// namespaces that this mount is left to fail.
    fn outwait(&self, session: Session) {
        let mut looked = Instant::now();
        while !session.has_ended() {
            if let Some(there) = self.left_to(&mut looked) {
                return tracing::warn!(
                    "ends although it is mounted in {there}, where nobody uses it"
                );
            }
            std::thread::sleep(LAST_WORD);
        }
        session.join();
    }

    /// How the end went: what is lost, if anything is.
    pub fn outcome(&self) -> Result<(), String> {
        self.ending.outcome().unwrap_or(Ok(()))
    }
}

/// Another mount namespace that has a mount which is off here.
enum Keeper {
    /// A process works there in the mount, or has files of it open.
    Using(Elsewhere),
    /// No process does.
    Idle(Elsewhere),
}

fn keeper(mount: &Mount, client: &Client) -> Option<Keeper> {
    if mount.is_mounted() {
        return None;
    }
    let all = elsewhere(mount.number()?);
    let [_, files, directories, _] = client.sizes();
    match all.iter().find(|there| there.is_inside) {
        Some(inside) => Some(Keeper::Using(inside.clone())),
        None if files + directories > 0 => all.into_iter().next().map(Keeper::Using),
        None => all.into_iter().next().map(Keeper::Idle),
    }
}

/// Does something, and `look`s again and again meanwhile.
fn beside<T>(mut look: impl FnMut() + Send, run: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        // Dropped at the end, whatever that is.
        let (_running, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
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

/// What is mounted, and has yet to be served.
enum Service {
    /// As long as this process lives.
    Alone(Device, SessionConfig),
    /// Another process may go on with it.
    Supervised {
        takeover: Arc<TakeoverState>,
        devices: Vec<Device>,
        offer: InitOffer,
    },
}

impl Service {
    /// Another process has served it before.
    fn takes_over(&self) -> bool {
        matches!(self, Service::Supervised { takeover, .. } if takeover.incarnation() > 1)
    }

    /// Serves it, when what another process left is in order.
    fn begin(self, files: Arc<FileSystem>) -> Result<Session, String> {
        let (takeover, session) = match self {
            Service::Alone(device, config) => (None, Session::start(device, files, config)),
            Service::Supervised {
                takeover,
                devices,
                offer,
            } => {
                let inherited = takeover.incarnation() > 1;
                let session = Session::resume(devices, &offer, files, inherited);
                (Some(takeover), session)
            }
        };
        let session = session.map_err(|error| error.to_string())?;
        let granted = session.granted();
        match takeover {
            Some(takeover) if granted.resends() && granted.increments_epoch() => {
                client::begin_serving(takeover.records());
            }
            Some(_) => tracing::warn!(
                "this kernel cannot send requests again, or forget all names, as Linux 6.16 can: if \
                 this process is killed, no other goes on"
            ),
            None => {}
        }
        Ok(session)
    }
}

/// Joins the file system that `wish` means.
fn join(
    config: &MountConfig,
    wish: &MountWish,
    gate: Arc<Gate>,
    (descriptors, clock): (Descriptors, Arc<dyn Clock>),
) -> Result<Mounted, String> {
    let mounted = Mounted::join(config, gate, clock).map_err(|error| error.to_string())?;
    descriptors.suffice_to_mount(mounted.config().targets.len())?;
    wish.check_name(&mounted.config().fsname)?;
    Ok(mounted)
}

/// Mounts.
fn alone(wish: &MountWish, options: &MountOptions) -> Result<(Mount, Service), String> {
    let (mount, device) = mount(&wish.point, options).map_err(|error| error.to_string())?;
    let config = SessionConfig {
        kernel: wish.kernel,
        ..SessionConfig::default()
    };
    Ok((mount, Service::Alone(device, config)))
}

/// Who uses the mount finds its metadata server met, or has been told that it is away. With a `timeout`
/// nobody mounts in vain.
fn wait_for_root(
    mounted: &Mounted,
    policy: Policy,
    timeout: Option<Duration>,
    began: Instant,
) -> Result<(), String> {
    let patience = timeout.unwrap_or(ROOT_PATIENCE);
    // The time in which the management service answered counts.
    let left = timeout.map_or(patience, |timeout| timeout.saturating_sub(began.elapsed()));
    if mounted.meet_root(left, policy) {
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

/// What another process may go on serving. Mounts, if this is the first.
fn supervised(
    takeover: &Arc<TakeoverState>,
    devices: Vec<Device>,
    wish: &MountWish,
    options: &MountOptions,
    files: &Arc<FileSystem>,
) -> Result<(Mount, Service), String> {
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
    let takeover = takeover.clone();
    let service = Service::Supervised {
        takeover,
        devices,
        offer,
    };
    Ok((mount, service))
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
