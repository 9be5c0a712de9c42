//! One direction of a link: a thread that carries packets from one TUN device to the other.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base::{Clock, SystemClock, Tick};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl::set_timerslack;
use serde::{Deserialize, Serialize};

use super::priority::raise_priority;
use super::queue::PacketQueue;
use super::settings::LinkSettings;
use super::shaper::{Fate, Shaper};
use super::tun::{OnWire, Tun};
use crate::error::{During, Result};

/// The last of a wait is spent in a loop, at most this long: arming a timer takes about as long.
const SPIN: Duration = Duration::from_micros(40);
/// How long a device that fails is left alone.
const RETRY: Duration = Duration::from_millis(10);

/// What one direction has carried, as packets on the wire and bytes of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Carried {
    /// Packets delivered.
    pub packets: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Packets lost on purpose.
    pub lost: u64,
    /// Packets that the far end's kernel would not take.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
}

/// The settings, and a count of their changes that is cheap to look at.
#[derive(Debug)]
pub(crate) struct LiveSettings {
    changes: AtomicU64,
    now: Mutex<LinkSettings>,
}

impl LiveSettings {
    pub(crate) fn new(settings: LinkSettings) -> LiveSettings {
        LiveSettings {
            changes: AtomicU64::new(0),
            now: Mutex::new(settings),
        }
    }

    pub(crate) fn get(&self) -> LinkSettings {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, settings: LinkSettings) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = settings;
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// What the thread and its owner share.
#[derive(Debug)]
struct Shared {
    live: Arc<LiveSettings>,
    counters: Counters,
    stop: AtomicBool,
    wake: EventFd,
}

/// The running thread; stopped and joined on drop.
#[derive(Debug)]
pub(crate) struct Pump {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Pump {
    /// Carries what leaves through `from` to `to`.
    pub(crate) fn start(
        name: &str,
        from: Arc<Tun>,
        to: Arc<Tun>,
        live: Arc<LiveSettings>,
        seed: u64,
    ) -> Result<Pump> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .during(|| "making an eventfd")?;
        let shared = Arc::new(Shared {
            live,
            counters: Counters::default(),
            stop: AtomicBool::new(false),
            wake,
        });
        let carrier = Carrier::new(from, to, Arc::clone(&shared), seed);
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(move || carrier.run())
            .during(|| "starting a link's thread")?;
        Ok(Pump {
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn carried(&self) -> Carried {
        let counters = &self.shared.counters;
        Carried {
            packets: counters.packets.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
            lost: counters.lost.load(Ordering::Relaxed),
            refused: counters.refused.load(Ordering::Relaxed),
        }
    }

    /// Has the thread look at the settings now.
    pub(crate) fn wake(&self) {
        // Fails only when the count is already huge, and then the thread is awake.
        let _ = self.shared.wake.write(1);
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

/// Why no more packets are taken for the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// There may be more.
    None,
    /// Until one arrives.
    Empty,
    /// Until the queue has room.
    Full,
    /// Until the wire is free.
    Busy(Tick),
    /// The device failed.
    Broken,
}

impl Pause {
    /// When it ends by itself.
    fn until(self, now: Tick) -> Option<Tick> {
        match self {
            Pause::Busy(free) => Some(free),
            Pause::Broken => Some(now.after(RETRY)),
            Pause::None | Pause::Empty | Pause::Full => None,
        }
    }
}

/// The thread's own state.
struct Carrier {
    from: Arc<Tun>,
    to: Arc<Tun>,
    shared: Arc<Shared>,
    clock: SystemClock,
    queue: PacketQueue,
    shaper: Shaper,
    settings: LinkSettings,
    changes: u64,
    lateness: Lateness,
}

impl Carrier {
    fn new(from: Arc<Tun>, to: Arc<Tun>, shared: Arc<Shared>, seed: u64) -> Carrier {
        Carrier {
            from,
            to,
            clock: SystemClock::default(),
            queue: PacketQueue::new(),
            shaper: Shaper::new(seed),
            settings: shared.live.get(),
            changes: 0,
            lateness: Lateness::default(),
            shared,
        }
    }

    fn run(mut self) {
        // The kernel's 50 us of slack would show in every round trip. Where it cannot be had, and
        // where the priority cannot be raised, the link is only less precise.
        let _ = set_timerslack(1);
        raise_priority();
        while !self.shared.stop.load(Ordering::Acquire) {
            self.refresh();
            let pause = self.take();
            self.deliver();
            if pause != Pause::None {
                self.wait(pause);
            }
        }
    }

    fn refresh(&mut self) {
        let changes = self.shared.live.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.changes = changes;
            self.settings = self.shared.live.get();
        }
    }

    /// Takes one packet from the sender.
    fn take(&mut self) -> Pause {
        let now = self.clock.tick();
        if let Some(until) = self.shaper.blocked_until(now, &self.settings) {
            return Pause::Busy(until);
        }
        let Some(room) = self.queue.room() else {
            return Pause::Full;
        };
        let bytes = match self.from.receive(room) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Pause::Empty,
            Err(_) => return Pause::Broken,
        };
        let wire = OnWire::of(&room[..bytes]);
        match self.shaper.admit(now, wire.bytes, &self.settings) {
            Fate::Lost => add(&self.shared.counters.lost, wire.packets),
            Fate::Due(due) if due <= now && self.queue.is_empty() => self.pass(bytes),
            Fate::Due(due) => self.queue.push(bytes, due),
        }
        Pause::None
    }

    /// Hands over the packet just read, which nothing delays.
    fn pass(&mut self, bytes: usize) {
        if let Some(room) = self.queue.room() {
            send(&self.to, &room[..bytes], &self.shared.counters);
        }
    }

    /// Hands over every packet that is due.
    fn deliver(&mut self) {
        let now = self.clock.tick();
        while self.queue.next_due().is_some_and(|due| due <= now) {
            if let Some(packet) = self.queue.front() {
                send(&self.to, packet, &self.shared.counters);
            }
            self.queue.pop();
        }
    }

    /// Waits for a packet, a due time, or a change of the settings.
    fn wait(&mut self, pause: Pause) {
        let now = self.clock.tick();
        let until = [self.queue.next_due(), pause.until(now)];
        let until = until.into_iter().flatten().min();
        let Some(until) = until else {
            self.sleep(pause, None);
            return;
        };
        let left = until.since(now);
        if left < SPIN {
            return std::hint::spin_loop();
        }
        let patience = self.lateness.shorten(left);
        if self.sleep(pause, Some(patience)) {
            let slept = self.clock.tick().since(now);
            self.lateness.observe(slept.saturating_sub(patience));
        }
    }

    /// True when `patience` passed and nothing else happened.
    fn sleep(&self, pause: Pause, patience: Option<Duration>) -> bool {
        let mut fds = [
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.from.as_fd(), PollFlags::POLLIN),
        ];
        let watched = if pause == Pause::Empty { 2 } else { 1 };
        // An interrupted or failed wait is a short one.
        let ready = ppoll(&mut fds[..watched], patience.map(Into::into), None);
        if ready == Ok(0) {
            return true;
        }
        // Nothing to read is the usual answer.
        let _ = self.shared.wake.read();
        false
    }
}

/// How late the kernel wakes us: tens of microseconds, more after a long sleep or in a virtual
/// machine. Waits are shortened by it.
#[derive(Debug, Default)]
struct Lateness(Duration);

impl Lateness {
    /// Beyond this it is a busy machine, not the price of waking up.
    const MAX: Duration = Duration::from_micros(200);

    /// How long to sleep so as to be awake in time. Short sleeps end more promptly than the average.
    fn shorten(&self, left: Duration) -> Duration {
        if left > self.0 + SPIN {
            left - self.0
        } else {
            left.saturating_sub(SPIN)
        }
    }

    fn observe(&mut self, late: Duration) {
        self.0 = (self.0 * 7 + late.min(Self::MAX)) / 8;
    }
}

fn send(to: &Tun, packet: &[u8], counters: &Counters) {
    let wire = OnWire::of(packet);
    match to.send(packet) {
        Ok(()) => {
            add(&counters.packets, wire.packets);
            add(&counters.bytes, wire.bytes);
        }
        Err(_) => add(&counters.refused, wire.packets),
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
