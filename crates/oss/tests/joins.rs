//! Power cuts at every write of an OST while clients join it, leave it, and come back after a
//! restart. Who was told that it is known is waited for, who left is not, who was given up hears of
//! it.

mod power;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use std::time::Duration;

use base::ClientId;
use rpc::Departure;
use rpc::window::RECOVERY_WINDOW;
use storage::{Kv, MemDisk, Survivors};

use power::target::{Disks, Off, Target, uuid_of};
use power::{Kept, Power};

const A: ClientId = ClientId(2);
const B: ClientId = ClientId(3);
const C: ClientId = ClientId(4);
const ALL: [ClientId; 3] = [A, B, C];

/// What a boot of the target may know of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    /// It may have what the target has not: it is waited for.
    Joined,
    GivenUp,
}

/// What happens in a boot of the target.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A client says that it has written all; answered when that is durable.
    Joins(ClientId),
    /// It says goodbye, or is given up: durable a second later.
    Leaves(ClientId, Departure),
    /// The time for which clients are waited for is over.
    WindowEnds,
    Second,
}

/// What may be found of each client after a cut now.
#[derive(Debug, Clone)]
struct Possible([Vec<Known>; 3]);

impl Possible {
    fn exactly(known: [Known; 3]) -> Possible {
        Possible(known.map(|known| vec![known]))
    }

    fn of(&mut self, client: ClientId) -> &mut Vec<Known> {
        &mut self.0[(client.0 - A.0) as usize]
    }

    /// A change that is not durable yet; it is then the last of what is possible.
    fn may_be(&mut self, client: ClientId, known: Known) {
        self.of(client).push(known);
    }

    fn all_is_durable(&mut self) {
        self.0
            .iter_mut()
            .for_each(|of| drop(of.drain(..of.len() - 1)));
    }
}

/// A boot of the target, to the end of `events` or until the power fails.
fn live(target: &mut Target, events: &[Event], possible: &mut Possible) -> Result<(), Off> {
    ALL.iter().for_each(|client| target.connect(*client));
    for event in events {
        match *event {
            Event::Joins(client) => {
                possible.may_be(client, Known::Joined);
                target.join(client)?;
                // What others did is durable by then only if it was not known before.
                *possible.of(client) = vec![Known::Joined];
            }
            Event::Leaves(client, how) => {
                // Who is not known leaves nothing.
                let known = match how {
                    Departure::Goodbye => Known::Nothing,
                    Departure::GivenUp => Known::GivenUp,
                };
                possible.may_be(client, known);
                target.leave(client, how)?;
            }
            Event::WindowEnds => {
                for client in target.awaited() {
                    possible.may_be(ALL[usize::from(client.0[0]) - A.0 as usize], Known::GivenUp);
                }
                target.pass(RECOVERY_WINDOW);
                target.work()?;
            }
            Event::Second => {
                target.pass(Duration::from_secs(1));
                target.work()?;
                target.settle().map_err(|_| Off)?;
                possible.all_is_durable();
            }
        }
    }
    Ok(())
}

/// What the target knows that has just started.
fn known(target: &Target) -> [Known; 3] {
    let awaited = target.awaited();
    ALL.map(|client| {
        let uuid = uuid_of(client);
        match (awaited.contains(&uuid), target.oss.gave_up(uuid)) {
            (true, Ok(false)) => Known::Joined,
            (false, Ok(true)) => Known::GivenUp,
            (false, Ok(false)) => Known::Nothing,
            strange => panic!("{client}: {strange:?}"),
        }
    })
}

fn variants(cut: u64) -> [Survivors; 5] {
    [
        Survivors::Nothing,
        Survivors::Torn {
            torn_bytes: usize::MAX,
        },
        Survivors::Last,
        Survivors::Torn { torn_bytes: 256 },
        Survivors::Random { seed: cut },
    ]
}

fn empty() -> Disks {
    let records = MemDisk::new();
    Kv::create(records.clone()).expect("memory");
    Disks {
        records,
        objects: Kept::new(),
    }
}

/// The boots of a target, the last of which is cut; what is possible then, and whether it ended.
fn cut_last(lives: &[&[Event]], cut: u64, survivors: Survivors) -> (Disks, Possible, bool) {
    let (disks, mut possible) = (empty(), Possible::exactly([Known::Nothing; 3]));
    let (last, before) = lives.split_last().expect("one life");
    for (boot_epoch, events) in (1..).zip(before) {
        let mut target = Target::begin(&disks, &Power::default(), boot_epoch).expect("memory");
        live(&mut target, events, &mut possible).expect("the power stays on");
        target.power_cut(Survivors::Nothing);
        possible = Possible::exactly(possible.0.map(|of| of[0]));
    }
    let (power, boot_epoch) = (Power::default(), lives.len() as u64);
    let mut target = Target::begin(&disks, &power, boot_epoch).expect("memory");
    assert_eq!(known(&target).map(|known| vec![known]), possible.0);
    power.cut_after(power.changes() + cut);
    let ended = live(&mut target, last, &mut possible).is_ok();
    target.power_cut(survivors);
    (disks, possible, ended)
}

/// Cuts the last of these boots at each of its writes.
fn cut_everywhere(lives: &[&[Event]]) {
    let mut cuts = 0;
    for cut in 0.. {
        let mut all_ended = true;
        for survivors in variants(cut) {
            let what = format!("cut {cut}, {survivors:?}");
            let (disks, possible, ended) = cut_last(lives, cut, survivors);
            all_ended &= ended;
            cuts += 1;
            let boot_epoch = lives.len() as u64 + 1;
            let target = Target::begin(&disks, &Power::default(), boot_epoch);
            let mut target = target.unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = known(&target);
            for (possible, found) in possible.0.iter().zip(found) {
                assert!(
                    possible.contains(&found),
                    "{what}: {found:?}, not of {possible:?}"
                );
            }
            all_come_back(&mut target, &what);
        }
        if all_ended {
            // On extents a sync is few writes.
            let least = if crate::OVER_EXTENTS { 20 } else { 50 };
            assert!(cuts > least, "{cuts} cuts");
            return;
        }
    }
}

/// Nobody has a lock before all who are waited for have come back, and everybody then.
fn all_come_back(target: &mut Target, what: &str) {
    ALL.iter().for_each(|client| target.connect(*client));
    let reader = target.enqueue(A);
    for client in ALL {
        let is_open = !target.awaited().is_empty();
        assert_eq!(target.is_answered(reader), !is_open, "{what}: {client}");
        target.join(client).expect("the power stays on");
    }
    assert!(target.awaited().is_empty(), "{what}");
    assert!(target.is_answered(reader), "{what}");
}

const FIRST: [Event; 6] = [
    Event::Joins(A),
    Event::Joins(B),
    Event::Leaves(A, Departure::Goodbye),
    Event::Joins(C),
    Event::Leaves(B, Departure::GivenUp),
    Event::Second,
];

#[test]
fn who_joins_and_leaves() {
    cut_everywhere(&[&FIRST]);
    let again = [Event::Joins(C), Event::Joins(B), Event::Joins(A)];
    cut_everywhere(&[&FIRST, &again]);
}

#[test]
fn who_comes_back_and_who_does_not() {
    let all = [Event::Joins(A), Event::Joins(B), Event::Joins(C)];
    let late = [
        Event::Joins(B),
        Event::WindowEnds,
        Event::Second,
        Event::Joins(A),
        Event::Leaves(B, Departure::Goodbye),
        Event::Second,
    ];
    cut_everywhere(&[&all, &late]);
}
