//! One lock in the cache: what it covers, who uses it, and what is wanted of it.

use base::{LockHandle, Tick};

use super::lease::LeaseView;
use super::message::Reason;
use crate::bits::Bits;
use crate::lock::{Cover, Grant, Keep, ResourceId};
use crate::mode::{Mode, ModeSet};
use crate::slab::{Link, Linked};

/// A lock that this client holds.
#[derive(Debug)]
pub(super) struct Cached {
    pub handle: LockHandle,
    pub resource: ResourceId,
    pub mode: Mode,
    pub cover: Cover,
    /// Calls that use it now.
    pub uses: u32,
    /// When it was last used.
    pub used_at: Tick,
    /// What others want to do with it, and with which bits.
    wanted_modes: ModeSet,
    wanted_bits: Bits,
    /// All of it is to go, whatever others want.
    pub leaving: Option<Reason>,
    /// The owner was told to flush; this will be left.
    pub dropping: Option<Keep>,
    /// State read before this version is not covered.
    pub granted_at: u64,
    /// Present where the lock has lease bits.
    pub lease: Option<Box<LeaseView>>,
    pub links: [Link; 2],
}

impl Linked for Cached {
    fn link(&self, kind: usize) -> &Link {
        &self.links[kind]
    }

    fn link_mut(&mut self, kind: usize) -> &mut Link {
        &mut self.links[kind]
    }
}

impl Cached {
    pub fn new(grant: &Grant, uses: u32, now: Tick) -> Cached {
        let has_lease = grant.cover.bits().overlaps(Bits::LEASE) || !grant.withdrawn.is_empty();
        let lease = || Box::new(LeaseView::new(grant.version, &grant.withdrawn));
        Cached {
            handle: grant.handle,
            resource: grant.resource,
            mode: grant.mode,
            cover: grant.cover,
            uses,
            used_at: now,
            wanted_modes: ModeSet::default(),
            wanted_bits: Bits::NONE,
            leaving: None,
            dropping: None,
            granted_at: grant.version,
            lease: has_lease.then(lease),
            links: Default::default(),
        }
    }

    /// Somebody wants to do `mode` with `cover`.
    pub fn want(&mut self, mode: Mode, cover: Cover) {
        self.wanted_modes.insert(mode);
        self.wanted_bits |= cover.bits() & self.cover.bits();
    }

    /// What may be kept when everything wanted is given up; `None`: all of it.
    pub fn rest(&self) -> Option<Keep> {
        if self.leaving.is_some() {
            return Some(Keep::Nothing);
        }
        if self.wanted_modes.all_compatible_with(self.mode) {
            return None;
        }
        match self.cover {
            Cover::Bits(bits) => {
                let rest = bits.without(self.wanted_bits);
                match (rest == bits, rest.is_empty()) {
                    (true, _) => None,
                    (_, true) => Some(Keep::Nothing),
                    _ => Some(Keep::Bits(rest)),
                }
            }
            Cover::Range(_) => {
                let is_weaker = |mode: &Mode| *mode != self.mode && self.mode.covers(*mode);
                let mut weaker = [Mode::PW, Mode::PR].into_iter().filter(is_weaker);
                let stays = weaker.find(|mode| self.wanted_modes.all_compatible_with(*mode));
                Some(stays.map_or(Keep::Nothing, Keep::Mode))
            }
        }
    }

    /// The lock may be used for `mode` on `cover`, by what will be left of it.
    pub fn serves(&self, mode: Mode, cover: Cover) -> bool {
        let Some(keep) = self.rest() else {
            return self.mode.covers(mode) && self.cover.contains(cover);
        };
        let stays = match keep {
            Keep::Nothing => return false,
            Keep::Bits(rest) => Cover::Bits(rest),
            Keep::Mode(_) => self.cover,
        };
        keep.mode_of(self.mode).covers(mode) && stays.contains(cover)
    }

    /// State read at `version` may be kept under this lock.
    pub fn admits(&self, key: Option<u64>, bits: Bits, version: u64) -> bool {
        let lease = self.lease.as_ref();
        version >= self.granted_at
            && self.serves(Mode::PR, Cover::Bits(bits))
            && lease.is_none_or(|lease| lease.admits(key, bits, version))
    }

    /// What was kept of the entry `key` may be used.
    pub fn covers_entry(&self, key: u64, bits: Bits) -> bool {
        let lease = self.lease.as_ref();
        self.serves(Mode::PR, Cover::Bits(bits))
            && lease.is_some_and(|lease| lease.covers(key, bits))
    }

    /// The part that goes when `keep` stays.
    pub fn going(&self, keep: Keep) -> Cover {
        match (self.cover, keep) {
            (Cover::Bits(bits), Keep::Bits(rest)) => Cover::Bits(bits.without(rest)),
            (cover, _) => cover,
        }
    }

    /// Only `keep` is left.
    pub fn shrink(&mut self, keep: Keep) {
        self.mode = keep.mode_of(self.mode);
        if let Keep::Bits(rest) = keep {
            let bits = self.cover.bits() & rest;
            self.cover = Cover::Bits(bits);
            self.wanted_bits &= bits;
            if !bits.overlaps(Bits::LEASE) {
                self.lease = None;
            }
        }
        if self.rest().is_none() {
            self.wanted_modes = ModeSet::default();
            self.wanted_bits = Bits::NONE;
        }
    }

    /// It stays in `mode`, if that is in nobody's way.
    pub fn keep_in(&mut self, mode: Mode) -> bool {
        let stays = self.mode.covers(mode) && self.wanted_modes.all_compatible_with(mode);
        if stays {
            self.leaving = None;
            self.uses += 1;
            self.shrink(Keep::Mode(mode));
        }
        stays
    }

    /// Nobody uses it and nobody wants it.
    pub fn is_idle(&self) -> bool {
        self.uses == 0 && self.dropping.is_none() && self.rest().is_none()
    }
}
