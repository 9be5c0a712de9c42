//! Power cuts at every write of an OST, to its records and to its objects. What was promised is
//! there, nothing is there that nobody wrote, what was removed stays so, and clients that send
//! again what is not durable end where they would have ended.

mod power;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use std::collections::BTreeMap;

use base::Transno;
use oss::fsck::{self, Finding, Whose};
use storage::{Kv, MemDisk, Survivors};

use wire::ost::AllocateMode;

use power::target::{self, Disks, Done, Off, Step, Target};
use power::{Kept, Power};

/// The product's allocator: thousands of restarts are mostly allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Objects by number; none where there is no such object.
type Contents = BTreeMap<u32, Vec<u8>>;
/// After every so many cuts the restart is cut too, at every so many of its own writes. At others
/// after each cut, so that all are met.
const SECOND_CUT_STRIDE: u64 = 7;
const FIRST_EPOCH: u64 = 7;

/// What may be found of the writes since the last sync.
fn variants(cut: u64) -> [Survivors; 6] {
    [
        Survivors::Nothing,
        Survivors::Torn {
            torn_bytes: usize::MAX,
        },
        Survivors::Last,
        Survivors::Torn { torn_bytes: HALF },
        Survivors::Torn { torn_bytes: 256 },
        Survivors::Random { seed: cut },
    ]
}

/// Half of what the scripts write at once.
const HALF: usize = 2048;
const WHOLE: usize = 2 * HALF;

fn write(object: u32, offset: u64, byte: u8) -> Step {
    Step::Write {
        object,
        offset,
        data: vec![byte; WHOLE],
        epoch: FIRST_EPOCH,
    }
}

/// The same under a later open.
fn write_later(object: u32, offset: u64, byte: u8) -> Step {
    Step::Write {
        object,
        offset,
        data: vec![byte; WHOLE],
        epoch: FIRST_EPOCH + 1,
    }
}

fn allocate(object: u32, range: (u64, u64), mode: AllocateMode) -> Step {
    Step::Allocate {
        object,
        range,
        mode,
    }
}

/// What a step does to the contents; a torn one wrote so many bytes only.
fn apply(contents: &mut Contents, step: &Step, torn: usize) {
    match step {
        Step::Write {
            object,
            offset,
            data,
            ..
        } => {
            let (bytes, data) = (
                contents.entry(*object).or_default(),
                &data[..torn.min(data.len())],
            );
            let end = *offset as usize + data.len();
            if !data.is_empty() {
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset as usize..end].copy_from_slice(data);
            }
        }
        Step::Truncate { object, size } => {
            contents
                .entry(*object)
                .or_default()
                .resize(*size as usize, 0);
        }
        Step::Allocate {
            object,
            range: (start, end),
            mode,
        } => {
            let bytes = contents.entry(*object).or_default();
            let (start, end) = (*start as usize, *end as usize);
            if matches!(mode, AllocateMode::Extend | AllocateMode::Zero) {
                bytes.resize(bytes.len().max(end), 0);
            }
            if !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize) {
                let end = end.min(bytes.len());
                bytes[start.min(end)..end].fill(0);
            }
        }
        Step::Destroy { object, .. } => {
            contents.remove(object);
        }
        Step::Sync | Step::Second | Step::Settle => {}
    }
}

/// Every state that `rest` may leave of `base` when what was not synced survives in part.
fn possible(base: &Contents, rest: &[Step]) -> Vec<Contents> {
    let mut found = Vec::new();
    for mask in 0..1_u32 << rest.len() {
        let chosen: Vec<&Step> = (0..rest.len())
            .filter(|at| mask & (1 << at) != 0)
            .map(|at| &rest[at])
            .collect();
        for torn in [WHOLE, HALF, 256] {
            let mut contents = base.clone();
            for (at, step) in chosen.iter().enumerate() {
                let is_last = at + 1 == chosen.len();
                apply(&mut contents, step, if is_last { torn } else { WHOLE });
            }
            found.push(contents);
        }
    }
    found
}

/// The objects of one number in some of these.
fn one_of(states: &[Contents], object: u32) -> impl Iterator<Item = Option<&Vec<u8>>> {
    states.iter().map(move |contents| contents.get(&object))
}

struct Scenario {
    name: &'static str,
    before: Vec<Step>,
    script: Vec<Step>,
    /// Bytes are removed after the sync that makes the tombstones durable, not before.
    removes_late: bool,
}

impl Scenario {
    fn all(&self) -> Vec<Step> {
        [&self.before[..], &self.script].concat()
    }

    /// A target that has done `before`, durably, and been killed.
    fn prepared(&self) -> Disks {
        let records = MemDisk::new();
        Kv::create(records.clone()).expect("memory");
        let disks = Disks {
            records,
            objects: Kept::new(),
        };
        let mut target = Target::open(&disks, &Power::default()).expect("memory");
        let mut done = Done::default();
        let steps = [&self.before[..], &[Step::Sync]].concat();
        target.go_on(&mut done, &steps).expect("memory");
        assert_eq!(done.told, steps.len());
        disks
    }

    /// On these `disks`, the script up to the cut, and what its clients remember; true if it came to its end.
    fn cut(&self, disks: &Disks, cut: u64, survivors: Survivors) -> (Done, bool) {
        let power = Power::default();
        let mut target = Target::open(disks, &power).expect("memory");
        target.removes_late = self.removes_late;
        let mut done = Done::after(self.before.len());
        power.cut_after(power.changes() + cut);
        let ended = target.go_on(&mut done, &self.all()).is_ok();
        target.power_cut(survivors);
        (done, ended)
    }

    fn cut_everywhere(&self) -> (u64, u64) {
        let prepared = self.prepared();
        let (mut cut, mut cuts, mut second) = (0, 0, 0);
        loop {
            let mut all_ended = true;
            for survivors in variants(cut) {
                let what = format!("{}, cut {cut}, {survivors:?}", self.name);
                let disks = prepared.copy();
                let (done, ended) = self.cut(&disks, cut, survivors);
                all_ended &= ended;
                if cuts % SECOND_CUT_STRIDE == 0 {
                    let first = cuts / SECOND_CUT_STRIDE % SECOND_CUT_STRIDE;
                    second += self.cut_restart(&disks, &done, first, &what);
                }
                self.check_restart(&disks, done, true, &what);
                cuts += 1;
            }
            if all_ended {
                println!("{}: {cuts} cuts, {second} second cuts", self.name);
                return (cuts, second);
            }
            cut += 1;
        }
    }

    /// What a restart finds.
    fn check_restart(&self, disks: &Disks, done: Done, is_first: bool, what: &str) {
        let mut target = Target::open(disks, &Power::default())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let steps = self.all();
        let rest = &steps[done.told..done.sent];
        check(&target, rest, what);
        let committed = target.oss.committed();
        assert!(committed >= done.committed, "{what}: {committed:?}");
        let mut base = Contents::new();
        steps[..done.told]
            .iter()
            .for_each(|step| apply(&mut base, step, WHOLE));
        let states = possible(&base, rest);
        for object in target::OBJECTS {
            let found = target.contents(object);
            let untouched = rest.iter().all(|step| step.object() != Some(object));
            if is_first || untouched {
                let is_possible = one_of(&states, object).any(|state| state == found.as_ref());
                assert!(
                    is_possible,
                    "{what}: object {object} is {}",
                    brief(found.as_ref())
                );
            }
        }
        check_stones(&mut target, &steps[..done.told], what);
        self.finish(target, done, what);
    }

    /// Clients send again what is not durable, and do the rest: the end is as it would have been.
    fn finish(&self, mut target: Target, mut done: Done, what: &str) {
        let (highest, steps) = (done.highest, self.all());
        done.come_back(target.oss.committed());
        let resent = target.go_on(&mut done, &[&steps[..], &[Step::Sync]].concat());
        resent.expect("the power stays on");
        let is_new = done.first_resent.is_none_or(|transno| transno > highest);
        assert!(is_new, "{what}: a number was given twice");
        check(&target, &[], what);
        let mut full = Contents::new();
        steps.iter().for_each(|step| apply(&mut full, step, WHOLE));
        for object in target::OBJECTS {
            let found = target.contents(object);
            let is_full = found.as_ref() == full.get(&object);
            assert!(
                is_full,
                "{what}: {object} ends as {}",
                brief(found.as_ref())
            );
        }
    }

    /// The restart, and what clients send again, is cut at its own writes from `first` on.
    fn cut_restart(&self, disks: &Disks, done: &Done, first: u64, what: &str) -> u64 {
        let (mut cut, mut count) = (first, 0);
        loop {
            let disks = disks.copy();
            let power = Power::default();
            power.cut_after(cut);
            let mut again = done.clone();
            let survivors = variants(cut)[(cut / SECOND_CUT_STRIDE) as usize % 6];
            let ended = match Target::open_or_cut(&disks, &power, survivors) {
                None => Err(Off),
                Some(mut target) => {
                    target.removes_late = self.removes_late;
                    again.come_back(target.oss.committed());
                    let ended = target.go_on(&mut again, &self.all());
                    target.power_cut(survivors);
                    ended
                }
            };
            let what = format!("{what}, then {cut}, {survivors:?}");
            self.check_restart(&disks, again, false, &what);
            cut += SECOND_CUT_STRIDE;
            count += 1;
            if ended.is_ok() {
                return count;
            }
        }
    }
}

fn brief(bytes: Option<&Vec<u8>>) -> String {
    let Some(bytes) = bytes else {
        return "not there".to_owned();
    };
    let runs = bytes.chunk_by(|a, b| a == b);
    let runs: Vec<String> = runs
        .map(|run| format!("{}x{}", run.len(), run[0]))
        .collect();
    runs.join(" ")
}

/// Finds nothing wrong, with one exception. Unsynced bytes that a later open wrote to a removed object may
/// survive without the record that tells them from the removed ones.
fn check(target: &Target, rest: &[Step], what: &str) {
    let report = fsck::check(&*target.store, &target.kv, &mut |_| Whose::Unasked);
    let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
    for finding in report.findings {
        let is_later = |step: &Step| match (step, &finding) {
            (Step::Write { epoch, .. }, Finding::Resurrected { object, .. }) => {
                *epoch > FIRST_EPOCH && step.object() == Some(object.fid.object())
            }
            _ => false,
        };
        assert!(rest.iter().any(is_later), "{what}: {finding}");
    }
}

/// Nothing that had a right to write before a durable removal brings the object back.
fn check_stones(target: &mut Target, told: &[Step], what: &str) {
    for (at, step) in told.iter().enumerate() {
        let Step::Destroy { object, epoch } = step else {
            continue;
        };
        let comes_back = told[at..]
            .iter()
            .any(|later| matches!(later, Step::Write { object: other, .. } if other == object));
        let late = Step::Write {
            object: *object,
            offset: 0,
            data: vec![9; 10],
            epoch: *epoch,
        };
        if !comes_back && target.contents(*object).is_none() {
            assert!(
                target.is_refused(&late),
                "{what}: {object} was brought back"
            );
        }
    }
}

fn run(name: &'static str, before: Vec<Step>, script: Vec<Step>) {
    for removes_late in [false, true] {
        let (cuts, _) = Scenario {
            name,
            before: before.clone(),
            script: script.clone(),
            removes_late,
        }
        .cut_everywhere();
        // On extents there is nothing to be sealed.
        let least = if crate::OVER_EXTENTS { 20 } else { 100 };
        assert!(cuts > least, "{name}: {cuts} cuts");
        if !script
            .iter()
            .any(|step| matches!(step, Step::Destroy { .. }))
        {
            return;
        }
    }
}

#[test]
fn written_bytes() {
    run(
        "write",
        vec![],
        vec![
            write(1, 0, 1),
            write(1, 4096, 2),
            Step::Sync,
            write(2, 1 << 16, 3),
            write(1, 2048, 4),
            Step::Second,
            write(2, 0, 5),
            Step::Sync,
        ],
    );
    run(
        "overwrite",
        vec![write(1, 0, 1), write(1, 4096, 1)],
        vec![
            write(1, 1000, 2),
            Step::Sync,
            write(1, 0, 3),
            write(1, 2000, 4),
            Step::Sync,
        ],
    );
}

#[test]
fn sizes_and_holes() {
    let truncate = |object, size| Step::Truncate { object, size };
    run(
        "truncate",
        vec![write(1, 0, 1), write(1, 4096, 2)],
        vec![
            truncate(1, 5000),
            Step::Sync,
            write(1, 8192, 3),
            truncate(1, 100),
            truncate(2, 9000),
            Step::Sync,
        ],
    );
    let punch = |start, end| allocate(1, (start, end), AllocateMode::PunchHole);
    run(
        "punch",
        vec![write(1, 0, 1), write(1, 4096, 2), write(1, 8192, 3)],
        vec![
            punch(1000, 5000),
            Step::Sync,
            punch(8192, 12_288),
            write(1, 4096, 4),
            Step::Second,
        ],
    );
}

#[test]
fn space_and_zeros() {
    run(
        "allocate",
        vec![write(1, 0, 1)],
        vec![
            allocate(1, (0, 9000), AllocateMode::Extend),
            allocate(2, (4096, 8192), AllocateMode::Extend),
            Step::Sync,
            allocate(1, (8192, 20_000), AllocateMode::KeepSize),
            write(1, 6000, 2),
            allocate(1, (5000, 30_000), AllocateMode::Extend),
            allocate(3, (0, 4096), AllocateMode::KeepSize),
            Step::Second,
        ],
    );
    run(
        "zero",
        vec![
            write(1, 0, 1),
            write(1, 4096, 2),
            write(2, 0, 3),
            Step::Settle,
        ],
        vec![
            allocate(1, (1000, 5000), AllocateMode::ZeroKeepSize),
            Step::Settle,
            allocate(2, (2048, 6000), AllocateMode::Zero),
            write(1, 3000, 4),
            Step::Sync,
            allocate(1, (6000, 20_000), AllocateMode::ZeroKeepSize),
            allocate(3, (0, 5000), AllocateMode::Zero),
            Step::Settle,
            write(2, 4096, 5),
            Step::Second,
        ],
    );
}

/// Sums never outlive, or come before, the bytes that they are of.
#[test]
fn sealed_bytes() {
    run(
        "seal what was written",
        vec![write(1, 0, 1), Step::Settle],
        vec![
            write(1, 0, 2),
            write(2, 0, 3),
            Step::Settle,
            write(1, 2048, 4),
            Step::Sync,
            Step::Settle,
            write(1, 4096, 5),
            Step::Settle,
            Step::Sync,
        ],
    );
    run(
        "seal what has become shorter",
        vec![write(1, 0, 1), write(1, 4096, 2), Step::Settle],
        vec![
            Step::Truncate {
                object: 1,
                size: 5000,
            },
            Step::Settle,
            Step::Sync,
            allocate(1, (1000, 3000), AllocateMode::PunchHole),
            Step::Settle,
            Step::Sync,
            write(1, 8192, 3),
            Step::Settle,
            Step::Sync,
            write(1, 3000, 4),
            Step::Sync,
            write(1, 9000, 5),
            Step::Sync,
            Step::Settle,
        ],
    );
}

#[test]
fn removed_objects() {
    let destroy = |object| Step::Destroy {
        object,
        epoch: FIRST_EPOCH,
    };
    let two = vec![write(1, 0, 1), write(2, 0, 2)];
    run(
        "destroy",
        two.clone(),
        vec![
            destroy(1),
            write(2, 100, 3),
            destroy(2),
            destroy(3),
            Step::Sync,
        ],
    );
    run(
        "destroy what was just written",
        two.clone(),
        vec![
            write(1, 4096, 3),
            write(3, 0, 4),
            destroy(3),
            destroy(1),
            Step::Second,
        ],
    );
    run(
        "a later open after a removal",
        two,
        vec![
            destroy(1),
            Step::Second,
            write_later(1, 4096, 5),
            Step::Sync,
            write_later(1, 0, 6),
            Step::Second,
        ],
    );
}

#[test]
fn a_target_is_made_wholly_or_refused() {
    let (mut refused, mut opened) = (0, 0);
    for cut in 0.. {
        let mut all_made = true;
        for survivors in variants(cut) {
            let what = format!("cut {cut}, {survivors:?}");
            let disks = Disks {
                records: MemDisk::new(),
                objects: Kept::new(),
            };
            let power = Power::default();
            power.cut_after(cut);
            let records = power::Records::new(disks.records.clone(), &power);
            let made = Kv::create(records.clone()).is_ok();
            let started = made && Target::open_on(&records, &disks, &power).is_ok();
            records.power_cut(survivors);
            all_made &= started;
            match Target::open(&disks, &Power::default()) {
                Ok(target) => {
                    check(&target, &[], &what);
                    assert_eq!(target.oss.committed(), Transno(0), "{what}");
                    opened += 1;
                }
                Err(error) => {
                    assert!(!made, "{what}: {error}");
                    assert!(error.damage().is_some(), "{what}: {error}");
                    refused += 1;
                }
            }
        }
        if all_made {
            break;
        }
    }
    assert!(
        refused > 20 && opened > 20,
        "{refused} refused, {opened} opened"
    );
}
