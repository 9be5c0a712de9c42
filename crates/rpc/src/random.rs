//! Secrets from the kernel's random numbers.

use wire::handshake::{ClientSecret, Key};

/// The secret of a new client, from the kernel's random numbers.
pub fn new_client_secret() -> std::io::Result<ClientSecret> {
    random().map(ClientSecret)
}

/// A new secret for a target, from the kernel's random numbers.
pub fn new_key() -> std::io::Result<Key> {
    random().map(Key::new)
}

/// So many random bytes.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| std::io::Error::other(format!("no random numbers: {error}")))?;
    Ok(bytes)
}
