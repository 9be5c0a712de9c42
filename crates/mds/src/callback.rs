//! Questions to clients: what the lock table wants told, and what becomes of the answers.

use base::{ClientId, LockHandle};
use dlm::IdMap;

/// How many locks a client that nears its bound is asked to give back.
pub(crate) const SHRINK_BY: u32 = 4096;

/// Questions not answered yet. Bounded by the locks held: each has at most one of each kind open.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    pub last: u64,
    pub open: IdMap<u64, Question>,
}

/// One question.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub client: ClientId,
    pub about: About,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum About {
    Withdrawal {
        handle: LockHandle,
        version: u64,
    },
    Glimpse {
        handle: LockHandle,
    },
    /// What counts is the cancel that follows.
    Blocking,
    /// Whether a use of a file is over: what counts is the Close that came before the answer.
    Use,
}

impl About {
    /// Whether a use of a file is over.
    pub fn is_use(self) -> bool {
        matches!(self, About::Use)
    }
}
