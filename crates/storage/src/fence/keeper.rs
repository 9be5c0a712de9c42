//! A fence as a file: waiting for it, keeping it, letting it go, and the question whether it may
//! still be written.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use base::Tick;
use nix::time::{ClockId, clock_gettime};

use super::block::{BEAT_AT, CLAIM_AT, Claim, FENCE_BYTES, Owner, SECTOR_BYTES, Sector};
use super::claim::{ClaimView, Claimant, Doubt, Loss, Todo};
use super::lease::Lease;
use super::pace::Pace;
use super::process::Process;
use crate::anchor::Anchor;
use crate::error::{Result, StorageError, is_out_of_descriptors};
use crate::regular;
use crate::target::SystemRandom;

/// Its file in a target's directory.
pub(crate) const FENCE: &str = "fence";
/// How long it is tried to keep a fence that cannot be written or read. Nothing else is written
/// meanwhile.
const FAILING_MAX: Duration = Duration::from_secs(60);
/// The same while the process ends, which a storage that fails does not hold up for longer.
const FAILING_AT_END_MAX: Duration = Duration::from_secs(2);
/// Who waits for a look at the fence wakes this often to see whether it came.
const WAIT: Duration = Duration::from_millis(50);

/// Where a fence is kept.
pub(super) trait Sectors: Send + Sync {
    /// Both sectors, as others would see them now.
    fn read(&self) -> Result<ClaimView>;
    /// A claim, durably.
    fn write_claim(&self, claim: &Sector) -> Result<()>;
    /// A sign of life: for others to see, not to outlive a power cut.
    fn write_beat(&self, beat: &Sector) -> Result<()>;
}

/// A file, opened anew each time. A network file system looks at the server then, and tells it what
/// was written when the file is closed. Where no descriptor is left for that, it is the one that
/// was opened at the start and kept: a fence is never lost for want of a descriptor.
struct FenceFile {
    dir: Anchor,
    /// For people.
    path: PathBuf,
    kept: File,
}

impl FenceFile {
    /// The existing one in `dir`.
    fn open(dir: Anchor) -> Result<FenceFile> {
        let path = dir.path().join(FENCE);
        let opened = open_existing(&dir);
        let kept = opened.map_err(|error| failed(&path, "open it", &error))?;
        Ok(FenceFile { dir, path, kept })
    }

    fn error(&self, action: &'static str) -> impl Fn(std::io::Error) -> StorageError {
        move |error| failed(&self.path, action, &error)
    }

    /// To be used once.
    fn again(&self) -> Result<Opened<'_>> {
        match open_existing(&self.dir) {
            Err(error) if is_out_of_descriptors(&error) => Ok(Opened::Kept(&self.kept)),
            opened => opened.map(Opened::Anew).map_err(self.error("open it")),
        }
    }

    fn write(&self, offset: u64, sector: &Sector) -> Result<Opened<'_>> {
        let file = self.again()?;
        let written = file.write_all_at(sector, offset);
        written.map_err(self.error("write it")).map(|()| file)
    }
}

/// A fence's file.
enum Opened<'f> {
    Anew(File),
    /// No close tells others what is written to this one.
    Kept(&'f File),
}

impl Deref for Opened<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Opened::Anew(file) => file,
            Opened::Kept(file) => file,
        }
    }
}

fn open_existing(dir: &Anchor) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    regular::open(&dir.reach(FENCE), options.read(true).write(true))
}

fn failed(path: &Path, action: &'static str, error: &std::io::Error) -> StorageError {
    StorageError::from_io(path.display(), action, error)
}

impl Sectors for FenceFile {
    fn read(&self) -> Result<ClaimView> {
        let file = self.again()?;
        let read = |offset| {
            let mut sector = [0; SECTOR_BYTES];
            let read = file.read_exact_at(&mut sector, offset);
            read.map_err(self.error("read it")).map(|()| sector)
        };
        Ok(ClaimView {
            claim: read(CLAIM_AT)?,
            beat: read(BEAT_AT)?,
        })
    }

    fn write_claim(&self, claim: &Sector) -> Result<()> {
        let file = self.write(CLAIM_AT, claim)?;
        file.sync_data().map_err(self.error("sync it"))
    }

    fn write_beat(&self, beat: &Sector) -> Result<()> {
        match self.write(BEAT_AT, beat)? {
            Opened::Anew(_) => Ok(()),
            Opened::Kept(file) => file.sync_data().map_err(self.error("sync it")),
        }
    }
}

/// Makes the fence of a new target in the directory `dir`: nobody has it, and who starts the target
/// on this machine need not wait.
pub(crate) fn make(dir: &Path) -> Result<()> {
    let fence = made(dir)?;
    let process = Process::this().map_err(fence.error("identify the process that makes"))?;
    let claim = Claim {
        held: false,
        owner: [0; 16],
        epoch: 0,
        process,
    };
    fence.write_claim(&claim.encode())
}

/// That of the target in `dir`; an empty one where the target has none.
fn made(dir: &Path) -> Result<FenceFile> {
    let path = dir.join(FENCE);
    let dir = Anchor::open(dir).map_err(|error| failed(dir, "open it", &error))?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let made = regular::open(&dir.reach(FENCE), &mut options);
    let made = made.map_err(|error| failed(&path, "make it", &error))?;
    let found = made.metadata();
    let found = found.map_err(|error| failed(&path, "stat it", &error))?;
    if found.len() < FENCE_BYTES {
        // With its space: it must be possible to take and to keep it on a full disk.
        let filled = made.write_all_at(&[0; FENCE_BYTES as usize], 0);
        filled.map_err(|error| failed(&path, "write it", &error))?;
        let synced = made.sync_all();
        synced.map_err(|error| failed(&path, "sync it", &error))?;
    }
    FenceFile::open(dir)
}

/// Takes the fences of the targets in these directories for `process`; all of them, or none.
pub(crate) fn take_all(dirs: &[&Path], process: &Process) -> Result<Vec<Arc<Fence>>> {
    let mut wanted = Vec::new();
    for dir in dirs {
        let file = made(dir)?;
        let at = dir.display().to_string();
        wanted.push((at, Arc::new(file) as Arc<dyn Sectors>));
    }
    take(wanted, process, Pace::USUAL)
}

pub(super) fn take(
    wanted: Vec<(String, Arc<dyn Sectors>)>,
    process: &Process,
    pace: Pace,
) -> Result<Vec<Arc<Fence>>> {
    let mut random =
        SystemRandom::open().map_err(|e| StorageError::from_io("/dev/urandom", "open it", &e))?;
    let mut takers = Vec::new();
    for (at, sectors) in wanted {
        let owner = random.bytes();
        let owner = owner.map_err(|e| StorageError::from_io("/dev/urandom", "read it", &e))?;
        takers.push(Taker {
            at,
            sectors,
            owner,
            claimant: Claimant::new(process.clone(), owner, pace),
            is_held: false,
            fence: None,
            has_said: false,
        });
    }
    // What was taken is let go where another is not to be had.
    while takers.iter().any(|taker| taker.fence.is_none()) {
        for taker in takers.iter_mut().filter(|taker| taker.fence.is_none()) {
            taker.step(process, pace)?;
        }
        if takers.iter().any(|taker| taker.fence.is_none()) {
            std::thread::sleep(pace.poll);
        }
    }
    Ok(takers
        .into_iter()
        .filter_map(|mut taker| taker.fence.take())
        .collect())
}

/// One fence on the way to being held.
struct Taker {
    at: String,
    sectors: Arc<dyn Sectors>,
    owner: Owner,
    claimant: Claimant,
    /// Once held, it is the fence that lets itself go.
    is_held: bool,
    fence: Option<Arc<Fence>>,
    has_said: bool,
}

impl Taker {
    fn step(&mut self, process: &Process, pace: Pace) -> Result<()> {
        let (began, view) = (tick(), self.sectors.read()?);
        let mut todo = self
            .claimant
            .look(began, &view, |holder| holder.is_gone(process));
        if let Todo::Write(claim) = &todo {
            self.sectors.write_claim(claim)?;
            todo = self.claimant.written(tick());
        }
        match todo {
            Todo::Hold(began) => {
                let lease = Lease::new(self.owner, *self.claimant.claim(), began, pace);
                let place = (self.at.clone(), self.sectors.clone());
                self.fence = Some(Fence::keep(place, process.clone(), lease, pace)?);
                self.is_held = true;
            }
            Todo::Lose(loss) => return Err(refused(&self.at, loss, process)),
            Todo::LookAfter(_) | Todo::Write(_) => self.say_that_it_waits(process),
        }
        Ok(())
    }

    fn say_that_it_waits(&mut self, me: &Process) {
        let Some((doubt, time)) = self.claimant.waits_for() else {
            return;
        };
        if !std::mem::replace(&mut self.has_said, true) {
            tracing::warn!(
                "{}: {}; {} s are spent on seeing that nobody else writes to it",
                self.at,
                told(&doubt, me),
                time.as_secs()
            );
        }
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        if !self.is_held {
            let claim = *self.claimant.claim();
            let lease = Lease::new(self.owner, claim, tick(), Pace::USUAL);
            let_go(&self.at, &*self.sectors, &lease);
        }
    }
}

/// Why a start has to wait, for people.
fn told(doubt: &Doubt, me: &Process) -> String {
    match doubt {
        Doubt::Nothing => "it had no fence that names its last server".to_owned(),
        Doubt::Unreadable => "its fence, which names its last server, cannot be read".to_owned(),
        Doubt::OtherKernel(process) if process.host == me.host => format!(
            "it was served last by {process}, before this machine was booted or on another of \
             that name"
        ),
        Doubt::OtherKernel(process) => format!("it was served last by {process}"),
        Doubt::ThisKernel(process) => format!("it was served last by {}", named(process, me)),
    }
}

/// Who holds a fence, for people on the machine of `me`.
fn named(holder: &Process, me: &Process) -> String {
    match holder.kernel == me.kernel {
        true if holder.space == me.space => format!("process {} on this machine", holder.pid),
        true => format!(
            "process {} in another container of this machine",
            holder.pid
        ),
        false => holder.to_string(),
    }
}

/// Why a target is not served: somebody else does it.
fn refused(at: &str, loss: Loss, me: &Process) -> StorageError {
    let at = at.to_owned();
    match loss {
        Loss::Held(process) => StorageError::Fenced {
            at,
            holder: named(&process, me),
        },
        Loss::HeldByUnknown => StorageError::Fenced {
            at,
            holder: "a process that cannot be named".to_owned(),
        },
        Loss::ForeignVersion(found) => StorageError::ForeignVersion {
            at: format!("{at}/{FENCE}"),
            found,
            ours: 1,
        },
    }
}

/// Lets go of a fence, if the claim of `lease` is what stands there.
fn let_go(at: &str, sectors: &dyn Sectors, lease: &Lease) {
    let Some(free) = lease.let_go() else { return };
    let is_ours = sectors.read().is_ok_and(|view| lease.is(&view.claim));
    if is_ours && let Err(error) = sectors.write_claim(&free) {
        tracing::warn!("{at}: the next start may have to wait: {error}");
    }
}

/// Time that passes while the machine sleeps, too.
fn tick() -> Tick {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock since 2.6.39");
    Tick(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// What is done when a fence is lost, before any write that waits for it fails.
type OnLoss = Box<dyn FnOnce(&StorageError) + Send>;

/// A fence that is held, until it is let go or dropped.
pub struct Fence {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    at: String,
    sectors: Arc<dyn Sectors>,
    /// Whose it is.
    holder: Process,
    /// A tick: until then what is guarded may be written.
    until: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ending: bool,
    /// The process ends: a failing fence is tried for less long.
    hurried: bool,
    lost: Option<StorageError>,
    on_loss: Vec<OnLoss>,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fence of {}", self.shared.at)
    }
}

impl Fence {
    fn keep(
        (at, sectors): (String, Arc<dyn Sectors>),
        holder: Process,
        lease: Lease,
        pace: Pace,
    ) -> Result<Arc<Fence>> {
        let shared = Arc::new(Shared {
            at,
            sectors,
            holder,
            until: AtomicU64::new(lease.until().0),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (kept, thread) = (shared.clone(), Builder::new().name("fence".to_owned()));
        let thread = thread.spawn(move || kept.run(lease, pace));
        let thread = thread
            .map_err(|e| StorageError::from_io(&shared.at, "start a thread for its fence", &e))?;
        Ok(Arc::new(Fence {
            shared,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// What it guards may be written now. Where that is not certain, because the process stood still
    /// for some seconds or the storage did, it waits until the fence was looked at.
    pub fn check(&self) -> Result<()> {
        if self.is_held() {
            return Ok(());
        }
        self.shared.wait()
    }

    /// What it guards may be written now; false also where that is only not certain.
    pub fn is_held(&self) -> bool {
        tick().0 < self.shared.until.load(Ordering::Acquire)
    }

    /// Calls `act` when the fence is lost, before any write that waits for it fails: it may end the
    /// process.
    pub fn on_loss(&self, act: impl FnOnce(&StorageError) + Send + 'static) {
        let mut state = self.shared.state();
        match state.lost.clone() {
            None => state.on_loss.push(Box::new(act)),
            Some(cause) => {
                drop(state);
                act(&cause);
            }
        }
    }

    /// Why it is held no longer.
    pub fn lost(&self) -> Option<StorageError> {
        self.shared.state().lost.clone()
    }
}

impl Fence {
    /// What it guards is written for the last time: a fence that cannot be kept holds that up for seconds.
    pub fn hurry(&self) {
        self.shared.state().hurried = true;
    }

    /// Others may have it at once. What it guards cannot be written by this process any more.
    pub fn let_go(&self) {
        self.shared.state().ending = true;
        self.shared.changed.notify_all();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the keeper of the fence of {} panicked", self.shared.at);
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Shared {
    // Changed in single steps.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Result<()> {
        let mut state = self.state();
        loop {
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            if tick().0 < self.until.load(Ordering::Acquire) {
                return Ok(());
            }
            let woken = self.changed.wait_timeout(state, WAIT);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Keeps the fence until it is let go or lost.
    fn run(&self, mut lease: Lease, pace: Pace) {
        let mut has_warned = false;
        loop {
            match self.beat(&mut lease) {
                Ok(Ok(())) => {
                    self.until.store(lease.until().0, Ordering::Release);
                    self.changed.notify_all();
                    has_warned = false;
                }
                Ok(Err(loss)) => {
                    let by = match refused(&self.at, loss, &self.holder) {
                        StorageError::Fenced { holder, .. } => holder,
                        other => other.to_string(),
                    };
                    return self.lose(format!(
                        "its fence was taken by {by} while this process stood still"
                    ));
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_warned, true) {
                        tracing::warn!("nothing is written until its fence can be kept: {error}");
                    }
                    if tick().since(lease.until()) > self.patience(&error) {
                        return self.lose(format!("its fence cannot be kept any more: {error}"));
                    }
                }
            }
            if self.ends_within(pace.beat) {
                break;
            }
        }
        if let Err(error) = self.sectors.read()
            && error.is_missing()
        {
            return self.lose(format!("it was removed while it was served: {error}"));
        }
        // First nothing more is written, then others are let in.
        let is_held = tick() < lease.until();
        self.until.store(0, Ordering::Release);
        let over = StorageError::refused(&self.at, "it is not served any more");
        self.state().lost.get_or_insert(over);
        self.changed.notify_all();
        if is_held {
            let_go(&self.at, &*self.sectors, &lease);
        }
    }

    /// How long after the lease a fence is tried that fails so.
    fn patience(&self, error: &StorageError) -> Duration {
        match self.state().hurried {
            // Its directory was removed, or another file system is there: nobody else finds it either.
            _ if error.is_missing() => Duration::ZERO,
            true => FAILING_AT_END_MAX,
            false => FAILING_MAX,
        }
    }

    /// Shows that the holder lives, then looks whether it still is the holder.
    fn beat(&self, lease: &mut Lease) -> Result<std::result::Result<(), Loss>> {
        let began = tick();
        self.sectors.write_beat(&lease.beat())?;
        let view = self.sectors.read()?;
        Ok(lease.seen(began, &view.claim))
    }

    fn lose(&self, why: String) {
        self.until.store(0, Ordering::Release);
        let lost = StorageError::FenceLost {
            at: self.at.clone(),
            why,
        };
        let acts = std::mem::take(&mut self.state().on_loss);
        acts.into_iter().for_each(|act| act(&lost));
        let mut state = self.state();
        state.lost = Some(lost.clone());
        let late = std::mem::take(&mut state.on_loss);
        drop(state);
        late.into_iter().for_each(|act| act(&lost));
        self.changed.notify_all();
    }

    fn ends_within(&self, time: Duration) -> bool {
        let until = tick().after(time);
        let mut state = self.state();
        while !state.ending {
            let left = until.since(tick());
            if left.is_zero() {
                return false;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
