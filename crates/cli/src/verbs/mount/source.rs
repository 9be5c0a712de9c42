//! What is mounted: where the MGS is, and which file system it must be.

use std::str::FromStr;

use rpc::Address;

/// `ADDR[,ADDR][:/[NAME]]`.
#[derive(Debug, Clone)]
pub struct Source {
    /// The addresses as they were spelt.
    pub text: String,
    /// Tried in turn.
    pub addresses: Vec<Address>,
    /// The file system must be called so.
    pub name: Option<String>,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        let (at, name) = match text.rsplit_once(":/") {
            // The path of a socket, and nothing behind it.
            Some((at, _)) if is_scheme(at) => (text, ""),
            Some((at, name)) => (at, name),
            None => (text, ""),
        };
        let addresses = at.split(',').map(|address| {
            let parsed = address.parse::<Address>();
            parsed.map_err(|error| error.to_string())
        });
        Ok(Source {
            text: at.to_owned(),
            addresses: addresses.collect::<Result<_, _>>()?,
            name: (!name.is_empty()).then(|| name.to_owned()),
        })
    }
}

/// What comes before `:/` belongs to it: the last address is `unix:/PATH`.
fn is_scheme(at: &str) -> bool {
    at.rsplit(',').next() == Some("unix")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_apart() {
        let is = |text: &str, addresses: &[&str], name: Option<&str>| {
            let source: Source = text.parse().unwrap();
            let found: Vec<String> = source.addresses.iter().map(Address::to_string).collect();
            assert_eq!(found, addresses, "{text}");
            assert_eq!(source.name.as_deref(), name, "{text}");
        };
        is("10.0.0.1", &["10.0.0.1:7988"], None);
        is("10.0.0.1:/", &["10.0.0.1:7988"], None);
        is("10.0.0.1:99:/data", &["10.0.0.1:99"], Some("data"));
        is("a,b:77:/data", &["a:7988", "b:77"], Some("data"));
        is("unix:/run/s", &["unix:/run/s"], None);
        is("unix:/run/s:/", &["unix:/run/s"], None);
        is(
            "a,unix:/run/s:/data",
            &["a:7988", "unix:/run/s"],
            Some("data"),
        );
        is("a,unix:/run/s", &["a:7988", "unix:/run/s"], None);
        assert!("".parse::<Source>().is_err());
    }
}
