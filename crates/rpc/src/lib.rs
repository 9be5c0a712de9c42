//! Remote procedure calls between a mount and its targets: sessions whose requests take effect
//! exactly once, batches, callbacks, a lane for bulk data. Over TCP, Unix sockets, inside a
//! process, and behind an emulated link. docs/wire.md is the normative text.
//!
//! [`Session`](session::Session) and [`ServerSession`](server_session::ServerSession) are pure:
//! they know no socket, thread or clock. [`Peer`] and [`Server`] are the thin rims around them.
//!
//! Invariant: only this crate knows sockets.
//! Invariant: nothing here waits for a peer while holding a lock or while a caller waits: what
//! does not fit a connection at once is left to that connection's writer thread.

mod address;
mod attendance;
mod batch;
mod connection;
mod counters;
mod greet;
mod keepalive;
mod oneshot;
mod peer;
mod pool;
pub mod replay;
pub mod replier;
pub mod requester;
pub mod scheduler;
mod server;
pub mod server_session;
pub mod serving;
pub mod session;
mod threads;
mod transport;
mod waiting;
pub mod window;

pub use address::{Address, AddressParseError, DEFAULT_PORT};
pub use batch::{Batch, Message, ReplyBatch, ReplyMessage};
pub use counters::Counters;
pub use oneshot::{CallFuture, CallResult};
pub use peer::{
    CallbackResponder, ClientHandler, Clocks, Left, Peer, PeerConfig, PeerState, Policy, Unanswered,
};
pub use replay::Undurable;
pub use requester::{Answered, CallRecord, ReplayRecord, Urgency};
pub use server::{
    Connected, Departure, LastCommitted, OnReply, PeerInfo, Responder, ServedTarget, Server,
    ServerConfig, Service, StartError, Unwelcome,
};
pub use session::{Keeping, Legacy};
pub use transport::delay::Link;
pub use transport::mem::{MemPort, Way};
pub use wire::handshake::{
    ClientSecret, ClientUuid, Credential, Key, KeyParseError, Refusal, RefusalReason,
};

/// The secret of a new client, from the kernel's random numbers.
pub fn new_client_secret() -> std::io::Result<ClientSecret> {
    random().map(ClientSecret)
}

/// A new secret for a target, from the kernel's random numbers.
pub fn new_key() -> std::io::Result<Key> {
    random().map(Key::new)
}

fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| std::io::Error::other(format!("no random numbers: {error}")))?;
    Ok(bytes)
}
