//! Threads, their sleep, and time.

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::simulation::{Simulation, enter, key, simulated};

/// How long a simulated thread that lets others run stays away. With no time between its turns a
/// wait that is spent awake would never end.
const YIELDED: Duration = Duration::from_micros(1);

/// As `std::thread::ThreadId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadId(Id);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Id {
    Real(thread::ThreadId),
    Simulated(u64),
}

/// As `std::thread::Thread`.
#[derive(Clone)]
pub struct Thread(Handle);

#[derive(Clone)]
enum Handle {
    Real(thread::Thread),
    Simulated {
        number: u64,
        simulation: Arc<dyn Simulation>,
        token: Arc<AtomicBool>,
    },
}

crate::local! {
    /// A simulated thread was unparked.
    static TOKEN: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

fn token() -> Arc<AtomicBool> {
    TOKEN.with_borrow_mut(|token| token.get_or_insert_default().clone())
}

/// This thread.
pub fn current() -> Thread {
    Thread(match simulated() {
        Some(simulation) => Handle::Simulated {
            number: simulation.current(),
            simulation,
            token: token(),
        },
        None => Handle::Real(thread::current()),
    })
}

impl Thread {
    /// Its number.
    pub fn id(&self) -> ThreadId {
        ThreadId(match &self.0 {
            Handle::Real(thread) => Id::Real(thread.id()),
            Handle::Simulated { number, .. } => Id::Simulated(*number),
        })
    }

    /// Ends its [`park`], or the next one.
    pub fn unpark(&self) {
        match &self.0 {
            Handle::Real(thread) => thread.unpark(),
            Handle::Simulated {
                simulation, token, ..
            } => {
                token.store(true, Ordering::SeqCst);
                simulation.wake(key(&**token), true);
            }
        }
    }
}

/// Waits for [`Thread::unpark`].
pub fn park() {
    let Some(simulation) = simulated() else {
        return thread::park();
    };
    let token = token();
    while !token.swap(false, Ordering::SeqCst) {
        simulation.wait(key(&*token), None);
    }
}

/// The time, for ages and deadlines.
#[inline]
pub fn now() -> Instant {
    match simulated() {
        Some(simulation) => simulation.now(),
        None => Instant::now(),
    }
}

/// Does nothing for `time`.
pub fn sleep(time: Duration) {
    let Some(simulation) = simulated() else {
        return thread::sleep(time);
    };
    // A key of its own, which nobody wakes.
    let nobody = 0u8;
    simulation.wait(key(&nobody), Some(simulation.now() + time));
}

/// Lets others run.
pub fn yield_now() {
    match crate::simulation::is_simulated() {
        true => sleep(YIELDED),
        false => thread::yield_now(),
    }
}

/// As `std::thread::Builder`.
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
}

impl Builder {
    /// A thread with no name.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names it.
    pub fn name(self, name: String) -> Builder {
        Builder { name: Some(name) }
    }

    /// Starts it.
    pub fn spawn<T: Send + 'static>(
        self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let Some(simulation) = simulated() else {
            let builder = match self.name {
                Some(name) => thread::Builder::new().name(name),
                None => thread::Builder::new(),
            };
            return builder.spawn(run).map(|h| JoinHandle(Join::Real(h)));
        };
        let (token, end) = (Arc::default(), Arc::new(End::default()));
        let body = body(&simulation, &token, &end, run);
        let number = simulation.clone().spawn(self.name, body)?;
        let thread = Thread(Handle::Simulated {
            number,
            simulation,
            token,
        });
        Ok(JoinHandle(Join::Simulated { thread, end }))
    }
}

fn body<T: Send + 'static>(
    simulation: &Arc<dyn Simulation>,
    token: &Arc<AtomicBool>,
    end: &Arc<End<T>>,
    run: impl FnOnce() -> T + Send + 'static,
) -> Box<dyn FnOnce() + Send> {
    let (simulation, token, end) = (simulation.clone(), token.clone(), end.clone());
    Box::new(move || {
        // The park token of this thread is the one that its handle unparks.
        let ran = enter(simulation.clone(), || {
            TOKEN.set(Some(token));
            catch_unwind(AssertUnwindSafe(run))
        });
        *end.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(ran);
        end.is_there.store(true, Ordering::SeqCst);
        simulation.wake(key(&*end), true);
    })
}

/// Starts a thread with no name.
pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let started = Builder::new().spawn(run);
    started.unwrap_or_else(|error| panic!("cannot start a thread: {error}"))
}

/// As `std::thread::JoinHandle`.
pub struct JoinHandle<T>(Join<T>);

enum Join<T> {
    Real(thread::JoinHandle<T>),
    Simulated { thread: Thread, end: Arc<End<T>> },
}

/// What a simulated thread came to.
struct End<T> {
    is_there: AtomicBool,
    result: sync::Mutex<Option<Result<T, Box<dyn Any + Send>>>>,
}

impl<T> Default for End<T> {
    fn default() -> End<T> {
        End {
            is_there: AtomicBool::new(false),
            result: sync::Mutex::new(None),
        }
    }
}

impl<T> JoinHandle<T> {
    /// Waits for its end.
    pub fn join(self) -> thread::Result<T> {
        let end = match self.0 {
            Join::Real(handle) => return handle.join(),
            Join::Simulated { end, .. } => end,
        };
        while !end.is_there.load(Ordering::SeqCst) {
            match simulated() {
                Some(simulation) => simulation.wait(key(&*end), None),
                None => return Err(Box::new("joined from outside its simulation")),
            };
        }
        let result = end
            .result
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        result.unwrap_or_else(|| Err(Box::new("joined twice")))
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Join::Real(handle) => handle.is_finished(),
            Join::Simulated { end, .. } => end.is_there.load(Ordering::SeqCst),
        }
    }

    /// The thread itself.
    pub fn thread(&self) -> Thread {
        match &self.0 {
            Join::Real(handle) => Thread(Handle::Real(handle.thread().clone())),
            Join::Simulated { thread, .. } => thread.clone(),
        }
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JoinHandle({:?})", self.thread().id())
    }
}
