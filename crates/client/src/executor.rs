//! Calls that must wait are futures, parked as data. The first poll runs on the thread that brought the
//! request, a later one on the thread that woke it, with no hand-off. No thread waits while it holds a
//! request (docs/adr/0003-parked-calls.md).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use threads::{Condvar, Mutex};

type Parked = Pin<Box<dyn Future<Output = ()> + Send>>;

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const NOTIFIED: u8 = 2;
const DONE: u8 = 3;

struct Task {
    future: Mutex<Option<Parked>>,
    state: AtomicU8,
    /// Whom it works for.
    origin: Option<Arc<Origin>>,
}

/// Something remembered of a request of the kernel: it is dropped when that is answered.
pub(crate) trait UntilAnswered: Send + std::fmt::Debug {}

/// A request of the kernel, by its number, and what is remembered of it until it is answered.
#[derive(Debug)]
pub struct Origin {
    number: u64,
    kept: Mutex<Vec<Box<dyn UntilAnswered>>>,
}

impl Origin {
    pub(crate) fn new(number: u64) -> Arc<Origin> {
        Arc::new(Origin {
            number,
            kept: Mutex::default(),
        })
    }

    /// Does `work` as a task of this origin would.
    #[cfg(test)]
    pub(crate) fn run<T>(origin: &Arc<Origin>, work: impl FnOnce() -> T) -> T {
        ORIGIN.set(Some(origin.clone()));
        let done = work();
        ORIGIN.set(None);
        done
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn keep(&self, what: Box<dyn UntilAnswered>) {
        lock(&self.kept).push(what);
    }

    pub(crate) fn give_to(&self, other: &Origin) {
        let mut kept = std::mem::take(&mut *lock(&self.kept));
        lock(&other.kept).append(&mut kept);
    }
}

/// Of the task that is being polled on this thread.
pub(crate) fn origin() -> Option<Arc<Origin>> {
    ORIGIN.with_borrow(Option::clone)
}

threads::local! {
    /// This thread is inside a poll, or holds a lock that a poll may want: wakes are put off.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static ORIGIN: RefCell<Option<Arc<Origin>>> = const { RefCell::new(None) };
    static PUT_OFF: RefCell<VecDeque<Arc<Task>>> = const { RefCell::new(VecDeque::new()) };
}

/// Runs `future` on this thread until it waits; from then on wakers carry it.
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    spawn_with(None, future);
}

/// The same on behalf of the kernel's request `number`.
pub fn spawn_for(number: u64, future: impl Future<Output = ()> + Send + 'static) {
    spawn_with(Some(Origin::new(number)), future);
}

fn spawn_with(origin: Option<Arc<Origin>>, future: impl Future<Output = ()> + Send + 'static) {
    let task = Arc::new(Task {
        future: Mutex::new(Some(Box::pin(future))),
        state: AtomicU8::new(NOTIFIED),
        origin,
    });
    schedule(task);
}

/// While it lives, wakes on this thread wait: held beside a lock that woken tasks may take.
pub(crate) struct PutOff {
    outermost: bool,
}

impl PutOff {
    pub(crate) fn begin() -> PutOff {
        PutOff {
            outermost: !BUSY.replace(true),
        }
    }
}

impl Drop for PutOff {
    fn drop(&mut self) {
        if self.outermost {
            run_put_off();
            BUSY.set(false);
        }
    }
}

fn run_put_off() {
    while let Some(task) = PUT_OFF.with_borrow_mut(VecDeque::pop_front) {
        task.run();
    }
}

fn schedule(task: Arc<Task>) {
    PUT_OFF.with_borrow_mut(|queue| queue.push_back(task));
    drop(PutOff::begin());
}

impl Task {
    fn run(self: &Arc<Task>) {
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            self.state.store(RUNNING, Ordering::SeqCst);
            let mut slot = lock(&self.future);
            let Some(future) = slot.as_mut() else { return };
            ORIGIN.set(self.origin.clone());
            let polled = future.as_mut().poll(&mut context);
            ORIGIN.set(None);
            if polled.is_ready() {
                *slot = None;
                if let Some(origin) = &self.origin {
                    lock(&origin.kept).clear();
                }
                self.state.store(DONE, Ordering::SeqCst);
                return;
            }
            drop(slot);
            // Woken while it ran: what it waited for is there already.
            let parked =
                self.state
                    .compare_exchange(RUNNING, IDLE, Ordering::SeqCst, Ordering::SeqCst);
            if parked.is_ok() {
                return;
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Task>) {
        loop {
            match self.state.load(Ordering::SeqCst) {
                IDLE => {
                    let claimed = self.state.compare_exchange(
                        IDLE,
                        NOTIFIED,
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    );
                    if claimed.is_ok() {
                        return schedule(self);
                    }
                }
                RUNNING => {
                    let told = self.state.compare_exchange(
                        RUNNING,
                        NOTIFIED,
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    );
                    if told.is_ok() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> threads::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits for `future` on this thread: for tools, tests and start-up, never on a kernel request.
pub fn block_on<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let done = Arc::new((Mutex::new(None), Condvar::new()));
    let tell = done.clone();
    spawn(async move {
        let value = future.await;
        *lock(&tell.0) = Some(value);
        tell.1.notify_all();
    });
    let mut slot = lock(&done.0);
    loop {
        if let Some(value) = slot.take() {
            return value;
        }
        slot = done
            .1
            .wait(slot)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
    }
}

/// A value that one side will bring and the other waits for.
pub struct Oneshot<T>(Arc<Mutex<OneshotState<T>>>);

/// Brings the value; dropped without, the waiting side gets `None`.
pub struct Sender<T>(Option<Arc<Mutex<OneshotState<T>>>>);

struct OneshotState<T> {
    value: Option<Option<T>>,
    waker: Option<Waker>,
}

/// A pair of ends.
pub fn oneshot<T>() -> (Sender<T>, Oneshot<T>) {
    let state = Arc::new(Mutex::new(OneshotState {
        value: None,
        waker: None,
    }));
    (Sender(Some(state.clone())), Oneshot(state))
}

impl<T> Sender<T> {
    /// Brings it.
    pub fn send(mut self, value: T) {
        self.finish(Some(value));
    }

    fn finish(&mut self, value: Option<T>) {
        let Some(state) = self.0.take() else { return };
        let mut state = lock(&state);
        state.value = Some(value);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.finish(None);
    }
}

impl<T> Future for Oneshot<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0);
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Waits for all of `futures`, in any order of their ends.
pub async fn join_all<T>(futures: Vec<impl Future<Output = T> + Send>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(move |context| {
        let mut waiting = false;
        for (future, result) in futures.iter_mut().zip(results.iter_mut()) {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => waiting = true,
                }
            }
        }
        match waiting {
            true => Poll::Pending,
            false => Poll::Ready(results.iter_mut().filter_map(Option::take).collect()),
        }
    })
    .await
}

/// As many questions to the MDT about files of their own as are on their way at once. Of its slots they
/// leave some to all others; and one to what has to be told to its next boot before anything else is.
pub const AT_ONCE: usize = base::limits::SLOTS_MAX as usize / 3;

/// Does `work` with each of `items`, with `at_once` of them at most at a time: one that takes long
/// holds up no other. What came of each, in any order.
pub async fn each_of<T: Send, R: Send, F: Future<Output = R> + Send>(
    items: Vec<T>,
    at_once: usize,
    work: impl Fn(T) -> F + Sync,
) -> Vec<R> {
    let at_once = at_once.min(items.len());
    let items = Mutex::new(items.into_iter());
    let one_by_one = || async {
        let mut results = Vec::new();
        loop {
            let next = lock(&items).next();
            match next {
                Some(item) => results.push(work(item).await),
                None => return results,
            }
        }
    };
    let results = join_all((0..at_once).map(|_| one_by_one()).collect()).await;
    results.into_iter().flatten().collect()
}

/// Parties that wait for a condition to be looked at again.
#[derive(Default)]
pub struct WaitList(Vec<Sender<()>>);

impl std::fmt::Debug for WaitList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} waiting", self.0.len())
    }
}

impl WaitList {
    /// One more; resolves at the next [`WaitList::wake_all`].
    pub fn wait(&mut self) -> Oneshot<()> {
        let (sender, receiver) = oneshot();
        self.0.push(sender);
        receiver
    }

    /// All may look again.
    pub fn wake_all(&mut self) {
        for sender in self.0.drain(..) {
            sender.send(());
        }
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_at_hand_runs_on_the_spot_and_a_parked_one_where_it_is_woken() {
        let threads = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = oneshot();
        let seen = threads.clone();
        spawn(async move {
            lock(&seen).push(threads::current().id());
            assert_eq!(receiver.await, Some(7));
            lock(&seen).push(threads::current().id());
        });
        assert_eq!(lock(&threads).len(), 1);
        threads::spawn(move || sender.send(7)).join().expect("ran");
        let threads = lock(&threads);
        assert_eq!(threads[0], threads::current().id());
        assert_ne!(threads[1], threads[0]);
    }

    #[test]
    fn a_dropped_sender_ends_the_wait() {
        let (sender, receiver) = oneshot::<u8>();
        drop(sender);
        assert_eq!(block_on(receiver), None);
    }

    #[test]
    fn wakes_under_a_put_off_run_after_it() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = oneshot();
        let seen = order.clone();
        spawn(async move {
            receiver.await;
            lock(&seen).push("task");
        });
        let hold = PutOff::begin();
        sender.send(());
        lock(&order).push("holder");
        drop(hold);
        assert_eq!(*lock(&order), ["holder", "task"]);
    }

    #[test]
    fn a_chain_of_wakes_does_not_grow_the_stack() {
        let mut last = None;
        let (first, mut receiver) = oneshot();
        for _ in 0..100_000 {
            let (sender, next) = oneshot();
            spawn(async move {
                receiver.await;
                sender.send(());
            });
            receiver = next;
            last = Some(());
        }
        assert!(last.is_some());
        first.send(());
        block_on(receiver);
    }
}
