//! The threads that bring frames to the machine. One of them at a time leads: it gives the sessions their
//! turns, whichever thread brought the frame, until its own frame is done.

use ::threads::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::ClientId;

use super::turns::Turns;
use crate::threads::{lock, wait};

/// Frames whose turns are not over.
pub(super) struct Line<F>(Mutex<State<F>>);

struct State<F> {
    turns: Turns<Waiting<F>>,
    /// A thread leads.
    is_led: bool,
}

/// A frame, and the thread that brought it.
struct Waiting<F> {
    frame: F,
    bringer: Arc<Bringer>,
}

/// A thread that waits until its frame is done.
#[derive(Default)]
struct Bringer {
    /// Its frame is done, or it may lead.
    changed: Condvar,
    is_done: AtomicBool,
}

impl Bringer {
    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }
}

/// A thread that leads. However it ends, others go on.
struct Leading<'l, F> {
    line: &'l Line<F>,
    /// The turn that is under way.
    turn: Option<(ClientId, Arc<Bringer>)>,
}

impl<F> Leading<'_, F> {
    /// The next turn. None: no frame waits.
    fn begin_turn(&mut self) -> Option<F> {
        let (client, Waiting { frame, bringer }) = lock(&self.line.0).turns.next()?;
        self.turn = Some((client, bringer));
        Some(frame)
    }

    /// The turn is over, and this is left of its frame.
    fn end_turn(&mut self, rest: Option<F>) {
        let Some((client, bringer)) = self.turn.take() else {
            return;
        };
        let mut line = lock(&self.line.0);
        let is_done = rest.is_none();
        let rest = rest.map(|frame| Waiting {
            frame,
            bringer: bringer.clone(),
        });
        line.turns.had(client, rest);
        if is_done {
            // Under the line's lock, under which the bringer looks.
            bringer.is_done.store(true, Ordering::Release);
            bringer.changed.notify_one();
        }
    }
}

impl<F> Drop for Leading<'_, F> {
    fn drop(&mut self) {
        self.end_turn(None);
        let mut line = lock(&self.line.0);
        line.is_led = false;
        // A thread that panics does not wait for its own frame: any other may have to lead.
        let next = match ::threads::panicking() {
            true => usize::MAX,
            false => 1,
        };
        let waiting = line.turns.waiting().take(next);
        waiting.for_each(|waiting| waiting.bringer.changed.notify_one());
    }
}

impl<F> Default for Line<F> {
    fn default() -> Line<F> {
        Line(Mutex::new(State {
            turns: Turns::default(),
            is_led: false,
        }))
    }
}

impl<F> Line<F> {
    /// Brings a frame, and returns when it is done. Each `turn` gets a frame, and returns what is left of it.
    pub fn bring(&self, client: ClientId, frame: F, turn: impl FnMut(F) -> Option<F>) {
        let bringer = Arc::<Bringer>::default();
        let mut line = lock(&self.0);
        let waiting = Waiting {
            frame,
            bringer: bringer.clone(),
        };
        line.turns.push(client, waiting);
        while line.is_led && !bringer.is_done() {
            line = wait(&bringer.changed, line);
        }
        if !bringer.is_done() {
            line.is_led = true;
            drop(line);
            self.lead(&bringer, turn);
        }
    }

    /// Gives turns until the frame of `leader` is done; then the thread of another frame leads.
    fn lead(&self, leader: &Bringer, mut turn: impl FnMut(F) -> Option<F>) {
        let mut leading = Leading {
            line: self,
            turn: None,
        };
        while !leader.is_done() {
            let Some(frame) = leading.begin_turn() else {
                return;
            };
            let rest = turn(frame);
            leading.end_turn(rest);
        }
    }
}
