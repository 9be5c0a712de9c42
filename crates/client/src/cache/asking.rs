//! Requests for extent locks on their way, and who waits for them.

use base::FsError;
use dlm::Mode;

use crate::executor::{Oneshot, Sender, oneshot};

/// One file's. A read may have pages of the kernel locked while it waits. A lock request of its own could
/// stand behind a request that waits for those pages. So the read waits for anything that may serve it:
/// another request's lock, or a lock that is being given back.
#[derive(Default)]
pub(crate) struct Asking {
    modes: Vec<Mode>,
    waiting: Vec<Sender<Result<(), FsError>>>,
}

impl Asking {
    /// One more waits; true if the caller is to ask for the lock, because nobody has.
    pub fn wait(&mut self, mode: Mode) -> (Oneshot<Result<(), FsError>>, bool) {
        let (sender, receiver) = oneshot();
        self.waiting.push(sender);
        let first = !self.modes.contains(&mode);
        if first {
            self.modes.push(mode);
        }
        (receiver, first)
    }

    /// The request for `mode` is answered.
    pub fn answered(&mut self, mode: Mode, result: Result<(), FsError>) {
        self.modes.retain(|other| *other != mode);
        self.wake(result);
    }

    /// There is a lock to look at.
    pub fn look_again(&mut self) {
        self.wake(Ok(()));
    }

    fn wake(&mut self, result: Result<(), FsError>) {
        for sender in self.waiting.drain(..) {
            sender.send(result);
        }
    }

    /// Nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.modes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::block_on;

    #[test]
    fn one_request_for_each_mode_and_all_look_at_every_answer() {
        let mut asking = Asking::default();
        let (first, asks) = asking.wait(Mode::PR);
        assert!(asks);
        let (second, asks) = asking.wait(Mode::PR);
        assert!(!asks);
        let (writer, asks) = asking.wait(Mode::PW);
        assert!(asks && !asking.is_idle());
        asking.answered(Mode::PR, Ok(()));
        for waiting in [first, second, writer] {
            assert_eq!(block_on(waiting), Some(Ok(())));
        }
        let (writer, asks) = asking.wait(Mode::PW);
        assert!(!asks, "it is still on its way");
        asking.answered(Mode::PW, Err(FsError::Io));
        assert_eq!(block_on(writer), Some(Err(FsError::Io)));
        assert!(asking.is_idle());
    }
}
