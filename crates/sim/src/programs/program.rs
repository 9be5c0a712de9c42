//! A program, and what it keeps open.

use std::sync::Arc;

use base::{Fid, SeededRng};
use client::{Client, HandleId};

use super::kernel::InodeLocks;
use super::log::Log;
use super::seat::Seat;
use crate::scheduler::Scheduler;

/// A file that is open, and looked up once.
#[derive(Clone, Copy)]
pub struct Opened {
    pub(super) fid: Fid,
    pub(super) handle: HandleId,
    pub(super) writes: bool,
}

/// One program.
pub struct Program {
    /// Its number.
    pub number: u32,
    /// Its mount, as long as that is there.
    pub client: Client,
    /// Where it finds the next.
    pub seat: Arc<Seat>,
    /// How often that had crashed when the program got its client.
    pub crashes: u64,
    /// The directories, by number.
    pub dirs: Vec<Fid>,
    /// The files, by number.
    pub files: Vec<Fid>,
    /// Whether it reads and writes them.
    pub bytes: bool,
    /// What it writes is not always durable when the call returns.
    pub lazy: bool,
    /// What it keeps open.
    pub opened: Option<Opened>,
    /// Its node's locks.
    pub locks: Arc<InodeLocks>,
    /// Its dice.
    pub numbers: SeededRng,
    /// Where it writes down what it saw.
    pub log: Arc<Log>,
    /// Whose time it is.
    pub scheduler: Arc<Scheduler>,
}
