//! The queue over a fake kernel whose calls block until the test lets them go.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Each call is reported to the test, then waits for its word.
struct Gate {
    calls: Sender<Notice>,
    words: Mutex<Receiver<()>>,
}

impl NoticePort for Gate {
    fn send(&self, notice: &Notice) -> Result<NoticeOutcome, NotifyError> {
        self.calls.send(notice.clone()).unwrap();
        let _ = self.words.lock().unwrap().recv();
        Ok(NoticeOutcome::Done)
    }
}

fn gate() -> (Arc<Gate>, Receiver<Notice>, Sender<()>) {
    let (calls, called) = channel();
    let (word, words) = channel();
    (
        Arc::new(Gate {
            calls,
            words: Mutex::new(words),
        }),
        called,
        word,
    )
}

fn inode(nodeid: u64) -> Notice {
    Notice::InvalInode {
        nodeid,
        pages: super::super::Pages::Keep,
    }
}

fn config(capacity: usize, deadline: Duration) -> NotifyQueueConfig {
    NotifyQueueConfig {
        threads_max: 4,
        capacity,
        deadline,
    }
}

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_blocked_lane_holds_up_itself_only() {
    let (port, called, word) = gate();
    let queue = NotifyQueue::start(port, config(8, LONG), |_| {}).unwrap();
    let (done, finished) = channel();
    for (lane, nodeid) in [(1, 10), (1, 11), (2, 20)] {
        let done = done.clone();
        queue
            .submit(Lane(lane), inode(nodeid), move |outcome| {
                assert_eq!(outcome, Ok(NoticeOutcome::Done));
                done.send(nodeid).unwrap();
            })
            .unwrap();
    }
    let mut started = [called.recv().unwrap(), called.recv().unwrap()];
    started.sort_by_key(|notice| format!("{notice:?}"));
    assert_eq!(started, [inode(10), inode(20)]);
    assert!(called.try_recv().is_err(), "11 waits for 10");
    (0..3).for_each(|_| word.send(()).unwrap());
    assert_eq!(called.recv().unwrap(), inode(11));
    let order: Vec<u64> = (0..3).map(|_| finished.recv().unwrap()).collect();
    let position = |nodeid| order.iter().position(|n| *n == nodeid).unwrap();
    assert!(position(10) < position(11));
}

#[test]
fn refuses_when_full() {
    let (port, called, word) = gate();
    let queue = NotifyQueue::start(port, config(2, LONG), |_| {}).unwrap();
    queue.submit(Lane(1), inode(1), |_| {}).unwrap();
    queue.submit(Lane(1), inode(2), |_| {}).unwrap();
    called.recv().unwrap();
    assert_eq!(queue.submit(Lane(2), inode(3), |_| {}), Err(QueueFull));
    assert_eq!(queue.len(), 2);
    drop(word);
}

#[test]
fn reports_what_is_late_and_still_completes_it() {
    let (port, called, word) = gate();
    let (late, lateness) = channel();
    let late = Mutex::new(late);
    let deadline = Duration::from_millis(1);
    let queue = NotifyQueue::start(port, config(8, deadline), move |notice| {
        late.lock().unwrap().send(*notice).unwrap();
    })
    .unwrap();
    let (done, finished) = channel();
    let ticket = queue
        .submit(Lane(9), inode(1), move |_| done.send(()).unwrap())
        .unwrap();
    called.recv().unwrap();
    let late = lateness.recv().unwrap();
    assert_eq!((late.ticket, late.lane), (ticket, Lane(9)));
    assert!(late.waited >= deadline);
    word.send(()).unwrap();
    finished.recv().unwrap();
    assert!(lateness.try_recv().is_err(), "told once");
}

#[test]
fn closing_fails_what_was_not_sent() {
    let (port, called, word) = gate();
    let queue = NotifyQueue::start(port, config(8, LONG), |_| {}).unwrap();
    let (done, finished) = channel();
    for nodeid in [1, 2] {
        let done = done.clone();
        queue
            .submit(Lane(1), inode(nodeid), move |outcome| {
                done.send((nodeid, outcome)).unwrap();
            })
            .unwrap();
    }
    called.recv().unwrap();
    let closer = thread::spawn(move || drop(queue));
    assert_eq!(finished.recv().unwrap(), (2, Err(NotifyError::Gone)));
    word.send(()).unwrap();
    assert_eq!(finished.recv().unwrap(), (1, Ok(NoticeOutcome::Done)));
    closer.join().unwrap();
}

#[test]
fn a_panic_in_a_completion_leaves_the_queue_working() {
    let (port, _called, word) = gate();
    let queue = NotifyQueue::start(port, config(8, LONG), |_| {}).unwrap();
    queue
        .submit(Lane(1), inode(1), |_| panic!("on purpose"))
        .unwrap();
    let (done, finished) = channel();
    queue
        .submit(Lane(1), inode(2), move |_| done.send(()).unwrap())
        .unwrap();
    (0..2).for_each(|_| word.send(()).unwrap());
    finished.recv().unwrap();
}
