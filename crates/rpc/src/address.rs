//! Where a target is.

use std::fmt;
use std::net::IpAddr;
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

    /// It stands for all addresses of the machine that listens there (`0.0.0.0`, `[::]`).
    pub fn is_wildcard(&self) -> bool {
        match self {
            Address::Delayed(inner, _) => inner.is_wildcard(),
            Address::Tcp(text) => is_unspecified(text),
            Address::Unix(_) | Address::Mem(_) => false,
        }
    }

    /// The same port of the machine that `other` names. None: one of them has no host.
    pub fn at_host_of(&self, other: &Address) -> Option<Address> {
        match (self, other) {
            (Address::Delayed(inner, link), _) => Some(inner.at_host_of(other)?.delayed(link)),
            (_, Address::Delayed(inner, _)) => self.at_host_of(inner),
            (Address::Tcp(text), Address::Tcp(other)) => {
                let ((_, port), (host, _)) = (text.rsplit_once(':')?, other.rsplit_once(':')?);
                Some(Address::Tcp(format!("{host}:{port}")))
            }
            _ => None,
        }
    }
}

fn is_unspecified(text: &str) -> bool {
    let host = text.rsplit_once(':').map(|(host, _)| host);
    let ip = host.and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    ip.is_some_and(|ip| ip.is_unspecified())
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
    fn all_addresses_of_a_machine_are_the_one_it_is_reached_at() {
        let at = |text: &str| text.parse::<Address>().unwrap();
        for (wildcard, other, shown) in [
            ("0.0.0.0:7", "10.0.0.1", Some("10.0.0.1:7")),
            ("[::]:7", "server.example:99", Some("server.example:7")),
            ("0.0.0.0", "[fe80::1]:5", Some("[fe80::1]:7988")),
            ("0.0.0.0:7", "unix:/run/glint.sock", None),
        ] {
            assert!(at(wildcard).is_wildcard());
            let found = at(wildcard).at_host_of(&at(other));
            assert_eq!(found.map(|address| address.to_string()).as_deref(), shown);
        }
        assert!(!at("10.0.0.1").is_wildcard() && !at("localhost").is_wildcard());
        let link = Link::new(std::time::Duration::ZERO, None);
        let far = at("0.0.0.0:7").delayed(&link);
        assert!(far.is_wildcard());
        let found = far.at_host_of(&at("10.0.0.1").delayed(&link)).unwrap();
        assert_eq!(found.to_string(), "10.0.0.1:7 (delayed)");
    }

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
