//! One run: a cluster from a seed, programs, faults, and what they come to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use base::{Fid, Rng, SeededRng};
use threads::JoinHandle;

use crate::check::order::Verdict;
use crate::check::{attributes, bytes, gardens, names, without_beliefs, without_doubtful};
use crate::cluster::{Cluster, TIMEOUT, client_node};
use crate::excuses::{Excuse, Excuses, long_absences, of_given_up};
use crate::faults::{Fault, Injector, Kind};
use crate::garden::Garden;
use crate::history::{Call, Entry, Seen, Subject};
use crate::programs::{Gardener, InodeLocks, Log, Program, make_directories, make_files};
use crate::scheduler::{Ended, Node, Scheduler};

/// The longest that a run may take of its own time.
pub(crate) const LIMIT: Duration = Duration::from_secs(3600);

/// The longest that a call may take when no fault lasts any more.
const PROGRESS: Duration = Duration::from_secs(180);
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A run with less than this says too little to be counted: so many mounts,
pub const CLIENTS_MIN: u32 = 3;
/// so many calls,
pub const CALLS_MIN: usize = 1000;
/// and so many faults.
pub const FAULTS_MIN: usize = 5;

/// How large a run is.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What chance is made of.
    pub seed: u64,
    /// Mounts.
    pub clients: u32,
    /// Programs on each.
    pub programs: u32,
    /// Calls of each program.
    pub calls: usize,
    /// Faults.
    pub faults: usize,
    /// Of which kinds.
    pub kinds: Vec<Kind>,
    /// Programs read and write files, too.
    pub bytes: bool,
    /// What they write is not always durable when the call returns. Only where no client is lost.
    pub lazy: bool,
    /// On each mount a program grows trees of its own, under write leases.
    pub gardens: bool,
}

impl Plan {
    /// The usual run of a seed. In every third no client is lost and no target fails, and writers do
    /// not wait until what they wrote is durable.
    pub fn of(seed: u64) -> Plan {
        let lazy = seed.is_multiple_of(3);
        let kinds = Kind::ALL.into_iter();
        let loses_bytes =
            |kind: Kind| kind.loses_client() || matches!(kind, Kind::DiskFlip | Kind::ByteFlip);
        let kinds = kinds.filter(|kind| !lazy || !loses_bytes(*kind));
        Plan {
            seed,
            clients: 3,
            programs: 2,
            calls: 170,
            faults: 6,
            kinds: kinds.collect(),
            bytes: true,
            lazy,
            gardens: false,
        }
    }

    /// The same with trees that grow beside the other programs.
    pub fn with_gardens(seed: u64) -> Plan {
        Plan {
            gardens: true,
            ..Plan::of(seed)
        }
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Virtual time that passed.
    pub time: Duration,
    /// What was called, in the order of returns.
    pub history: Vec<Entry>,
    /// What went wrong on purpose.
    pub faults: Vec<Fault>,
    /// What may not be.
    pub violations: Vec<String>,
    /// The search for an order of the calls took too long.
    pub gave_up: bool,
    /// All that happened, folded: each choice of a thread.
    pub digest: u64,
    /// Changes of threads.
    pub switches: u64,
}

impl Report {
    /// It was large enough to be counted.
    pub fn is_full(&self, plan: &Plan) -> bool {
        plan.clients >= CLIENTS_MIN
            && self.history.len() >= CALLS_MIN
            && self.faults.len() >= FAULTS_MIN
    }

    /// Everything, in lines: the same for the same seed.
    pub fn trace(&self) -> String {
        let mut lines: Vec<(Duration, String)> = Vec::new();
        lines.extend(
            self.history
                .iter()
                .map(|entry| (entry.end, entry.to_string())),
        );
        lines.extend(
            self.faults
                .iter()
                .map(|fault| (fault.at, fault.to_string())),
        );
        lines.sort_by_key(|(at, _)| *at);
        let mut text = String::new();
        for (_, line) in lines {
            // A string takes whatever is written to it.
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(
            text,
            "{:?} in {} turns, {:016x}",
            self.time, self.switches, self.digest
        );
        text
    }

    /// How many calls of each kind met faults of each kind: they were under way when one came, or began
    /// in the second after it.
    pub fn meetings(&self) -> BTreeMap<(&'static str, Kind), usize> {
        let mut met = BTreeMap::new();
        for fault in &self.faults {
            let end = fault.at + Duration::from_secs(1);
            let near = self
                .history
                .iter()
                .filter(|e| e.end >= fault.at && e.start <= end);
            for entry in near {
                *met.entry((entry.call.kind(), fault.kind)).or_default() += 1;
            }
        }
        met
    }
}

/// What the root thread found.
#[derive(Default)]
pub(crate) struct Found {
    pub history: Vec<Entry>,
    pub faults: Vec<Fault>,
    excuses: Excuses,
    /// When the last fault is over.
    pub over: Duration,
    pub violations: Vec<String>,
    garden: Arc<Garden>,
}

impl Found {
    /// Excuses clients that were given up: those `absences` that clients came back from as others, which they
    /// had `begun` to be. Where nobody makes changes durable (`lazy`) their loss is told whenever somebody
    /// does.
    fn excuse_given_up(
        &mut self,
        absences: Vec<Excuse>,
        begun: &BTreeSet<(u32, Duration)>,
        lazy: bool,
    ) {
        let given_up = absences.into_iter();
        let given_up = given_up.filter_map(|absence| of_given_up(absence, begun, TIMEOUT));
        let given_up: Vec<Excuse> = given_up.collect();
        self.excuses.stale.extend(&given_up);
        let told = |absence: Excuse| match lazy {
            true => Excuse {
                until: Duration::MAX,
                ..absence
            },
            false => absence,
        };
        self.excuses.failures.extend(given_up.into_iter().map(told));
    }

    /// Lets the cluster come to rest and ends it; what is wrong with it then are violations.
    fn end(&mut self, mut cluster: Cluster) {
        for machine in std::iter::once(&cluster.mdt).chain(&cluster.osts) {
            self.violations.extend(machine.stopped());
        }
        let left = cluster.come_to_rest();
        let left = left.into_iter().map(|what| format!("at rest: {what}"));
        self.violations.extend(left);
        cluster.end();
        let damage = cluster.damage();
        self.violations
            .extend(damage.into_iter().map(|what| format!("at the end: {what}")));
    }
}

/// Runs `plan` and checks what came of it.
pub fn run(plan: &Plan) -> Report {
    hear_panics();
    let found = Arc::new(Mutex::new(Found::default()));
    let (told, of_root) = (found.clone(), plan.clone());
    let ended = Scheduler::run(plan.seed, LIMIT, move |scheduler| {
        let log = Arc::new(Log::default());
        let mut mine = Found::default();
        if let Err(error) = live(scheduler, &of_root, &log, &mut mine) {
            mine.violations.push(error);
        }
        mine.history = log.take();
        *told.lock().unwrap_or_else(PoisonError::into_inner) = mine;
    });
    let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    judge(plan, ended, found)
}

/// A panic of a simulated thread is no line on the terminal but a violation.
pub(crate) fn hear_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !Scheduler::hear_panic(&info.to_string()) {
                usual(info);
            }
        }));
    });
}

/// Lives through `plan`: a cluster starts, programs make their calls under faults, and all comes to rest.
fn live(
    scheduler: &Arc<Scheduler>,
    plan: &Plan,
    log: &Arc<Log>,
    found: &mut Found,
) -> Result<(), String> {
    let mut numbers = SeededRng::new(plan.seed ^ 0x5eed);
    let mut cluster = Cluster::start(scheduler, plan.clients, &mut numbers)?;
    let first = cluster.mounts.first().ok_or("no mounts")?.client().clone();
    let dirs = make_directories(&first).map_err(|error| format!("no directories: {error}"))?;
    let files = make_files(&first).map_err(|error| format!("no files: {error}"))?;
    drop(first);
    let places = (&dirs[..], &files[..]);
    let mut programs = start_programs(scheduler, plan, log, &cluster, places, &mut numbers)?;
    if plan.gardens {
        let garden = &found.garden;
        programs.extend(start_gardeners(
            scheduler,
            plan,
            (log, garden),
            &cluster,
            &mut numbers,
        )?);
    }
    let injector = Injector {
        cluster: &mut cluster,
        scheduler,
        numbers: SeededRng::new(numbers.next_u64()),
        clients: plan.clients,
        programs: plan.programs,
        files,
        log,
        share: plan.calls / plan.faults.max(1),
        excuses: Excuses::default(),
        cut_off: Vec::new(),
        away: Vec::new(),
        over: Duration::ZERO,
        violations: Vec::new(),
    };
    let injected = inject(injector, plan, found);
    log.allow(plan.calls);
    let absences = injected?;
    let progress = await_progress(scheduler, log, &programs, found.over);
    found.excuse_given_up(absences, cluster.note_begun(), plan.lazy);
    if let Err(late) = progress {
        // It would wait for that call.
        std::mem::forget(cluster);
        return Err(late);
    }
    for program in programs {
        // What panicked has said so.
        let _ = program.join();
    }
    found.end(cluster);
    Ok(())
}

/// Starts all programs, each on its client's node, which know the directories and the files.
fn start_programs(
    scheduler: &Arc<Scheduler>,
    plan: &Plan,
    log: &Arc<Log>,
    cluster: &Cluster,
    (dirs, files): (&[Fid], &[Fid]),
    numbers: &mut SeededRng,
) -> Result<Vec<JoinHandle<()>>, String> {
    let locks: Vec<_> = (0..plan.clients).map(|_| InodeLocks::free()).collect();
    let mut programs = Vec::new();
    for number in 0..plan.clients * plan.programs {
        let of = number / plan.programs;
        let program = Program {
            number,
            client: cluster.mounts[of as usize].client().clone(),
            seat: cluster.seats[of as usize].clone(),
            crashes: 0,
            dirs: dirs.to_vec(),
            files: files.to_vec(),
            bytes: plan.bytes,
            lazy: plan.lazy,
            opened: None,
            locks: locks[of as usize].clone(),
            numbers: SeededRng::new(numbers.next_u64()),
            log: log.clone(),
            scheduler: scheduler.clone(),
        };
        scheduler.move_to(client_node(of));
        let calls = plan.calls;
        let name = format!("program {number}");
        let started = threads::Builder::new()
            .name(name)
            .spawn(move || program.run(calls));
        programs.push(started.map_err(|error| error.to_string())?);
    }
    scheduler.move_to(Node::default());
    Ok(programs)
}

/// Starts the programs that grow trees, one on each client's node.
fn start_gardeners(
    scheduler: &Arc<Scheduler>,
    plan: &Plan,
    (log, garden): (&Arc<Log>, &Arc<Garden>),
    cluster: &Cluster,
    numbers: &mut SeededRng,
) -> Result<Vec<JoinHandle<()>>, String> {
    let mut gardeners = Vec::new();
    for number in 0..plan.clients {
        let gardener = Gardener {
            number,
            client: cluster.mounts[number as usize].client().clone(),
            seat: cluster.seats[number as usize].clone(),
            crashes: 0,
            numbers: SeededRng::new(numbers.next_u64()),
            log: log.clone(),
            scheduler: scheduler.clone(),
            garden: garden.clone(),
        };
        scheduler.move_to(client_node(number));
        let steps = plan.calls;
        let started = threads::Builder::new()
            .name(format!("gardener {number}"))
            .spawn(move || gardener.run(steps));
        gardeners.push(started.map_err(|error| error.to_string())?);
    }
    scheduler.move_to(Node::default());
    Ok(gardeners)
}

/// Waits for the programs to end, as long as no call takes too long.
pub(crate) fn await_progress(
    scheduler: &Scheduler,
    log: &Log,
    programs: &[JoinHandle<()>],
    over: Duration,
) -> Result<(), String> {
    while !programs.iter().all(JoinHandle::is_finished) {
        threads::sleep(LOOK);
        let Some(then) = scheduler.time().checked_sub(PROGRESS) else {
            continue;
        };
        if then < over {
            continue;
        }
        if let Some((caller, start, call)) = log.under_way_since(then) {
            return Err(format!(
                "the faults were over at {over:?}, and {PROGRESS:?} later p{caller} has not returned from {call:?}, begun at {start:?}"
            ));
        }
    }
    Ok(())
}

/// Lets all faults happen. Says which clients were away so long that they may have been given up.
fn inject(
    mut injector: Injector<'_>,
    plan: &Plan,
    found: &mut Found,
) -> Result<Vec<Excuse>, String> {
    for _ in 0..plan.faults {
        let kind = injector.numbers.below(plan.kinds.len() as u64) as usize;
        let Some(kind) = plan.kinds.get(kind) else {
            break;
        };
        let fault = injector.inject(*kind)?;
        found.faults.push(fault);
        found.violations.extend(injector.cluster.contradictions());
        injector.cluster.note_begun();
    }
    found.excuses = injector.excuses;
    found.over = injector.over;
    found.violations.extend(injector.violations);
    let mut absences = long_absences(injector.cut_off, TIMEOUT);
    absences.append(&mut injector.away);
    Ok(absences)
}

pub(crate) fn judge(plan: &Plan, ended: Ended, found: Found) -> Report {
    let Found {
        history,
        faults,
        excuses,
        mut violations,
        garden,
        ..
    } = found;
    violations.extend(gardens::check(&garden.trees(), &excuses));
    violations.extend(ended.trouble);
    // A call may fail where a client was given up, or a target is damaged: also one on a file that was
    // opened before.
    let may_fail = |entry: &Entry| {
        let client = entry.caller / plan.programs;
        let start = used_since(&history, entry);
        let mut failures = excuses.failures.iter();
        failures
            .any(|excuse| excuse.concerns(&entry.call) && excuse.covers(client, start, entry.end))
    };
    // What went wrong with a file is told by each call that its client makes meanwhile.
    let is_told_along = |entry: &Entry| {
        let client = |entry: &Entry| entry.caller / plan.programs;
        let mut others = history.iter().filter(|other| {
            let same = other.call.subject() == entry.call.subject();
            same && client(other) == client(entry) && other.seen == Seen::Unknown
        });
        others.any(|other| other.start < entry.start && other.end >= entry.start && may_fail(other))
    };
    let unexcused = |entry: &&Entry| {
        let may_fail_so = may_fail(entry) || is_told_along(entry);
        let tells = || tells_of_loss(&history, plan.programs, may_fail, entry);
        entry.seen == Seen::Unknown && !may_fail_so && !tells()
    };
    let failed = history.iter().find(unexcused);
    violations.extend(failed.map(|entry| format!("a call failed for no reason: {entry}")));
    let seen = without_beliefs(&history, plan.programs, &excuses.stale);
    // Of bytes that nobody made durable any may have gone with their client.
    let says_nothing = plan.lazy && !excuses.failures.is_empty();
    let written: &[Entry] = if says_nothing { &[] } else { &seen };
    let shown = without_doubtful(written, plan.programs, &excuses.failures);
    violations.extend(bytes::twice(&shown));
    let mut gave_up = false;
    let attributes = attributes::check(&shown);
    let verdicts = bytes::check(&shown).into_iter().chain(attributes);
    let named = names::without_undone(&seen, plan.programs, &excuses.undone);
    for verdict in verdicts.chain([names::check(&named)]) {
        match verdict {
            Verdict::Possible => {}
            Verdict::TooMany => gave_up = true,
            Verdict::Impossible(why) => violations.push(format!("no order of the calls: {why}")),
        }
    }
    Report {
        seed: plan.seed,
        time: ended.time,
        history,
        faults,
        violations,
        gave_up,
        digest: ended.digest,
        switches: ended.switches,
    }
}

/// Whether `entry` reports bytes that an earlier failed call lost, as its `fsync` may. Only the next call
/// that changes the file may report them.
fn tells_of_loss(
    history: &[Entry],
    programs: u32,
    may_fail: impl Fn(&Entry) -> bool,
    entry: &Entry,
) -> bool {
    let subject = entry.call.subject();
    if !matches!(subject, Some(Subject::Bytes(_) | Subject::Opened(_))) {
        return false;
    }
    let is_before = |other: &&Entry| {
        let is_own = other.caller / programs == entry.caller / programs;
        let is_change = other.call.subject() == subject && !other.call.is_read();
        is_own && is_change && other.end <= entry.start
    };
    let before: Vec<&Entry> = history.iter().filter(is_before).collect();
    let mut lost = before
        .iter()
        .filter(|other| other.seen == Seen::Unknown && may_fail(other));
    lost.any(|lost| !before.iter().any(|other| other.start >= lost.end))
}

/// Since when the caller has had open what `entry` is about; where it has not, since it called.
fn used_since(history: &[Entry], entry: &Entry) -> Duration {
    let Some(Subject::Opened(_)) = entry.call.subject() else {
        return entry.start;
    };
    let opened = history.iter().filter(|other| {
        let is_open = matches!(other.call, Call::Open(..));
        is_open && other.caller == entry.caller && other.start <= entry.start
    });
    let last = opened.map(|other| other.start).max();
    last.unwrap_or(entry.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a program whose only call lasts for `time`, where the last fault is over
    /// after `over`.
    fn progress_of(time: Duration, over: Duration) -> Result<(), String> {
        let said = Arc::new(Mutex::new(None));
        let tell = said.clone();
        let ended = Scheduler::run(1, LIMIT, move |scheduler| {
            let log = Arc::new(Log::default());
            log.begin(7, (scheduler.time(), Call::Prefetch));
            let of_program = log.clone();
            let program = threads::spawn(move || {
                threads::sleep(time);
                of_program.end(7);
            });
            let progress = await_progress(scheduler, &log, &[program], over);
            *tell.lock().unwrap() = Some(progress);
        });
        assert_eq!(ended.trouble, [""; 0]);
        let progress = said.lock().unwrap().take();
        progress.expect("the run has ended")
    }

    fn change(caller: u32, file: u8, from: u64, until: u64, seen: Seen) -> Entry {
        Entry {
            start: Duration::from_secs(from),
            end: Duration::from_secs(until),
            caller,
            call: Call::Append(file, from),
            seen,
        }
    }

    #[test]
    fn a_loss_is_told_by_the_next_call_that_changes_the_file_on_its_client() {
        let may_fail = |entry: &Entry| entry.end < Duration::from_secs(10);
        let lost = change(0, 1, 1, 5, Seen::Unknown);
        let late = change(1, 1, 20, 21, Seen::Unknown);
        let tells = |before: &[Entry]| {
            let history = [before, std::slice::from_ref(&late)].concat();
            tells_of_loss(&history, 2, may_fail, &late)
        };
        let is_told = change(0, 1, 6, 7, Seen::Done);
        let elsewhere = change(2, 1, 6, 7, Seen::Done);
        assert!(tells(std::slice::from_ref(&lost)) && tells(&[lost.clone(), elsewhere]));
        assert!(!tells(&[]) && !tells(&[lost.clone(), is_told]));
        let was_told = change(0, 1, 12, 13, Seen::Unknown);
        assert!(!tells(&[lost, was_told]), "once");
        let other_file = change(0, 2, 1, 5, Seen::Unknown);
        let other_client = change(2, 1, 1, 5, Seen::Unknown);
        let was_done = change(0, 1, 1, 5, Seen::Done);
        assert!(!tells(&[other_file, other_client, was_done]));
    }

    #[test]
    fn a_call_that_does_not_return_after_the_last_fault_is_named() {
        let (short, at_once) = (Duration::from_secs(100), Duration::ZERO);
        let long = PROGRESS + short / 2;
        assert_eq!(progress_of(short, at_once), Ok(()));
        assert_eq!(progress_of(long, short), Ok(()));
        for late in [
            progress_of(long, at_once),
            progress_of(long + short, short),
            progress_of(LIMIT / 2, short),
        ] {
            let said = late.unwrap_err();
            assert!(said.contains("p7 has not returned from Prefetch"), "{said}");
        }
    }
}
