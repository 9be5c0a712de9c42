//! Readers in many orders: what is asked for ahead of them, and what they ask for themselves.

use super::*;

const DIR: Fid = Fid(7 << 24 | 1);
const OST: TargetIndex = TargetIndex(0);
const NOW: Tick = Tick(0);
const WINDOW: (usize, usize) = (8, 8192);

/// A directory with files at the cookies 1, 2, 3, …, and a reader who stats them in order.
struct TreeReader {
    sizes: Sizes,
    dir: Fid,
    files: u64,
    /// Cookies up to which sizes are here.
    known: BTreeSet<u64>,
    questions: u64,
    requests: Vec<usize>,
    /// Somebody writes to all of them.
    written: bool,
}

impl TreeReader {
    fn new(files: u64) -> TreeReader {
        TreeReader {
            sizes: Sizes::default(),
            dir: DIR,
            files,
            known: BTreeSet::new(),
            questions: 0,
            requests: Vec::new(),
            written: false,
        }
    }

    fn enter(&mut self, dir: Fid) {
        (self.dir, self.known) = (dir, BTreeSet::new());
    }

    fn stat(&mut self, cookie: u64) {
        let (at, known) = ((self.dir, cookie), self.known.contains(&cookie));
        let ask = match known {
            true => self.sizes.hit(at, WINDOW.1, NOW),
            false => self.sizes.missed(at, WINDOW, NOW),
        };
        self.questions += u64::from(!known);
        self.answer(ask);
    }

    /// Each request is answered before the next stat.
    fn answer(&mut self, mut ask: Option<Ask>) {
        while let Some(Ask { dir, after, count }) = ask.take() {
            let count = count.min(self.sizes.room(OST));
            let to = (after + count as u64).min(self.files);
            let cookies: Vec<u64> = (after + 1..=to).collect();
            let batches = cookies.len().div_ceil(BATCH_FILES_MAX);
            self.sizes.asked(dir, &cookies, to, &vec![OST; batches]);
            for batch in cookies.chunks(BATCH_FILES_MAX) {
                self.requests.push(batch.len());
                let refused = if self.written { batch } else { &[] };
                self.known.extend(batch.iter().filter(|_| !self.written));
                let came = self.sizes.came((dir, OST), batch.len(), refused, WINDOW.1);
                ask = ask.or(came);
            }
        }
    }

    fn report(&self) -> WalkReport {
        self.sizes.reports().last().expect("a walk")
    }
}

#[test]
fn the_second_in_order_begins_it_and_the_window_doubles_while_it_is_used() {
    let mut reader = TreeReader::new(1000);
    reader.stat(1);
    assert_eq!(reader.requests, [] as [usize; 0]);
    (2..=1000).for_each(|cookie| reader.stat(cookie));
    assert_eq!(reader.questions, 2);
    assert_eq!(reader.requests[..4], [8, 12, 24, 48]);
    assert!(reader.requests.len() <= 10, "{:?}", reader.requests);
    assert!(reader.requests.iter().all(|count| *count <= 256));
    let report = reader.report();
    assert_eq!((report.fetched, report.used, report.missed), (998, 998, 2));
    assert_eq!((report.bytes_unused, report.ended), (0, false));
}

#[test]
fn where_all_is_being_written_two_requests_are_wasted_at_most() {
    let mut reader = TreeReader::new(1000);
    reader.written = true;
    (1..=1000).for_each(|cookie| reader.stat(cookie));
    assert_eq!((reader.questions, reader.requests), (1000, vec![8, 4]));
    assert!(reader.sizes.reports().all(|report| report.ended));
    assert_eq!(reader.sizes.room(OST), 2 * BATCH_FILES_MAX);
}

#[test]
fn writers_in_every_directory_are_soon_left_alone() {
    let mut reader = TreeReader::new(10);
    reader.written = true;
    for dir in 0..100 {
        reader.enter(Fid(dir << 24));
        (1..=10).for_each(|cookie| reader.stat(cookie));
    }
    assert_eq!(reader.questions, 1000);
    assert!(reader.requests.len() <= 5, "{:?}", reader.requests);
}

#[test]
fn who_stops_after_two_in_each_directory_is_soon_left_alone() {
    let mut reader = TreeReader::new(100);
    for dir in 0..100 {
        reader.enter(Fid(dir << 24));
        (1..=2).for_each(|cookie| reader.stat(cookie));
    }
    assert_eq!(reader.requests, [8]);
}

#[test]
fn who_follows_it_is_met_in_the_next_directory() {
    let mut reader = TreeReader::new(10);
    for dir in 0..10 {
        reader.enter(Fid(dir << 24));
        (1..=10).for_each(|cookie| reader.stat(cookie));
    }
    assert_eq!(reader.questions, 2 + 9, "after the first, one each");
    assert_eq!(reader.requests[..3], [8, 8, 1]);
}

#[test]
fn stats_in_no_order_cost_little() {
    let mut reader = TreeReader::new(1000);
    let scattered = |n: u64| (n * 617) % 1000 + 1;
    (0..400).for_each(|n| reader.stat(scattered(n)));
    assert!(reader.requests.len() <= 3, "{:?}", reader.requests);
}

#[test]
fn the_same_file_twice_is_neither_order_nor_a_turn() {
    let mut sizes = Sizes::default();
    assert_eq!(sizes.missed((DIR, 5), WINDOW, NOW), None);
    assert_eq!(sizes.missed((DIR, 5), WINDOW, NOW), None);
    let ask = sizes.missed((DIR, 6), WINDOW, NOW).expect("in order");
    assert_eq!((ask.after, ask.count), (6, 8));
}

#[test]
fn one_ost_is_asked_for_a_few_batches_at_once() {
    let mut sizes = Sizes::default();
    sizes.missed((DIR, 1), WINDOW, NOW);
    sizes.missed((DIR, 2), WINDOW, NOW);
    let cookies: Vec<u64> = (3..3 + 2 * BATCH_FILES_MAX as u64).collect();
    sizes.asked(DIR, &cookies, 600, &[OST, OST]);
    assert_eq!(sizes.room(OST), 0);
    assert_eq!(sizes.room(TargetIndex(1)), 2 * BATCH_FILES_MAX);
    sizes.came((DIR, OST), BATCH_FILES_MAX, &[], WINDOW.1);
    assert_eq!(sizes.room(OST), BATCH_FILES_MAX);
}

#[test]
fn a_window_of_nothing_asks_for_nothing() {
    let mut sizes = Sizes::default();
    for cookie in 1..10 {
        assert_eq!(sizes.missed((DIR, cookie), (8, 0), NOW), None);
    }
}

#[test]
fn a_walk_that_ended_begins_anew_when_it_was_forgotten() {
    let mut reader = TreeReader::new(1000);
    reader.written = true;
    (1..=20).for_each(|cookie| reader.stat(cookie));
    reader.written = false;
    let sizes = &mut reader.sizes;
    let later = NOW.after(IDLE);
    let asks: Vec<bool> = (1..=20)
        .map(|cookie| sizes.missed((DIR, cookie), WINDOW, later).is_some())
        .collect();
    assert!(asks.contains(&true));
}
