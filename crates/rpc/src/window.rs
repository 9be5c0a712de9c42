//! The first moments of a target's later life, in which it hears only those who were there before:
//! what they had and it lost comes first. docs/recovery.md, section 4. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use base::Tick;
use wire::handshake::ClientUuid;

/// How long clients of the life before are waited for. Who comes later has lost what the target had
/// not made durable.
pub const RECOVERY_WINDOW: Duration = Duration::from_secs(60);
/// How long it is remembered that a client was given up, if it does not come to hear of it.
pub const GIVEN_UP_FOR: Duration = Duration::from_secs(24 * 3600);
/// Requests that wait for the end of a window. Beyond: refused.
pub const WAITING_MAX: usize = 1 << 16;

/// Who is waited for, and who waits: `W` is a request, as it came.
#[derive(Debug)]
pub struct Window<W> {
    awaited: BTreeSet<ClientUuid>,
    /// While it is open.
    until: Option<Tick>,
    waiting: VecDeque<W>,
}

impl<W> Default for Window<W> {
    fn default() -> Window<W> {
        Window::new(BTreeSet::new(), Tick::default())
    }
}

impl<W> Window<W> {
    /// Waits for `awaited`, until then at most.
    pub fn new(awaited: BTreeSet<ClientUuid>, until: Tick) -> Window<W> {
        Window {
            until: (!awaited.is_empty()).then_some(until),
            awaited,
            waiting: VecDeque::new(),
        }
    }

    /// Clients are waited for.
    pub fn is_open(&self) -> bool {
        self.until.is_some()
    }

    /// When it is over at the latest.
    pub fn until(&self) -> Option<Tick> {
        self.until
    }

    /// Clients that have not come back, or not said all.
    pub fn awaited(&self) -> impl Iterator<Item = &ClientUuid> {
        self.awaited.iter()
    }

    /// A request waits for the end. Refused, if too many do: it comes back.
    pub fn wait(&mut self, request: W) -> Result<(), W> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(request);
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// Nobody waits for this client any more. True: it was the last one, and the window is to end.
    pub fn is_back(&mut self, client: ClientUuid) -> bool {
        self.awaited.remove(&client) && self.awaited.is_empty()
    }

    /// Ends it: those who are missing, and the requests that waited, oldest first. None: it is not
    /// open.
    pub fn end(&mut self) -> Option<(BTreeSet<ClientUuid>, VecDeque<W>)> {
        self.until.take()?;
        let missing = std::mem::take(&mut self.awaited);
        for client in &missing {
            tracing::warn!(%client, "did not come back after the restart: given up");
        }
        Some((missing, std::mem::take(&mut self.waiting)))
    }

    /// Only these requests wait on.
    pub fn retain(&mut self, stays: impl FnMut(&W) -> bool) {
        self.waiting.retain(stays);
    }

    /// How things stand, a fact in each line.
    pub fn report(&self, now: Tick) -> Vec<String> {
        let mut lines = vec![match self.until {
            Some(until) => format!(
                "status=recovering seconds_left={}",
                until.since(now).as_secs()
            ),
            None => "status=complete".to_owned(),
        }];
        lines.extend(self.awaited.iter().map(|uuid| format!("awaited={uuid}")));
        lines
    }

    /// Tells the operator that the target is about to wait.
    pub fn announce(&self, parameter: &str, window: Duration) {
        if self.is_open() {
            tracing::info!(
                clients = self.awaited.len(),
                seconds = window.as_secs(),
                "waiting for clients that were here before the restart; \
                 'glint param set {parameter}=end' waits no longer"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> ClientUuid {
        ClientUuid([number; 16])
    }

    #[test]
    fn it_ends_with_the_last_who_comes_back() {
        let mut window = Window::new([client(1), client(2)].into(), Tick(9));
        assert!(window.is_open() && window.wait("first").is_ok() && window.wait("second").is_ok());
        assert!(!window.is_back(client(3)) && !window.is_back(client(1)));
        assert!(!window.is_back(client(1)), "once more");
        assert!(window.is_back(client(2)));
        window.retain(|request| *request != "first");
        let (missing, waiting) = window.end().unwrap();
        assert!(missing.is_empty() && waiting == ["second"]);
        assert!(!window.is_open() && window.end().is_none());
    }

    #[test]
    fn who_is_missing_is_named() {
        let mut window = Window::new([client(1), client(2)].into(), Tick(5_000_000_000));
        assert!(!window.is_back(client(1)));
        let lines = window.report(Tick(2_000_000_000));
        assert_eq!(lines[0], "status=recovering seconds_left=3");
        assert_eq!(lines[1..], [format!("awaited={}", client(2))]);
        window.wait(()).unwrap();
        let (missing, waiting) = window.end().unwrap();
        assert_eq!((missing, waiting.len()), ([client(2)].into(), 1));
        assert_eq!(window.report(Tick(0)), ["status=complete"]);
    }

    #[test]
    fn nobody_is_waited_for_in_the_first_life_and_only_so_many_wait() {
        assert!(!Window::<u8>::default().is_open());
        let mut window = Window::new([client(1)].into(), Tick(1));
        (0..WAITING_MAX).for_each(|number| window.wait(number).unwrap());
        assert_eq!(window.wait(7), Err(7));
    }
}
