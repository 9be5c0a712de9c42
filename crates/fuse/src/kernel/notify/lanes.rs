//! Order and bounds of queued notices, without threads: the pure half of [`super::NotifyQueue`].
//!
//! Notices of one lane run one at a time, in order; lanes do not wait for each other.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use base::Tick;

/// What notices must not overtake each other: those with the same lane. A directory's nodeid, say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(pub u64);

/// The queue holds as much as it may; the notice was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

impl std::fmt::Display for QueueFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too many notices are waiting")
    }
}

impl std::error::Error for QueueFull {}

/// Names a job from its submission on; grows.
pub(super) type Ticket = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pending {
    lane: Lane,
    since: Tick,
}

/// A notice that is not done at its deadline. It goes on; its completion still comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateNotice {
    /// What [`super::NotifyQueue::submit`] returned.
    pub ticket: u64,
    /// Its lane.
    pub lane: Lane,
    /// Time since its submission.
    pub waited: Duration,
}

/// Jobs waiting and running.
#[derive(Debug)]
pub(super) struct LaneTable<J> {
    /// Jobs in line behind the one that runs or is ready, per lane. A lane is in while any of its
    /// jobs is pending.
    waiting: HashMap<Lane, VecDeque<(Ticket, J)>>,
    /// Lanes whose first job may run now.
    ready: VecDeque<Lane>,
    /// All jobs not finished, by age.
    pending: BTreeMap<Ticket, Pending>,
    capacity: usize,
    next: Ticket,
    /// Jobs from here on have not been reported as overdue.
    unreported: Ticket,
}

impl<J> LaneTable<J> {
    /// At most `capacity` jobs not finished; beyond, submissions are refused.
    pub fn new(capacity: usize) -> LaneTable<J> {
        LaneTable {
            waiting: HashMap::new(),
            ready: VecDeque::new(),
            pending: BTreeMap::new(),
            capacity,
            next: 0,
            unreported: 0,
        }
    }

    pub fn submit(&mut self, now: Tick, lane: Lane, job: J) -> Result<Ticket, QueueFull> {
        if self.pending.len() >= self.capacity {
            return Err(QueueFull);
        }
        let ticket = self.next;
        self.next += 1;
        self.pending.insert(ticket, Pending { lane, since: now });
        let fresh = !self.waiting.contains_key(&lane);
        self.waiting
            .entry(lane)
            .or_default()
            .push_back((ticket, job));
        if fresh {
            self.ready.push_back(lane);
        }
        Ok(ticket)
    }

    /// A job to run now; its lane waits until it is finished.
    pub fn take(&mut self) -> Option<(Ticket, J)> {
        let lane = self.ready.pop_front()?;
        self.waiting.get_mut(&lane)?.pop_front()
    }

    /// The job has run.
    pub fn finish(&mut self, ticket: Ticket) {
        let Some(Pending { lane, .. }) = self.pending.remove(&ticket) else {
            return;
        };
        match self.waiting.get(&lane) {
            Some(line) if !line.is_empty() => self.ready.push_back(lane),
            _ => drop(self.waiting.remove(&lane)),
        }
    }

    /// Jobs that became older than `limit` since the last call; each is told once.
    pub fn overdue(&mut self, now: Tick, limit: Duration) -> Vec<LateNotice> {
        let late: Vec<LateNotice> = self
            .pending
            .range(self.unreported..)
            .map(|(ticket, job)| (*ticket, job.lane, now.since(job.since)))
            .take_while(|(_, _, waited)| *waited >= limit)
            .map(|(ticket, lane, waited)| LateNotice {
                ticket,
                lane,
                waited,
            })
            .collect();
        if let Some(last) = late.last() {
            self.unreported = last.ticket + 1;
        }
        late
    }

    /// When the next job becomes overdue, unless it finishes.
    pub fn next_deadline(&self, limit: Duration) -> Option<Tick> {
        let (_, job) = self.pending.range(self.unreported..).next()?;
        Some(job.since.after(limit))
    }

    /// Whether a job could run now.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Jobs not finished.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Takes all jobs that do not run yet, oldest first.
    pub fn drain(&mut self) -> Vec<J> {
        self.ready.clear();
        let mut jobs: Vec<(Ticket, J)> =
            self.waiting.values_mut().flat_map(std::mem::take).collect();
        jobs.sort_by_key(|(ticket, _)| *ticket);
        for (ticket, _) in &jobs {
            self.pending.remove(ticket);
        }
        jobs.into_iter().map(|(_, job)| job).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Lane = Lane(1);
    const B: Lane = Lane(2);

    fn table() -> LaneTable<&'static str> {
        LaneTable::new(4)
    }

    #[test]
    fn a_lane_runs_one_job_at_a_time_in_order() {
        let mut table = table();
        table.submit(Tick(0), A, "a1").unwrap();
        table.submit(Tick(0), A, "a2").unwrap();
        table.submit(Tick(0), B, "b1").unwrap();
        let (first, job) = table.take().unwrap();
        assert_eq!(job, "a1");
        let (second, job) = table.take().unwrap();
        assert_eq!(job, "b1");
        assert!(table.take().is_none(), "a2 waits for a1");
        table.finish(second);
        assert!(!table.has_ready());
        table.finish(first);
        assert_eq!(table.take().unwrap().1, "a2");
    }

    #[test]
    fn refuses_beyond_its_capacity_and_forgets_empty_lanes() {
        let mut table = table();
        for lane in 0..4 {
            table.submit(Tick(0), Lane(lane), "x").unwrap();
        }
        assert_eq!(table.submit(Tick(0), A, "y"), Err(QueueFull));
        while let Some((ticket, _)) = table.take() {
            table.finish(ticket);
        }
        assert_eq!((table.len(), table.waiting.len()), (0, 0));
        table.submit(Tick(0), A, "y").unwrap();
    }

    #[test]
    fn tells_each_late_job_once_running_or_not() {
        let limit = Duration::from_nanos(10);
        let mut table = table();
        table.submit(Tick(0), A, "a1").unwrap();
        table.submit(Tick(5), A, "a2").unwrap();
        let (running, _) = table.take().unwrap();
        assert_eq!(table.next_deadline(limit), Some(Tick(10)));
        assert!(table.overdue(Tick(9), limit).is_empty());
        let late = table.overdue(Tick(12), limit);
        assert_eq!(
            late,
            [LateNotice {
                ticket: running,
                lane: A,
                waited: Duration::from_nanos(12)
            }]
        );
        assert!(table.overdue(Tick(12), limit).is_empty());
        assert_eq!(table.next_deadline(limit), Some(Tick(15)));
        assert_eq!(table.overdue(Tick(15), limit).len(), 1);
        assert_eq!(table.next_deadline(limit), None);
    }

    #[test]
    fn drain_leaves_what_runs() {
        let mut table = table();
        for job in ["a1", "a2", "a3"] {
            table.submit(Tick(0), A, job).unwrap();
        }
        let (running, _) = table.take().unwrap();
        assert_eq!(table.drain(), ["a2", "a3"]);
        table.finish(running);
        assert_eq!((table.len(), table.waiting.len()), (0, 0));
    }
}
