//! Threads of which one runs at a time, and time that passes while none can.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use threads::{Simulation, Woken};

use crate::fibers::{self, Body, Fibers};

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
    /// The one that runs when that one waits, or has ended.
    next: Option<usize>,
    /// Started, and without a stack yet: what they do, and where their random numbers begin.
    new: Vec<(Body, u64)>,
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
        scheduler.add_thread("root".to_owned(), body);
        scheduler.take_turns();
        scheduler.ended()
    }

    /// Lets threads run, one after the other, until there is no next one.
    ///
    /// On a thread of the machine of its own, which has run no other simulation: the standard library keeps
    /// there how its hash tables are ordered.
    fn take_turns(self: &Arc<Scheduler>) {
        thread::scope(|scope| {
            let name = "simulation".to_owned();
            let turns = thread::Builder::new().name(name).spawn_scoped(scope, || {
                MINE.set(Some(self.clone()));
                if let Err(error) = self.run_all(&mut Fibers::default()) {
                    self.finish(Err(format!("a thread could not be started: {error}")));
                }
                MINE.set(None);
            });
            if let Err(error) = turns {
                self.finish(Err(format!("no simulation could be started: {error}")));
            }
        });
    }

    fn run_all(&self, fibers: &mut Fibers) -> io::Result<()> {
        let mut next = self.choose(&mut self.lock());
        while let Some(id) = next {
            let new = std::mem::take(&mut self.lock().new);
            for (body, entropy) in new {
                fibers.add(body, entropy)?;
            }
            ME.set(id);
            if fibers.resume(id) {
                self.end(id);
            }
            next = self.lock().next.take();
        }
        Ok(())
    }

    fn ended(&self) -> Ended {
        let mut state = self.lock();
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

    /// The time, and the node and the name of this thread, if it is one of a scheduler. For logs.
    pub fn here() -> Option<(Duration, Node, String)> {
        let scheduler = MINE.with_borrow(Option::clone)?;
        let state = scheduler.lock();
        let thread = state.threads.get(ME.get())?;
        Some((state.now, thread.node, thread.name.clone()))
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
        self.lock().over.get_or_insert(how);
    }

    fn add_thread(&self, name: String, body: Body) -> u64 {
        let mut state = self.lock();
        let id = state.threads.len();
        let node = match id {
            0 => Node::default(),
            _ => state.threads[state.running].node,
        };
        let entropy = state.numbers.next_u64();
        state.threads.push(Thread {
            name,
            node,
            doing: Doing::Runs,
            until: None,
            woken: Woken::Called,
        });
        state.ready.push(id);
        state.new.push((body, entropy));
        id as u64
    }

    /// Thread `id` is over.
    fn end(&self, id: usize) {
        let mut state = self.lock();
        state.threads[id].doing = Doing::Ended;
        if state
            .threads
            .iter()
            .all(|thread| thread.doing == Doing::Ended)
        {
            state.over.get_or_insert(Ok(()));
            return;
        }
        state.next = self.choose(&mut state);
    }

    /// Who runs next. None: the run is over, or stands still.
    fn choose(&self, state: &mut State) -> Option<usize> {
        loop {
            if state.switches > SWITCHES_MAX || state.now > self.until {
                let what = format!("after {:?} it still goes on:\n{}", state.now, state.table());
                state.over.get_or_insert(Err(what));
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
                state.running = id;
                let folded =
                    state.digest ^ (id as u64) ^ (state.now.as_nanos() as u64).rotate_left(20);
                state.digest = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
                return Some(id);
            }
            let Some((at, _, _)) = state.timers.first().copied() else {
                let what = format!("nobody can go on:\n{}", state.table());
                state.over.get_or_insert(Err(what));
                return None;
            };
            state.now = state.now.max(at);
            state.ring();
        }
    }

    /// Lets another run, and comes back when it is this thread's turn.
    ///
    /// A panic belongs to the thread of the machine. One that has to wait before its end is the end of the
    /// run, or others would seem to panic.
    fn switch<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Woken {
        let me = ME.get();
        state.next = match thread::panicking() {
            true => state.end_by_panic(me),
            false => self.choose(&mut state),
        };
        if state.next != Some(me) {
            drop(state);
            fibers::suspend();
            state = self.lock();
        }
        state.next = None;
        state.threads[me].woken
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
            next: None,
            new: Vec::new(),
            now: Duration::ZERO,
            numbers: SeededRng::new(seed),
            switches: 0,
            timers_set: 0,
            digest: seed,
            panics: Vec::new(),
            over: None,
        }
    }

    /// Thread `id` panics, and would have to wait. There is no next one.
    fn end_by_panic(&mut self, id: usize) -> Option<usize> {
        let what = format!("{} panicked and had to wait", self.threads[id].name);
        self.over.get_or_insert(Err(what));
        None
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

/// A scheduler as its threads know it: the seam's trait needs a shared handle to start threads.
impl Simulation for Scheduler {
    fn now(&self) -> Instant {
        self.start + self.lock().now
    }

    fn point(&self) {
        if thread::panicking() {
            return;
        }
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

    fn spawn(self: Arc<Self>, name: Option<String>, body: Body) -> io::Result<u64> {
        Ok(self.add_thread(name.unwrap_or_default(), body))
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

    threads::local! {
        static MINE_ALONE: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn each_thread_has_values_of_its_own() {
        let ended = Scheduler::run(1, Duration::from_secs(60), |_| {
            let count = |number: u32| {
                move || {
                    for turn in 0..100 {
                        assert_eq!(
                            MINE_ALONE.replace(number + turn + 1),
                            turn.min(1) * (number + turn)
                        );
                        threads::sleep(Duration::from_millis(1));
                    }
                }
            };
            let counting = [1000, 2000, 3000].map(|number| threads::spawn(count(number)));
            for thread in counting {
                thread.join().unwrap();
            }
            assert_eq!(MINE_ALONE.get(), 0);
        });
        assert_eq!(ended.trouble, Vec::<String>::new());
        assert_eq!(MINE_ALONE.get(), 0);
    }

    #[test]
    fn a_thread_that_waits_while_it_panics_ends_the_run() {
        struct Sleeps;
        impl Drop for Sleeps {
            fn drop(&mut self) {
                threads::sleep(Duration::from_secs(1));
            }
        }
        crate::run::hear_panics();
        let ended = Scheduler::run(1, Duration::from_secs(60), |_| {
            let other = threads::spawn(|| {
                let _sleeps = Sleeps;
                panic!("on purpose");
            });
            let _ = other.join();
            unreachable!("the run is over");
        });
        let [panic, end] = &ended.trouble[..] else {
            panic!("{:?}", ended.trouble);
        };
        assert!(panic.ends_with("on purpose"), "{panic}");
        assert!(end.ends_with("panicked and had to wait"), "{end}");
        assert!(!thread::panicking());
    }

    #[test]
    fn after_a_panic_that_waits_for_nothing_the_others_go_on() {
        crate::run::hear_panics();
        let ended = Scheduler::run(1, Duration::from_secs(60), |scheduler| {
            let other = threads::spawn(|| panic!("on purpose"));
            assert!(other.join().is_err());
            threads::sleep(Duration::from_secs(1));
            assert!(scheduler.time() >= Duration::from_secs(1));
        });
        assert_eq!(ended.trouble.len(), 1, "{:?}", ended.trouble);
        assert!(ended.time >= Duration::from_secs(1));
    }
}
