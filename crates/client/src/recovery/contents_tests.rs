//! Bytes are written, cut off, and written again. Repeating the records that are left gives the same file,
//! whether the OST lost it or not, and wherever a process ended.

use base::{ByteRange, Timestamp, Transno};
use wire::mdt::WriteTicket;

use super::*;
use wire::ost::AllocateMode;
use wire::shape::Shape;

/// The file before, durable at the OST.
const OLD: [u8; 500] = [1; 500];

/// What is done to the file.
#[derive(Clone, Copy)]
enum Step {
    Write(u64, u8, usize),
    Resize(Shape),
    /// The OST has made all durable, and said so.
    Durable,
}

use Shape::{Range, Size};
use Step::{Durable, Resize, Write};

const HOLE: Shape = Range(ByteRange { start: 5, end: 15 }, AllocateMode::PunchHole);
const LONGER: Shape = Range(ByteRange { start: 0, end: 80 }, AllocateMode::Extend);

const STEPS: [Step; 15] = [
    Write(0, 2, 100),
    Resize(Size(50)),
    Write(40, 3, 100),
    Resize(HOLE),
    Resize(Size(90)),
    Resize(Size(300)),
    Write(295, 4, 9),
    Durable,
    Resize(Size(20)),
    Write(8, 5, 10),
    Resize(HOLE),
    Resize(LONGER),
    Resize(Size(35)),
    Write(33, 6, 20),
    Durable,
];

impl Step {
    fn done_to(self, object: &mut Vec<u8>) {
        match self {
            Write(at, byte, len) => {
                let at = at as usize;
                object.resize(object.len().max(at + len), 0);
                object[at..at + len].fill(byte);
            }
            Resize(shape) => resize_object(object, shape),
            Durable => {}
        }
    }

    /// As the client's calls do it.
    fn done_by(self, process: &mut Process) {
        let now = Timestamp::default();
        match self {
            Write(at, byte, len) => {
                let data = vec![byte; len];
                process.state.with_pages(FILE, |file| {
                    file.pages.write(at, &data, base::Tick(0));
                    file.wrote(ByteRange::new(at, at + len as u64), now);
                });
                process.state.journal_bytes(FILE, now, at, &data);
            }
            Resize(shape) => resize(process, shape),
            Durable => all_is_durable(&mut process.state),
        }
    }
}

pub(super) fn resize(process: &mut Process, shape: Shape) {
    let (ticket, now) = (WriteTicket::default(), Timestamp::default());
    let remembered = process
        .state
        .journal
        .put_resize(FILE, (shape, true), ticket, now);
    process.state.with_pages(FILE, |file| {
        file.pages.discard(shape.removes());
        file.resizes.begin(shape, ticket, remembered.flatten());
    });
}

pub(super) fn all_is_durable(state: &mut State) {
    let transno = Transno(9);
    state.with_pages(FILE, |file| {
        for out in file.pages.take_dirty(ByteRange::ALL, 1 << 20, 100) {
            file.pages.written(out.id, transno);
        }
        for id in 0..100 {
            file.resizes.done(id, transno);
        }
        file.pages.committed(transno);
        file.resizes.committed(transno);
    });
}

/// The file after so many steps.
fn after(steps: usize) -> Vec<u8> {
    let mut object = OLD.to_vec();
    STEPS[..steps]
        .iter()
        .for_each(|step| step.done_to(&mut object));
    object
}

fn resize_object(object: &mut Vec<u8>, shape: Shape) {
    let len = object.len();
    let removed = shape.removes();
    let (start, end) = (removed.start as usize, removed.end.min(len as u64) as usize);
    object[start.min(end)..end].fill(0);
    object.resize(shape.size_after(len as u64) as usize, 0);
}

/// What the next process does to the object: shapes that it gives it, then bytes that it writes.
pub(super) type Again = (Vec<Shape>, Vec<(usize, Vec<u8>)>);

pub(super) fn to_be_redone(state: &mut State) -> Again {
    let file = state.cache.file(FILE);
    let shapes = file.resizes.shapes();
    let outs = file.pages.take_dirty(ByteRange::ALL, 1 << 20, 100);
    let writes = outs.into_iter();
    let writes = writes.map(|out| (out.offset as usize, out.bytes.joined().to_vec()));
    (shapes, writes.collect())
}

fn redone((shapes, writes): &Again, mut object: Vec<u8>) -> Vec<u8> {
    for shape in shapes {
        resize_object(&mut object, *shape);
    }
    for (at, bytes) in writes {
        object.resize(object.len().max(at + bytes.len()), 0);
        object[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    object
}

fn do_all(process: &mut Process) {
    for (number, step) in (1..).zip(STEPS) {
        step.done_by(process);
        process.report(number);
    }
}

/// What the OST may have of them when so many steps were told.
fn durable_until(reported: usize) -> usize {
    let durable = STEPS[..reported]
        .iter()
        .rposition(|step| matches!(step, Durable));
    durable.map_or(0, |index| index + 1)
}

fn check(next: &mut Next, reported: usize) {
    // While it is heard that all is durable, it is.
    let lost = match STEPS.get(reported) {
        Some(Durable) => reported,
        _ => durable_until(reported),
    };
    let again = to_be_redone(&mut next.state);
    let right = [after(reported), after((reported + 1).min(STEPS.len()))];
    for at_ost in lost..=reported {
        let found = redone(&again, after(at_ost));
        assert!(
            right.contains(&found),
            "after step {reported}, {at_ost} at the OST"
        );
    }
    assert!(reported < STEPS.len() || again.0.is_empty() && again.1.is_empty());
}

#[test]
fn bytes_and_sizes() {
    at_every_store(do_all, |next, reported| check(next, reported as usize));
}

/// The same where the process that found that much ends in the midst of finding it.
#[test]
fn bytes_and_sizes_that_were_found() {
    for steps in 1..=STEPS.len() {
        at_every_store_of_the_next(
            |process| STEPS[..steps].iter().for_each(|step| step.done_by(process)),
            |process, takeover| {
                takeover.restore(&mut process.state);
                process.report(1);
            },
            |next, _| check(next, steps),
        );
    }
}

/// A request of the kernel that is asked again is not done again, whether it was sent or not.
#[test]
fn a_size_that_was_set_is_not_set_again_for_the_same_request() {
    let memory = Region::create(8 << 20).unwrap();
    let (mut process, takeover) = Process::begin(&memory, &Death::after(u64::MAX)).unwrap();
    let origin = Origin::new(77);
    Origin::run(&origin, || resize(&mut process, Size(20)));
    all_is_durable(&mut process.state);
    std::mem::forget((process, takeover));
    let mut next = next_of(&memory);
    assert_eq!(to_be_redone(&mut next.state), (vec![], vec![]), "durable");
    let asked = |next: &mut Next, number| {
        let again = Origin::new(number);
        Origin::run(&again, || next.state.journal.was_resized())
    };
    assert!(!asked(&mut next, 78), "that is another");
    assert!(asked(&mut next, 77));
    assert!(!asked(&mut next, 77), "it is answered");
    drop(next);
    let mut last = next_of(&memory);
    assert!(!asked(&mut last, 77), "nobody asks for it any more");
    std::mem::forget(origin);
}
