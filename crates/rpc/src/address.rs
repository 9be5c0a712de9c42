//! Where a target is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::transport::delay::Link;
use crate::transport::mem::MemPort;

/// The TCP port used where an address names none.
pub const DEFAULT_PORT: u16 = 7988;

/// Where a target is served.
#[derive(Debug, Clone)]
pub enum Address {
    /// `HOST:PORT`; the name is looked up at each attempt.
    Tcp(String),
    /// A Unix socket's path.
    Unix(PathBuf),
    /// Inside this process.
    Mem(Arc<MemPort>),
    /// Another address behind an emulated link. To connect to, not to listen on.
    Delayed(Box<Address>, Arc<Link>),
}

impl Address {
    /// The same address behind `link`.
    pub fn delayed(self, link: &Arc<Link>) -> Address {
        Address::Delayed(Box::new(self), link.clone())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host) => f.write_str(host),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Mem(port) => write!(f, "mem:{}", port.name()),
            Address::Delayed(inner, _) => write!(f, "{inner} (delayed)"),
        }
    }
}

/// What a person typed is no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressParseError(String);

impl fmt::Display for AddressParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(
            f,
            "{text:?} is no address; expected HOST, HOST:PORT or unix:/PATH"
        )
    }
}

impl std::error::Error for AddressParseError {}

impl FromStr for Address {
    type Err = AddressParseError;

    fn from_str(text: &str) -> Result<Address, AddressParseError> {
        let error = || AddressParseError(text.to_owned());
        if let Some(path) = text
            .strip_prefix("unix:")
            .or(text.starts_with('/').then_some(text))
        {
            return match path.is_empty() {
                true => Err(error()),
                false => Ok(Address::Unix(path.into())),
            };
        }
        let bracketed = text.starts_with('[');
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !bracketed || host.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let plain = host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._%".contains(&b));
        let v6 = bracketed && host.ends_with(']') && host.len() > 2;
        if host.is_empty() || !(plain || v6) {
            return Err(error());
        }
        let port = port
            .map_or(Ok(DEFAULT_PORT), str::parse)
            .map_err(|_| error())?;
        Ok(Address::Tcp(format!("{host}:{port}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_type() {
        for (text, shown) in [
            ("localhost", "localhost:7988"),
            ("10.0.0.1:99", "10.0.0.1:99"),
            ("[::1]", "[::1]:7988"),
            ("[::1]:5", "[::1]:5"),
            ("/run/glint.sock", "unix:/run/glint.sock"),
            ("unix:glint.sock", "unix:glint.sock"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
        }
        for bad in [
            "",
            ":",
            "unix:",
            "host:port",
            "host:70000",
            "a b",
            "::1",
            "[::1",
            "[]:5",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad:?} is no address");
        }
    }
}
