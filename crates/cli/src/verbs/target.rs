//! `glint target`

mod picture;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{SystemClock, TargetName};
use clap::{Args, Subcommand};
use rpc::{Address, Credential, Key, Policy};
use storage::TargetKey;
use wire::mgs::{Config, Request};

use super::format::parse_role;
use crate::output::{say, say_json};
use crate::registration;

/// Groups in a picture.
const GROUPS_SHOWN: u32 = 1024;
/// How long the MGS may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The targets that a file system's MGS knows: list them, or remove one that is gone for good. And a picture
/// of one.
#[derive(Args)]
pub struct TargetVerb {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Say which targets there are, and where.
    List {
        #[command(flatten)]
        mgs: Reached,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Draw which space of an OST is in use, as SVG on standard output: one row a group of 128 MiB.
    ///
    /// The picture shows what was committed last: light is free, dark is used. It is read from DIR, also
    /// while the OST is served, and nothing is written there.
    Picture {
        /// The directory with the OST.
        dir: PathBuf,
        /// Which: ost0, ost3.
        #[arg(long, default_value = "ost0", value_parser = parse_role)]
        target: TargetName,
        /// The first group that is shown.
        #[arg(long, default_value_t = 0)]
        first: u32,
        /// How many groups are shown; those behind the last one in use are not.
        #[arg(long, default_value_t = GROUPS_SHOWN,
            value_parser = clap::value_parser!(u32).range(1..=100_000))]
        groups: u32,
    },
    /// Remove a target that is no longer served. Later mounts do without it.
    ///
    /// Files lose the bytes that they have on a removed OST. Its number is not given to another target. The
    /// target is listed again as soon as it is served.
    Remove {
        /// Which: mdt0, ost3.
        #[arg(value_parser = parse_role)]
        target: TargetName,
        #[command(flatten)]
        mgs: Reached,
    },
}

/// The MGS, and what is proven to it.
#[derive(Args)]
struct Reached {
    /// Where the MGS is; several addresses are tried in turn.
    #[arg(long, required = true, value_name = "ADDRESSES", value_delimiter = ',')]
    mgs: Vec<Address>,
    /// The file with the key of the file system's servers (DIR/server-key of a server).
    #[arg(long, value_name = "FILE")]
    server_key: PathBuf,
    /// Speak to addresses beyond loopback although connections are not encrypted.
    #[arg(long)]
    insecure: bool,
}

impl TargetVerb {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        match self.what {
            What::List { mgs, json } => {
                let config = mgs.ask(&Request::GetConfig)?;
                match json {
                    true => say_json(&config),
                    false => {
                        show(&config);
                        Ok(())
                    }
                }
            }
            What::Picture {
                dir,
                target,
                first,
                groups,
            } => picture::draw(&dir, target, first..first.saturating_add(groups)),
            What::Remove { target, mgs } => {
                mgs.ask(&Request::Remove { target })?;
                say(format!("{target} removed"));
                Ok(())
            }
        }
    }
}

impl Reached {
    fn ask(&self, request: &Request) -> Result<Config, String> {
        let key = TargetKey::load(&self.server_key).map_err(|error| error.to_string())?;
        let way = registration::Way {
            key: Key::new(*key.as_bytes()),
            credential: Credential::Server,
            insecure: self.insecure,
            clock: Arc::new(SystemClock::default()),
            clocks: rpc::Clocks::default(),
        };
        let policy = Policy::Trial {
            timeout: Some(ANSWER),
        };
        let peer = way.peer(TargetName::MGS, self.mgs.clone(), policy)?;
        let answer = registration::ask(&peer, request);
        peer.close();
        let at: Vec<String> = self.mgs.iter().map(Address::to_string).collect();
        answer.map_err(|reason| format!("at {}: {reason}", at.join(",")))
    }
}

fn show(config: &Config) {
    say(format!(
        "{}, generation {}",
        config.fsname, config.generation
    ));
    for target in &config.targets {
        let uuid = u128::from_be_bytes(target.uuid);
        let at = target.addresses.join(",");
        say(format!("  {} {uuid:032x} at {at}", target.name));
    }
}
