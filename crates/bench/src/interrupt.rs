//! The stop flag: how Ctrl-C reaches a running measurement.
#![allow(unsafe_code)] // sigaction has no safe form.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::error::{BenchError, During, Result};

/// The flag that the signal handler sets; there is one per process because handlers are.
static SIGNALLED: OnceLock<StopFlag> = OnceLock::new();

/// Shared by a caller and everything it runs. Once set, it stays set.
///
/// Nothing is torn down inside a signal handler. The handler sets the flag. Code that runs sees it within a
/// tenth of a second, kills its child processes and returns, and the caller's guards clean up.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// A flag nobody has set.
    pub fn new() -> StopFlag {
        StopFlag::default()
    }

    /// The process's flag, set by SIGINT, SIGTERM and SIGHUP from now on.
    pub fn on_signals() -> Result<StopFlag> {
        let flag = SIGNALLED.get_or_init(StopFlag::new).clone();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            catch(signal, set_on_signal)?;
        }
        Ok(flag)
    }

    /// The same, but SIGINT does nothing here. For running a person's command in the terminal's
    /// foreground, where the command gets the Ctrl-C as well and decides what it means.
    pub fn on_termination() -> Result<StopFlag> {
        let flag = StopFlag::on_signals()?;
        catch(Signal::SIGINT, do_nothing)?;
        Ok(flag)
    }

    /// Asks everything that shares the flag to stop. Safe in a signal handler.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// [`BenchError::Interrupted`] once the flag is set.
    pub fn check(&self) -> Result<()> {
        if self.is_set() {
            return Err(BenchError::Interrupted);
        }
        Ok(())
    }
}

extern "C" fn set_on_signal(_signal: libc::c_int) {
    if let Some(flag) = SIGNALLED.get() {
        flag.set();
    }
}

extern "C" fn do_nothing(_signal: libc::c_int) {}

fn catch(signal: Signal, handler: extern "C" fn(libc::c_int)) -> Result<()> {
    let action = SigAction::new(
        SigHandler::Handler(handler),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: both handlers do nothing but load an initialised OnceLock and store to an atomic, which
    // is async-signal-safe.
    unsafe { sigaction(signal, &action) }.during(|| format!("catching {signal}"))?;
    Ok(())
}
