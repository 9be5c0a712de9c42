//! One process of a history: `glint-caller prepare ROOT`, `work …`, `look …`, started by the tests.

use std::path::Path;
use std::process::ExitCode;

use history::object::Kind;
use history::programs::{Habits, Worker, prepare};
use history::recorder::Recorder;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("glint-caller: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["prepare", root] => prepare(Path::new(root)).map_err(|error| error.to_string()),
        [
            "work",
            root,
            record,
            process,
            mount,
            seed,
            syncs,
            flushes,
            deadline,
            kinds,
        ] => {
            let habits = Habits {
                syncs: number(syncs)?,
                flushes: flushes == "flushes",
            };
            let worker = worker(root, record, (process, mount), number(seed)?, habits)?;
            let kinds: Result<Vec<Kind>, String> = kinds.split(',').map(str::parse).collect();
            worker.work(&kinds?, number(deadline)?);
            Ok(())
        }
        ["look", root, record, process, mount] => {
            let habits = Habits {
                syncs: 1,
                flushes: false,
            };
            let worker = worker(root, record, (process, mount), 1, habits)?;
            worker.look_at_all().map_err(|error| error.to_string())
        }
        _ => Err(format!("not understood: {words:?}")),
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("no number: {word}"))
}

fn worker(
    root: &str,
    record: &str,
    (process, mount): (&str, &str),
    seed: u64,
    habits: Habits,
) -> Result<Worker, String> {
    let (process, mount) = (number(process)? as u32, number(mount)? as u32);
    let recorder = Recorder::new(Path::new(record), process, mount);
    let recorder = recorder.map_err(|error| format!("{record}: {error}"))?;
    Ok(Worker::new(
        Path::new(root),
        process,
        seed,
        habits,
        recorder,
    ))
}
