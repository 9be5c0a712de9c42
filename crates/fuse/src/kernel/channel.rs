//! Reader threads: take requests from the kernel and hand them to a [`Handler`].

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{debug, error, info};
use zerocopy::IntoBytes;

#[path = "takeover.rs"]
mod takeover;

use super::abi::{MAJOR, MINOR_OLDEST, Opcode, READ_BUFFER_MIN, UNIQUE_INTERRUPT};
use super::device::{Device, Received};
use super::errno::Errno;
use super::flusher::become_io_flusher;
use super::handler::{Handler, Heard};
use super::intake::{InHand, Intake};
use super::negotiation::{self, Granted, InitOffer, KernelLevel};
use super::notify::Notifier;
use super::replier::{Replier, ReplyPort};
use super::request::{Dialect, Fault, InitRequest, Malformed, Op, Request};
use super::watch::{Watch, WatchPost};

/// Room for everything of a request but a WRITE's data.
const HEAD_BYTES: usize = 4096;
/// Largest request other than WRITE: an extended attribute's value, with room to spare.
const BODY_BYTES_MIN: usize = 128 << 10;

/// How a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionConfig {
    /// Reader threads; at least 1.
    pub readers: usize,
    /// The kernel to act as if under.
    pub kernel: KernelLevel,
}

impl Default for SessionConfig {
    /// One reader a CPU, 2 to 4.
    fn default() -> SessionConfig {
        let cpus = thread::available_parallelism().map_or(2, usize::from);
        SessionConfig {
            readers: cpus.clamp(2, 4),
            kernel: KernelLevel::Running,
        }
    }
}

/// Why a session did not start.
#[derive(Debug)]
pub enum SessionError {
    /// The mount went away before its first request.
    Unmounted,
    /// The kernel speaks a version that is not served here.
    Version {
        /// The kernel's.
        major: u32,
        /// The kernel's.
        minor: u32,
    },
    /// The first request was not INIT, or could not be understood.
    Handshake(String),
    /// The device failed, or no thread could be started.
    Io(io::Error),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Unmounted => f.write_str("unmounted before it was ready"),
            SessionError::Version { major, minor } => write!(
                f,
                "the kernel speaks FUSE {major}.{minor}; {MAJOR}.{MINOR_OLDEST} or later is \
                 needed: use Linux 5.4 or later"
            ),
            SessionError::Handshake(why) => write!(f, "no FUSE handshake: {why}"),
            SessionError::Io(error) => write!(f, "cannot serve the mount: {error}"),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<io::Error> for SessionError {
    fn from(error: io::Error) -> SessionError {
        SessionError::Io(error)
    }
}

/// A mount being served.
///
/// Ends when the mount is gone; dropping this value does not end it.
#[derive(Debug)]
pub struct Session {
    threads: Vec<JoinHandle<()>>,
    granted: Granted,
    notifier: Notifier,
}

impl Session {
    /// Shakes hands on a freshly mounted device and starts the readers.
    pub fn start<H: Handler + ?Sized + 'static>(
        device: Device,
        handler: Arc<H>,
        config: SessionConfig,
    ) -> Result<Session, SessionError> {
        let (granted, _) = shake_hands(&device, &*handler, config.kernel)?;
        debug!(?granted, "handshake");
        Session::serve(queues(device, config.readers), granted, handler, false)
    }

    /// Shakes hands on the first of `devices`, which is freshly mounted, and ties the others to it.
    /// What the kernel offered is what [`Session::resume`] goes on with, here or in another process.
    pub fn prepare<H: Handler + ?Sized>(
        devices: &[Device],
        handler: &H,
        level: KernelLevel,
    ) -> Result<InitOffer, SessionError> {
        let (first, others) = devices.split_first().ok_or(SessionError::Unmounted)?;
        let (granted, offer) = shake_hands(first, handler, level)?;
        debug!(?granted, "handshake");
        for other in others {
            other.join(first)?;
        }
        Ok(offer)
    }

    /// Serves a mount after its handshake, with one reader for each device. `inherited`: another process
    /// served it before, and may have left requests unanswered.
    pub fn resume<H: Handler + ?Sized + 'static>(
        devices: Vec<Device>,
        offer: &InitOffer,
        handler: Arc<H>,
        inherited: bool,
    ) -> Result<Session, SessionError> {
        let devices = devices.into_iter().map(Arc::new).collect();
        let (granted, _) = negotiation::agree(offer, &handler.init(offer));
        Session::serve(devices, granted, handler, inherited)
    }

    fn serve<H: Handler + ?Sized + 'static>(
        devices: Vec<Arc<Device>>,
        granted: Granted,
        handler: Arc<H>,
        inherited: bool,
    ) -> Result<Session, SessionError> {
        let first = devices.first().ok_or(SessionError::Unmounted)?.clone();
        let intake = Arc::new(Intake::default());
        let notifier = Notifier::new(first, intake.clone(), &granted);
        handler.ready(&granted, &notifier);
        let shared = Arc::new(Shared {
            handler,
            granted,
            running: AtomicUsize::new(0),
            post: WatchPost::default(),
            intake,
            devices,
        });
        if inherited {
            // Before anybody reads: a request that a reader here has taken would be asked again as well.
            if let Err(error) = notifier.resend() {
                error!(%error, "what the process before had not answered stays so");
            }
            takeover::serve(&shared);
        }
        let threads = (0..shared.devices.len())
            .map(|index| start_reader(&shared, index))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Session {
            threads,
            granted,
            notifier,
        })
    }

    /// What the handshake agreed on.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// The way to tell the kernel what to forget.
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Whether the mount is gone and all readers have ended.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until the mount is gone and all readers have ended.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                error!("a reader thread panicked");
            }
        }
    }
}

/// The device and clones of it, or the device several times where it cannot be cloned. An ordinary
/// user may have got it from fusermount3 without being allowed to open it.
fn queues(device: Device, readers: usize) -> Vec<Arc<Device>> {
    let first = Arc::new(device);
    let mut devices = vec![first.clone()];
    while devices.len() < readers.max(1) {
        match first.try_clone_queue() {
            Ok(clone) => devices.push(Arc::new(clone)),
            Err(error) => {
                info!(%error, "/dev/fuse cannot be cloned; all readers share one queue");
                devices.resize(readers, first);
                break;
            }
        }
    }
    devices
}

fn shake_hands<H: Handler + ?Sized>(
    device: &Device,
    handler: &H,
    level: KernelLevel,
) -> Result<(Granted, InitOffer), SessionError> {
    let mut buffer = vec![0; READ_BUFFER_MIN.max(BODY_BYTES_MIN)];
    loop {
        device.wait();
        let size = match device.receive(&mut buffer)? {
            Received::Request(size) => size,
            Received::Nothing | Received::Missed => continue,
            Received::Gone => return Err(SessionError::Unmounted),
        };
        let (unique, init) = parse_init(&buffer[..size])?;
        if init.major < MAJOR || (init.major == MAJOR && init.minor < MINOR_OLDEST) {
            device.reply(unique, Err(Errno::EPROTO));
            return Err(SessionError::Version {
                major: init.major,
                minor: init.minor,
            });
        }
        if init.major > MAJOR {
            // The kernel will ask again in the version it is told here.
            device.reply(unique, Ok(&[&MAJOR.to_ne_bytes(), &[0; 4]]));
            continue;
        }
        let offer = negotiation::offer(&init, level);
        let (granted, answer) = negotiation::agree(&offer, &handler.init(&offer));
        device.reply(unique, Ok(&[answer.as_bytes()]));
        return Ok((granted, offer));
    }
}

fn parse_init(bytes: &[u8]) -> Result<(u64, InitRequest), SessionError> {
    let request = Request::parse(bytes, Dialect::default())
        .map_err(|malformed| SessionError::Handshake(malformed.to_string()))?;
    match request.op {
        Op::Init(init) => Ok((request.unique, init)),
        _ => Err(SessionError::Handshake(format!(
            "{:?} came before INIT",
            request.opcode
        ))),
    }
}

/// What the readers of one session have in common.
struct Shared<H: ?Sized> {
    granted: Granted,
    devices: Vec<Arc<Device>>,
    running: AtomicUsize,
    post: WatchPost,
    intake: Arc<Intake>,
    handler: Arc<H>,
}

impl<H: ?Sized> Shared<H> {
    /// Each device once, also where readers share one.
    fn distinct_devices(&self) -> &[Arc<Device>] {
        match &self.devices[..] {
            [first, second, ..] if Arc::ptr_eq(first, second) => &self.devices[..1],
            all => all,
        }
    }
}

fn start_reader<H: Handler + ?Sized + 'static>(
    shared: &Arc<Shared<H>>,
    index: usize,
) -> io::Result<JoinHandle<()>> {
    // Counted before it runs, so that the last one to end knows that it is the last.
    shared.running.fetch_add(1, Ordering::AcqRel);
    let reader = Reader {
        shared: shared.clone(),
        device: shared.devices[index].clone(),
    };
    let started = thread::Builder::new()
        .name(format!("fuse-{index}"))
        .spawn(move || {
            become_io_flusher();
            reader.run();
        });
    if started.is_err() {
        shared.running.fetch_sub(1, Ordering::AcqRel);
    }
    started
}

/// One thread's view: the device it reads.
struct Reader<H: Handler + ?Sized> {
    shared: Arc<Shared<H>>,
    device: Arc<Device>,
}

impl<H: Handler + ?Sized> Drop for Reader<H> {
    fn drop(&mut self) {
        if self.shared.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.handler.destroy();
        }
    }
}

impl<H: Handler + ?Sized> Reader<H> {
    /// Room for any request.
    fn buffer(&self) -> Vec<u8> {
        let body = (self.shared.granted.max_write as usize).max(BODY_BYTES_MIN);
        vec![0; HEAD_BYTES + body]
    }

    fn run(&self) {
        let mut buffer = self.buffer();
        let mut watch = self.shared.post.take();
        loop {
            match self.next(&mut watch, &mut buffer) {
                Ok(Some((size, in_hand))) => {
                    watch = self.take(watch, &buffer[..size], in_hand);
                }
                Ok(None) => break,
                Err(error) => {
                    error!(%error, "reading /dev/fuse failed; this reader ends");
                    break;
                }
            }
        }
        self.leave(watch);
    }

    /// Waits for a request, awake at first where one is expected at once. `None`: the mount is gone.
    fn next(
        &self,
        watch: &mut Watch,
        buffer: &mut [u8],
    ) -> io::Result<Option<(usize, InHand<'_>)>> {
        let (mut began, patience) = (Instant::now(), watch.wakefulness.patience());
        self.attend_from(watch, patience);
        // What came while the last was served is there at the first look.
        let mut waited = false;
        loop {
            let attended = watch.attending && self.shared.handler.attend();
            match self.shared.intake.take(|| self.device.receive(buffer))? {
                (Received::Request(size), Some(in_hand)) => {
                    watch.came(began.elapsed(), waited);
                    return Ok(Some((size, in_hand)));
                }
                (Received::Gone, _) => return Ok(None),
                _ => {}
            }
            let looked = began.elapsed();
            if attended {
                began = Instant::now();
            } else if looked < patience {
                // The thread that wants this CPU has better use for it.
                thread::yield_now();
                watch.wakefulness.gave_cpu_for(began.elapsed() - looked);
            } else {
                self.attend_no_more(watch);
                self.device.wait();
            }
            waited = true;
        }
    }

    fn attend_from(&self, watch: &mut Watch, patience: Duration) {
        if patience.is_zero() {
            return self.attend_no_more(watch);
        }
        awake::keep_cpus();
        if !std::mem::replace(&mut watch.attending, true) {
            self.shared.handler.wakes();
        }
    }

    fn attend_no_more(&self, watch: &mut Watch) {
        if std::mem::take(&mut watch.attending) {
            self.shared.handler.sleeps();
        }
    }

    fn leave(&self, watch: Watch) {
        let post = &self.shared.post;
        post.leave(watch, || self.shared.handler.sleeps());
    }

    /// Serves a request; another reader goes on watch if there is more to do than one can.
    fn take(&self, watch: Watch, bytes: &[u8], in_hand: InHand<'_>) -> Watch {
        let request = match Request::parse(bytes, self.shared.granted.dialect()) {
            Ok(request) => request,
            Err(malformed) => {
                self.refuse(&malformed);
                return watch;
            }
        };
        let alone = match request.opcode {
            Opcode::Forget | Opcode::BatchForget | Opcode::Releasedir => true,
            // Whether a file is open must be known when its name goes, by the caller's next call.
            Opcode::Release => true,
            // These move data, which takes its time.
            Opcode::Read | Opcode::Write | Opcode::Readdir | Opcode::Readdirplus => false,
            _ => !watch.falls_behind(),
        };
        if alone {
            self.guard(request, |request| self.dispatch(request));
            return watch;
        }
        self.leave(watch);
        self.guard(request, |request| self.dispatch(request));
        drop(in_hand);
        self.shared.post.take()
    }

    fn refuse(&self, malformed: &Malformed) {
        if malformed.fault == Fault::Opcode {
            debug!(%malformed, "not offered");
        } else {
            error!(%malformed, "the kernel sent what cannot be understood");
        }
        let errno = match malformed.fault {
            Fault::Opcode => Errno::ENOSYS,
            _ => Errno::EIO,
        };
        if let Some(unique) = malformed.unique {
            self.device.reply(unique, Err(errno));
        }
    }

    /// A panic in the handler fails the request it was about, whose replier answers EIO, and
    /// costs no reader. None: it panicked.
    fn guard<'a, T>(
        &self,
        request: Request<'a>,
        serve: impl FnOnce(Request<'a>) -> T,
    ) -> Option<T> {
        let (unique, opcode) = (request.unique, request.opcode);
        let served = catch_unwind(AssertUnwindSafe(|| serve(request)));
        if served.is_err() {
            error!(unique, ?opcode, "the handler panicked");
        }
        served.ok()
    }

    fn dispatch(&self, request: Request<'_>) {
        let handler = &self.shared.handler;
        match request.op {
            Op::Forget { lookups } => handler.forget(request.nodeid, lookups),
            Op::BatchForget(forgets) => {
                forgets.for_each(|(nodeid, lookups)| handler.forget(nodeid, lookups));
            }
            Op::Interrupt { unique } => self.interrupt(unique),
            Op::NotifyReply { offset, data } => handler.retrieved(request.unique, offset, data),
            Op::Destroy => drop(self.device.reply(request.unique, Ok(&[]))),
            Op::Init(_) => drop(self.device.reply(request.unique, Err(Errno::EPROTO))),
            _ if !self.shared.granted.knows(request.opcode) => {
                self.device.reply(request.unique, Err(Errno::ENOSYS));
            }
            _ => self.handle(request),
        }
    }

    fn handle(&self, request: Request<'_>) {
        let replier = self.replier(&request);
        self.shared.handler.handle(request, replier);
    }

    fn replier(&self, request: &Request<'_>) -> Replier {
        Replier::new(self.device.clone(), request.unique, request.opcode)
    }

    /// An interrupt can overtake its request, which another reader holds but has not handed over.
    /// The kernel then sends it again when told EAGAIN on the device the request was read from.
    fn interrupt(&self, unique: u64) {
        if self.shared.handler.interrupt(unique) == Heard::Noted {
            return;
        }
        thread::yield_now();
        for device in self.shared.distinct_devices() {
            device.reply(unique | UNIQUE_INTERRUPT, Err(Errno::EAGAIN));
        }
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
