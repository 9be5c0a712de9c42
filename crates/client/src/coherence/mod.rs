//! What servers ask of this client, and what the kernel must forget for it.

pub(crate) mod callbacks;
pub(crate) mod cover;
pub(crate) mod forgetting;
mod giving_up;
pub(crate) mod glimpse;
pub(crate) mod revoke;
mod shrinking;
pub(crate) mod watch;
