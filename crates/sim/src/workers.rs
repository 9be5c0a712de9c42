//! Runs in which the processes of supervised mounts are killed while others write to the same files.
//! Whatever a call had returned stays, though nobody makes anything durable.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::{Fid, Rng, SeededRng};
use threads::JoinHandle;

use crate::cluster::{Cluster, OSTS, client_node};
use crate::faults::{Fault, Kind};
use crate::programs::{InodeLocks, Log, Sharer, make_files};
use crate::run::{Found, LIMIT, Plan, Report, await_progress, hear_panics, judge};
use crate::scheduler::{Node, Scheduler};

/// The longest that passes before another process is killed.
const PAUSE_MAX_MS: u64 = 60;
/// The longest that it takes until another is started.
const AWAY_MAX_MS: u64 = 20;
/// Disks are slow for so long,
const SLOW: Duration = Duration::from_millis(300);
/// and take up to so much longer for each sync.
const SLOWER_MAX: Duration = Duration::from_millis(40);

/// The run of a seed.
pub fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        clients: 3,
        programs: 2,
        calls: 170,
        faults: 10,
        kinds: vec![Kind::Worker],
        bytes: true,
        lazy: true,
        gardens: false,
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

fn live(
    scheduler: &Arc<Scheduler>,
    plan: &Plan,
    log: &Arc<Log>,
    found: &mut Found,
) -> Result<(), String> {
    let mut numbers = SeededRng::new(plan.seed ^ 0x5eed);
    let mut cluster = Cluster::start_supervised(scheduler, plan.clients, &mut numbers)?;
    let first = cluster.mounts.first().ok_or("no mounts")?.client().clone();
    let files = make_files(&first).map_err(|error| format!("no files: {error}"))?;
    drop(first);
    let programs = start_programs(scheduler, plan, log, &cluster, &files, &mut numbers)?;
    let killed = kill(&mut cluster, (scheduler, plan, log), &mut numbers, found);
    log.allow(plan.calls);
    found.over = scheduler.time();
    let progress = await_progress(scheduler, log, &programs, found.over);
    if let Err(late) = killed.and(progress) {
        // It would wait for that call.
        std::mem::forget(cluster);
        return Err(late);
    }
    for program in programs {
        // What panicked has said so.
        let _ = program.join();
    }
    for machine in std::iter::once(&cluster.mdt).chain(&cluster.osts) {
        found.violations.extend(machine.stopped());
    }
    let left = cluster.come_to_rest().into_iter();
    found
        .violations
        .extend(left.map(|what| format!("at rest: {what}")));
    cluster.end();
    let damage = cluster.damage().into_iter();
    found
        .violations
        .extend(damage.map(|what| format!("at the end: {what}")));
    Ok(())
}

/// Starts all programs, each on its client's node. Those of the last client only read.
fn start_programs(
    scheduler: &Arc<Scheduler>,
    plan: &Plan,
    log: &Arc<Log>,
    cluster: &Cluster,
    files: &[Fid],
    numbers: &mut SeededRng,
) -> Result<Vec<JoinHandle<()>>, String> {
    let locks: Vec<_> = (0..plan.clients).map(|_| InodeLocks::free()).collect();
    let mut programs = Vec::new();
    for number in 0..plan.clients * plan.programs {
        let of = number / plan.programs;
        let program = Sharer {
            number,
            desk: cluster.desk(of),
            writes: of + 1 < plan.clients,
            files: files.to_vec(),
            locks: locks[of as usize].clone(),
            numbers: SeededRng::new(numbers.next_u64()),
            log: log.clone(),
            scheduler: scheduler.clone(),
        };
        scheduler.move_to(client_node(of));
        let calls = plan.calls;
        let started = threads::Builder::new()
            .name(format!("program {number}"))
            .spawn(move || program.run(calls));
        programs.push(started.map_err(|error| error.to_string())?);
    }
    scheduler.move_to(Node::default());
    Ok(programs)
}

/// Kills one process after the other, each with calls about it.
fn kill(
    cluster: &mut Cluster,
    (scheduler, plan, log): (&Scheduler, &Plan, &Log),
    numbers: &mut SeededRng,
    found: &mut Found,
) -> Result<(), String> {
    for _ in 0..plan.faults {
        log.allow(plan.calls / plan.faults.max(1));
        if numbers.below(2) == 0 {
            let ost = OSTS[numbers.below(OSTS.len() as u64) as usize];
            cluster.machine(ost).slow_down(SLOW, SLOWER_MAX, numbers);
        }
        threads::sleep(Duration::from_millis(numbers.below(PAUSE_MAX_MS)));
        let client = numbers.below(u64::from(plan.clients)) as u32;
        let at = scheduler.time();
        cluster.kill_worker(client, numbers);
        let away = Duration::from_millis(numbers.below(AWAY_MAX_MS));
        threads::sleep(away);
        cluster.replace_worker(client)?;
        found.faults.push(Fault {
            at,
            kind: Kind::Worker,
            what: format!(
                "the process of client {client} is killed, and another there after {away:?}"
            ),
        });
        found.violations.extend(cluster.contradictions());
    }
    Ok(())
}
