//! A call on a thread of its own, which a signal with a handler can interrupt.
#![allow(
    unsafe_code,
    reason = "signal handlers and other threads' signals are unsafe by nature"
)]

use std::os::unix::thread::JoinHandleExt;
use std::sync::Once;
use std::thread::{self, JoinHandle};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Which nobody else here uses.
const SIGNAL: Signal = Signal::SIGUSR1;

extern "C" fn nothing(_: libc::c_int) {}

/// A handler that does nothing, and does not have calls begun anew.
fn handle_signal() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let handler = SigHandler::Handler(nothing);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing, which is safe at any time.
        unsafe { sigaction(SIGNAL, &action) }.expect("a handler can be set");
    });
}

/// A call under way.
pub struct Signalled<T>(JoinHandle<T>);

impl<T: Send + 'static> Signalled<T> {
    /// Begins it.
    pub fn start(call: impl FnOnce() -> T + Send + 'static) -> Signalled<T> {
        handle_signal();
        Signalled(thread::spawn(call))
    }

    /// It has returned.
    pub fn has_ended(&self) -> bool {
        self.0.is_finished()
    }

    /// Sends its thread the signal.
    pub fn interrupt(&self) {
        // SAFETY: the thread was not joined yet, so this names it, though it may have ended.
        let sent = unsafe { libc::pthread_kill(self.0.as_pthread_t(), SIGNAL as libc::c_int) };
        assert!([0, libc::ESRCH].contains(&sent), "pthread_kill: {sent}");
    }

    /// Waits for it. Panics if it has.
    pub fn end(self) -> T {
        match self.0.join() {
            Ok(said) => said,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
