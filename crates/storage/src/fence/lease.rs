//! Holding a fence: every beat it is seen whether the claim still stands, and until when what is
//! guarded may be written. Pure.

use base::Tick;

use super::block::{self, Claim, Owner, Sector};
use super::claim::{Loss, holder};
use super::pace::Pace;

/// A fence that is held.
#[derive(Debug)]
pub(super) struct Lease {
    owner: Owner,
    claim: Sector,
    pace: Pace,
    beats: u64,
    until: Tick,
}

impl Lease {
    /// Of the claim `claim`, held since `began`.
    pub fn new(owner: Owner, claim: Sector, began: Tick, pace: Pace) -> Lease {
        Lease {
            owner,
            claim,
            pace,
            beats: 0,
            until: began.after(pace.lease),
        }
    }

    /// The next sign of life, to be written before the claim is read.
    pub fn beat(&mut self) -> Sector {
        self.beats += 1;
        block::beat(&self.owner, self.beats)
    }

    /// The claim was read, behind a beat whose writing began at `began`.
    pub fn seen(&mut self, began: Tick, claim: &Sector) -> Result<(), Loss> {
        if !self.is(claim) {
            return Err(holder(Claim::decode(claim)));
        }
        self.until = began.after(self.pace.lease);
        Ok(())
    }

    /// This is the claim.
    pub fn is(&self, claim: &Sector) -> bool {
        *claim == self.claim
    }

    /// Until when what is guarded may be written.
    pub fn until(&self) -> Tick {
        self.until
    }

    /// The claim's sector when the fence is let go.
    pub fn let_go(&self) -> Option<Sector> {
        match Claim::decode(&self.claim) {
            block::Found::Claim(claim) => Some(
                Claim {
                    held: false,
                    ..claim
                }
                .encode(),
            ),
            _ => None,
        }
    }
}
