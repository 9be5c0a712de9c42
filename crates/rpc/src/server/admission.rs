//! Who may come in, and whether a client goes on with its session or gets a new one.

use std::sync::Arc;

use base::{BootEpoch, ClientId, Disrupted};
use wire::frame::SessionId;
use wire::handshake::{Handshake, Hello, Lane, Refusal, RefusalReason, Welcome};

use super::Shared;
use super::connected::{Connected, PeerInfo};
use super::target::{Departure, Target, Unwelcome};
use crate::connection::Numbers;
use crate::greet::{self, Caller, GreetError};
use crate::threads::lock;
use crate::transport::Transport;

/// The session of a hello.
struct Admitted {
    session: Arc<Connected>,
    resumed: bool,
    /// An earlier session of it was given up.
    evicted: bool,
}

impl Shared {
    /// The handshake: who is there, for which target, with which session, and how its frames are numbered.
    /// `accepted` counts the server's connections.
    pub(super) fn admit(
        self: &Arc<Self>,
        accepted: u64,
        transport: &Arc<dyn Transport>,
    ) -> Result<(Arc<Connected>, Lane, Numbers), GreetError> {
        let caller = greet::hear_hello(&**transport)?;
        let hello = &caller.hello;
        let Some(target) = self.targets.get(&hello.target) else {
            return Err(self.not_here(&**transport, &caller));
        };
        let uid = greet::identify(&**transport, &caller, &target.keys)?;
        let info = PeerInfo {
            uuid: hello.client.uuid(),
            incarnation: hello.incarnation,
            address: transport.peer(),
            uid,
            credential: hello.credential,
            was_given_up: target.was_given_up(hello),
        };
        let admitted = match hello.lane {
            Lane::Control => self.admit_control(target, accepted, hello, info)?,
            _ => target.admit_bulk(hello, &info)?,
        };
        let session = admitted.session;
        let welcome = Welcome {
            version: caller.version,
            session: session.id(),
            resumed: admitted.resumed,
            client: session.client(),
            boot_epoch: target.boot_epoch,
            slots: session.slots(),
            last_committed: target.last_committed.get(),
            survived: target.service.survived(hello.boot_epoch),
            evicted: admitted.evicted,
            now: self.clock.now(),
        };
        greet::say(&**transport, &Handshake::Welcome(welcome))?;
        Ok((session, hello.lane, Numbers::of_server(&caller.bytes)))
    }

    /// The target is not served here. What tells that to a client counts if it proves a key of the same
    /// file system, as any target here does.
    fn not_here(&self, transport: &dyn Transport, caller: &Caller) -> GreetError {
        let any = self.targets.values().next();
        let identified = any.map(|target| greet::identify(transport, caller, &target.keys));
        if let Some(Err(error)) = identified {
            return error;
        }
        let text = format!("{} is not served here", caller.hello.target);
        Refusal::new(RefusalReason::NotServed, text).into()
    }

    fn admit_control(
        &self,
        target: &Arc<Target>,
        accepted: u64,
        hello: &Hello,
        info: PeerInfo,
    ) -> Result<Admitted, Unwelcome> {
        target.check_history(hello, &info)?;
        loop {
            // Others may say hello meanwhile.
            target.service.wait_to_give_up(info.uuid)?;
            let _admission = lock(&target.admission);
            let known = lock(&target.sessions).of(info.uuid);
            let claimed = known.as_ref().map_or(0, |session| session.claimed());
            if claimed > accepted {
                // It has left this connection: what it said here is not what it has now.
                let reason = "the client has come again since";
                return Err(Unwelcome::BrokenOff(reason.into()));
            }
            if let Some(admitted) = self.try_admit(target, known, hello, &info)? {
                admitted.session.claim(accepted);
                return Ok(admitted);
            }
        }
    }

    /// While nobody else comes or goes. None: it was given up, and is not to be told yet.
    fn try_admit(
        &self,
        target: &Arc<Target>,
        known: Option<Arc<Connected>>,
        hello: &Hello,
        info: &PeerInfo,
    ) -> Result<Option<Admitted>, Unwelcome> {
        if let Some(session) = known {
            if hello.credential != session.peer().credential {
                let text = "this client's session was begun with another key";
                return Err(Refusal::new(RefusalReason::Replaced, text).into());
            }
            if hello.incarnation < session.peer().incarnation {
                let text = "a later incarnation of this mount has taken over";
                return Err(Refusal::new(RefusalReason::Replaced, text).into());
            }
            if target.resumes(hello, &session) {
                session.becomes_known();
                session.coming_back(self.clock.tick());
                target.service.resumed(session.client());
                return Ok(Some(Admitted {
                    session,
                    resumed: true,
                    evicted: false,
                }));
            }
            if target.is_succeeded(hello, &session) {
                return Ok(Some(Admitted {
                    session: self.succeed(target, &session, info.clone()),
                    resumed: true,
                    evicted: false,
                }));
            }
            if let Some(session) = self.unheard_of(target, &session, info)? {
                return anew(hello, session);
            }
            session.expire(Departure::GivenUp);
        }
        if target.service.is_giving_up(info.uuid) {
            return Ok(None);
        }
        anew(hello, self.new_session(target, info.clone())?)
    }

    /// Of a client that does not resume the session. Its welcome was lost under way, or the process
    /// that it was for is gone, so that the client knows of none, or of one in another boot of the
    /// target. It is to get the same again; there is nothing in it that could be given up.
    fn unheard_of(
        &self,
        target: &Arc<Target>,
        session: &Arc<Connected>,
        info: &PeerInfo,
    ) -> Result<Option<Arc<Connected>>, Unwelcome> {
        if info.incarnation != session.peer().incarnation {
            return self.hand_over(target, session, info);
        }
        if !session.is_unknown() || session.has_ended() {
            return Ok(None);
        }
        session.coming_back(self.clock.tick());
        target.service.resumed(session.client());
        Ok(Some(session.clone()))
    }

    /// Another process gets the session that the one before did not hear of, as if it were the first.
    fn hand_over(
        &self,
        target: &Arc<Target>,
        old: &Arc<Connected>,
        info: &PeerInfo,
    ) -> Result<Option<Arc<Connected>>, Unwelcome> {
        if !old.end_unknown() {
            return Ok(None);
        }
        let session = Connected::new(target.clone(), old.id(), info.clone(), self.clock.tick());
        enter(&session)?;
        Ok(Some(session))
    }

    /// Another process goes on with the session.
    fn succeed(
        &self,
        target: &Arc<Target>,
        old: &Arc<Connected>,
        info: PeerInfo,
    ) -> Arc<Connected> {
        let session = Connected::new(target.clone(), old.id(), info, self.clock.tick());
        session.becomes_known();
        lock(&target.sessions).insert(&session);
        old.end(Disrupted::Evicted);
        target.service.succeeded(session.clone());
        let (name, ClientId(client)) = (target.name, session.client());
        let incarnation = session.peer().incarnation;
        tracing::info!(target = %name, client, incarnation, "another process goes on for the client");
        session
    }

    fn new_session(
        &self,
        target: &Arc<Target>,
        info: PeerInfo,
    ) -> Result<Arc<Connected>, Unwelcome> {
        let id = lock(&target.sessions).next_id()?;
        let session = Connected::new(target.clone(), id, info, self.clock.tick());
        enter(&session)?;
        let ClientId(client) = session.client();
        let (name, peer) = (target.name, session.peer());
        tracing::info!(target = %name, client, uuid = %peer.uuid, address = peer.address, "new client");
        Ok(session)
    }
}

/// The client gets a session that it does not go on with. None: it was given up while it got it, and
/// is not to be told yet.
fn anew(hello: &Hello, session: Arc<Connected>) -> Result<Option<Admitted>, Unwelcome> {
    let (service, client) = (&session.target().service, session.peer().uuid);
    let evicted = hello.boot_epoch != BootEpoch(0) && service.gave_up(client)?;
    // If it is given up after this, the session ends, and it hears of that when it comes again.
    if service.is_giving_up(client) {
        session.expire(Departure::GivenUp);
        return Ok(None);
    }
    Ok(Some(Admitted {
        session,
        resumed: false,
        evicted,
    }))
}

/// The session begins, at its target and for the service.
fn enter(session: &Arc<Connected>) -> Result<(), Unwelcome> {
    let target = session.target();
    // In the table first: the service may evict it at once.
    lock(&target.sessions).insert(session);
    let entered = target.service.connected(session.clone());
    if entered.is_err() {
        session.end(Disrupted::Refused);
    }
    entered
}

impl Target {
    /// Refuses a peer that was told of more changes than are here, or knows a later boot. It has seen a
    /// better copy of this target, or lies. Another server's word stops the target. Clients' words never do,
    /// however many: one holder of the key can be any number of clients, at any number of addresses.
    fn check_history(&self, hello: &Hello, info: &PeerInfo) -> Result<(), Refusal> {
        let (ours, boot_epoch) = (self.last_committed.get(), self.boot_epoch);
        let (told, known) = (hello.last_committed, hello.boot_epoch);
        let found = match (told > ours, known > boot_epoch) {
            (true, _) => format!("it holds {ours}, a client was told of {told}"),
            (false, true) => {
                format!("this is its start {boot_epoch}, a client knows its start {known}")
            }
            (false, false) => return Ok(()),
        };
        let name = self.name;
        let text = format!(
            "{name} has lost changes: {found}; \
             it is damaged or was restored from an older copy; restore a newer one, or end the mounts \
             that saw more before it is served again"
        );
        if info.is_server() {
            self.service.lost_changes(&text);
        }
        Err(Refusal::new(RefusalReason::Damaged, text))
    }

    /// It knows an earlier boot, and has no session: that boot said that it is over.
    fn was_given_up(&self, hello: &Hello) -> bool {
        let of_old = hello.boot_epoch != BootEpoch(0) && hello.boot_epoch != self.boot_epoch;
        of_old && hello.session == SessionId::NONE
    }

    /// A later incarnation of the mount goes on with the session of the one before.
    fn is_succeeded(&self, hello: &Hello, session: &Connected) -> bool {
        hello.incarnation > session.peer().incarnation
            && hello.session == session.id()
            && hello.boot_epoch == self.boot_epoch
            && !session.has_ended()
    }

    fn resumes(&self, hello: &Hello, session: &Connected) -> bool {
        hello.incarnation == session.peer().incarnation
            && hello.session == session.id()
            && hello.boot_epoch == self.boot_epoch
            && !session.has_ended()
    }

    fn admit_bulk(&self, hello: &Hello, info: &PeerInfo) -> Result<Admitted, Refusal> {
        let known = lock(&self.sessions).of(info.uuid);
        match known {
            Some(session)
                if self.resumes(hello, &session)
                    && hello.credential == session.peer().credential =>
            {
                Ok(Admitted {
                    session,
                    resumed: true,
                    evicted: false,
                })
            }
            _ => {
                let text = "the bulk lane's session does not exist";
                Err(Refusal::new(RefusalReason::NoSession, text))
            }
        }
    }
}
