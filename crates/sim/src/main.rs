//! The program `glint-sim`: runs simulated clusters, one seed after the other.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::faults::Kind;
use sim::run::{self, CALLS_MIN, CLIENTS_MIN, FAULTS_MIN, Plan, Report};
use sim::scheduler::Scheduler;
use sim::workers;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Of so many seeds one has a run of each sort.
const WORKERS_EVERY: u64 = 4;

const USAGE: &str = "glint-sim [workers|gardens] [SECONDS [SEED [KIND,KIND]]], glint-sim [workers|gardens] trace SEED [KIND,KIND]";

/// The time of the simulation, and where it is.
struct Here;

impl FormatTime for Here {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        match Scheduler::here() {
            Some((time, node, thread)) => {
                write!(writer, "{:>10} @{} {thread}", time.as_micros(), node.0)
            }
            None => write!(writer, "outside"),
        }
    }
}

fn log_all() {
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
    let lines = lines.with_timer(Here).with_ansi(false);
    lines.init();
}

/// The arguments: one run of a seed, or runs of many seeds from it on, for so long, with these kinds of
/// faults only. As in `glint-sim SECONDS SEED Blackout,Absence`; `glint-sim trace SEED` prints all events of
/// one seed, `glint-sim log SEED` also the logs of client and servers.
struct Wish {
    time: Option<Duration>,
    seed: u64,
    kinds: Option<Vec<Kind>>,
    /// Processes of supervised mounts are killed: `glint-sim workers …`.
    workers: bool,
    /// Trees grow under write leases: `glint-sim gardens …`.
    gardens: bool,
}

impl Wish {
    /// What `arguments` say; or what of them says nothing.
    fn of(arguments: &[String]) -> Result<Wish, String> {
        let workers = arguments.first().is_some_and(|first| first == "workers");
        let gardens = arguments.first().is_some_and(|first| first == "gardens");
        let arguments = &arguments[usize::from(workers || gardens)..];
        let first = arguments.first().map(String::as_str);
        let is_one = matches!(first, Some("trace" | "log"));
        let number = |at: usize, usual: u64| match arguments.get(at) {
            None => Ok(usual),
            Some(text) => text.parse().map_err(|_| text.clone()),
        };
        let time = match is_one {
            true => None,
            false => Some(Duration::from_secs(number(0, 60)?)),
        };
        let kinds = arguments.get(2).map(|text| {
            let kinds = text.split(',');
            let kinds = kinds.map(|text| Kind::of(text).ok_or_else(|| text.to_owned()));
            kinds.collect::<Result<Vec<_>, _>>()
        });
        Ok(Wish {
            time,
            seed: number(1, 1)?,
            kinds: kinds.transpose()?,
            workers,
            gardens,
        })
    }

    /// The runs of a seed: of supervised mounts, or the usual one; now and then both.
    fn runs(&self, seed: u64) -> Vec<Planned> {
        let of_workers = Planned {
            plan: workers::plan(seed),
            workers: true,
        };
        if self.workers {
            return vec![of_workers];
        }
        let usual = Planned {
            plan: self.plan(seed),
            workers: false,
        };
        let is_mixed = self.time.is_some() && self.kinds.is_none() && !self.gardens;
        let of_gardens = Planned {
            plan: Plan::with_gardens(seed),
            workers: false,
        };
        match seed % WORKERS_EVERY {
            0 if is_mixed => vec![usual, of_workers],
            2 if is_mixed => vec![usual, of_gardens],
            _ => vec![usual],
        }
    }

    fn plan(&self, seed: u64) -> Plan {
        let mut plan = match self.gardens {
            true => Plan::with_gardens(seed),
            false => Plan::of(seed),
        };
        if let Some(kinds) = &self.kinds {
            plan.kinds.retain(|kind| kinds.contains(kind));
        }
        plan
    }
}

/// A run that is to be.
struct Planned {
    plan: Plan,
    workers: bool,
}

impl Planned {
    fn run(&self) -> Report {
        match self.workers {
            true => workers::run(&self.plan),
            false => run::run(&self.plan),
        }
    }

    /// How to have it told.
    fn again(&self) -> String {
        let seed = self.plan.seed;
        match self.workers {
            true => format!("glint-sim workers trace {seed}"),
            false if self.plan.gardens => format!("glint-sim gardens trace {seed}"),
            false => format!("make sim-trace SEED={seed}"),
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wish = match Wish::of(&arguments) {
        Ok(wish) => wish,
        Err(text) => {
            eprintln!("glint-sim: {text:?} is no number, or no kind of faults; usage: {USAGE}");
            return ExitCode::from(2);
        }
    };
    if arguments.iter().take(2).any(|word| word == "log") {
        log_all();
    }
    match wish.time {
        Some(time) => many(time, &wish),
        None => one(&wish),
    }
}

fn one(wish: &Wish) -> ExitCode {
    let mut runs = wish.runs(wish.seed);
    let report = runs.swap_remove(0).run();
    print!("{}", report.trace());
    report
        .violations
        .iter()
        .for_each(|what| println!("VIOLATION {what}"));
    match report.violations.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// What came of many runs.
#[derive(Default)]
struct Tally {
    failed: Vec<u64>,
    gave_up: Vec<u64>,
    runs: u64,
    small: u64,
    calls: usize,
    faults: usize,
    simulated: Duration,
}

impl Tally {
    fn add(&mut self, planned: &Planned) {
        let (report, seed) = (planned.run(), planned.plan.seed);
        self.runs += 1;
        self.small += u64::from(!report.is_full(&planned.plan));
        self.faults += report.faults.len();
        self.calls += report.history.len();
        if report.gave_up {
            println!("seed {seed}: not decided");
            self.gave_up.push(seed);
        }
        self.simulated += report.time;
        if let Some(what) = report.violations.first() {
            let again = planned.again();
            println!("seed {seed}: {what}\n  all of it: {again}");
            self.failed.push(seed);
        }
    }
}

fn many(time: Duration, wish: &Wish) -> ExitCode {
    let (first, begun, mut tally) = (wish.seed, Instant::now(), Tally::default());
    let mut left: Vec<Planned> = Vec::new();
    let mut seeds = first..;
    while begun.elapsed() < time {
        if left.is_empty() {
            left = seeds.next().map(|seed| wish.runs(seed)).unwrap_or_default();
        }
        if !left.is_empty() {
            tally.add(&left.remove(0));
        }
    }
    let real = begun.elapsed();
    let Tally {
        failed,
        gave_up,
        runs,
        small,
        calls,
        faults,
        simulated,
    } = tally;
    let hours_a_minute = simulated.as_secs_f64() / 3600.0 / (real.as_secs_f64() / 60.0);
    println!(
        "{} runs from seed {first} in {:.0} s, {calls} calls, {faults} faults; {} with a violation {failed:?}; {} not decided {gave_up:?}; {hours_a_minute:.2} simulated hours a minute",
        runs - small,
        real.as_secs_f64(),
        failed.len(),
        gave_up.len()
    );
    if small > 0 {
        println!(
            "{small} more had fewer than {CLIENTS_MIN} clients, {CALLS_MIN} calls or {FAULTS_MIN} faults, and are not counted"
        );
    }
    // What is not decided, or was not tried, has not passed.
    match failed.is_empty() && gave_up.is_empty() && runs > small {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
