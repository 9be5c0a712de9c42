//! Receiving for a connection's reader, on a thread that is awake anyway. The one that waits awake
//! for the kernel's next request also receives replies, and no reply pays for waking the reader.
//! Frames are handled in their order, by one thread at a time.

use ::threads::Mutex;
use std::sync::Arc;

use crate::threads::lock;

/// A connection as the thread sees it that receives in place of its reader.
pub(crate) trait Attended: Send + Sync {
    /// Whether the reader sleeps while another receives.
    fn let_sleep(&self, sleep: bool);
    /// Receives in place of the reader what has come. True: that was something.
    fn attend(&self) -> bool;
}

/// Who receives for one connection at a time.
#[derive(Default)]
pub(crate) struct Attendance {
    state: Mutex<State>,
}

/// A look costs a system call. Where no reply is owed only callbacks can come, for which every so
/// manyeth look is enough.
const LOOK_EVERY: u32 = 8;

#[derive(Default)]
struct State {
    attended: bool,
    /// Looks not made since the last.
    passed: u32,
    connection: Option<Arc<dyn Attended>>,
}

impl Attendance {
    /// From here to [`Attendance::end`] the caller calls [`Attendance::receive`] again and again.
    pub fn begin(&self) {
        lock(&self.state).set(true);
    }

    /// The connection's reader takes over.
    pub fn end(&self) {
        lock(&self.state).set(false);
    }

    /// Handles what has come; replies are `owed`, or not. True: that was something.
    pub fn receive(&self, owed: bool) -> bool {
        let connection = lock(&self.state).due(owed);
        connection.is_some_and(|connection| connection.attend())
    }

    /// `connection` is the one to attend to.
    pub fn enter(&self, connection: Arc<dyn Attended>) {
        let mut state = lock(&self.state);
        state.connection = Some(connection);
        let attended = state.attended;
        state.set(attended);
    }

    /// `connection` is over.
    pub fn leave(&self, connection: &Arc<impl Attended>) {
        let mut state = lock(&self.state);
        let current = state.connection.as_ref();
        let ended = Arc::as_ptr(connection).cast::<()>();
        if current.is_some_and(|current| Arc::as_ptr(current).cast::<()>() == ended) {
            state.connection = None;
        }
    }
}

impl State {
    fn due(&mut self, owed: bool) -> Option<Arc<dyn Attended>> {
        self.passed += 1;
        if !owed && self.passed < LOOK_EVERY {
            return None;
        }
        self.passed = 0;
        self.connection.clone()
    }

    fn set(&mut self, attended: bool) {
        self.attended = attended;
        if let Some(connection) = &self.connection {
            connection.let_sleep(attended);
        }
    }
}
