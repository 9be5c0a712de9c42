//! Remote procedure calls between a mount and its targets: sessions whose requests take effect exactly once.
//! The sessions ([`session`], [`server_session`]) are pure; [`Peer`] and [`Server`] are thin rims around
//! them. docs/wire.md is the normative text.

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
mod random;
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
pub use random::{new_client_secret, new_key};
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
