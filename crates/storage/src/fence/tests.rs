//! Fences under pauses, races and power cuts. Time is counted, nobody waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{Rng, SeededRng, Tick};

use super::block::{BEAT_AT, CLAIM_AT, Claim, FENCE_BYTES, Found, SECTOR_BYTES, Sector};
use super::claim::{ClaimView, Claimant, Loss, Todo};
use super::keeper::{Sectors, take};
use super::lease::Lease;
use super::pace::Pace;
use super::process::Process;
use crate::disk::{Disk, FaultyDisk, MemDisk, Survivors};
use crate::error::Result;

const PACE: Pace = Pace::USUAL;

fn on(kernel: u8) -> Process {
    Process {
        kernel: [kernel; 16],
        space: 1,
        started: 7,
        pid: u32::from(kernel),
        host: format!("node{kernel}"),
        is_apart: false,
    }
}

fn at(millis: u64) -> Tick {
    Tick::default().after(Duration::from_millis(millis))
}

/// What is on the storage.
struct Storage(ClaimView);

impl Storage {
    fn new() -> Storage {
        Storage(ClaimView {
            claim: [0; SECTOR_BYTES],
            beat: [0; SECTOR_BYTES],
        })
    }

    fn of(process: Process, held: bool) -> Storage {
        let mut storage = Storage::new();
        storage.0.claim = Claim {
            held,
            owner: [9; 16],
            epoch: 4,
            process,
        }
        .encode();
        storage
    }
}

fn nobody_gone(_: &Process) -> bool {
    false
}

/// Looks every poll from `from` on until it is decided; when, and what.
fn decided(claimant: &mut Claimant, storage: &mut Storage, from: u64) -> (u64, Todo) {
    for time in (from..from + 100_000).step_by(100) {
        let mut todo = claimant.look(at(time), &storage.0, nobody_gone);
        if let Todo::Write(claim) = todo {
            storage.0.claim = *claim;
            todo = claimant.written(at(time));
        }
        if let Todo::Hold(_) | Todo::Lose(_) = todo {
            return (time, todo);
        }
    }
    panic!("it is never decided");
}

#[test]
fn what_was_let_go_is_taken_at_once_here_and_settles_elsewhere() {
    let mut storage = Storage::of(on(1), false);
    let mut here = Claimant::new(on(1), [1; 16], PACE);
    let (when, todo) = decided(&mut here, &mut storage, 0);
    assert_eq!((when, todo), (0, Todo::Hold(at(0))));
    let Found::Claim(claim) = Claim::decode(&storage.0.claim) else {
        panic!("a claim");
    };
    assert_eq!((claim.epoch, claim.held, claim.process), (5, true, on(1)));

    let mut storage = Storage::of(on(1), false);
    let mut elsewhere = Claimant::new(on(2), [2; 16], PACE);
    let (when, _) = decided(&mut elsewhere, &mut storage, 0);
    assert_eq!(when, PACE.settle.as_millis() as u64);
    let mut first = Claimant::new(on(2), [2; 16], PACE);
    let (when, _) = decided(&mut first, &mut Storage::new(), 0);
    assert_eq!(when, PACE.settle.as_millis() as u64, "of nobody's");
}

#[test]
fn a_holder_known_to_have_ended_is_not_waited_for() {
    let storage = Storage::of(on(1), true);
    let mut claimant = Claimant::new(on(1), [1; 16], PACE);
    let todo = claimant.look(at(0), &storage.0, |process| process.pid == 1);
    assert!(matches!(todo, Todo::Write(_)), "{todo:?}");
    assert_eq!(claimant.written(at(20)), Todo::Hold(at(0)));
}

#[test]
fn a_hasty_claim_that_took_long_settles() {
    let storage = Storage::of(on(1), false);
    let mut claimant = Claimant::new(on(1), [1; 16], PACE);
    assert!(matches!(
        claimant.look(at(0), &storage.0, nobody_gone),
        Todo::Write(_)
    ));
    assert_eq!(claimant.written(at(1_500)), Todo::LookAfter(PACE.poll));
    assert!(claimant.waits_for().is_some());
}

#[test]
fn a_fence_that_shows_life_is_refused_and_its_holder_named() {
    let mut storage = Storage::of(on(1), true);
    let mut claimant = Claimant::new(on(2), [2; 16], PACE);
    assert_eq!(
        claimant.look(at(0), &storage.0, nobody_gone),
        Todo::LookAfter(PACE.poll)
    );
    storage.0.beat = super::block::beat(&[9; 16], 1);
    let todo = claimant.look(at(1_000), &storage.0, nobody_gone);
    assert_eq!(todo, Todo::Lose(Loss::Held(on(1))));
}

#[test]
fn a_silent_fence_is_taken_after_the_watch_and_the_settling() {
    let mut storage = Storage::of(on(1), true);
    let mut claimant = Claimant::new(on(2), [2; 16], PACE);
    let (when, _) = decided(&mut claimant, &mut storage, 0);
    assert_eq!(when, (PACE.watch + PACE.settle).as_millis() as u64);
}

#[test]
fn let_go_while_it_was_watched() {
    let mut storage = Storage::of(on(1), true);
    let mut claimant = Claimant::new(on(2), [2; 16], PACE);
    claimant.look(at(0), &storage.0, nobody_gone);
    storage.0 = Storage::of(on(1), false).0;
    let (when, _) = decided(&mut claimant, &mut storage, 500);
    assert_eq!(when, 500 + PACE.settle.as_millis() as u64);
}

#[test]
fn what_cannot_be_read_is_watched_and_another_version_is_refused() {
    let mut storage = Storage::new();
    storage.0.claim[3] = 1;
    let mut claimant = Claimant::new(on(2), [2; 16], PACE);
    let (when, todo) = decided(&mut claimant, &mut storage, 0);
    assert!(matches!(todo, Todo::Hold(_)));
    assert_eq!(when, (PACE.watch + PACE.settle).as_millis() as u64);
}

#[test]
fn a_lease_ends_with_another_claim() {
    let storage = Storage::of(on(1), true);
    let mut lease = Lease::new([9; 16], storage.0.claim, at(0), PACE);
    assert_eq!(lease.until(), at(4_000));
    assert_ne!(lease.beat(), lease.beat());
    assert_eq!(lease.seen(at(3_000), &storage.0.claim), Ok(()));
    assert_eq!(lease.until(), at(7_000));
    let other = Storage::of(on(2), true);
    assert_eq!(
        lease.seen(at(4_000), &other.0.claim),
        Err(Loss::Held(on(2)))
    );
    assert_eq!(lease.until(), at(7_000));
}

/// A machine with its own clock that stands still now and then, also between reading and writing.
#[allow(clippy::large_enum_variant, reason = "there are three of them")]
enum Actor {
    /// Not wanting it until then.
    Off(u64),
    Wants(Claimant),
    /// It has looked, and is to write what came of it.
    Writing(Claimant, Sector),
    Holds(Lease),
    /// It has written its beat, at that time of its clock, and is to read the claim.
    Looking(Lease, Tick),
}

struct Machine {
    actor: Actor,
    process: Process,
    /// Ahead of true time.
    skew: u64,
    /// Of true time: it does nothing before.
    asleep_until: u64,
}

/// Any machines, any pauses: nobody writes in another's time.
#[test]
fn no_two_hold_it_at_once_whatever_stands_still() {
    let mut taken = 0;
    for seed in 0..400 {
        taken += run(seed);
    }
    assert!(taken > 2_000, "there is something to see: {taken}");
}

fn run(seed: u64) -> u32 {
    let mut rng = SeededRng::new(seed);
    let mut storage = Storage::of(on(1), false);
    let mut machines: Vec<Machine> = (1..=3)
        .map(|kernel| Machine {
            actor: Actor::Off(rng.next_u64() % 3_000),
            process: on(kernel),
            skew: rng.next_u64() % 1_000_000_000,
            asleep_until: 0,
        })
        .collect();
    let (mut taken, mut owners) = (0, 0_u8);
    for time in (0..400_000).step_by(50) {
        for machine in &mut machines {
            if machine.asleep_until > time {
                continue;
            }
            owners = owners.wrapping_add(1);
            taken += machine.step(time, &mut storage, owners, &mut rng);
            machine.asleep_until = time + machine.pause(&mut rng);
        }
        let writing: Vec<&Process> = machines
            .iter()
            .filter(|machine| machine.may_write(time))
            .map(|machine| &machine.process)
            .collect();
        assert!(writing.len() <= 1, "seed {seed}, at {time}: {writing:?}");
    }
    taken
}

impl Machine {
    fn clock(&self, now: u64) -> Tick {
        at(now + self.skew)
    }

    /// Another process of a paused one may run: what it guards is written by threads of its own.
    fn may_write(&self, now: u64) -> bool {
        match &self.actor {
            Actor::Holds(lease) | Actor::Looking(lease, _) => self.clock(now) < lease.until(),
            _ => false,
        }
    }

    fn pause(&self, rng: &mut SeededRng) -> u64 {
        match rng.next_u64() % 100 {
            0 => rng.next_u64() % 20_000,
            1..=4 => rng.next_u64() % 3_000,
            _ => match &self.actor {
                Actor::Holds(_) => 900,
                Actor::Looking(..) | Actor::Writing(..) => 0,
                _ => 50,
            },
        }
    }

    /// One step; how many fences were taken in it.
    fn step(&mut self, now: u64, storage: &mut Storage, owner: u8, rng: &mut SeededRng) -> u32 {
        let clock = self.clock(now);
        let off = Actor::Off(now + rng.next_u64() % 20_000);
        let (actor, taken) = match std::mem::replace(&mut self.actor, off) {
            Actor::Off(until) if until > now => (Actor::Off(until), 0),
            Actor::Off(_) => {
                let mut name = [self.process.kernel[0]; 16];
                name[8..].copy_from_slice(&(now << 8 | u64::from(owner)).to_le_bytes());
                (
                    Actor::Wants(Claimant::new(self.process.clone(), name, PACE)),
                    0,
                )
            }
            Actor::Wants(mut claimant) => match claimant.look(clock, &storage.0, nobody_gone) {
                Todo::Write(claim) => (Actor::Writing(claimant, *claim), 0),
                Todo::Hold(began) => (self.holds(claimant, began), 1),
                Todo::Lose(_) => return 0,
                Todo::LookAfter(_) => (Actor::Wants(claimant), 0),
            },
            Actor::Writing(mut claimant, claim) => {
                storage.0.claim = claim;
                match claimant.written(clock) {
                    Todo::Hold(began) => (self.holds(claimant, began), 1),
                    _ => (Actor::Wants(claimant), 0),
                }
            }
            Actor::Holds(lease) if rng.next_u64().is_multiple_of(60) => {
                if let (true, Some(free)) = (clock < lease.until(), lease.let_go())
                    && lease.is(&storage.0.claim)
                {
                    storage.0.claim = free;
                }
                return 0;
            }
            Actor::Holds(mut lease) => {
                storage.0.beat = lease.beat();
                (Actor::Looking(lease, clock), 0)
            }
            Actor::Looking(mut lease, began) => match lease.seen(began, &storage.0.claim) {
                Ok(()) => (Actor::Holds(lease), 0),
                Err(_) => return 0,
            },
        };
        self.actor = actor;
        taken
    }

    fn holds(&self, claimant: Claimant, began: Tick) -> Actor {
        let Found::Claim(claim) = Claim::decode(claimant.claim()) else {
            panic!("a claim of ours can be read");
        };
        Actor::Holds(Lease::new(claim.owner, *claimant.claim(), began, PACE))
    }
}

/// A fence on a disk whose power can be cut.
struct OnDisk(FaultyDisk);

impl Sectors for OnDisk {
    fn read(&self) -> Result<ClaimView> {
        let mut view = Storage::new().0;
        self.0.read(CLAIM_AT, &mut view.claim)?;
        self.0.read(BEAT_AT, &mut view.beat)?;
        Ok(view)
    }

    fn write_claim(&self, claim: &Sector) -> Result<()> {
        self.0.write(CLAIM_AT, claim)?;
        self.0.sync()
    }

    fn write_beat(&self, beat: &Sector) -> Result<()> {
        self.0.write(BEAT_AT, beat)
    }
}

/// Times short enough to be waited for; the order between them is the usual one.
const SHORT: Pace = Pace {
    beat: Duration::from_millis(4),
    lease: Duration::from_millis(40),
    watch: Duration::from_millis(80),
    settle: Duration::from_millis(60),
    haste: Duration::from_millis(20),
    poll: Duration::from_millis(2),
};

/// A memory that outlives the disks on it.
#[derive(Debug, Clone)]
struct Platter(Arc<MemDisk>);

impl Disk for Platter {
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write(offset, data)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
    fn close(&self) -> Result<()> {
        self.0.close()
    }
}

#[test]
fn after_a_power_cut_at_any_write_it_can_be_taken_again() {
    let survivors = [
        Survivors::Nothing,
        Survivors::Last,
        Survivors::Torn { torn_bytes: 100 },
        Survivors::Random { seed: 3 },
    ];
    for cut in 0..8 {
        for survivors in survivors {
            let platter = Platter(Arc::new(MemDisk::default()));
            platter.set_len(FENCE_BYTES).unwrap();
            let disk = FaultyDisk::new(platter.clone());
            disk.cut_after(cut);
            let sectors = Arc::new(OnDisk(disk.clone()));
            let taken = take(vec![("t".into(), sectors)], &on(1), SHORT);
            while disk.changes() <= cut && taken.is_ok() {
                std::thread::sleep(SHORT.poll);
            }
            disk.power_cut(survivors).unwrap();
            drop(taken);
            // Another machine, so that nothing is known of who had it.
            let again = Arc::new(OnDisk(FaultyDisk::new(platter)));
            let taken = take(vec![("t".into(), again)], &on(2), SHORT);
            let fence = taken.unwrap_or_else(|error| panic!("cut after {cut}: {error}"));
            fence[0].check().unwrap();
        }
    }
}

/// A holder shows life often, and is watched for long: a loaded machine does not matter.
const PATIENT: Pace = Pace {
    beat: Duration::from_millis(20),
    lease: Duration::from_millis(800),
    watch: Duration::from_secs(30),
    settle: Duration::from_secs(1),
    haste: Duration::from_millis(20),
    poll: Duration::from_millis(5),
};

#[test]
fn of_three_at_the_same_time_one_gets_it_and_a_taken_one_is_noticed() {
    let disk = FaultyDisk::new(MemDisk::default());
    disk.set_len(FENCE_BYTES).unwrap();
    let here = || Arc::new(OnDisk(disk.clone())) as Arc<dyn Sectors>;
    let results: Vec<_> = std::thread::scope(|scope| {
        let tries: Vec<_> = (1..=3)
            .map(|kernel| {
                let sectors = here();
                scope.spawn(move || take(vec![("t".into(), sectors)], &on(kernel), PATIENT))
            })
            .collect();
        tries.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let refused: Vec<_> = results
        .iter()
        .filter_map(|result| result.as_ref().err())
        .collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    let held: Vec<_> = results
        .into_iter()
        .filter_map(|result| result.ok())
        .collect();
    let fence = &held[0][0];
    fence.check().unwrap();
    let told = Arc::new(Mutex::new(None));
    let teller = told.clone();
    fence.on_loss(move |cause| *teller.lock().unwrap() = Some(cause.to_string()));
    let stolen = Storage::of(on(7), true).0.claim;
    here().write_claim(&stolen).unwrap();
    let error = loop {
        if let Err(error) = fence.check() {
            break error.to_string();
        }
        std::thread::sleep(PATIENT.poll);
    };
    assert!(error.contains("process 7 on node7"), "{error}");
    assert_eq!(told.lock().unwrap().as_ref(), Some(&error));
    drop(held);
    assert_eq!(here().read().unwrap().claim, stolen, "not his to let go");
}
