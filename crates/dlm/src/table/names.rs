//! Parallel directory operations: locks on (directory, name hash) between operations.

use std::collections::VecDeque;

use crate::ids::IdMap;
use crate::lock::{OpId, ResourceId};
use crate::mode::Mode;

type Place = (ResourceId, u64);
type Share = (OpId, Mode);

/// The names that operations hold or wait for.
#[derive(Default)]
pub(super) struct Names {
    queues: IdMap<Place, Queue>,
}

#[derive(Default)]
struct Queue {
    running: Vec<Share>,
    waiting: VecDeque<Share>,
}

impl Queue {
    /// `op` may not run beside those that run, or must let an earlier one pass.
    fn blocks(&self, op: OpId, mode: Mode, earlier: usize) -> bool {
        let waiting = self.waiting.iter().take(earlier);
        let mut others = self
            .running
            .iter()
            .chain(waiting)
            .filter(|(other, _)| *other != op);
        others.any(|(_, held)| !held.compatible(mode))
    }

    fn advance(&mut self) -> Vec<OpId> {
        let (mut served, mut place) = (Vec::new(), 0);
        while let Some(&(op, mode)) = self.waiting.get(place) {
            if self.blocks(op, mode, place) {
                place += 1;
            } else {
                self.waiting.remove(place);
                self.running.push((op, mode));
                served.push(op);
            }
        }
        served
    }
}

impl Names {
    /// True if the name is held at once; else `op` waits.
    pub fn acquire(&mut self, place: Place, op: OpId, mode: Mode) -> bool {
        let queue = self.queues.entry(place).or_default();
        let free = !queue.blocks(op, mode, queue.waiting.len());
        if free {
            queue.running.push((op, mode));
        } else {
            queue.waiting.push_back((op, mode));
        }
        free
    }

    /// Takes `op` out, and returns those that hold the name now in its stead.
    pub fn release(&mut self, place: Place, op: OpId) -> Vec<OpId> {
        let Some(queue) = self.queues.get_mut(&place) else {
            return Vec::new();
        };
        queue.running.retain(|(held, _)| *held != op);
        queue.waiting.retain(|(waiting, _)| *waiting != op);
        let served = queue.advance();
        if queue.running.is_empty() && queue.waiting.is_empty() {
            self.queues.remove(&place);
        }
        served
    }

    /// Each queue as (held, waiting in order).
    pub fn queues(&self) -> impl Iterator<Item = (&[Share], &VecDeque<Share>)> {
        self.queues
            .values()
            .map(|queue| (queue.running.as_slice(), &queue.waiting))
    }
}
