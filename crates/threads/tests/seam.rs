//! The seam does what `std` does, and what a simulation says where there is one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, TryLockError};
use std::time::{Duration, Instant};

use threads::{Condvar, Mutex, RwLock, Simulation, Woken, channel};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_notice_ends_a_wait_and_so_does_time() {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let other = shared.clone();
    let thread = threads::spawn(move || {
        *other.0.lock().unwrap() = 7;
        other.1.notify_all();
    });
    let mut value = shared.0.lock().unwrap();
    while *value == 0 {
        let (woken, result) = shared.1.wait_timeout(value, LONG).unwrap();
        assert!(!result.timed_out());
        value = woken;
    }
    drop(value);
    thread.join().unwrap();

    let value = shared.0.lock().unwrap();
    let waited = shared.1.wait_timeout(value, Duration::from_millis(1));
    // It may wake for no reason, but not for this long.
    assert!(threads::now() <= Instant::now() && *waited.unwrap().0 == 7);
}

#[test]
fn a_lock_says_that_its_holder_panicked_and_gives_what_it_kept() {
    let mutex = Arc::new(Mutex::new(1));
    let other = mutex.clone();
    let thread = threads::spawn(move || {
        let _held = other.lock().unwrap();
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    assert_eq!(*mutex.lock().unwrap_err().into_inner(), 1);
    assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))));
}

#[test]
fn a_channel_ends_when_its_other_side_is_gone() {
    let (sender, receiver) = channel();
    let second = sender.clone();
    let thread = threads::spawn(move || {
        let received: Vec<u32> = std::iter::from_fn(|| receiver.recv().ok()).collect();
        (received, receiver)
    });
    sender.send(1).unwrap();
    drop(sender);
    second.send(2).unwrap();
    drop(second);
    let (received, receiver) = thread.join().unwrap();
    assert_eq!(received, [1, 2]);
    drop(receiver);
    let (sender, receiver) = channel();
    drop(receiver);
    assert!(sender.send(3).is_err());
}

#[test]
fn park_and_unpark_whichever_comes_first() {
    let me = threads::current();
    me.unpark();
    threads::park();
    let thread = threads::spawn(move || me.unpark());
    threads::park();
    thread.join().unwrap();
}

/// Of one thread: time goes on when it waits.
struct Alone {
    start: Instant,
    nanos: AtomicU64,
    woken: StdMutex<Vec<bool>>,
}

impl Simulation for Alone {
    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn point(&self) {}

    fn wait(&self, _: usize, until: Option<Instant>) -> Woken {
        let until = until.expect("nobody else could wake it");
        let nanos = until.duration_since(self.start).as_nanos() as u64;
        self.nanos.store(nanos, Ordering::SeqCst);
        Woken::InTime
    }

    fn wake(&self, _: usize, all: bool) {
        self.woken.lock().expect("no panic").push(all);
    }

    fn spawn(
        self: Arc<Self>,
        _: Option<String>,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<u64> {
        // Its thread is a real one, which is over before anybody asks.
        std::thread::spawn(body)
            .join()
            .map_err(|_| io::Error::other("panicked"))?;
        Ok(1)
    }

    fn current(&self) -> u64 {
        0
    }
}

#[test]
fn under_a_simulation_an_hour_passes_at_once_and_nothing_reaches_the_machine() {
    let simulation = Arc::new(Alone {
        start: Instant::now(),
        nanos: AtomicU64::new(0),
        woken: StdMutex::default(),
    });
    let begun = Instant::now();
    threads::enter(simulation.clone(), || {
        let start = threads::now();
        threads::sleep(Duration::from_secs(3600));
        let shared = (Mutex::new(()), Condvar::new());
        let waited = shared.1.wait_timeout(shared.0.lock().unwrap(), LONG);
        assert!(waited.unwrap().1.timed_out());
        threads::yield_now();
        assert!(threads::now().duration_since(start) > Duration::from_secs(3660));
        shared.1.notify_one();
        drop(RwLock::new(()).read());
        let thread = threads::spawn(|| (threads::is_simulated(), threads::current().id()));
        let id = thread.thread().id();
        let (simulated, own) = thread.join().unwrap();
        assert!(simulated);
        // This simulation gives every thread that asks the same number.
        assert!(own == threads::current().id() && own != id);
        threads::current().unpark();
        threads::park();
    });
    assert!(begun.elapsed() < LONG && !threads::is_simulated());
    // The mutex twice, the notice to one, the reader, the thread's end, the unparking.
    let woken = simulation.woken.lock().unwrap();
    assert_eq!(*woken, [true, true, false, true, true, true]);
}
