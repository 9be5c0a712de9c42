//! Processes that keep the machine busy beside a test: its threads get a processor late.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::thread;

/// Between the first seeds of two simulators: more than one comes to.
const SEEDS: u64 = 100_000;
/// Longer than any test, in seconds.
const LONG: &str = "7200";

/// Processes that compute until this is dropped.
///
/// Where `GLINT_BUSY` names the simulator, they simulate clusters, and what they find fails the test. So
/// `xtask test` has its minutes of simulated clusters for nothing. Elsewhere they are loops.
pub struct BusyProcesses(Vec<(Child, File)>);

impl BusyProcesses {
    /// So many of them. Clusters have seeds from `first_seed` on.
    pub fn start(count: u64, first_seed: u64) -> BusyProcesses {
        let started = (0..count).map(|number| {
            let mut command = match std::env::var_os("GLINT_BUSY") {
                Some(simulator) => {
                    let mut command = Command::new(simulator);
                    command.args([LONG, &(first_seed + number * SEEDS).to_string()]);
                    command
                }
                None => {
                    let mut command = Command::new("sh");
                    command.args(["-c", "while :; do :; done"]);
                    command
                }
            };
            let said = tempfile::tempfile().expect("a file");
            command
                .stdin(Stdio::null())
                .stdout(said.try_clone().expect("a second descriptor"))
                .stderr(said.try_clone().expect("a third descriptor"));
            (command.spawn().expect("it starts"), said)
        });
        BusyProcesses(started.collect())
    }
}

impl Drop for BusyProcesses {
    fn drop(&mut self) {
        let mut all_said = String::new();
        for (mut computing, mut said) in self.0.drain(..) {
            let _ = computing.kill();
            let _ = computing.wait();
            said.seek(SeekFrom::Start(0)).expect("its begin");
            said.read_to_string(&mut all_said).expect("what it said");
        }
        // The simulator says at once what it finds, and all else at its end.
        assert!(all_said.is_empty() || thread::panicking(), "{all_said}");
    }
}
