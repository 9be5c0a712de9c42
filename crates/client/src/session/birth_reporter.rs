//! The reporting of births to the MDT: one task at a time does it.

use crate::cache::births::Wish;
use crate::executor::{Oneshot, WaitList};

/// Whether a task reports, the tasks that wait for it, and what they wait for.
#[derive(Default)]
pub(crate) struct BirthReporter {
    is_reporting: bool,
    waiting: WaitList,
    wishes: Vec<Wish>,
    /// Write leases that are being claimed after a restart of the MDT.
    claims: usize,
    claiming: WaitList,
    settling: WaitList,
}

impl BirthReporter {
    /// A write lease is about to be claimed.
    pub fn begin_claim(&mut self) {
        self.claims += 1;
    }

    /// The claim is answered.
    pub fn end_claim(&mut self) {
        self.claims -= 1;
        if self.claims == 0 {
            self.claiming.wake_all();
        }
    }

    /// Nothing is reported before all claims are answered: one set may need what another has done. `None`:
    /// all are.
    pub fn wait_for_claims(&mut self) -> Option<Oneshot<()>> {
        (self.claims > 0).then(|| self.claiming.wait())
    }

    /// `None`: the caller reports, and then calls [`BirthReporter::end`]. Else it resolves when another task
    /// has reported some births.
    pub fn begin(&mut self, wish: Wish) -> Option<Oneshot<()>> {
        if !self.wishes.contains(&wish) {
            self.wishes.push(wish);
        }
        match std::mem::replace(&mut self.is_reporting, true) {
            true => Some(self.waiting.wait()),
            false => None,
        }
    }

    /// What the next message is to have. A task whose wish it does not fulfil wishes anew.
    pub fn take_wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
    }

    /// A task reports, and another of such a wish waits for its turn.
    pub fn will_report(&self, wish: Wish) -> bool {
        let is_alike =
            |other: &Wish| std::mem::discriminant(other) == std::mem::discriminant(&wish);
        self.is_reporting && self.wishes.iter().any(is_alike)
    }

    /// Resolves when what is on its way is answered. `None`: nothing is.
    pub fn wait_for_answer(&mut self) -> Option<Oneshot<()>> {
        self.is_reporting.then(|| self.waiting.wait())
    }

    /// Resolves when bytes are durable for which a change waits, or cannot be.
    pub fn wait_for_bytes(&mut self) -> Oneshot<()> {
        self.settling.wait()
    }

    /// They are, or cannot be.
    pub fn bytes_are_settled(&mut self) {
        self.settling.wake_all();
    }

    /// Some births were reported, or could not be.
    pub fn end(&mut self) {
        self.is_reporting = false;
        self.waiting.wake_all();
    }
}
