//! Power cuts under the metadata server. A scenario is done once on a sound disk, then again for
//! each of its writes with the power failing there, and what a restart finds is held against what
//! was promised before.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod machine;
pub mod picture;
pub mod script;

use std::collections::BTreeMap;

use base::{Tick, Timestamp, Transno};
use mds::fsck;
use model::Model;
use storage::{FaultyDisk, Kv, MemDisk, Survivors};
use wire::hash::NameHasher;
use wire::mdt::{Caller, Request};

use machine::{Machine, Off};
use picture::{Outcome, Rows, Tree};
use script::{Step, Users};

/// The product's allocator: thousands of restarts are mostly allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub const HASH_KEY: u64 = 42;
const FORMATTED: Timestamp = Timestamp { secs: 1, nanos: 0 };
const CLIENTS: [u64; 2] = [1, 2];
/// After every so many cuts the restart is cut too, at every so many of its own writes. At others
/// after each cut, so that all are met.
const SECOND_CUT_STRIDE: u64 = 11;

/// A script, and what was there before it.
pub struct Scenario {
    pub name: &'static str,
    pub before: Vec<Step>,
    pub script: Vec<Step>,
    /// The clients go on after a restart as if nothing had been. Else client 2 is given up.
    pub goes_on: bool,
}

/// The scenario as it goes when nothing fails.
struct Reference {
    image: Vec<u8>,
    /// As they are when the script begins.
    users: Users,
    /// After each change, by its number.
    states: BTreeMap<Transno, Rows>,
    trees: BTreeMap<Transno, Tree>,
    outcome: Outcome,
    writes: u64,
}

/// How many cuts there were, and how many restarts that were cut too.
#[derive(Debug, Default, Clone, Copy)]
pub struct Count {
    pub cuts: u64,
    pub second_cuts: u64,
}

/// What may be found of the writes since the last sync.
pub fn variants(cut: u64) -> [Survivors; 6] {
    [
        Survivors::Nothing,
        Survivors::Torn {
            torn_bytes: usize::MAX,
        },
        Survivors::Last,
        Survivors::Torn { torn_bytes: 2048 },
        Survivors::Torn { torn_bytes: 256 },
        Survivors::Random { seed: cut },
    ]
}

pub fn check(machine: &Machine, what: &str) {
    let issues = fsck::check(machine.mds.store(), NameHasher::new(HASH_KEY));
    let issues = issues.unwrap_or_else(|failure| panic!("{what}: {failure:?}"));
    assert!(issues.is_empty(), "{what}: {}", issues[0]);
}

pub fn start(disk: impl storage::Disk + 'static) -> storage::Result<Machine> {
    Machine::open(
        disk,
        Tick(1),
        Timestamp {
            secs: 5000,
            nanos: 0,
        },
    )
}

/// A formatted target after `before`, all of it durable; its server was killed.
fn prepared(before: &[Step], watch: script::Watch<'_>) -> (Vec<u8>, Users) {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).expect("memory");
    let kv = Kv::open(
        disk.clone(),
        &mds::tables(),
        storage::KvOptions::new("MDT0").manual(),
    );
    mds::format(&kv.expect("memory"), HASH_KEY, FORMATTED).expect("memory");
    let mut users = Users::new(&CLIENTS);
    let mut machine = start(disk.clone()).expect("memory");
    users.return_to(&mut machine, &[]).expect("memory");
    let sequences = CLIENTS.map(|client| Step::Durable(client, vec![Request::AllocSequences]));
    let steps = [&sequences[..], before].concat();
    users.go_on(&mut machine, &steps, watch).expect("memory");
    machine.flush().expect("memory");
    let image = disk.to_bytes();
    users.begin();
    (image, users)
}

/// A later boot, past all that follows a restart.
fn resumed(disk: &FaultyDisk, users: &mut Users) -> Machine {
    let mut machine = start(disk.clone()).expect("memory");
    users.return_to(&mut machine, &[]).expect("memory");
    script::settle(&mut machine).expect("memory");
    machine
}

impl Scenario {
    fn reference(&self) -> Reference {
        let caller = Caller { uid: 0, gid: 0 };
        let mut model = Model::new(FORMATTED, caller);
        let (image, users) = prepared(&self.before, &mut |request, _| {
            picture::apply(&mut model, request);
        });
        let disk = FaultyDisk::new(MemDisk::from_bytes(image.clone()));
        let mut after = users.clone();
        let mut machine = resumed(&disk, &mut after);
        let first = machine.mds.last_transno();
        machine.states = Some([(first, picture::rows(machine.mds.store()))].into());
        let mut trees: BTreeMap<_, _> = [(first, picture::oracle_tree(&model))].into();
        let writes = disk.changes();
        let mut watch = |request: &Request, transno| {
            picture::apply(&mut model, request);
            trees.insert(transno, picture::oracle_tree(&model));
        };
        let done = after.go_on(&mut machine, &self.script, &mut watch);
        done.expect("memory");
        let writes = disk.changes() - writes;
        trees.remove(&Transno(0));
        let states = machine.states.take().expect("wanted");
        script::settle(&mut machine).expect("memory");
        check(&machine, self.name);
        let outcome = picture::outcome(machine.mds.store());
        assert_eq!(
            picture::tree(machine.mds.store()),
            picture::oracle_tree(&model)
        );
        Reference {
            image,
            users,
            states,
            trees,
            outcome,
            writes,
        }
    }

    /// Cuts the power at every write, in every variant.
    pub fn cut_everywhere(&self) -> Count {
        let reference = self.reference();
        assert!(reference.writes > 0, "{}: nothing is written", self.name);
        let mut count = Count::default();
        for cut in 0..=reference.writes {
            for survivors in variants(cut) {
                let what = format!("{}, cut {cut}, {survivors:?}", self.name);
                let (image, users) = self.cut(&reference, cut, survivors);
                self.check_restart(&reference, &image, users.clone(), &what);
                count.cuts += 1;
                let turn = count.cuts / SECOND_CUT_STRIDE;
                if self.goes_on && count.cuts.is_multiple_of(SECOND_CUT_STRIDE) {
                    let from = turn % SECOND_CUT_STRIDE;
                    count.second_cuts +=
                        self.cut_restart(&reference, (&image, &users), from, &what);
                }
            }
        }
        count
    }

    /// The script up to the cut: what is on the disk then, and what clients remember.
    fn cut(&self, reference: &Reference, cut: u64, survivors: Survivors) -> (Vec<u8>, Users) {
        let disk = MemDisk::from_bytes(reference.image.clone());
        let power = FaultyDisk::new(disk.clone());
        let mut users = reference.users.clone();
        let mut machine = resumed(&power, &mut users);
        power.cut_after(power.changes() + cut);
        let done = users.go_on(&mut machine, &self.script, &mut |_, _| {});
        assert!(
            done.is_err() || cut == reference.writes,
            "{}: {cut}",
            self.name
        );
        power.power_cut(survivors).expect("memory");
        (disk.to_bytes(), users)
    }

    /// What a restart finds is what the promises allow; then all goes on as if nothing had been.
    fn check_restart(&self, reference: &Reference, image: &[u8], users: Users, what: &str) {
        let disk = MemDisk::from_bytes(image.to_vec());
        let machine = start(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&machine, what);
        let found = machine.mds.last_transno();
        assert_between(&users, found, what);
        assert_eq!(machine.mds.last_committed(), found, "{what}");
        let store = machine.mds.store();
        let state = reference.states.get(&found);
        let state = state.unwrap_or_else(|| panic!("{what}: nobody made {found:?}"));
        assert!(
            *state == picture::rows(store),
            "{what}: not the state after {found:?}"
        );
        let (_, tree) = reference.trees.range(..=found).next_back().expect("a tree");
        assert_eq!(picture::tree(store), *tree, "{what}");
        assert_gone(&users, &machine, what);
        match self.goes_on {
            true => self.finish(reference, machine, users, what),
            false => assert_given_up(&machine, 2, what),
        }
    }

    /// Clients come back and do the rest: the end is as it would have been.
    fn finish(&self, reference: &Reference, mut machine: Machine, mut users: Users, what: &str) {
        let on = "the power stays on";
        users.return_to(&mut machine, &[]).expect(on);
        assert!(!machine.mds.recovery().is_open(), "{what}");
        check(&machine, what);
        users
            .go_on(&mut machine, &self.script, &mut |_, _| {})
            .expect(on);
        script::settle(&mut machine).expect(on);
        check(&machine, what);
        let outcome = picture::outcome(machine.mds.store());
        assert!(
            picture::is_same(&reference.outcome, &outcome),
            "{what}: all was done again, and not the same is there"
        );
    }

    /// The restart after a cut, and what clients do again, is cut at its own writes from `first` on.
    fn cut_restart(
        &self,
        reference: &Reference,
        (image, users): (&[u8], &Users),
        first: u64,
        what: &str,
    ) -> u64 {
        let (mut cut, mut count) = (first, 0);
        loop {
            let disk = MemDisk::from_bytes(image.to_vec());
            let power = FaultyDisk::new(disk.clone());
            power.cut_after(cut);
            let mut again = users.clone();
            let returned = match start(power.clone()) {
                Ok(mut machine) => again.return_to(&mut machine, &[]),
                Err(_) => Err(Off),
            };
            let survivors = variants(cut)[(cut / SECOND_CUT_STRIDE) as usize % 6];
            power.power_cut(survivors).expect("memory");
            let what = format!("{what}, then {cut}, {survivors:?}");
            let machine = start(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&machine, &what);
            assert_between(&again, machine.mds.last_transno(), &what);
            assert_gone(&again, &machine, &what);
            let tree = picture::tree(machine.mds.store());
            let possible = reference.trees.values().any(|known| *known == tree);
            assert!(possible, "{what}: a tree that never was: {tree:?}");
            self.finish(reference, machine, again, &what);
            cut += SECOND_CUT_STRIDE;
            count += 1;
            if returned.is_ok() {
                return count;
            }
        }
    }

    /// The tree at the end, had `client` sent none of its frames.
    fn tree_without(&self, client: u64) -> Tree {
        let is_its = |step: &&Step| matches!(step, Step::Frame(whose, _) if *whose == client);
        let others = self.script.iter().filter(|step| !is_its(step));
        let scenario = Scenario {
            before: self.before.clone(),
            script: others.cloned().collect(),
            ..*self
        };
        let mut trees = scenario.reference().trees;
        trees.pop_last().expect("a tree").1
    }

    /// Client 2 does not come back after a cut, and that restart is cut at each of its writes too.
    /// It is given up wholly or not at all, and what the other one did again is there.
    pub fn cut_giving_up(&self) -> Count {
        let reference = self.reference();
        let left = self.tree_without(2);
        let (image, users) = self.cut(&reference, reference.writes, Survivors::Nothing);
        let mut count = Count::default();
        loop {
            let cut = count.cuts;
            count.cuts += 1;
            let mut ended = true;
            for survivors in variants(cut) {
                let what = format!("{}, {cut}, {survivors:?}", self.name);
                count.second_cuts += 1;
                let given_up = give_up(&image, users.clone(), (cut, survivors), &what);
                let tree = given_up.inspect(|tree| assert_eq!(*tree, left, "{what}"));
                ended &= tree.is_some();
            }
            if ended {
                return count;
            }
        }
    }
}

/// A restart that client 2 does not see is cut; what is there, if it came to its end before.
fn give_up(
    image: &[u8],
    mut users: Users,
    (cut, survivors): (u64, Survivors),
    what: &str,
) -> Option<Tree> {
    let disk = MemDisk::from_bytes(image.to_vec());
    let power = FaultyDisk::new(disk.clone());
    power.cut_after(cut);
    let returned = match start(power.clone()) {
        Ok(mut machine) => users.return_to(&mut machine, &[2]),
        Err(_) => Err(Off),
    };
    power.power_cut(survivors).expect("memory");
    let machine = start(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&machine, what);
    assert_between(&users, machine.mds.last_transno(), what);
    assert_given_up(&machine, 2, what);
    let (searched, given_up) = (
        picture::is_searched_for(machine.mds.store(), 2),
        given_up(&machine, 2),
    );
    assert_eq!(searched, given_up, "{what}: objects of what it lost");
    assert!(returned.is_err() || given_up, "{what}");
    returned.is_ok().then(|| picture::tree(machine.mds.store()))
}

/// Nothing that was promised is missing, and nothing is there that nobody did.
fn assert_between(users: &Users, found: Transno, what: &str) {
    let (told, sent) = (users.told, users.sent);
    assert!(
        (told..=sent).contains(&found),
        "{what}: {found:?}, told {told:?}, sent {sent:?}"
    );
}

/// What an OST was told to remove does not come back.
fn assert_gone(users: &Users, machine: &Machine, what: &str) {
    for fid in &users.gone {
        let there = picture::exists(machine.mds.store(), *fid);
        assert!(
            !there,
            "{what}: {fid} was removed from its OST and is there"
        );
    }
}

pub fn given_up(machine: &Machine, client: u64) -> bool {
    machine.mds.gave_up(&[client as u8; 16]).expect("readable")
}

/// Of a client that was given up nothing is left that only those have who may come back.
pub fn assert_given_up(machine: &Machine, client: u64, what: &str) {
    let traces = picture::traces(machine.mds.store(), client);
    let whole = match given_up(machine, client) {
        true => traces.is_empty(),
        false => traces == ["replies", "clients", "sequences"],
    };
    assert!(whole, "{what}: given up in part: {traces:?}");
}
