//! The window after a restart of the MDT. Its clients repeat changes that the crash has taken, and no client
//! sees the namespace before (docs/recovery.md, section 4).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use base::{BootEpoch, ClientId, FsError, Tick, Timestamp, Transno};
use rpc::window::{Report, Window};
use storage::{Batch, KeyRange};
use wire::handshake;
use wire::mdt::{Reply, Request};

use crate::event::Call;
use crate::keys::{self, ClientUuid, Table};
use crate::mutation::{Mutation, apply};
use crate::records::{BootBegun, KnownClient, State};
use crate::store::{Failure, Store, missing};

/// Boots of which it is known where they ended.
pub(crate) const BOOTS_MAX: usize = 256;
/// How long after a restart clients may tell of the files they have open, unless all have before.
pub const GRACE: Duration = Duration::from_secs(60);

/// What happens to the recovery.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// The client has said all that it knows to be lost, or has left.
    Back(ClientUuid),
    /// No client is to be waited for any more.
    Over,
    /// Time has passed.
    Due,
}

/// One thing to be done, after those before it.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// The client was waited for and did not come.
    GiveUp(ClientUuid),
    /// The request has waited for the end of the window.
    Serve(Call, Request),
    /// All that was under way under write leases of the boot before has run.
    EndReclaiming,
}

/// The clients that the MDT waits for since its restart.
///
/// While the window is open nothing runs but replays and reports of open files. So a repeated change meets
/// the namespace as it was when the change was made first. Replays of different clients may come in any
/// order: a client that saw another's change was answered when that change was durable ([`crate::sharing`]).
#[derive(Debug, Default)]
pub struct Recovery {
    /// The clients that are waited for, and the requests that wait.
    window: Window<(Call, Request)>,
    replayed: u64,
    boot_epoch: BootEpoch,
    /// The clients that had something open when this boot began, as far as is known, and have not told
    /// all of it.
    unreported: BTreeSet<ClientUuid>,
    /// While what clients have open may still be unknown: until when.
    grace_until: Option<Tick>,
    /// Clients that were given up in this boot, with the change that says so.
    given_up: BTreeMap<ClientUuid, Transno>,
}

impl Recovery {
    /// Requests that did again what a crash had taken.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Clients are waited for.
    pub fn is_open(&self) -> bool {
        self.window.is_open()
    }

    /// The clients that have not come back, or not said all.
    pub fn awaited(&self) -> impl Iterator<Item = &handshake::ClientUuid> {
        self.window.awaited()
    }

    /// How things stand.
    pub fn report(&self, now: Tick) -> Report {
        Report {
            replayed: Some(self.replayed),
            ..self.window.report(now)
        }
    }

    /// The client is waited for.
    pub(crate) fn awaits(&self, client: ClientUuid) -> bool {
        self.window.awaits(handshake::ClientUuid(client))
    }

    /// What clients have open may still be unknown.
    pub(crate) fn is_grace(&self) -> bool {
        self.grace_until.is_some()
    }

    /// That time is over, and what clients have left behind is to be ended.
    pub(crate) fn is_grace_over(&self, now: Tick) -> bool {
        self.grace_until.is_some_and(|until| until <= now)
    }

    /// All that clients have left behind is ended.
    pub(crate) fn end_grace(&mut self) {
        self.grace_until = None;
    }

    /// When [`Event::Due`] has something to do, or the grace is over.
    pub(crate) fn next(&self) -> Option<Tick> {
        let both = [self.window.until(), self.grace_until];
        both.into_iter().flatten().min()
    }

    /// It is of this boot that a client has told all.
    pub(crate) fn is_of_boot(&self, boot_epoch: BootEpoch) -> bool {
        boot_epoch == self.boot_epoch
    }

    /// A request did again what a crash had taken.
    pub(crate) fn count_replay(&mut self) {
        self.replayed += 1;
    }

    /// The request waits for the end of the window. Refused, if too many do.
    pub(crate) fn wait(&mut self, call: Call, request: Request) -> Result<(), FsError> {
        let refused = |_| FsError::TryAgain;
        self.window.wait((call, request)).map_err(refused)
    }

    /// The requests that wait for the end of the window, oldest first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &(Call, Request)> {
        self.window.waiting()
    }

    /// Takes out the requests that need not wait for the end.
    pub(crate) fn take_waiting(
        &mut self,
        is_served: impl FnMut(&(Call, Request)) -> bool,
    ) -> Vec<(Call, Request)> {
        self.window.extract(is_served)
    }

    /// A client that is gone waits for nothing.
    pub(crate) fn forget_waiting(&mut self, client: ClientId) {
        self.window.retain(|(call, _)| call.client != client);
    }

    /// The change `transno` gives the client up. Those up to `committed` are durable.
    pub(crate) fn note_given_up(
        &mut self,
        client: ClientUuid,
        transno: Transno,
        committed: Transno,
    ) {
        self.given_up.retain(|_, change| *change > committed);
        self.given_up.insert(client, transno);
    }

    /// The client is given up, and that is not durable yet.
    pub(crate) fn is_giving_up(&self, client: &ClientUuid, committed: Transno) -> bool {
        let change = self.given_up.get(client);
        change.is_some_and(|change| *change > committed)
    }

    /// What is to be done about the event.
    pub(crate) fn step(&mut self, now: Tick, event: Event) -> Vec<Effect> {
        let is_over = match event {
            Event::Back(client) => self.window.is_back(handshake::ClientUuid(client)),
            Event::Over => true,
            Event::Due => self.window.until().is_some_and(|until| until <= now),
        };
        match is_over {
            true => self.end_window(now),
            false => Vec::new(),
        }
    }

    /// What the client had open in earlier boots is told, or lost.
    pub(crate) fn told(&mut self, now: Tick, client: ClientUuid) {
        self.unreported.remove(&client);
        self.shorten_grace(now);
    }

    /// The grace is over when every client has told what it had open.
    fn shorten_grace(&mut self, now: Tick) {
        if !self.is_open() && self.unreported.is_empty() {
            self.grace_until = self.grace_until.min(Some(now));
        }
    }

    /// A client that has come back, and had more to tell than was repeated, has yet to tell the rest.
    fn end_window(&mut self, now: Tick) -> Vec<Effect> {
        let Some((missing, waiting)) = self.window.end() else {
            return Vec::new();
        };
        self.grace_until = Some(now.after(GRACE));
        self.shorten_grace(now);
        let replayed = self.replayed;
        tracing::info!(replayed, "recovery is over");
        let give_up = missing.into_iter().map(|client| Effect::GiveUp(client.0));
        // Sets of changes first: nobody may come into a directory in which one is under way.
        let is_set = |(_, request): &(Call, Request)| matches!(request, Request::Update { .. });
        let (sets, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_set);
        let serve = |(call, request)| Effect::Serve(call, request);
        give_up
            .chain(sets.into_iter().map(serve))
            .chain([Effect::EndReclaiming])
            .chain(others.into_iter().map(serve))
            .collect()
    }
}

/// Notes where this boot begins, and says who is to be waited for.
pub(crate) fn begin(
    store: &Store,
    boot_epoch: BootEpoch,
    state: &State,
    now: Tick,
    window: Duration,
) -> Result<Recovery, Failure> {
    note_boot(store, boot_epoch, state.transno)?;
    let mut awaited = BTreeSet::new();
    store.scan(
        Table::Clients,
        &KeyRange::all(),
        |key, client: KnownClient| {
            let uuid = keys::parse_client(key).ok_or_else(|| missing("client's id", "MDT"))?;
            if client.given_up.is_none() {
                awaited.insert(handshake::ClientUuid(uuid));
            }
            Ok(ControlFlow::Continue(()))
        },
    )?;
    // Where no client was there before, none has anything open.
    let grace_until = match awaited.is_empty() {
        false => Some(now.after(GRACE)),
        true => (state.boots > 1).then_some(now),
    };
    let recovery = Recovery {
        grace_until,
        unreported: awaited.iter().map(|client| client.0).collect(),
        window: Window::new(awaited, now.after(window)),
        boot_epoch,
        ..Recovery::default()
    };
    recovery.window.announce("mdt.*.recovery_status", window);
    Ok(recovery)
}

/// Notes durably where a boot of the target begins: behind the change `committed`.
pub(crate) fn note_boot(
    store: &Store,
    boot_epoch: BootEpoch,
    committed: Transno,
) -> Result<(), Failure> {
    let mut lives = Vec::new();
    store.scan(Table::Boots, &KeyRange::all(), |key, _: BootBegun| {
        lives.push(key.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    let mut mutations = vec![Mutation::PutBoot(boot_epoch, BootBegun { committed })];
    let old = lives
        .iter()
        .take((lives.len() + 1).saturating_sub(BOOTS_MAX));
    mutations.extend(
        old.filter_map(|key| keys::parse_boot_epoch(key))
            .map(Mutation::RemoveBoot),
    );
    let mut batch = Batch::new();
    apply(mutations, &mut batch);
    let ticket = store.commit(batch)?;
    Ok(store.kv().wait_durable(ticket)?)
}

/// When a request was done first, by what it was answered.
pub(crate) fn time_of(answer: &Reply) -> Option<Timestamp> {
    match answer {
        Reply::Node(node)
        | Reply::Created { node, .. }
        | Reply::Linked { node, .. }
        | Reply::Unlinked { node, .. }
        | Reply::Renamed { node, .. } => Some(node.attr.ctime),
        Reply::Updated { at, .. } => Some(*at),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call {
        client: ClientId(1),
        tag: 1,
        slot: 0,
        xid: base::Xid(1),
        index: 0,
    };

    fn at(seconds: u64) -> Tick {
        Tick(0).after(Duration::from_secs(seconds))
    }

    /// Clients 1 and 2 are waited for until second 60.
    fn of_two() -> Recovery {
        let store = crate::rig::store_of(
            [1, 2]
                .map(|client| Mutation::PutClient([client; 16], KnownClient { given_up: None }))
                .into(),
        );
        let state: Option<State> = store.get(Table::State, keys::STATE).expect("readable");
        let state = state.expect("formatted");
        let window = Duration::from_secs(60);
        begin(&store, BootEpoch(2), &state, at(0), window).expect("a sound disk")
    }

    #[test]
    fn it_is_over_with_the_last_client_that_comes_back() {
        let mut recovery = of_two();
        recovery.wait(CALL, Request::Sync).expect("room");
        assert!(recovery.awaits([2; 16]));
        assert_eq!(recovery.step(at(1), Event::Back([1; 16])), []);
        let served = recovery.step(at(2), Event::Back([2; 16]));
        let all = [Effect::EndReclaiming, Effect::Serve(CALL, Request::Sync)];
        assert_eq!(served, all);
        assert!(!recovery.is_open() && recovery.is_grace());
        assert_eq!(recovery.next(), Some(at(2).after(GRACE)));
    }

    #[test]
    fn a_client_that_does_not_come_in_time_is_given_up_before_others_are_served() {
        let mut recovery = of_two();
        recovery.wait(CALL, Request::Sync).expect("room");
        assert_eq!(recovery.step(at(1), Event::Back([2; 16])), []);
        assert_eq!(recovery.step(at(59), Event::Due), []);
        let all = [
            Effect::GiveUp([1; 16]),
            Effect::EndReclaiming,
            Effect::Serve(CALL, Request::Sync),
        ];
        assert_eq!(recovery.step(at(60), Event::Due), all);
        assert_eq!(recovery.step(at(61), Event::Over), [], "once");
    }

    #[test]
    fn the_grace_ends_when_all_is_told_and_never_before_the_window() {
        let mut recovery = of_two();
        recovery.told(at(1), [1; 16]);
        recovery.told(at(1), [2; 16]);
        assert!(!recovery.is_grace_over(at(59)), "the window is open");
        assert_eq!(recovery.step(at(5), Event::Over).len(), 3);
        assert!(recovery.is_grace_over(at(5)));
        recovery.end_grace();
        assert!(!recovery.is_grace() && recovery.next().is_none());

        let mut recovery = of_two();
        recovery.step(at(5), Event::Over);
        recovery.told(at(6), [1; 16]);
        assert!(!recovery.is_grace_over(at(6)));
        recovery.told(at(7), [2; 16]);
        assert!(recovery.is_grace_over(at(7)));
    }

    #[test]
    fn a_client_counts_as_being_given_up_until_that_is_durable() {
        let mut recovery = Recovery::default();
        recovery.note_given_up([1; 16], Transno(5), Transno(3));
        assert!(recovery.is_giving_up(&[1; 16], Transno(4)));
        assert!(!recovery.is_giving_up(&[1; 16], Transno(5)));
        recovery.note_given_up([2; 16], Transno(7), Transno(6));
        assert_eq!(recovery.given_up.len(), 1, "the first is durable");
    }
}
