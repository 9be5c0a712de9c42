//! A lock table and several caches over channels that reorder, against an oracle: random calls of clients,
//! lost messages, evictions.

mod client;
mod cluster;
mod message;
mod server;

use cluster::{Cluster, Tally};

const SEEDS: u64 = 40;
const STEPS: u64 = 12_000;

fn run(seed: u64) -> Tally {
    let mut cluster = Cluster::new(seed);
    for step in 0..STEPS {
        if let Err(why) = cluster.step() {
            panic!("seed {seed}, step {step}: {why}");
        }
    }
    cluster
        .drain()
        .unwrap_or_else(|why| panic!("seed {seed}, at the end: {why}"))
}

/// Nothing is used under a contradicted lock, and nothing cached is outdated. No conflicting request
/// overtakes, and all are answered. `DLM_SEED=n` runs one seed, with `DLM_TRACE=1` line by line.
#[test]
fn random_clients_never_see_old_state_and_are_all_served() {
    let seeds = match std::env::var("DLM_SEED") {
        Ok(seed) => vec![seed.parse().expect("DLM_SEED is a number")],
        Err(_) => (1..=SEEDS).collect(),
    };
    let tallies: Vec<Tally> = seeds.iter().map(|seed| run(*seed)).collect();
    let total = tallies
        .iter()
        .fold(Tally::default(), |total, one| total.plus(one));
    println!(
        "{} seeds from {}, {STEPS} steps each: {total:?}",
        seeds.len(),
        seeds[0]
    );
    if seeds.len() as u64 == SEEDS {
        assert!(
            total.reaches_everything(),
            "some path was hardly taken: {total:?}"
        );
    }
}
