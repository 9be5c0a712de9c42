//! What the kernel does for programs on a supervised mount. A request that a process had not
//! answered when it was killed is asked again of the next one, under its number.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::Client;
use client::executor::spawn_for;
use handover::Death;
use threads::Condvar;

/// How often it is looked whether a process is there, or has died.
const LOOK: Duration = Duration::from_millis(2);

/// Where a client's programs find the process that serves them.
#[derive(Default)]
pub struct Desk {
    process: Mutex<Option<Process>>,
    requests: AtomicU64,
}

/// A process, until it is killed.
#[derive(Clone)]
struct Process {
    client: Client,
    death: Death,
}

impl Desk {
    /// A process serves from now on.
    pub fn take(&self, client: Client, death: Death) {
        self.replace(Some(Process { client, death }));
    }

    /// It was killed.
    pub fn leave(&self) {
        self.replace(None);
    }

    fn replace(&self, process: Option<Process>) {
        let mut place = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, process);
        drop(place);
        drop(before);
    }

    fn process(&self) -> Process {
        loop {
            let place = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            let process = place.clone();
            drop(place);
            match process {
                Some(process) => return process,
                None => threads::sleep(LOOK),
            }
        }
    }

    /// Asks until a process has answered.
    pub fn ask<T, F>(&self, call: impl Fn(Client) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let mut is_again = false;
        loop {
            let process = self.process();
            if is_again {
                process.client.asked_again(number);
            }
            let answer = process.ask(number, call(process.client.clone()));
            if let Some(answer) = answer {
                return answer;
            }
            is_again = true;
        }
    }
}

impl Process {
    /// None: it was killed before it had answered.
    fn ask<T: Send + 'static>(
        &self,
        number: u64,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let answered = Arc::new((threads::Mutex::new(None), Condvar::new()));
        let (tell, death) = (answered.clone(), self.death.clone());
        spawn_for(number, async move {
            let answer = call.await;
            let mut slot = tell.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !death.has_come() {
                *slot = Some(answer);
            }
            drop(slot);
            tell.1.notify_all();
        });
        let mut slot = answered.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // In this order: what it answered before it died counts.
            let is_dead = self.death.has_come();
            if let Some(answer) = slot.take() {
                return Some(answer);
            }
            if is_dead {
                return None;
            }
            let waited = answered.1.wait_timeout(slot, LOOK);
            slot = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
