//! What a file system implements.

use super::negotiation::{Granted, InitOffer, InitWish};
use super::notify::Notifier;
use super::replier::Replier;
use super::request::Request;

/// What a handler says to an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The request is known; it will be answered soon, with EINTR if nothing better.
    Noted,
    /// No such request is parked. Another reader may be about to hand it over, so the kernel is
    /// asked to send the interrupt again for as long as the request is unanswered.
    Unknown,
}

/// What becomes of a request that comes during a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// It is answered, or will be.
    Served,
    /// It comes again when the takeover is done, by [`Handler::handle_held`].
    Held,
}

/// Takes requests from reader threads.
///
/// Every method returns without waiting for anything but short locks: no reader is ever lost to
/// a request that waits, so WRITE, FLUSH, RELEASE, FORGET and INTERRUPT always get through. A
/// request that must wait is parked as data, with its [`Replier`].
///
/// No method touches the mount, and the process keeps nothing open below it: its exit would close
/// that file, which asks the server, which is the one exiting. Neither then ever ends.
pub trait Handler: Send + Sync {
    /// The kernel's offer; the wish is cut down to it and answered. Called once, first.
    fn init(&self, offer: &InitOffer) -> InitWish;

    /// What came of the wish, and how to reach the kernel. Called once, before any request.
    fn ready(&self, granted: &Granted, notifier: &Notifier) {
        let _ = (granted, notifier);
    }

    /// Puts in order what another process that served the mount left. Called once, after
    /// [`Handler::ready`]; meanwhile requests come by [`Handler::handle_early`].
    fn take_over(&self) {}

    /// A request that wants an answer.
    fn handle(&self, request: Request<'_>, replier: Replier);

    /// The same while [`Handler::take_over`] runs, which may wait for servers. An interrupt ends a
    /// request that is held as any other.
    fn handle_early(&self, request: Request<'_>, replier: Replier) -> Early {
        self.handle(request, replier);
        Early::Served
    }

    /// Serves a request that was held, unless an interrupt has ended it.
    fn handle_held(&self, request: Request<'_>) {
        let _ = request;
    }

    /// The kernel gives back `lookups` of `nodeid`.
    fn forget(&self, nodeid: u64, lookups: u64);

    /// The caller of `unique` has a signal pending: answer it soon.
    fn interrupt(&self, unique: u64) -> Heard;

    /// Data that [`Notifier::retrieve`] asked for under this id; fewer bytes than asked for where
    /// the kernel had no more.
    fn retrieved(&self, unique: u64, offset: u64, data: &[u8]) {
        let _ = (unique, offset, data);
    }

    /// The reader on watch is awake: from here to [`Handler::sleeps`] it calls
    /// [`Handler::attend`] whenever it has nothing else to do.
    fn wakes(&self) {}

    /// Does something that would have to wake another thread, if there is such a thing. True: that
    /// was done, and who was answered may ask again at once.
    fn attend(&self) -> bool {
        false
    }

    /// The reader on watch falls asleep, or nobody is on watch.
    fn sleeps(&self) {}

    /// The mount is gone. Called once, last.
    fn destroy(&self);
}
