//! Runs seeds one after the other for a while: `glint-sim [SECONDS [SEED]]`, or one with all that
//! happened in it: `glint-sim trace SEED`, with all that client and servers say `glint-sim log SEED`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::run::{CALLS_MIN, CLIENTS_MIN, FAULTS_MIN, Plan, run};
use sim::scheduler::Scheduler;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| match arguments.get(at) {
        None => Ok(usual),
        Some(text) => text.parse().map_err(|_| text.clone()),
    };
    let asked = match arguments.first().map(String::as_str) {
        Some("trace") => number(1, 1).map(|seed| (None, seed)),
        Some("log") => {
            log_all();
            number(1, 1).map(|seed| (None, seed))
        }
        _ => number(0, 60).and_then(|seconds| Ok((Some(seconds), number(1, 1)?))),
    };
    sim::processor::stay_on_one();
    match asked {
        Ok((Some(seconds), seed)) => many(Duration::from_secs(seconds), seed),
        Ok((None, seed)) => one(seed),
        Err(text) => {
            eprintln!(
                "glint-sim: {text:?} is no number; usage: glint-sim [SECONDS [SEED]], glint-sim trace SEED"
            );
            ExitCode::from(2)
        }
    }
}

fn one(seed: u64) -> ExitCode {
    let report = run(&Plan::of(seed));
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

fn many(time: Duration, first: u64) -> ExitCode {
    let begun = Instant::now();
    let (mut failed, mut gave_up) = (Vec::new(), Vec::new());
    let (mut runs, mut small, mut calls, mut faults) = (0u64, 0u64, 0usize, 0usize);
    let mut simulated = Duration::ZERO;
    while begun.elapsed() < time {
        let seed = first + runs;
        let plan = Plan::of(seed);
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
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
