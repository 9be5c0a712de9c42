//! Requests to the management service, and their replies.

use base::TargetName;
use serde::{Deserialize, Serialize};

/// Where a target is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Which target.
    pub name: TargetName,
    /// The target's own id, from its superblock.
    pub uuid: [u8; 16],
    /// `HOST:PORT`, `unix:PATH` or `mem:NAME`, tried in turn.
    pub addresses: Vec<String>,
}

/// The file system: what it is called and what it consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Its name.
    pub fsname: String,
    /// Its id.
    pub uuid: [u8; 16],
    /// Grows with each change.
    pub generation: u64,
    /// All targets that ever registered.
    pub targets: Vec<TargetInfo>,
}

/// What is asked of the MGS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// -> [`Reply::Config`].
    GetConfig,
    /// A serving process says where its targets are -> [`Reply::Config`]. For servers only.
    Register {
        /// Its targets.
        targets: Vec<TargetInfo>,
    },
    /// A target is gone for good: it is no part of the file system any more -> [`Reply::Config`]. For
    /// servers only.
    Remove {
        /// Which.
        target: TargetName,
    },
}

/// What the MGS answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The configuration now.
    Config(Config),
    /// It does not take the targets in.
    Refused {
        /// Why, and how to mend it: one line for a person.
        reason: String,
    },
}
