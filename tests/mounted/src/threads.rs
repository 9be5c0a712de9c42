//! The calls in which threads of processes wait, from `/proc`.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

/// All threads of `pid`: name, state, and where in the kernel each waits.
pub fn describe(pid: u32) -> String {
    let mut text = String::new();
    for task in tasks(pid) {
        let read = |file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
        let id = task
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let (name, wchan) = (read("comm"), read("wchan"));
        let state = state(&read("stat")).unwrap_or('?');
        let _ = writeln!(text, "  {id} {} {state} in {}", name.trim(), wchan.trim());
        if state == 'D' {
            let _ = writeln!(text, "{}", read("stack").trim_end());
        }
    }
    text
}

/// A thread of `pid` waits where nothing can end it, and has for half a second.
pub fn is_stuck(pid: u32) -> bool {
    let in_d = |task: &PathBuf| {
        fs::read_to_string(task.join("stat"))
            .ok()
            .and_then(|stat| state(&stat))
            == Some('D')
    };
    let mut suspects: Vec<PathBuf> = tasks(pid).into_iter().filter(in_d).collect();
    for _ in 0..10 {
        if suspects.is_empty() {
            return false;
        }
        sleep(Duration::from_millis(50));
        suspects.retain(in_d);
    }
    true
}

/// How much of a processor each thread gets that wants to run now, on average: 1 at most.
pub fn share_of_processor() -> f64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = available_parallelism().map_or(1, usize::from) as f64;
    share(&load, processors)
}

fn share(load: &str, processors: f64) -> f64 {
    let counts = load.split_whitespace().nth(3).unwrap_or_default();
    let running = counts
        .split('/')
        .next()
        .and_then(|count| count.parse().ok());
    (processors / running.unwrap_or(processors)).min(1.0)
}

fn tasks(pid: u32) -> Vec<PathBuf> {
    let listed = fs::read_dir(format!("/proc/{pid}/task"));
    listed
        .into_iter()
        .flatten()
        .flatten()
        .map(|task| task.path())
        .collect()
}

/// The letter after the name, which stands in parentheses and may hold any.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_less_where_more_want_to_run_than_there_are_processors() {
        assert_eq!(share("9.39 10.68 10.07 8/489 3665", 2.0), 0.25);
        assert_eq!(share("0.10 0.10 0.10 1/90 366", 2.0), 1.0);
        assert_eq!(share("", 2.0), 1.0);
    }
}
