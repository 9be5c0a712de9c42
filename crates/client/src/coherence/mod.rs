//! What servers ask of this client, and what the kernel must forget for it.

pub(crate) mod callbacks;
pub(crate) mod cover;
pub(crate) mod extent_revocation;
pub(crate) mod glimpse;
pub(crate) mod invalidation;
mod revocation;
mod shrinking;
pub(crate) mod watch;
