//! A channel with one receiver.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvError, SendError};
use std::sync::{Arc, PoisonError};

use crate::condvar::Condvar;
use crate::mutex::{Mutex, MutexGuard};

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    is_received: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As `std::sync::mpsc::Sender`.
pub struct Sender<T>(Arc<Shared<T>>);

/// As `std::sync::mpsc::Receiver`.
pub struct Receiver<T>(Arc<Shared<T>>);

/// As `std::sync::mpsc::channel`.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State {
        queue: VecDeque::new(),
        senders: 1,
        is_received: true,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// Gives `value` to the receiver, or back if there is none any more.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.0.lock();
        if !state.is_received {
            return Err(SendError(value));
        }
        state.queue.push_back(value);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.lock().senders -= 1;
        self.0.changed.notify_one();
    }
}

impl<T> Receiver<T> {
    /// Waits for the next value; fails when all senders are gone and nothing is left.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.lock();
        loop {
            if let Some(value) = state.queue.pop_front() {
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(RecvError);
            }
            let woken = self.0.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_received = false;
        let left = std::mem::take(&mut state.queue);
        drop(state);
        drop(left);
    }
}
