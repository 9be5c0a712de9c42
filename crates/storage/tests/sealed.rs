//! Objects whose bytes are checked. They read as any others, whatever is done to them, and a bit
//! that flips below is found wherever it is.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use base::{ByteRange, Fid, Rng, SeededRng};
use storage::{
    KeyRange, Kv, ObjectId, ObjectMemory, ObjectStat, ObjectStore, SealedObjects, SpaceStat,
    StorageError, TableId, examine_seals,
};

const TABLE: TableId = TableId(0);
const BLOCK: u64 = 4096;
const SEGMENT: u64 = 4 << 20;
const ID: ObjectId = ObjectId {
    fid: Fid(7),
    stripe: 0,
};

/// A store below in which something happens during a sync.
struct Interrupted {
    memory: Arc<ObjectMemory>,
    at_sync: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}

impl ObjectStore for Interrupted {
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize, StorageError> {
        self.memory.read(id, offset, buffer)
    }
    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<(), StorageError> {
        self.memory.write(id, offset, data)
    }
    fn truncate(&self, id: ObjectId, size: u64) -> Result<(), StorageError> {
        self.memory.truncate(id, size)
    }
    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>, StorageError> {
        self.memory.stat(id)
    }
    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<(), StorageError> {
        self.memory.punch(id, range)
    }
    fn allocate(&self, id: ObjectId, range: ByteRange, keep: bool) -> Result<(), StorageError> {
        self.memory.allocate(id, range, keep)
    }
    fn zero(&self, id: ObjectId, range: ByteRange, keep: bool) -> Result<(), StorageError> {
        self.memory.zero(id, range, keep)
    }
    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>, StorageError> {
        self.memory.seek_data(id, offset)
    }
    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>, StorageError> {
        self.memory.seek_hole(id, offset)
    }
    fn remove(&self, id: ObjectId) -> Result<bool, StorageError> {
        self.memory.remove(id)
    }
    fn sync_all(&self) -> Result<(), StorageError> {
        self.memory.sync_all()
    }
    fn sync(&self, id: ObjectId) -> Result<(), StorageError> {
        let interruption = self.at_sync.lock().expect("nobody panics").take();
        if let Some(interrupt) = interruption {
            interrupt();
        }
        self.memory.sync(id)
    }
    fn statfs(&self) -> Result<SpaceStat, StorageError> {
        self.memory.statfs()
    }
    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<(), StorageError> {
        self.memory.list(visit)
    }
}

/// A store, its sums, and what lies below.
struct Rig {
    memory: Arc<ObjectMemory>,
    kv: Arc<Kv>,
    sealed: SealedObjects,
}

impl Rig {
    fn new() -> Rig {
        let kv = Kv::scratch(&[(TABLE, "seals")]).expect("memory");
        let memory = Arc::new(ObjectMemory::new(1 << 30));
        Rig::over(memory, Arc::new(kv))
    }

    fn over(memory: Arc<ObjectMemory>, kv: Arc<Kv>) -> Rig {
        let sealed = SealedObjects::new(memory.clone(), kv.clone(), TABLE);
        Rig { memory, kv, sealed }
    }

    /// Another process goes on.
    fn restarted(self) -> Rig {
        Rig::over(self.memory, self.kv)
    }

    /// All is durable, and left alone for long.
    fn rest(&self) {
        self.sealed.sync_all().expect("memory");
        self.look_twice();
    }

    fn look_twice(&self) {
        for _ in 0..2 {
            self.sealed.settle().expect("sound");
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.sealed.write(ID, offset, bytes).expect("room");
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, StorageError> {
        let read = self.sealed.read_shared(ID, offset, len);
        read.map(|bytes| bytes.to_vec())
    }

    /// A bit of byte `at` flips below.
    fn flip(&self, at: u64) {
        let mut byte = [0];
        assert_eq!(self.memory.read(ID, at, &mut byte).expect("memory"), 1);
        self.memory.write(ID, at, &[byte[0] ^ 4]).expect("memory");
    }

    /// Blocks at rest that are not what was written.
    fn examined(&self) -> Vec<ByteRange> {
        let mut found = Vec::new();
        examine_seals(&*self.memory, &self.kv, TABLE, &mut |id, range| {
            assert_eq!(id, ID);
            found.push(range);
        })
        .expect("memory");
        found
    }
}

fn is_damage<T>(result: &Result<T, StorageError>, start: u64) -> bool {
    matches!(result, Err(StorageError::DamagedBytes { range, .. }) if range.start == start)
}

#[test]
fn a_flipped_bit_at_rest_is_found_and_never_served() {
    let rig = Rig::new();
    rig.write(0, &[1; 20_000]);
    rig.rest();
    rig.flip(9_000);
    for (offset, len) in [(9_000, 1), (8_192, 4_096), (12_287, 1), (0, 20_000)] {
        assert!(is_damage(&rig.read(offset, len), 8_192), "{offset} {len}");
    }
    assert_eq!(rig.read(0, 8_192).expect("sound"), [1; 8_192]);
    assert_eq!(rig.read(12_288, 30_000).expect("sound"), [1; 7_712]);
    assert_eq!(rig.examined(), [ByteRange::new(8_192, 12_288)]);
    let rig = rig.restarted();
    assert!(is_damage(&rig.read(9_999, 1), 8_192), "by the next process");
}

/// The store below lost its end, or all of it.
#[test]
fn an_object_that_lost_its_end_is_damaged_and_stays_so() {
    for (kept, size) in [(0, 20_000), (8_192, 20_000), (SEGMENT, SEGMENT + 9_000)] {
        let rig = Rig::new();
        rig.write(0, &vec![1; size as usize]);
        rig.rest();
        rig.memory.truncate(ID, kept).expect("memory");
        let rig = rig.restarted();
        let expect_damage = |rig: &Rig| {
            let stat = rig.sealed.stat(ID).expect("sound").expect("it was there");
            assert_eq!(stat.size, size);
            assert!(is_damage(
                &rig.read(size - 1, 1),
                (size - 1) / 4_096 * 4_096
            ));
            assert!(is_damage(&rig.sealed.seek_data(ID, 0), kept));
            assert!(is_damage(&rig.sealed.seek_hole(ID, 0), kept));
            assert!(is_damage(&rig.sealed.write(ID, 0, &[2; 4_096]), kept));
            assert!(is_damage(&rig.sealed.write(ID, size, b"more"), kept));
            assert!(is_damage(&rig.sealed.truncate(ID, size + 1), kept));
            let all = ByteRange::new(0, size);
            assert!(is_damage(&rig.sealed.punch(ID, all), kept));
            assert!(is_damage(&rig.sealed.zero(ID, all, false), kept));
            assert!(is_damage(&rig.sealed.allocate(ID, all, false), kept));
        };
        expect_damage(&rig);
        let ahead = [(ID, ByteRange::from(0))];
        rig.sealed.foresee(&ahead).expect("nothing to be opened");
        rig.rest();
        expect_damage(&rig);
        assert!(!rig.examined().is_empty());
        // It is sound again when it is written anew.
        rig.sealed.truncate(ID, 0).expect("sound");
        rig.write(0, &[3; 10]);
        rig.rest();
        assert_eq!(rig.restarted().read(0, 100).expect("sound"), [3; 10]);
    }
}

/// Something else has written behind the end of what is at rest.
#[test]
fn bytes_that_were_added_from_outside_are_not_the_objects() {
    let ends: [&dyn Fn(&Rig); 6] = [
        &|rig| rig.write(0, &[1; 100]),
        &|rig| rig.write(0, &[1; 2 * BLOCK as usize]),
        &|rig| rig.write(7, &[1; SEGMENT as usize - 7]),
        &|rig| rig.write(SEGMENT, &[1; 9_000]),
        &|rig| rig.sealed.truncate(ID, 0).expect("room"),
        &|rig| rig.sealed.truncate(ID, 3 * SEGMENT + 5).expect("room"),
    ];
    let added = [1, 5_000, SEGMENT + 1];
    let cases = ends.iter().flat_map(|end| added.map(|added| (end, added)));
    for (case, (end, added)) in cases.enumerate() {
        let rig = Rig::new();
        end(&rig);
        rig.rest();
        let stat = rig.memory.stat(ID).expect("memory").expect("made");
        let size = stat.size;
        let before = rig.read(0, size as usize).expect("sound");
        let more = vec![9; added as usize];
        rig.memory.write(ID, size, &more).expect("memory");
        let expect_as_it_was = |rig: &Rig| {
            let stat = rig.sealed.stat(ID).expect("sound").expect("there");
            assert_eq!(stat.size, size, "{case}");
            let all = rig.read(0, (size + added) as usize).expect("sound");
            assert!(all == before, "{case}");
            assert_eq!(rig.read(size, 10).expect("nothing there"), [0; 0], "{case}");
            assert!(is_damage(&rig.sealed.write(ID, size, b"more"), size));
            for longer in [size + added.div_ceil(2), size + added, size + added + 1] {
                assert!(is_damage(&rig.sealed.truncate(ID, longer), size));
            }
            let beyond = ByteRange::new(size, size + 2 * added);
            assert!(is_damage(&rig.sealed.allocate(ID, beyond, false), size));
            assert!(is_damage(&rig.sealed.seek_data(ID, 0), size));
            rig.sealed.foresee(&[(ID, beyond)]).expect("left alone");
            rig.rest();
        };
        expect_as_it_was(&rig);
        let rig = rig.restarted();
        expect_as_it_was(&rig);
        assert_eq!(
            rig.examined(),
            [ByteRange::new(size, size + added)],
            "{case}"
        );
        // It is sound again when that was cut off.
        rig.sealed.truncate(ID, size).expect("cut off");
        rig.write(size, b"more");
        rig.rest();
        assert_eq!(rig.read(size, 10).expect("sound"), b"more");
        assert_eq!(rig.examined(), [], "{case}");
    }
}

/// Of a hole there are no sums: only the end says that the object was longer.
#[test]
fn a_hole_that_was_lost_with_the_end_is_damaged() {
    for kept in [0, 100, SEGMENT + 1] {
        let rig = Rig::new();
        rig.write(0, &[1; 100]);
        rig.sealed.truncate(ID, 3 * SEGMENT).expect("room");
        rig.rest();
        rig.memory.truncate(ID, kept).expect("memory");
        let rig = rig.restarted();
        let stat = rig.sealed.stat(ID).expect("sound").expect("it was there");
        assert_eq!(stat.size, 3 * SEGMENT);
        assert!(is_damage(&rig.read(2 * SEGMENT, 10), kept), "{kept}");
        assert!(is_damage(
            &rig.read(2 * SEGMENT, 2 * SEGMENT as usize),
            kept
        ));
        assert_eq!(rig.read(3 * SEGMENT, 10).expect("behind the end"), [0; 0]);
        rig.sealed.truncate(ID, 0).expect("sound");
        assert_eq!(rig.read(0, 10).expect("empty"), [0; 0]);
    }
}

#[test]
fn an_object_that_is_gone_with_its_sums_there_is_damaged() {
    let rig = Rig::new();
    rig.write(0, &[1; 20_000]);
    rig.rest();
    assert!(rig.memory.remove(ID).expect("memory"));
    let rig = rig.restarted();
    let stat = rig.sealed.stat(ID).expect("sound").expect("it was there");
    assert_eq!(stat.size, 20_000);
    assert!(is_damage(&rig.read(0, 1), 0));
    rig.sealed.remove(ID).expect("nothing is left");
    assert_eq!(rig.sealed.stat(ID).expect("sound"), None);
}

#[test]
fn what_was_just_written_is_checked_before_it_is_at_rest() {
    let rig = Rig::new();
    rig.write(0, &[1; 5_000]);
    rig.flip(4_999);
    assert!(is_damage(&rig.read(4_096, 1), 4_096));
    rig.rest();
    assert!(
        is_damage(&rig.read(4_096, 1), 4_096),
        "nor does resting hide it"
    );
    assert_eq!(rig.examined(), [ByteRange::new(4_096, 5_000)]);
}

#[test]
fn a_part_of_a_damaged_block_cannot_be_changed_the_whole_of_it_can() {
    let rig = Rig::new();
    rig.write(0, &[1; 12_288]);
    rig.rest();
    rig.flip(5_000);
    rig.flip(9_000);
    assert!(is_damage(&rig.sealed.write(ID, 4_100, &[2; 10]), 4_096));
    assert!(is_damage(&rig.sealed.write(ID, 0, &[2; 4_100]), 4_096));
    assert!(is_damage(&rig.sealed.truncate(ID, 5_000), 4_096));
    rig.write(4_096, &[2; 4_096]);
    assert_eq!(rig.read(0, 8_192).expect("sound")[4_096..], [2; 4_096]);
    // What changed beside it does not hide the other.
    rig.rest();
    assert!(is_damage(&rig.read(9_000, 1), 8_192));
    assert_eq!(rig.examined(), [ByteRange::new(8_192, 12_288)]);
    rig.write(8_192, &[4; 4_096]);
    rig.write(12_288, &[4; 100]);
    rig.rest();
    rig.flip(12_300);
    assert!(is_damage(&rig.sealed.write(ID, 12_288, &[5; 99]), 12_288));
    rig.write(12_288, &[5; 100]);
    assert_eq!(
        rig.read(12_288, 200).expect("nothing of it is left"),
        [5; 100]
    );
    rig.sealed.truncate(ID, 0).expect("whole");
    rig.write(0, &[3; 12_288]);
    rig.rest();
    assert_eq!(rig.read(0, 12_288).expect("sound"), [3; 12_288]);
    assert_eq!(rig.examined(), []);
}

#[test]
fn what_a_process_left_open_is_sealed_by_the_next() {
    let rig = Rig::new();
    rig.write(0, &[1; 100]);
    rig.sealed.sync_all().expect("memory");
    let rig = rig.restarted();
    rig.flip(50);
    assert!(rig.read(0, 100).is_ok(), "nobody knows what was written");
    rig.look_twice();
    rig.look_twice();
    rig.flip(50);
    assert!(is_damage(&rig.read(0, 100), 0));
}

#[test]
fn who_is_made_anew_has_no_sums_of_the_one_before() {
    let rig = Rig::new();
    rig.write(0, &[1; SEGMENT as usize + 5]);
    rig.rest();
    assert!(rig.sealed.remove(ID).expect("there"));
    rig.write(100, &[2; 10]);
    assert_eq!(rig.read(0, 10_000).expect("sound")[100..], [2; 10]);
    rig.rest();
    assert_eq!(rig.examined(), []);
    assert!(rig.sealed.remove(ID).expect("there"));
    assert!(!rig.sealed.remove(ID).expect("gone"));
    let mut rows = 0;
    let all = storage::KeyRange::all();
    rig.kv
        .scan(TABLE, &all, |_, _| {
            rows += 1;
            std::ops::ControlFlow::Continue(())
        })
        .expect("memory");
    assert_eq!(rows, 0);
}

/// Does one thing, by the dice, to both; they must agree. Where that is refused for damage it is done
/// to neither.
fn step(rig: &Rig, twin: &ObjectMemory, rng: &mut SeededRng) {
    let (sealed, longest) = (&rig.sealed, 2 * SEGMENT + 3 * BLOCK);
    let both = |work: &dyn Fn(&dyn ObjectStore) -> Result<(), StorageError>| match work(sealed) {
        Err(StorageError::DamagedBytes { .. }) => {}
        done => {
            done.expect("room");
            work(twin).expect("room");
        }
    };
    let at = match rng.below(3) {
        0 => rng.below(longest / BLOCK) * BLOCK,
        1 => SEGMENT - rng.below(3 * BLOCK),
        _ => rng.below(longest),
    };
    let len = match rng.below(4) {
        0 => BLOCK,
        1 => rng.below(3 * SEGMENT / 2),
        _ => 1 + rng.below(3 * BLOCK),
    };
    let range = ByteRange::new(at, at + len);
    let keep = rng.below(2) == 0;
    let value = rng.below(256) as u8;
    match rng.below(10) {
        0 | 1 => both(&|store| store.write(ID, at, &vec![value; len as usize])),
        2 => both(&|store| store.truncate(ID, at)),
        3 => both(&|store| store.punch(ID, range)),
        4 => both(&|store| store.zero(ID, range, keep)),
        5 => both(&|store| store.allocate(ID, range, keep)),
        6 if rng.below(5) == 0 => both(&|store| store.remove(ID).map(drop)),
        7 => sealed.sync(ID).expect("memory"),
        8 => sealed.foresee(&[(ID, range)]).expect("memory"),
        _ => rig.look_twice(),
    }
    let theirs = twin.read_shared(ID, at, len as usize).expect("memory");
    match sealed.read_shared(ID, at, len as usize) {
        Err(StorageError::DamagedBytes { .. }) => {}
        ours => assert_eq!(ours.expect("memory"), theirs),
    }
}

/// Blocks that are damage to who reads them; all others are what the twin has.
fn damaged_blocks(rig: &Rig, twin: &ObjectMemory) -> u64 {
    let size = twin.stat(ID).expect("memory").map_or(0, |stat| stat.size);
    let mut damaged = 0;
    for at in (0..size).step_by(BLOCK as usize) {
        let theirs = twin.read_shared(ID, at, BLOCK as usize).expect("memory");
        match rig.sealed.read_shared(ID, at, BLOCK as usize) {
            Err(StorageError::DamagedBytes { .. }) => damaged += 1,
            ours => assert_eq!(ours.expect("memory"), theirs, "at {at}"),
        }
    }
    damaged
}

#[test]
fn whatever_is_done_it_reads_as_any_other_and_then_every_flip_is_found() {
    for seed in 0..40 {
        let (mut rig, twin) = (Rig::new(), ObjectMemory::new(1 << 30));
        let mut rng = SeededRng::new(seed);
        for _ in 0..60 {
            step(&rig, &twin, &mut rng);
            if rng.below(20) == 0 {
                rig = rig.restarted();
            }
        }
        assert_eq!(damaged_blocks(&rig, &twin), 0, "seed {seed}");
        rig.rest();
        rig.look_twice();
        let size = rig.memory.stat(ID).expect("memory").map_or(0, |s| s.size);
        assert_eq!(rig.examined(), [], "seed {seed}");
        // Of what was written last something is sealed.
        rig.write(size, &[9; 3]);
        rig.rest();
        rig.flip(size + rng.below(3));
        assert_eq!(rig.examined().len(), 1, "seed {seed}");
        assert!(rig.read(size, 3).is_err(), "seed {seed}");
        // And where the object ends.
        rig.memory.write(ID, size + 3, b"x").expect("memory");
        let added = ByteRange::new(size + 3, size + 4);
        assert_eq!(rig.examined()[1..], [added], "seed {seed}");
    }
}

#[test]
fn whatever_is_done_beside_a_flipped_bit_it_is_never_served() {
    let mut seen = 0;
    for seed in 0..60 {
        let (rig, twin) = (Rig::new(), ObjectMemory::new(1 << 30));
        let mut rng = SeededRng::new(seed);
        let size = 1 + rng.below(SEGMENT + 5 * BLOCK);
        for store in [&rig.sealed as &dyn ObjectStore, &twin] {
            store.write(ID, 0, &vec![1; size as usize]).expect("room");
        }
        rig.rest();
        rig.flip(rng.below(size));
        assert_eq!(damaged_blocks(&rig, &twin), 1, "seed {seed}");
        for _ in 0..12 {
            step(&rig, &twin, &mut rng);
            seen += damaged_blocks(&rig, &twin);
        }
    }
    assert!(seen > 60, "the damage went at once, {seen}");
}

#[test]
fn a_change_that_was_foreseen_waits_for_no_records() {
    let rig = Rig::new();
    rig.write(0, &[1; 100]);
    rig.write(SEGMENT, &[1; 100]);
    rig.rest();
    let other = ObjectId { stripe: 1, ..ID };
    let (first, rest) = (ByteRange::new(7, 9), ByteRange::from(SEGMENT));
    let changes = [(ID, first), (ID, rest), (other, first)];
    rig.sealed.foresee(&changes).expect("memory");
    let opened = rig.kv.committed();
    assert!(rig.kv.durable() == opened, "it has waited for all of them");
    // A look between does not seal them again, and what is there is still checked.
    rig.sealed.settle().expect("sound");
    rig.flip(50);
    assert!(is_damage(&rig.read(50, 1), 0));
    rig.flip(50);
    rig.write(7, &[2; 2]);
    rig.sealed.truncate(ID, SEGMENT).expect("memory");
    assert!(rig.kv.committed() == opened, "no row was put again");
    rig.rest();
    rig.flip(50);
    assert!(is_damage(&rig.read(50, 1), 0), "sealed again");
    let mut rows = 0;
    let all = KeyRange::all();
    let count = |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    rig.kv.scan(TABLE, &all, count).expect("memory");
    assert_eq!(
        rows, 2,
        "a segment and the end: of what is not there nothing is claimed"
    );
}

/// Or a power cut in between would leave sums that are of other bytes.
#[test]
fn who_changes_what_is_sealed_waits_until_it_is_open() {
    let changes: [&dyn Fn(&Rig); 3] = [
        &|rig| rig.write(7, &[2; 2]),
        &|rig| rig.sealed.truncate(ID, 50).expect("memory"),
        &|rig| {
            rig.sealed.remove(ID).expect("there");
            rig.write(0, &[3; 10]);
        },
    ];
    for change in changes {
        let rig = Rig::new();
        rig.write(0, &[1; 100]);
        rig.rest();
        let before = rig.kv.committed();
        change(&rig);
        let durable = rig.kv.durable();
        assert!(rig.kv.committed() > before && durable > before);
    }
}

/// Or a power cut after it would leave sums of bytes that are not there.
#[test]
fn what_changes_while_others_are_sealed_waits_for_its_own_sync() {
    let memory = Arc::new(ObjectMemory::new(1 << 30));
    let store = Arc::new(Interrupted {
        memory: memory.clone(),
        at_sync: Mutex::default(),
    });
    let kv = Arc::new(Kv::scratch(&[(TABLE, "seals")]).expect("memory"));
    let sealed = Arc::new(SealedObjects::new(store.clone(), kv.clone(), TABLE));
    let other = ObjectId { stripe: 1, ..ID };
    sealed.write(ID, 0, &[1; 100]).expect("room");
    sealed.write(other, 0, &[1; 100]).expect("room");
    sealed.sync(other).expect("memory");
    sealed.settle().expect("sound");
    let writer = sealed.clone();
    *store.at_sync.lock().expect("unused") = Some(Box::new(move || {
        writer.write(other, 0, &[2; 100]).expect("room");
    }));
    sealed.settle().expect("sound");
    assert!(
        store.at_sync.lock().expect("unused").is_none(),
        "it came between"
    );
    // No sync has covered what it wrote.
    memory.write(other, 0, &[1; 100]).expect("memory");
    let next = SealedObjects::new(store, kv, TABLE);
    assert_eq!(
        next.read_shared(other, 0, 100).expect("nothing is claimed")[..],
        [1; 100]
    );
}

#[test]
fn what_ends_in_good_order_leaves_nothing_open() {
    let rig = Rig::new();
    rig.write(0, &[1; 100]);
    rig.write(3 * SEGMENT, &[1; 100]);
    // What the process before left open is not known yet.
    let rig = rig.restarted();
    rig.write(SEGMENT, &[1; 100]);
    rig.sealed.settle_all().expect("sound");
    let rig = rig.restarted();
    for at in [0, SEGMENT, 3 * SEGMENT] {
        rig.flip(at + 50);
        assert!(is_damage(&rig.read(at, 100), at), "{at}");
    }
}
