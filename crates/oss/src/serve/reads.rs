//! Reads that wait for their threads: the clients take turns, so that one who asks for much does
//! not hold up the others. What one client may have here is bounded by the core.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;
use threads::{Condvar, Mutex, MutexGuard};

use base::ClientId;

use crate::work::ReadWork;

/// A read, and whose.
#[derive(Debug)]
pub struct WantedRead {
    /// Who asked.
    pub client: ClientId,
    /// The request's name.
    pub tag: u64,
    /// What is to be read.
    pub work: ReadWork,
}

/// The reads of all clients.
#[derive(Debug, Default)]
pub(super) struct Reads {
    queue: Mutex<Queue>,
    /// There is a read, or the end has come.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Oldest first. None is empty.
    of_client: BTreeMap<ClientId, VecDeque<WantedRead>>,
    /// Those who have some; the first is next.
    turns: VecDeque<ClientId>,
    ending: bool,
}

impl Reads {
    pub(super) fn add(&self, read: WantedRead) {
        lock(&self.queue).add(read);
        self.wake.notify_one();
    }

    /// Waits for a read. None: the end has come, and there is no more.
    pub(super) fn next(&self) -> Option<WantedRead> {
        let mut queue = lock(&self.queue);
        loop {
            let next = queue.take();
            if next.is_some() || queue.ending {
                return next;
            }
            queue = self
                .wake
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn end(&self) {
        lock(&self.queue).ending = true;
        self.wake.notify_all();
    }
}

impl Queue {
    fn add(&mut self, read: WantedRead) {
        let client = read.client;
        let waiting = self.of_client.entry(client).or_default();
        if waiting.is_empty() {
            self.turns.push_back(client);
        }
        waiting.push_back(read);
    }

    fn take(&mut self) -> Option<WantedRead> {
        let client = self.turns.pop_front()?;
        let waiting = self.of_client.get_mut(&client)?;
        let read = waiting.pop_front();
        match waiting.is_empty() {
            true => drop(self.of_client.remove(&client)),
            false => self.turns.push_back(client),
        }
        read
    }
}

/// A queue is changed in one step each time.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use base::Fid;
    use layout::ObjectId;
    use wire::ost::ObjectAttr;

    use super::*;

    fn read(client: u64, tag: u64) -> WantedRead {
        WantedRead {
            client: ClientId(client),
            tag,
            work: ReadWork {
                object: ObjectId {
                    fid: Fid(1),
                    stripe: 0,
                },
                offset: 0,
                len: 1,
                attr: ObjectAttr::default(),
            },
        }
    }

    #[test]
    fn clients_take_turns() {
        let mut queue = Queue::default();
        for tag in 0..3 {
            queue.add(read(1, tag));
        }
        queue.add(read(2, 10));
        queue.add(read(2, 11));
        let order: Vec<u64> = std::iter::from_fn(|| queue.take())
            .map(|read| read.tag)
            .collect();
        assert_eq!(order, [0, 10, 1, 11, 2]);
        assert!(queue.of_client.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn what_waits_is_done_before_the_end() {
        let reads = Reads::default();
        reads.add(read(1, 5));
        reads.end();
        assert_eq!(reads.next().map(|read| read.tag), Some(5));
        assert!(reads.next().is_none());
    }
}
