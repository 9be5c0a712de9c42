//! Getting a fence: look, watch, claim, let the claim settle (docs/recovery.md, section 12). Pure.

use std::time::Duration;

use base::Tick;

use super::block::{Claim, Found, Owner, Sector};
use super::pace::Pace;
use super::process::Process;

/// How often the settling may begin anew before the claim is given up.
const SETTLINGS_MAX: u32 = 4;

/// A fence as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimView {
    pub claim: Sector,
    pub beat: Sector,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Todo {
    /// Write this claim, durably, and say when that was done.
    Write(Box<Sector>),
    /// Look again after this time.
    LookAfter(Duration),
    /// The fence is held; the lease began then.
    Hold(Tick),
    /// It is not to be had.
    Lose(Loss),
}

/// Why a fence is not to be had, or is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loss {
    /// This process has it.
    Held(Process),
    /// Somebody has it who cannot be named.
    HeldByUnknown,
    /// Another version of the program wrote it.
    ForeignVersion(u32),
}

/// Why it is not known at once that nobody writes to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Its fence says nothing, since it is new.
    Nothing,
    /// What its fence says cannot be read.
    Unreadable,
    /// This process had it, under another kernel: on another machine, or before this one was booted.
    OtherKernel(Process),
    /// This process has it, on this machine, and is not known to have ended.
    ThisKernel(Process),
}

#[derive(Debug)]
enum Phase {
    Looking,
    Watching {
        first: Box<ClaimView>,
        since: Tick,
    },
    Claiming {
        looked: Tick,
        quick: bool,
        beat: Sector,
    },
    Settling {
        since: Tick,
        beat: Sector,
        begun: u32,
    },
}

/// A process that wants a fence. Between the end of the last lease of one holder and the first write of the
/// next there is time.
#[derive(Debug)]
pub(super) struct Claimant {
    me: Process,
    owner: Owner,
    pace: Pace,
    phase: Phase,
    /// As claimed.
    mine: Sector,
    /// What stood there at the first look.
    before: Found,
}

impl Claimant {
    pub fn new(me: Process, owner: Owner, pace: Pace) -> Claimant {
        Claimant {
            me,
            owner,
            pace,
            phase: Phase::Looking,
            mine: [0; super::block::SECTOR_BYTES],
            before: Found::Nothing,
        }
    }

    /// The claim made.
    pub fn claim(&self) -> &Sector {
        &self.mine
    }

    /// Somebody else's signs of life are waited for: why, and for how long if there are none.
    pub fn waits_for(&self) -> Option<(Doubt, Duration)> {
        let time = match self.phase {
            Phase::Looking | Phase::Claiming { .. } => return None,
            Phase::Watching { .. } => self.pace.watch + self.pace.settle,
            Phase::Settling { .. } => self.pace.settle,
        };
        let doubt = match &self.before {
            Found::Claim(claim) if claim.process.kernel != self.me.kernel => {
                Doubt::OtherKernel(claim.process.clone())
            }
            Found::Claim(claim) => Doubt::ThisKernel(claim.process.clone()),
            Found::Nothing => Doubt::Nothing,
            Found::Unreadable | Found::ForeignVersion(_) => Doubt::Unreadable,
        };
        Some((doubt, time))
    }

    /// The fence was read; the reading began at `now`. `is_gone`: that process has ended for certain.
    pub fn look(
        &mut self,
        now: Tick,
        view: &ClaimView,
        is_gone: impl Fn(&Process) -> bool,
    ) -> Todo {
        match &mut self.phase {
            Phase::Looking => self.first_look(now, view, is_gone),
            Phase::Watching { first, since } => {
                let (quiet, watched) = (**first == *view, now.since(*since));
                match Claim::decode(&view.claim) {
                    // Let go of, or ended, while it was watched.
                    Found::Claim(claim) if !claim.held || is_gone(&claim.process) => {
                        self.first_look(now, view, is_gone)
                    }
                    found if !quiet => Todo::Lose(holder(found)),
                    found if watched >= self.pace.watch => {
                        self.make_claim(now, view, &found, false)
                    }
                    _ => Todo::LookAfter(self.pace.poll),
                }
            }
            Phase::Claiming { .. } => Todo::Write(Box::new(self.mine)),
            Phase::Settling { since, beat, begun } => {
                if view.claim != self.mine {
                    return Todo::Lose(holder(Claim::decode(&view.claim)));
                }
                if *beat != view.beat {
                    // Who held it had not seen the claim yet.
                    (*since, *beat, *begun) = (now, view.beat, *begun + 1);
                    if *begun > SETTLINGS_MAX {
                        return Todo::Lose(Loss::HeldByUnknown);
                    }
                }
                match now.since(*since) >= self.pace.settle {
                    true => Todo::Hold(now),
                    false => Todo::LookAfter(self.pace.poll),
                }
            }
        }
    }

    /// The claim was written, and that ended at `now`.
    pub fn written(&mut self, now: Tick) -> Todo {
        let Phase::Claiming {
            looked,
            quick,
            beat,
        } = self.phase
        else {
            return Todo::LookAfter(self.pace.poll);
        };
        if quick && now.since(looked) <= self.pace.haste {
            return Todo::Hold(looked);
        }
        self.phase = Phase::Settling {
            since: now,
            beat,
            begun: 1,
        };
        Todo::LookAfter(self.pace.poll)
    }

    fn first_look(
        &mut self,
        now: Tick,
        view: &ClaimView,
        is_gone: impl Fn(&Process) -> bool,
    ) -> Todo {
        let found = Claim::decode(&view.claim);
        self.before = found.clone();
        match &found {
            Found::ForeignVersion(version) => return Todo::Lose(Loss::ForeignVersion(*version)),
            Found::Nothing => {}
            Found::Claim(claim) if !claim.held || is_gone(&claim.process) => {
                // Without `flock`s others of that machine may try at the same time.
                let quick = claim.process.kernel == self.me.kernel && !self.me.is_apart();
                return self.make_claim(now, view, &found, quick);
            }
            Found::Claim(_) | Found::Unreadable => {
                self.phase = Phase::Watching {
                    first: Box::new(view.clone()),
                    since: now,
                };
                return Todo::LookAfter(self.pace.poll);
            }
        }
        self.make_claim(now, view, &found, false)
    }

    fn make_claim(&mut self, now: Tick, view: &ClaimView, found: &Found, quick: bool) -> Todo {
        let before = match found {
            Found::Claim(claim) => claim.epoch,
            _ => 0,
        };
        let claim = Claim {
            held: true,
            owner: self.owner,
            epoch: before.wrapping_add(1),
            process: self.me.clone(),
        };
        self.mine = claim.encode();
        self.phase = Phase::Claiming {
            looked: now,
            quick,
            beat: view.beat,
        };
        Todo::Write(Box::new(self.mine))
    }
}

/// Whose the claim is.
pub(super) fn holder(found: Found) -> Loss {
    match found {
        Found::Claim(claim) => Loss::Held(claim.process),
        Found::ForeignVersion(version) => Loss::ForeignVersion(version),
        Found::Nothing | Found::Unreadable => Loss::HeldByUnknown,
    }
}
