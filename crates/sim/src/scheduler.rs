//! Threads of which one runs at a time, and time that passes while none can.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use threads::{Simulation, Woken};

use crate::entropy;

/// A machine of the simulated cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Node(pub u32);

/// At one lock in so many another thread goes on.
const POINTS_PER_SWITCH: u64 = 12;
/// Changes of threads in one run. Beyond: it goes round and round.
const SWITCHES_MAX: u64 = 20_000_000;

/// What a thread is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Runs,
    Waits(usize),
    Ended,
}

struct Thread {
    name: String,
    node: Node,
    doing: Doing,
    until: Option<(Duration, u64)>,
    woken: Woken,
    turn: Arc<Turn>,
}

/// Whether a thread may run.
#[derive(Default)]
struct Turn {
    is_mine: Mutex<bool>,
    changed: Condvar,
}

struct State {
    threads: Vec<Thread>,
    ready: Vec<usize>,
    waiting: HashMap<usize, VecDeque<usize>>,
    timers: BTreeSet<(Duration, u64, usize)>,
    /// Timers ring at multiples of this, unless it is zero.
    timer_slack: Duration,
    frozen: BTreeMap<Node, Duration>,
    running: usize,
    now: Duration,
    numbers: SeededRng,
    switches: u64,
    timers_set: u64,
    /// Folds every choice.
    digest: u64,
    panics: Vec<String>,
    over: Option<Result<(), String>>,
}

/// The scheduler of one run.
pub struct Scheduler {
    start: Instant,
    until: Duration,
    state: Mutex<State>,
    over: Condvar,
}

thread_local! {
    static ME: Cell<usize> = const { Cell::new(usize::MAX) };
    static MINE: RefCell<Option<Arc<Scheduler>>> = const { RefCell::new(None) };
}

/// How a run's threads came to their end.
#[derive(Debug)]
pub struct Ended {
    /// Virtual time that passed.
    pub time: Duration,
    /// Every choice, folded.
    pub digest: u64,
    /// Changes of threads.
    pub switches: u64,
    /// Why it stands still, what panicked, or who did not end.
    pub trouble: Vec<String>,
}

impl Scheduler {
    /// Runs `root` and the threads that it starts to their ends, for at most `limit` of their time.
    pub fn run(
        seed: u64,
        limit: Duration,
        root: impl FnOnce(&Arc<Scheduler>) + Send + 'static,
    ) -> Ended {
        let scheduler = Arc::new(Scheduler {
            start: Instant::now(),
            until: limit,
            state: Mutex::new(State::new(seed)),
            over: Condvar::new(),
        });
        let body = {
            let scheduler = scheduler.clone();
            let simulation: Arc<dyn Simulation> = scheduler.clone();
            let guarded = move || {
                threads::enter(simulation, || {
                    let run = std::panic::AssertUnwindSafe(|| root(&scheduler));
                    drop(std::panic::catch_unwind(run));
                });
            };
            Box::new(guarded)
        };
        let begun = scheduler.start_thread("root".to_owned(), body);
        if let Err(error) = begun {
            scheduler.finish(Err(format!("a thread could not be started: {error}")));
        } else {
            let mut state = scheduler.lock();
            let next = scheduler.choose(&mut state);
            hand_over(state, next);
        }
        scheduler.await_end()
    }

    fn await_end(&self) -> Ended {
        let mut state = self.lock();
        while state.over.is_none() {
            state = self
                .over
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let over = state.over.clone().and_then(Result::err);
        let mut trouble = std::mem::take(&mut state.panics);
        trouble.extend(over);
        Ended {
            time: state.now,
            digest: state.digest,
            switches: state.switches,
            trouble,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the start.
    pub fn time(&self) -> Duration {
        self.lock().now
    }

    /// Threads that this one starts belong to `node` from now on, as does it.
    pub fn move_to(&self, node: Node) {
        let me = ME.get();
        self.lock().threads[me].node = node;
    }

    /// From now on timers ring late, at the next multiple of `slack`: threads that look at their clocks again
    /// and again do so together. Zero: each in time.
    pub fn set_timer_slack(&self, slack: Duration) {
        self.lock().timer_slack = slack;
    }

    /// No thread of `node` runs for `time`.
    pub fn freeze(&self, node: Node, time: Duration) {
        let mut state = self.lock();
        let until = state.now + time;
        state.frozen.insert(node, until);
    }

    /// The time and the node of this thread, if it is one of a scheduler. For logs.
    pub fn here() -> Option<(Duration, Node)> {
        let scheduler = MINE.with_borrow(Option::clone)?;
        let state = scheduler.lock();
        Some((state.now, state.threads.get(ME.get())?.node))
    }

    /// Takes note of a panic, if it is one of this thread's scheduler.
    pub(crate) fn hear_panic(what: &str) -> bool {
        let scheduler = MINE.with_borrow(Option::clone);
        if let Some(scheduler) = &scheduler {
            scheduler.lock().panics.push(format!("panic: {what}"));
        }
        scheduler.is_some()
    }

    fn finish(&self, how: Result<(), String>) {
        let mut state = self.lock();
        state.over.get_or_insert(how);
        self.over.notify_all();
    }

    fn start_thread(
        self: &Arc<Scheduler>,
        name: String,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<u64> {
        let turn = Arc::<Turn>::default();
        let mut state = self.lock();
        let id = state.threads.len();
        let node = match id {
            0 => Node::default(),
            _ => state.threads[state.running].node,
        };
        let entropy = state.numbers.next_u64();
        state.threads.push(Thread {
            name: name.clone(),
            node,
            doing: Doing::Runs,
            until: None,
            woken: Woken::Called,
            turn: turn.clone(),
        });
        state.ready.push(id);
        drop(state);
        let scheduler = self.clone();
        let run = move || {
            entropy::seed(entropy);
            ME.set(id);
            MINE.set(Some(scheduler.clone()));
            turn.wait();
            body();
            MINE.set(None);
            scheduler.end();
        };
        let builder = std::thread::Builder::new().name(name).stack_size(1 << 20);
        builder.spawn(run).map(|_| id as u64)
    }

    /// This thread is over.
    fn end(&self) {
        let mut state = self.lock();
        let me = ME.get();
        state.threads[me].doing = Doing::Ended;
        if state
            .threads
            .iter()
            .all(|thread| thread.doing == Doing::Ended)
        {
            state.over.get_or_insert(Ok(()));
            self.over.notify_all();
            return;
        }
        let next = self.choose(&mut state);
        hand_over(state, next);
    }

    /// Who runs next. None: the run is over, or stands still.
    fn choose(&self, state: &mut State) -> Option<usize> {
        loop {
            if state.switches > SWITCHES_MAX || state.now > self.until {
                let what = format!("after {:?} it still goes on:\n{}", state.now, state.table());
                state.over.get_or_insert(Err(what));
                self.over.notify_all();
                return None;
            }
            if !state.ready.is_empty() {
                let chosen = state.numbers.below(state.ready.len() as u64) as usize;
                let id = state.ready.swap_remove(chosen);
                let frozen = state.frozen.get(&state.threads[id].node).copied();
                if let Some(until) = frozen.filter(|until| *until > state.now) {
                    state.set_timer(id, until);
                    continue;
                }
                state.switches += 1;
                let folded =
                    state.digest ^ (id as u64) ^ (state.now.as_nanos() as u64).rotate_left(20);
                state.digest = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
                return Some(id);
            }
            let Some((at, _, _)) = state.timers.first().copied() else {
                let what = format!("nobody can go on:\n{}", state.table());
                state.over.get_or_insert(Err(what));
                self.over.notify_all();
                return None;
            };
            state.now = state.now.max(at);
            state.ring();
        }
    }

    /// Lets another run, and comes back when it is this thread's turn.
    fn switch<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Woken {
        let me = ME.get();
        let next = self.choose(&mut state);
        if next != Some(me) {
            let turn = state.threads[me].turn.clone();
            hand_over(state, next);
            turn.wait();
            state = self.lock();
        }
        state.threads[me].woken
    }
}

/// The state is let go of first: who goes on looks into it at once.
fn hand_over(mut state: MutexGuard<'_, State>, next: Option<usize>) {
    let turn = next.map(|next| {
        state.running = next;
        state.threads[next].turn.clone()
    });
    drop(state);
    if let Some(turn) = turn {
        turn.give();
    }
}

/// The first multiple of `step` at or after `time`.
fn rounded_up(time: Duration, step: Duration) -> Duration {
    let steps = time.as_nanos().checked_div(step.as_nanos());
    let below = steps.map_or(time, |steps| {
        step.saturating_mul(steps.try_into().unwrap_or(u32::MAX))
    });
    match below < time {
        true => below + step,
        false => below,
    }
}

impl State {
    fn new(seed: u64) -> State {
        State {
            threads: Vec::new(),
            ready: Vec::new(),
            waiting: HashMap::new(),
            timers: BTreeSet::new(),
            timer_slack: Duration::ZERO,
            frozen: BTreeMap::new(),
            running: 0,
            now: Duration::ZERO,
            numbers: SeededRng::new(seed),
            switches: 0,
            timers_set: 0,
            digest: seed,
            panics: Vec::new(),
            over: None,
        }
    }

    fn set_timer(&mut self, id: usize, at: Duration) {
        let at = rounded_up(at, self.timer_slack);
        self.timers_set += 1;
        self.threads[id].until = Some((at, self.timers_set));
        self.timers.insert((at, self.timers_set, id));
    }

    /// Lets those go on whose time has come.
    fn ring(&mut self) {
        while let Some((at, number, id)) = self.timers.first().copied() {
            if at > self.now {
                return;
            }
            self.timers.remove(&(at, number, id));
            self.threads[id].until = None;
            if let Doing::Waits(key) = self.threads[id].doing {
                self.leave(key, id);
                self.threads[id].woken = Woken::InTime;
            }
            self.threads[id].doing = Doing::Runs;
            self.ready.push(id);
        }
    }

    fn leave(&mut self, key: usize, id: usize) {
        if let Some(queue) = self.waiting.get_mut(&key) {
            queue.retain(|waiting| *waiting != id);
            if queue.is_empty() {
                self.waiting.remove(&key);
            }
        }
    }

    fn call(&mut self, id: usize) {
        if let Some((at, number)) = self.threads[id].until.take() {
            self.timers.remove(&(at, number, id));
        }
        self.threads[id].woken = Woken::Called;
        self.threads[id].doing = Doing::Runs;
        self.ready.push(id);
    }

    /// Who does what, for people.
    fn table(&self) -> String {
        let mut table = String::new();
        for (id, thread) in self.threads.iter().enumerate() {
            let (name, node) = (&thread.name, thread.node.0);
            let doing = match (thread.doing, thread.until) {
                (Doing::Ended, _) => continue,
                (Doing::Runs, None) => "could run".to_owned(),
                (Doing::Runs, Some((at, _))) => format!("is frozen until {at:?}"),
                (Doing::Waits(_), None) => "waits".to_owned(),
                (Doing::Waits(_), Some((at, _))) => format!("waits until {at:?}"),
            };
            // A string takes whatever is written to it.
            let _ = writeln!(table, "  {id} {name} of node {node} {doing}");
        }
        table
    }
}

impl Turn {
    fn give(&self) {
        *self.is_mine.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut is_mine = self.is_mine.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_mine {
            is_mine = self
                .changed
                .wait(is_mine)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *is_mine = false;
    }
}

/// A scheduler as its threads know it: the seam's trait needs a shared handle to start threads.
impl Simulation for Scheduler {
    fn now(&self) -> Instant {
        self.start + self.lock().now
    }

    fn point(&self) {
        let mut state = self.lock();
        if state.numbers.below(POINTS_PER_SWITCH) == 0 {
            state.ready.push(ME.get());
            self.switch(state);
        }
    }

    fn wait(&self, key: usize, until: Option<Instant>) -> Woken {
        let me = ME.get();
        let mut state = self.lock();
        state.threads[me].doing = Doing::Waits(key);
        state.waiting.entry(key).or_default().push_back(me);
        if let Some(until) = until {
            let at = until.saturating_duration_since(self.start).max(state.now);
            state.set_timer(me, at);
        }
        self.switch(state)
    }

    fn wake(&self, key: usize, all: bool) {
        let mut state = self.lock();
        let Some(mut queue) = state.waiting.remove(&key) else {
            return;
        };
        while let Some(id) = queue.pop_front() {
            state.call(id);
            if !all {
                break;
            }
        }
        if !queue.is_empty() {
            state.waiting.insert(key, queue);
        }
    }

    fn spawn(
        self: Arc<Self>,
        name: Option<String>,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<u64> {
        self.start_thread(name.unwrap_or_default(), body)
    }

    fn current(&self) -> u64 {
        ME.get() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_ring_in_time_or_together() {
        let times = Arc::<Mutex<Vec<Duration>>>::default();
        let seen = times.clone();
        let millis = Duration::from_millis;
        let ended = Scheduler::run(1, Duration::from_secs(60), move |scheduler| {
            let sleep = |time| {
                threads::sleep(time);
                seen.lock().unwrap().push(scheduler.time());
            };
            sleep(millis(300));
            scheduler.set_timer_slack(millis(1000));
            sleep(millis(300));
            sleep(millis(1000));
            sleep(millis(1001));
            scheduler.set_timer_slack(Duration::ZERO);
            sleep(millis(300));
        });
        assert_eq!(ended.trouble, Vec::<String>::new());
        let expected = [300, 1000, 2000, 4000, 4300].map(millis);
        assert_eq!(*times.lock().unwrap(), expected);
    }
}
