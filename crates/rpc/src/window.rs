//! The first moments of a target's later boot, in which it hears only those who were there before.
//! What they had and it lost comes first. docs/recovery.md, section 4. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use base::Tick;
use wire::handshake::ClientUuid;

/// How long clients of the boot before are waited for. Who comes later has lost what the target had
/// not made durable.
pub const RECOVERY_WINDOW: Duration = Duration::from_secs(60);
/// How long it is remembered that a client was given up, if it does not come to hear of it.
pub const GIVEN_UP_FOR: Duration = Duration::from_secs(24 * 3600);
/// Requests that wait for the end of a window. Beyond: refused.
pub const WAITING_MAX: usize = 1 << 16;

/// How things stand with whom a target waited for, or waits for, since its restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// While clients are waited for: for how long still.
    pub left: Option<Duration>,
    /// Those who have come back.
    pub back: Vec<ClientUuid>,
    /// Those who have not, or have not said all.
    pub awaited: Vec<ClientUuid>,
    /// Those who did not come in time.
    pub given_up: Vec<ClientUuid>,
    /// Requests that did again what a crash had taken, where that is counted.
    pub replayed: Option<u64>,
}

impl Report {
    /// A fact in each line.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![match self.left {
            Some(left) => format!("status=recovering seconds_left={}", left.as_secs()),
            None => "status=complete".to_owned(),
        }];
        lines.extend(self.replayed.map(|count| format!("replayed={count}")));
        let who = [("awaited", &self.awaited), ("given_up", &self.given_up)];
        for (what, clients) in who {
            lines.extend(clients.iter().map(|uuid| format!("{what}={uuid}")));
        }
        lines
    }
}

/// Who is waited for, and who waits: `W` is a request, as it came.
#[derive(Debug)]
pub struct Window<W> {
    awaited: BTreeSet<ClientUuid>,
    back: BTreeSet<ClientUuid>,
    given_up: BTreeSet<ClientUuid>,
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
            back: BTreeSet::new(),
            given_up: BTreeSet::new(),
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

    /// It is waited for.
    pub fn awaits(&self, client: ClientUuid) -> bool {
        self.awaited.contains(&client)
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
        if !self.awaited.remove(&client) {
            return false;
        }
        self.back.insert(client);
        self.awaited.is_empty()
    }

    /// Ends it: those who are missing, and the requests that waited, oldest first. None: it is not
    /// open.
    pub fn end(&mut self) -> Option<(BTreeSet<ClientUuid>, VecDeque<W>)> {
        self.until.take()?;
        let missing = std::mem::take(&mut self.awaited);
        self.given_up.clone_from(&missing);
        for client in &missing {
            tracing::warn!(%client, "did not come back after the restart: given up");
        }
        Some((missing, std::mem::take(&mut self.waiting)))
    }

    /// The requests that wait, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter()
    }

    /// Takes out those that need not wait for the end, oldest first.
    pub fn extract(&mut self, is_served: impl FnMut(&W) -> bool) -> Vec<W> {
        let all = std::mem::take(&mut self.waiting);
        let (served, waiting): (Vec<W>, Vec<W>) = all.into_iter().partition(is_served);
        self.waiting = waiting.into();
        served
    }

    /// Only these requests wait on.
    pub fn retain(&mut self, stays: impl FnMut(&W) -> bool) {
        self.waiting.retain(stays);
    }

    /// How things stand.
    pub fn report(&self, now: Tick) -> Report {
        let listed = |clients: &BTreeSet<ClientUuid>| clients.iter().copied().collect();
        Report {
            left: self.until.map(|until| until.since(now)),
            back: listed(&self.back),
            awaited: listed(&self.awaited),
            given_up: listed(&self.given_up),
            replayed: None,
        }
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
        let report = window.report(Tick(2_000_000_000));
        assert_eq!(report.back, [client(1)]);
        assert!(window.awaits(client(2)) && !window.awaits(client(1)));
        let lines = report.lines();
        assert_eq!(lines[0], "status=recovering seconds_left=3");
        assert_eq!(lines[1..], [format!("awaited={}", client(2))]);
        window.wait(()).unwrap();
        let (missing, waiting) = window.end().unwrap();
        assert_eq!((missing, waiting.len()), ([client(2)].into(), 1));
        assert!(!window.awaits(client(2)));
        let lines = window.report(Tick(0)).lines();
        let given_up = format!("given_up={}", client(2));
        assert_eq!(lines, ["status=complete".to_owned(), given_up]);
    }

    #[test]
    fn nobody_is_waited_for_in_the_first_boot_and_only_so_many_wait() {
        assert!(!Window::<u8>::default().is_open());
        let mut window = Window::new([client(1)].into(), Tick(1));
        (0..WAITING_MAX).for_each(|number| window.wait(number).unwrap());
        assert_eq!(window.wait(7), Err(7));
    }
}
