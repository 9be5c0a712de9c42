//! Runs seeds one after the other for a while: `glint-sim [SECONDS [SEED]]`, or one with all that
//! happened in it: `glint-sim trace SEED`, with all that client and servers say `glint-sim log SEED`.
//! With faults of some kinds only: `glint-sim SECONDS SEED Blackout,Absence`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::faults::Kind;
use sim::run::{CALLS_MIN, CLIENTS_MIN, FAULTS_MIN, Plan, run};
use sim::scheduler::Scheduler;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

const USAGE: &str = "glint-sim [SECONDS [SEED [KIND,KIND]]], glint-sim trace SEED [KIND,KIND]";

/// The time of the simulation, and where it is.
struct Here;

impl FormatTime for Here {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        match Scheduler::here() {
            Some((time, node)) => write!(writer, "{:>10} @{}", time.as_micros(), node.0),
            None => write!(writer, "outside"),
        }
    }
}

fn log_all() {
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
    let lines = lines.with_timer(Here).with_ansi(false);
    lines.with_thread_names(true).init();
}

/// What is asked for: one run of a seed, or many from it on, for so long. And faults of these kinds
/// only.
struct Wish {
    time: Option<Duration>,
    seed: u64,
    kinds: Option<Vec<Kind>>,
}

impl Wish {
    /// What `arguments` say; or what of them says nothing.
    fn of(arguments: &[String]) -> Result<Wish, String> {
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
        })
    }

    fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::of(seed);
        if let Some(kinds) = &self.kinds {
            plan.kinds.retain(|kind| kinds.contains(kind));
        }
        plan
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
    if arguments.first().is_some_and(|first| first == "log") {
        log_all();
    }
    sim::processor::stay_on_one();
    match wish.time {
        Some(time) => many(time, &wish),
        None => one(&wish),
    }
}

fn one(wish: &Wish) -> ExitCode {
    let report = run(&wish.plan(wish.seed));
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

fn many(time: Duration, wish: &Wish) -> ExitCode {
    let first = wish.seed;
    let begun = Instant::now();
    let (mut failed, mut gave_up) = (Vec::new(), Vec::new());
    let (mut runs, mut small, mut calls, mut faults) = (0u64, 0u64, 0usize, 0usize);
    let mut simulated = Duration::ZERO;
    while begun.elapsed() < time {
        let seed = first + runs;
        let plan = wish.plan(seed);
        let report = run(&plan);
        runs += 1;
        small += u64::from(!report.is_full(&plan));
        faults += report.faults.len();
        calls += report.history.len();
        if report.gave_up {
            gave_up.push(seed);
        }
        simulated += report.time;
        if let Some(what) = report.violations.first() {
            println!("seed {seed}: {what}\n  all of it: make sim-trace SEED={seed}");
            failed.push(seed);
        }
    }
    let real = begun.elapsed();
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
