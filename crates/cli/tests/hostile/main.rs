//! Hostile peers: whatever is sent to a server, it serves others on, restarts clean, and its targets are
//! sound. What is sent is in `scripts/`, one peer's doing under each name, and in a random one.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

mod holders;
mod peer;
mod requests;
mod script;
mod shape;
#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;

use base::{Rng, SeededRng, TargetName};
use nix::sys::signal::Signal;
use peer::{Await, Outcome, Peer, Place, Who, hello};
use rpc::Credential;
use script::{Player, kind_of};
use support::{Staying, glint};

const SCRIPTS: [&str; 3] = [
    include_str!("scripts/handshake.txt"),
    include_str!("scripts/requests.txt"),
    include_str!("scripts/sweeps.txt"),
];

struct Cluster {
    dir: tempfile::TempDir,
    place: Place,
    server: Staying,
    number: u64,
}

fn key(path: &Path) -> [u8; 32] {
    *storage::TargetKey::load(path).unwrap().as_bytes()
}

impl Cluster {
    fn new() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        glint(dir.path(), &["format", "D"]).worked();
        let tcp = support::ports::free_address();
        let unix = dir.path().join("socket");
        let place = Place {
            key: key(&dir.path().join("D/key")),
            server_key: key(&dir.path().join("D/server-key")),
            tcp,
            unix,
        };
        let server = Cluster::serve(dir.path(), &place);
        let mut cluster = Cluster {
            dir,
            place,
            server,
            number: 1 << 32,
        };
        cluster.is_well("at first");
        cluster
    }

    fn serve(dir: &Path, place: &Place) -> Staying {
        let unix = format!("unix:{}", place.unix.display());
        let listen = format!("{},{unix}", place.tcp);
        Staying::start(dir, &["serve", "D", "--listen", &listen])
    }

    /// Others are served: each target answers a client that behaves.
    #[track_caller]
    fn is_well(&mut self, when: &str) {
        for target in [TargetName::MGS, TargetName::mdt(0), TargetName::ost(0)] {
            self.number += 1;
            let hello = hello(target, self.number, Credential::Client).to_bytes();
            let mut peer = Peer::silent(&self.place, false, target).unwrap();
            let greeted = peer.greet(&self.place, &hello, Who::Client);
            assert_eq!(
                greeted,
                Outcome::Welcome,
                "{when}: {target}: {}",
                self.server.said()
            );
            let name = match kind_of(target) {
                "mgs" => "getconfig",
                _ => "statfs",
            };
            let all = requests::of(kind_of(target));
            let (_, request) = all.into_iter().find(|(known, _)| *known == name).unwrap();
            let answered = peer.send(&request, Await::Answer);
            assert_eq!(
                answered,
                Outcome::Done,
                "{when}: {target}: {}",
                self.server.said()
            );
            peer.leave();
        }
    }

    /// It ends as it should, starts again as it should, and all that it holds is sound.
    fn ends_well(mut self, when: &str) {
        for _ in 0..2 {
            self.server.signal(Signal::SIGTERM);
            assert_eq!(
                self.server.ended(),
                Some(0),
                "{when}: {}",
                self.server.said()
            );
            let said = self.server.said();
            assert!(!said.contains("panicked"), "{when}: {said}");
            self.server = Cluster::serve(self.dir.path(), &self.place);
            let end = ["param", "set", "*.recovery_status=end", "--dir", "D"];
            glint(self.dir.path(), &end).worked();
            self.is_well(when);
        }
        self.server.signal(Signal::SIGTERM);
        assert_eq!(
            self.server.ended(),
            Some(0),
            "{when}: {}",
            self.server.said()
        );
        let checked = glint(self.dir.path(), &["fsck", "D"]);
        for target in ["MDT0", "OST0"] {
            let sound = format!("{target}: 0 errors");
            assert!(checked.out.contains(&sound), "{when}: {checked:?}");
        }
    }
}

#[test]
fn whatever_a_peer_says_others_are_served() {
    let scripts: Vec<_> = SCRIPTS.into_iter().flat_map(script::read).collect();
    let names: BTreeSet<&str> = scripts.iter().map(|script| &*script.name).collect();
    assert!(scripts.len() >= 50 && names.len() == scripts.len());
    let mut cluster = Cluster::new();
    for script in &scripts {
        let (place, mut number) = (cluster.place.clone(), cluster.number);
        Player::new(&place, &mut number).play(script);
        cluster.number = number;
        cluster.is_well(&script.name);
    }
    cluster.ends_well("after all scripts");
}

#[test]
fn whatever_a_peer_says_by_chance_others_are_served() {
    for seed in 1..=2 {
        let mut cluster = Cluster::new();
        by_chance(&mut cluster, seed);
        cluster.is_well(&format!("seed {seed}"));
        cluster.ends_well(&format!("seed {seed}"));
    }
}

fn by_chance(cluster: &mut Cluster, seed: u64) {
    let mut rng = SeededRng::new(seed);
    let mut choose = move |count: usize| rng.below(count as u64) as usize;
    let mut peer: Option<Peer> = None;
    for _ in 0..1500 {
        if choose(40) == 0 || peer.as_ref().is_none_or(Peer::is_full) {
            let targets = [TargetName::MGS, TargetName::mdt(0), TargetName::ost(0)];
            let target = targets[choose(3)];
            cluster.number += 1;
            let mut hello = shape::Node::of(&hello(target, cluster.number, Credential::Client));
            if choose(4) == 0 {
                spoil(&mut hello, &mut choose);
            }
            let mut bytes = Vec::new();
            hello.encode(&mut bytes);
            let mut next = Peer::silent(&cluster.place, choose(4) == 0, target).unwrap();
            let greeted = next.greet(&cluster.place, &bytes, Who::Client);
            peer = (greeted == Outcome::Welcome).then_some(next);
            continue;
        }
        let Some(here) = &mut peer else { continue };
        let all = requests::of(kind_of(here.target));
        let (_, mut request) = all[choose(all.len())].clone();
        for _ in 0..choose(4) {
            spoil(&mut request, &mut choose);
        }
        if here.send(&request, Await::Turn) == Outcome::Closed {
            peer = None;
        }
    }
}

/// Puts a field at one of its borders.
fn spoil(node: &mut shape::Node, choose: &mut impl FnMut(usize) -> usize) {
    let fields = node.fields();
    let field = &fields[choose(fields.len())];
    let Some(found) = node.at(field) else { return };
    let borders = found.borders();
    if !borders.is_empty() {
        *found = borders[choose(borders.len())].clone();
    }
}
