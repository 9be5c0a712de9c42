//! The scheduler against an oracle, under random steps of time, and by example.

use base::{Rng, SeededRng};

use super::*;
use crate::{ClientUuid, PeerInfo};

const VOCABULARY: Vocabulary = Vocabulary {
    operations: &["getattr", "lookup", "create", "cancel"],
    uids: true,
};
const SECOND: u64 = 1_000_000_000;
const LONG: Duration = Duration::from_secs(1 << 20);

fn at(nanos: u64) -> Tick {
    Tick(nanos)
}

fn seconds(seconds: f64) -> Tick {
    Tick((seconds * SECOND as f64) as u64)
}

fn peer(client: u64) -> PeerInfo {
    PeerInfo {
        uuid: ClientUuid([client as u8; 16]),
        incarnation: 1,
        address: format!("10.0.0.{client}:700"),
        uid: None,
        credential: wire::handshake::Credential::Client,
        was_given_up: false,
    }
}

fn nature(operation: &'static str) -> Nature {
    Nature {
        operation,
        uid: None,
        urgent: operation == "cancel",
    }
}

/// A scheduler of frames that are numbers.
struct Rig {
    scheduler: Scheduler<u64>,
}

impl Rig {
    fn new(rules: &[&str]) -> Rig {
        Rig::that_holds_for(LONG, rules)
    }

    fn that_holds_for(hold_max: Duration, rules: &[&str]) -> Rig {
        let mut rig = Rig {
            scheduler: Scheduler::new(hold_max),
        };
        for rule in rules {
            assert_eq!(rig.command(at(0), rule), Ok(vec![]));
        }
        rig
    }

    fn command(&mut self, now: Tick, text: &str) -> Result<Vec<u64>, String> {
        let command = parse(text, &VOCABULARY).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        let done = self.scheduler.command(now, command, &mut out);
        done.map_err(|error| error.to_string())?;
        Ok(numbers(out))
    }

    /// A frame of these operations comes: does it go at once?
    fn comes(&mut self, now: Tick, client: u64, frame: u64, operations: &[&'static str]) -> bool {
        let natures: Vec<Nature> = operations.iter().map(|name| nature(name)).collect();
        self.comes_as(now, client, frame, &natures, false)
    }

    fn comes_as(
        &mut self,
        now: Tick,
        client: u64,
        frame: u64,
        natures: &[Nature],
        awaited: bool,
    ) -> bool {
        let offer = Offer {
            client: ClientId(client),
            peer: &peer(client),
            natures,
            bytes: 100,
            awaited,
            frame,
        };
        let cleared = self.scheduler.offer(now, offer);
        cleared.is_some_and(|cleared| {
            assert_eq!(cleared.frame, frame, "no other goes in its place");
            true
        })
    }

    fn poll(&mut self, now: Tick) -> Vec<u64> {
        let mut out = Vec::new();
        self.scheduler.poll(now, &mut out);
        let next = self.scheduler.next_due();
        assert!(next.is_none_or(|due| due > now), "nothing due is left");
        numbers(out)
    }

    fn report(&self, name: &str) -> RuleReport {
        let reports = self.scheduler.report();
        let found = reports.into_iter().find(|report| report.name == name);
        found.expect("the rule is there")
    }
}

fn numbers(cleared: Vec<Cleared<u64>>) -> Vec<u64> {
    cleared.into_iter().map(|cleared| cleared.frame).collect()
}

/// When requests conform to a rate, by the virtual scheduling algorithm of ATM (ITU-T I.371). It
/// knows no tokens, only the time at which the next request is expected. Times are in nanoseconds
/// times the rate, so that nothing is rounded.
struct Oracle {
    rate: i128,
    burst: i128,
    expected: i128,
    last: i128,
}

impl Oracle {
    fn new(rate: u32, burst: u32) -> Oracle {
        Oracle {
            rate: rate.into(),
            burst: burst.into(),
            expected: 0,
            last: 0,
        }
    }

    /// When the last of `count` requests that come now may go, in nanoseconds.
    fn finish(&mut self, now: Tick, count: u64) -> u64 {
        let interval = i128::from(SECOND);
        let mut at = self.last.max(i128::from(now.0) * self.rate);
        for _ in 0..count {
            at = at.max(self.expected - (self.burst - 1) * interval);
            self.expected = self.expected.max(at) + interval;
        }
        self.last = at;
        ((at + self.rate - 1) / self.rate) as u64
    }
}

/// Some rate and burst.
fn some_limit(rng: &mut SeededRng) -> (u32, u32) {
    let rates = [1, 3, 7, 100, 999, 1000, 30_000, 1_000_000];
    let rate = rates[rng.below(rates.len() as u64) as usize];
    (rate, 1 + rng.below(20) as u32)
}

/// A number of fewer than `bits` bits, as often small as large.
fn some_up_to(rng: &mut SeededRng, bits: u64) -> u64 {
    let bits = rng.below(bits);
    rng.below(1 << bits)
}

#[test]
fn under_random_steps_every_frame_goes_when_the_oracle_says() {
    for seed in 0..300 {
        let mut rng = SeededRng::new(seed);
        let names = ["getattr", "lookup", "create"];
        let limits: Vec<(u32, u32)> = names.iter().map(|_| some_limit(&mut rng)).collect();
        let mut rig = Rig::new(&[]);
        let mut oracles: Vec<Oracle> = Vec::new();
        for (name, (rate, burst)) in names.iter().zip(&limits) {
            let rule = format!("start {name} opcode={name} rate={rate} burst={burst}");
            rig.command(at(0), &rule).expect("is a rule");
            oracles.push(Oracle::new(*rate, *burst));
        }
        let mut now = at(0);
        // Of each bucket those that wait: number, and when they go.
        let mut waiting: Vec<VecDeque<(u64, u64)>> =
            names.iter().map(|_| VecDeque::new()).collect();
        for frame in 0..400 {
            let step = Duration::from_nanos(some_up_to(&mut rng, 35));
            now = match (rng.below(3), rig.scheduler.next_due()) {
                (0, _) => now.after(step),
                (1, Some(due)) => due.max(now),
                _ => now,
            };
            let went = rig.poll(now);
            for (place, queue) in waiting.iter_mut().enumerate() {
                let mut due = Vec::new();
                while queue.front().is_some_and(|(_, finish)| *finish <= now.0) {
                    due.extend(queue.pop_front().map(|(number, _)| number));
                }
                let ours = |number: &&u64| *number % 3 == place as u64;
                let went: Vec<u64> = went.iter().filter(ours).copied().collect();
                assert_eq!(went, due, "seed {seed}, {} at {now:?}", names[place]);
            }
            let (place, number) = (rng.below(3), frame * 3);
            let count = 1 + some_up_to(&mut rng, 7);
            let operations = vec![names[place as usize]; count as usize];
            let finish = oracles[place as usize].finish(now, count);
            let at_once = rig.comes(now, 1, number + place, &operations);
            assert_eq!(at_once, finish <= now.0, "seed {seed}, frame {frame}");
            if !at_once {
                waiting[place as usize].push_back((number + place, finish));
            }
        }
        let left: usize = waiting.iter().map(VecDeque::len).sum();
        assert_eq!(rig.poll(at(u64::MAX / 2)).len(), left, "nothing is lost");
    }
}

#[test]
fn the_rate_is_kept_over_every_window() {
    for seed in 0..60 {
        let mut rng = SeededRng::new(seed);
        let (rate, burst) = some_limit(&mut rng);
        let mut rig = Rig::new(&[&format!("start slow rate={rate} burst={burst}")]);
        let (mut now, mut times) = (at(0), Vec::new());
        for frame in 0..300 {
            let pause = rng.below(3 * SECOND / u64::from(rate));
            let next = now.after(Duration::from_nanos(pause));
            // As its rim does: it looks whenever something is due.
            while let Some(due) = rig.scheduler.next_due().filter(|due| *due <= next) {
                times.extend(rig.poll(due).iter().map(|_| due.0));
            }
            now = next;
            if rig.comes(now, 1, frame, &["getattr"]) {
                times.push(now.0);
            }
        }
        for (first, begin) in times.iter().enumerate() {
            for (count, end) in (1..).zip(&times[first..]) {
                // A nanosecond more, for whole ones are rounded up.
                let tokens = u128::from(end - begin + 1) * u128::from(rate) / u128::from(SECOND);
                let most = u128::from(burst) + tokens;
                assert!(count <= most, "seed {seed}: {count} in {begin}..={end}");
            }
        }
    }
}

#[test]
fn whatever_is_done_every_frame_goes_once() {
    for seed in 0..200 {
        let mut rng = SeededRng::new(seed);
        let mut rig = Rig::that_holds_for(Duration::from_secs(5), &[]);
        let (mut now, mut gone, mut forgotten) = (at(0), Vec::new(), 0);
        for frame in 0..500 {
            now = now.after(Duration::from_nanos(rng.below(SECOND / 4)));
            gone.extend(rig.poll(now));
            let client = 1 + rng.below(3);
            let (rate, burst) = some_limit(&mut rng);
            let name = ["getattr", "lookup", "create", "all"][rng.below(4) as usize];
            let opcode = match name {
                "all" => "each=client".to_owned(),
                name => format!("opcode={name}"),
            };
            // Those that fail change nothing.
            let done = match rng.below(20) {
                0 => rig.command(
                    now,
                    &format!("start {name} {opcode} rate={rate} burst={burst}"),
                ),
                1 => rig.command(now, &format!("change {name} rate={rate}")),
                2 => rig.command(now, &format!("stop {name}")),
                _ => Ok(vec![]),
            };
            gone.extend(done.unwrap_or_default());
            match rng.below(50) {
                0 => forgotten += rig.scheduler.forget(now, ClientId(client)).len(),
                1 => {
                    let mut out = Vec::new();
                    rig.scheduler.release(now, ClientId(client), &mut out);
                    gone.extend(numbers(out));
                }
                _ => {}
            }
            let some = |rng: &mut SeededRng| VOCABULARY.operations[rng.below(4) as usize];
            let count = 1 + rng.below(6);
            let operations: Vec<&'static str> = (0..count).map(|_| some(&mut rng)).collect();
            let operations = match rng.below(3) {
                0 => operations,
                _ => operations
                    .into_iter()
                    .filter(|name| *name != "cancel")
                    .collect(),
            };
            if rig.comes(now, client, frame, &operations) {
                gone.push(frame);
            }
        }
        gone.extend(rig.poll(now.after(Duration::from_secs(6))));
        assert_eq!(gone.len() + forgotten, 500, "seed {seed}");
        gone.sort_unstable();
        gone.dedup();
        assert_eq!(gone.len() + forgotten, 500, "seed {seed}: some went twice");
        assert_eq!(rig.scheduler.held_bytes, 0);
        assert!(rig.scheduler.held.is_empty() && rig.scheduler.next_due().is_none());
        for report in rig.scheduler.report() {
            assert_eq!(report.waiting, 0, "seed {seed}: {report:?}");
            assert!(report.held <= report.requests && report.overdue <= report.requests);
        }
    }
}

#[test]
fn a_frame_costs_what_its_requests_cost() {
    let mut rig = Rig::new(&["start slow opcode=getattr rate=10 burst=4"]);
    assert!(rig.comes(at(0), 1, 1, &["getattr"; 4]), "the burst");
    assert!(!rig.comes(at(0), 1, 2, &["getattr"; 64]), "6.4 s of tokens");
    assert!(
        rig.comes(at(0), 1, 3, &["lookup"; 64]),
        "no rule is about it"
    );
    assert!(!rig.comes(at(0), 2, 4, &["lookup", "getattr", "lookup"]));
    assert!(rig.poll(seconds(6.3999)).is_empty());
    assert_eq!(rig.poll(seconds(6.4)), [2]);
    assert_eq!(rig.report("slow").waiting, 1);
    assert_eq!(rig.poll(seconds(6.5)), [4]);
    let report = rig.report("slow");
    assert_eq!((report.requests, report.held, report.waiting), (69, 65, 0));
}

#[test]
fn no_token_is_lost_when_somebody_waits_and_nobody_looks() {
    let mut rig = Rig::new(&["start slow rate=100 burst=1"]);
    assert!(rig.comes(at(0), 1, 0, &["lookup"]));
    for frame in 1..=100 {
        assert!(!rig.comes(at(0), 1, frame, &["lookup"]));
    }
    assert_eq!(rig.poll(seconds(0.5)).len(), 50);
    assert_eq!(rig.poll(seconds(1.0)).len(), 50);
    // Those that came while nobody waited are kept no more than the burst.
    assert!(rig.comes(seconds(9.0), 1, 101, &["lookup"]));
    assert!(!rig.comes(seconds(9.0), 1, 102, &["lookup"]));
}

#[test]
fn a_frame_is_paid_from_one_bucket_after_the_other() {
    let rules = [
        "start a opcode=getattr rate=1 burst=1",
        "start b opcode=lookup rate=1 burst=1",
    ];
    let mut rig = Rig::new(&rules);
    assert!(
        rig.comes(at(0), 1, 0, &["getattr", "lookup"]),
        "each has one"
    );
    assert!(!rig.comes(at(0), 1, 1, &["getattr", "lookup", "getattr"]));
    assert!(!rig.comes(at(0), 1, 2, &["lookup"]), "the bucket is empty");
    // The first comes to the second bucket behind the other frame, which has the token of then.
    assert_eq!(rig.poll(seconds(1.0)), [2]);
    assert!(rig.poll(seconds(1.9)).is_empty());
    assert_eq!(rig.poll(seconds(2.0)), [1], "both tokens are there");
}

#[test]
fn what_is_urgent_goes_with_its_frame_and_the_rest_is_owed() {
    let mut rig = Rig::new(&["start slow rate=1 burst=1"]);
    assert!(rig.comes(at(0), 1, 0, &["getattr"]));
    assert!(!rig.comes(at(0), 1, 1, &["getattr"]));
    assert!(rig.comes(at(0), 1, 2, &["cancel"]), "costs nothing");
    assert!(rig.comes(at(0), 1, 3, &["getattr", "cancel", "getattr"]));
    assert_eq!(rig.report("slow").owed, 2);
    assert!(
        rig.poll(seconds(2.9)).is_empty(),
        "what is owed is paid first"
    );
    assert_eq!(rig.poll(seconds(3.0)), [1]);
}

#[test]
fn who_is_called_back_is_not_held() {
    let mut rig = Rig::new(&["start slow rate=1 burst=1"]);
    for frame in 0..4 {
        rig.comes(at(0), 1 + frame % 2, frame, &["getattr"]);
    }
    assert!(rig.scheduler.holds_of(ClientId(2)));
    let mut out = Vec::new();
    rig.scheduler.release(at(0), ClientId(2), &mut out);
    assert_eq!(numbers(out), [1, 3]);
    assert!(!rig.scheduler.holds_of(ClientId(2)));
    assert!(rig.comes_as(at(0), 2, 4, &[nature("getattr")], true));
    assert_eq!(rig.poll(seconds(4.0)), [2], "three are owed");
}

#[test]
fn nobody_waits_for_longer_than_is_allowed() {
    let mut rig = Rig::that_holds_for(Duration::from_secs(20), &["start slow rate=1 burst=1"]);
    assert!(!rig.comes(at(0), 1, 1, &["getattr"; 100]));
    assert!(!rig.comes(seconds(5.0), 1, 2, &["getattr"; 3]));
    assert_eq!(
        rig.poll(seconds(20.0)),
        [1, 2],
        "the tokens saved for it pay the next"
    );
    assert_eq!(rig.report("slow").overdue, 100);
    assert_eq!(rig.report("slow").waiting, 0);
    assert_eq!(rig.scheduler.next_due(), None);
}

#[test]
fn too_much_does_not_wait_at_all() {
    let mut rig = Rig::new(&["start slow rate=1 burst=1"]);
    let mut comes = |frame, bytes| {
        let offer = Offer {
            client: ClientId(1),
            peer: &peer(1),
            natures: &[nature("getattr")],
            bytes,
            awaited: false,
            frame,
        };
        rig.scheduler.offer(at(0), offer).is_some()
    };
    assert!(comes(0, 1));
    assert!(!comes(1, HELD_BYTES_MAX - 10));
    assert!(comes(2, 11), "goes, and owes");
    assert!(!comes(3, 10));
    assert_eq!(rig.report("slow").owed, 1);
}

#[test]
fn a_long_answer_is_owed_when_it_is_known() {
    let mut rig = Rig::new(&["start slow rate=1 burst=2"]);
    let offer = Offer {
        client: ClientId(1),
        peer: &peer(1),
        natures: &[nature("cancel"), nature("getattr")],
        bytes: 1,
        awaited: false,
        frame: 0,
    };
    let cleared = rig.scheduler.offer(at(0), offer).expect("goes at once");
    let [None, Some(class)] = cleared.classes[..] else {
        panic!("{cleared:?}");
    };
    rig.scheduler.owe(at(0), class, 4);
    assert!(!rig.comes(at(0), 1, 1, &["getattr"]));
    assert!(rig.poll(seconds(3.9)).is_empty());
    assert_eq!(rig.poll(seconds(4.0)), [1]);
    rig.command(seconds(4.0), "stop slow").expect("is there");
    rig.scheduler.owe(seconds(4.0), class, 1);
    assert!(
        !rig.scheduler.has_rules(),
        "an answer may come after the rule"
    );
}

#[test]
fn the_newest_rule_that_fits_counts() {
    let mut rig = Rig::new(&[
        "start one client={0x1,10.0.0.9} rate=1 burst=1",
        "start two client={10.0.0.2:700,0303} rate=1 burst=1",
        "start made opcode=create uid={500} rate=1 burst=1",
    ]);
    let create = Nature {
        operation: "create",
        uid: Some(500),
        urgent: false,
    };
    assert!(rig.comes_as(at(0), 1, 0, &[create], false));
    let others = Nature {
        uid: Some(501),
        ..create
    };
    for client in 1..=4 {
        rig.comes_as(at(0), client, 10 + client, &[others], false);
    }
    let requests = |name| rig.report(name).requests;
    assert_eq!(
        (requests("made"), requests("one"), requests("two")),
        (1, 1, 2)
    );
    let names: Vec<String> = rig.scheduler.report().into_iter().map(|r| r.name).collect();
    assert_eq!(
        names,
        ["made", "two", "one"],
        "the newest is looked at first"
    );
}

#[test]
fn each_client_and_each_caller_may_have_a_bucket() {
    let mut rig = Rig::new(&["start a opcode=getattr each=client rate=1 burst=1"]);
    rig.command(at(0), "start b opcode=create each=uid rate=1 burst=1")
        .expect("a rule");
    for client in 1..=3 {
        assert!(rig.comes(at(0), client, client, &["getattr"]));
        assert!(!rig.comes(at(0), client, 10 + client, &["getattr"]));
    }
    let create = |uid| Nature {
        operation: "create",
        uid,
        urgent: false,
    };
    assert!(rig.comes_as(at(0), 1, 21, &[create(Some(500))], false));
    assert!(!rig.comes_as(at(0), 2, 22, &[create(Some(500))], false));
    assert!(rig.comes_as(at(0), 2, 23, &[create(Some(501))], false));
    assert!(
        rig.comes_as(at(0), 2, 24, &[create(None); 9], false),
        "nobody's"
    );
    let mut went = rig.poll(seconds(1.0));
    went.sort_unstable();
    assert_eq!(went, [11, 12, 13, 22]);
}

#[test]
fn a_rule_is_changed_and_stopped_while_frames_wait() {
    let mut rig = Rig::new(&["start slow rate=1 burst=1"]);
    for frame in 0..6 {
        rig.comes(at(0), 1, frame, &["getattr"]);
    }
    assert_eq!(rig.poll(seconds(1.0)), [1]);
    assert_eq!(rig.command(seconds(1.5), "change slow rate=10"), Ok(vec![]));
    assert_eq!(rig.report("slow").rule, "start slow rate=10 burst=1");
    assert_eq!(rig.poll(seconds(1.55)), [2], "half a token was there");
    assert_eq!(rig.command(seconds(1.55), "stop slow"), Ok(vec![3, 4, 5]));
    assert_eq!(rig.scheduler.next_due(), None);
    assert!(rig.comes(seconds(1.55), 1, 9, &["getattr"; 9]));
    let gone = rig.command(at(0), "stop slow").expect_err("it is gone");
    assert_eq!(gone, "there is no rule slow; there are none");
}

#[test]
fn buckets_are_bounded_and_forgotten_when_full() {
    let mut rig = Rig::new(&["start each each=client rate=1000000 burst=1"]);
    for client in 0..RULE_CLASSES_MAX as u64 {
        assert!(rig.comes(at(0), client, 0, &["getattr"]));
    }
    assert!(rig.comes(at(0), 1 << 20, 0, &["getattr"]), "shares one");
    assert!(!rig.comes(at(0), 1 << 21, 1, &["getattr"]), "the same");
    assert!(rig.comes(seconds(1.0), 1 << 22, 2, &["getattr"]));
    assert_eq!(rig.poll(seconds(1.0)), [1]);
    assert!(rig.scheduler.queues.len() < 10, "full ones change nothing");
}
