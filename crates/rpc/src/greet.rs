//! The handshake over a transport: the client's half, and the server's up to knowing the peer.

use std::fmt;
use std::time::{Duration, Instant};

use base::limits::HANDSHAKE_TIMEOUT;
use wire::frame::Frame;
use wire::handshake::{
    self, Challenge, Credential, Garbled, HANDSHAKE_BYTES_MAX, Handshake, Hello, Key, Nonce, Proof,
    Refusal, RefusalReason, Role, Versions, Welcome,
};

use crate::transport::{Identity, Outgoing, ReceiveError, Transport};

/// How long a client waits for a server's words.
const GREET_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a handshake came to nothing.
#[derive(Debug)]
pub(crate) enum GreetError {
    /// The connection broke or was too slow: worth another attempt.
    Broken(String),
    /// The other end is not what it should be.
    Garbled(String),
    /// One end says no: this one, or one that has proven who it is.
    Refused(Refusal),
    /// The other end has not proven who it is, and anybody may have said this: no reason to give
    /// anything up.
    Unproven(Refusal),
}

impl fmt::Display for GreetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GreetError::Broken(text) | GreetError::Garbled(text) => f.write_str(text),
            GreetError::Refused(refusal) | GreetError::Unproven(refusal) => refusal.fmt(f),
        }
    }
}

impl From<Refusal> for GreetError {
    fn from(refusal: Refusal) -> GreetError {
        GreetError::Refused(refusal)
    }
}

impl From<Garbled> for GreetError {
    fn from(garbled: Garbled) -> GreetError {
        GreetError::Garbled(garbled.to_string())
    }
}

impl From<ReceiveError> for GreetError {
    fn from(error: ReceiveError) -> GreetError {
        match error {
            ReceiveError::Garbage(error) => GreetError::Garbled(error.to_string()),
            error => GreetError::Broken(error.to_string()),
        }
    }
}

fn refused(reason: RefusalReason, text: String) -> GreetError {
    GreetError::Refused(Refusal::new(reason, text))
}

fn unproven(reason: RefusalReason, text: String) -> GreetError {
    GreetError::Unproven(Refusal::new(reason, text))
}

/// Says `message`.
pub(crate) fn say(transport: &dyn Transport, message: &Handshake) -> Result<(), GreetError> {
    let outgoing = Outgoing::new(&message.to_frame(), false);
    let mut outgoing = outgoing.map_err(|error| GreetError::Garbled(error.to_string()))?;
    let sent = transport.send(&mut outgoing);
    sent.map_err(|error| GreetError::Broken(error.to_string()))
}

fn hear(transport: &dyn Transport, deadline: Instant) -> Result<Frame, GreetError> {
    let frame = transport.receive(HANDSHAKE_BYTES_MAX, Some(deadline))?;
    Ok(frame.decode().map_err(ReceiveError::from)?)
}

/// The client's half. Also how long the quickest answer took: a round trip, about. Nothing that the
/// server says counts before it has proven the key, where the kernel does not vouch for it.
pub(crate) fn greet(
    transport: &dyn Transport,
    hello: &Hello,
    key: Option<&Key>,
) -> Result<(Welcome, Duration), GreetError> {
    let begun = ::threads::now();
    let deadline = begun + GREET_TIMEOUT;
    say(transport, &Handshake::Hello(hello.clone()))?;
    let mut answer = Handshake::from_frame(&hear(transport, deadline)?)?;
    let mut quickest = ::threads::now() - begun;
    let mut proven = !hello.wants_proof;
    if let Handshake::Challenge(challenge) = &answer {
        let proof = answer_challenge(transport, hello, challenge, key)?;
        let begun = ::threads::now();
        say(transport, &Handshake::Proof(proof))?;
        proven = true;
        answer = Handshake::from_frame(&hear(transport, deadline)?)?;
        quickest = quickest.min(::threads::now() - begun);
    }
    match answer {
        Handshake::Welcome(welcome) if proven => {
            check_version(welcome.version)?;
            Ok((welcome, quickest))
        }
        Handshake::Welcome(_) => {
            let text = format!("the server at {} did not prove its key", transport.peer());
            Err(unproven(RefusalReason::Key, text))
        }
        Handshake::Refusal(refusal) if proven => Err(refusal.into()),
        Handshake::Refusal(refusal) => Err(GreetError::Unproven(refusal)),
        _ => Err(GreetError::Garbled("handshake out of order".into())),
    }
}

fn check_version(version: u8) -> Result<(), Refusal> {
    handshake::negotiate(
        Versions {
            min: version,
            max: version,
        },
        Versions::OURS,
    )
    .map(|_| ())
}

fn answer_challenge(
    transport: &dyn Transport,
    hello: &Hello,
    challenge: &Challenge,
    key: Option<&Key>,
) -> Result<Proof, GreetError> {
    check_version(challenge.version).map_err(GreetError::Unproven)?;
    let (target, peer) = (hello.target, transport.peer());
    let key = key.ok_or_else(|| {
        let text = format!("{target} at {peer} asks for its key; give the file with --key FILE");
        unproven(RefusalReason::Key, text)
    })?;
    let bytes = hello.to_bytes();
    let (version, nonce) = (challenge.version, &challenge.nonce);
    if !handshake::verify(key, Role::Server, &bytes, version, nonce, &challenge.proof) {
        let whose = match hello.credential {
            Credential::Client => "key",
            Credential::Server => "key of its servers (DIR/server-key)",
        };
        let text = format!("the server at {peer} has another {whose} for {target} than this side");
        return Err(unproven(RefusalReason::Key, text));
    }
    Ok(Proof(handshake::prove(
        key,
        Role::Client,
        &bytes,
        version,
        nonce,
    )))
}

/// A peer's hello, not yet proven.
pub(crate) struct Caller {
    /// What it wants.
    pub hello: Hello,
    /// What its proof must cover.
    pub bytes: Vec<u8>,
    /// The version to speak.
    pub version: u8,
    deadline: Instant,
}

/// The server's half, first part: what the peer wants.
pub(crate) fn hear_hello(transport: &dyn Transport) -> Result<Caller, GreetError> {
    let deadline = ::threads::now() + HANDSHAKE_TIMEOUT;
    let frame = hear(transport, deadline)?;
    // What follows the versions is of the version that both speak.
    let version = handshake::negotiate(Versions::OURS, handshake::versions_of(&frame)?)?;
    let Handshake::Hello(hello) = Handshake::from_frame(&frame)? else {
        return Err(GreetError::Garbled("handshake out of order".into()));
    };
    let bytes = handshake::hello_bytes(&frame)?.to_vec();
    Ok(Caller {
        hello,
        bytes,
        version,
        deadline,
    })
}

/// The keys of a target.
#[derive(Clone, Default)]
pub(crate) struct Keys {
    pub client: Option<Key>,
    pub server: Option<Key>,
}

/// The server's half, second part: who the peer is. The uid that the kernel vouches for, or none
/// for a peer of whom only the proof is known. Who speaks for targets proves that in any case.
pub(crate) fn identify(
    transport: &dyn Transport,
    caller: &Caller,
    keys: &Keys,
) -> Result<Option<u32>, GreetError> {
    let hello = &caller.hello;
    let trusted = transport.identity().trusted();
    let key = match hello.credential {
        Credential::Client => keys.client.as_ref(),
        Credential::Server => keys.server.as_ref(),
    };
    let is_vouched_for = trusted.is_some() && !hello.wants_proof;
    match (hello.credential, key) {
        (Credential::Client, _) if is_vouched_for => Ok(trusted),
        (_, Some(key)) => {
            challenge(transport, caller, key)?;
            Ok(trusted)
        }
        // A target without any key is nobody's but this user's.
        (Credential::Server, None) if is_vouched_for && keys.client.is_none() => Ok(trusted),
        (_, None) => {
            let text = match transport.identity() {
                Identity::User(uid) => {
                    let own = nix::unistd::geteuid();
                    format!(
                        "{} is for uid {own} and root, not for uid {uid}",
                        hello.target
                    )
                }
                Identity::Unknown => format!(
                    "{} has no key: it can be reached over its Unix socket only",
                    hello.target
                ),
            };
            Err(refused(RefusalReason::Key, text))
        }
    }
}

fn challenge(transport: &dyn Transport, caller: &Caller, key: &Key) -> Result<(), GreetError> {
    let nonce = crate::random::random().map_err(|error| GreetError::Broken(error.to_string()))?;
    let (version, nonce) = (caller.version, Nonce(nonce));
    let proof = handshake::prove(key, Role::Server, &caller.bytes, version, &nonce);
    let challenge = Challenge {
        version,
        nonce,
        proof,
    };
    say(transport, &Handshake::Challenge(challenge))?;
    let answer = Handshake::from_frame(&hear(transport, caller.deadline)?)?;
    let Handshake::Proof(Proof(proof)) = answer else {
        return Err(GreetError::Garbled("handshake out of order".into()));
    };
    if handshake::verify(key, Role::Client, &caller.bytes, version, &nonce, &proof) {
        return Ok(());
    }
    let text = format!("wrong key for {}", caller.hello.target);
    Err(refused(RefusalReason::Key, text))
}
