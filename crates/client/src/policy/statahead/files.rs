//! Statahead over bytes (ADR 8): small files that are read in an order of their directories come before they
//! are asked for. A stream begins at the second file in order, doubles while it is read, takes on another
//! order where its reader turns, and ends where it is of no use. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use base::{Fid, Tick};

use super::order::{Cursor, Descent, Gaps, Key, Order};
use crate::cache::ahead::StreamId;
use crate::policy::statahead::report::{Pattern, WalkReport};

/// Streams remembered. Beyond: the one that was begun first is forgotten.
const STREAMS_MAX: usize = 8;
/// Directories remembered with the file read last. Beyond: the first of them is forgotten.
const RECENT_MAX: usize = 16;
/// Bytes ahead of a reader at first.
const AHEAD_BYTES_FIRST: u64 = 256 << 10;
/// Turns in a row after which most of what came had not been read, before a stream ends for good.
const WRONG_MAX: u8 = 3;
/// Turns in a row that show another order, before they count as others do.
const ORDERS_MAX: u8 = 4;
/// Files in a row that were in no order, before a large directory is not looked through for one.
const ASTRAY_MAX: u32 = 16;
/// After so long without its reader a stream is forgotten.
const IDLE: Duration = Duration::from_secs(30);

/// A place in the list of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub dir: Fid,
    pub cookie: u64,
}

/// All streams of a mount.
#[derive(Debug, Default)]
pub(crate) struct Files {
    last: u64,
    streams: VecDeque<Stream>,
    recent: VecDeque<Recent>,
}

/// The file of a directory that was read last, of those that were not at hand.
#[derive(Debug, Clone, Copy)]
struct Recent {
    spot: Spot,
    /// How many in a row were in no order.
    astray: u32,
}

/// What is to be asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub bytes: u64,
    /// From here on: directories below each other, outermost first. To be given back.
    pub at: Vec<Cursor>,
    pub order: Order,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    /// The outermost directory where it was begun.
    root: Fid,
    /// Up to where files were asked for: directories below each other, outermost first.
    at: Vec<Cursor>,
    order: Order,
    /// Turns in a row that showed another order.
    orders: u8,
    bytes_max: u64,
    /// Bytes asked for and not read.
    ahead: u64,
    /// Files asked for since the last turn, and of these read.
    asked: u32,
    read: u32,
    wrong: u8,
    seen: Tick,
    total: Total,
}

/// What a stream has done in all.
#[derive(Debug, Default, Clone, Copy)]
struct Total {
    asks: u64,
    files: u64,
    read: u64,
    turns: u64,
    bytes: u64,
    bytes_read: u64,
}

impl Files {
    /// The file of `dir` that was read last, of those that were not at hand.
    pub fn recent(&self, dir: Fid) -> Option<Spot> {
        self.recent_in(dir).map(|recent| recent.spot)
    }

    /// A large directory is still worth being looked through for an order.
    pub fn may_be_in_order(&self, dir: Fid) -> bool {
        let recent = self.recent_in(dir);
        recent.is_none_or(|recent| recent.astray < ASTRAY_MAX)
    }

    fn recent_in(&self, dir: Fid) -> Option<&Recent> {
        self.recent.iter().find(|recent| recent.spot.dir == dir)
    }

    /// The file at `spot` is read, and was not at hand.
    pub fn note(&mut self, spot: Spot, in_order: bool) {
        let before = self.recent_in(spot.dir).map_or(0, |recent| recent.astray);
        let astray = match in_order {
            true => 0,
            false => before.saturating_add(1),
        };
        self.recent.retain(|known| known.spot.dir != spot.dir);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent { spot, astray });
    }

    /// The stream that could go no further because a directory at or above `path` was not known.
    pub fn waits_within(&self, path: &[Spot]) -> Option<StreamId> {
        let waits = |stream: &&Stream| match stream.at.last() {
            Some(next) => next.cookie == 0 && path.iter().any(|spot| spot.dir == next.dir),
            None => false,
        };
        Some(self.streams.iter().rfind(waits)?.id)
    }

    /// The stream that begins at the file `path`, which was read soon after the one before it (by `gaps`) and
    /// was not cached.
    pub fn turn(&mut self, path: &[Spot], gaps: &Gaps, now: Tick) -> Option<StreamId> {
        self.streams.retain(|stream| now.since(stream.seen) < IDLE);
        if let Some(stream) = self.streams.iter_mut().find(|one| one.is_about(path)) {
            return stream.turn(path, gaps, now);
        }
        let root = path.first()?.dir;
        let of_same = |one: &&Stream| path.iter().any(|spot| spot.dir == one.root);
        let nearby = self.streams.iter().rfind(of_same);
        let mut order = nearby.map_or_else(Order::default, |stream| stream.order);
        order.key = gaps.key(order.key)?;
        self.last += 1;
        if self.streams.len() >= STREAMS_MAX {
            self.streams.pop_front();
        }
        let mut stream = Stream {
            id: StreamId(self.last),
            root,
            at: Vec::new(),
            order,
            orders: 0,
            bytes_max: 0,
            ahead: 0,
            asked: 0,
            read: 0,
            wrong: 0,
            seen: now,
            total: Total::default(),
        };
        stream.begin(path, now);
        self.streams.push_back(stream);
        Some(StreamId(self.last))
    }

    /// A file that a stream brought is read.
    pub fn read(&mut self, id: StreamId, bytes: u64, now: Tick) {
        if let Some(stream) = self.stream(id) {
            stream.seen = now;
            stream.read += 1;
            stream.total.read += 1;
            stream.total.bytes_read += bytes;
            stream.ahead = stream.ahead.saturating_sub(bytes);
        }
    }

    /// What to ask for; only where less than half of what may be is ahead. Tell [`Files::asked`].
    pub fn room(&mut self, id: StreamId, ahead_max: u64) -> Option<Room> {
        let stream = self.stream(id)?;
        let bytes_max = stream.bytes_max.min(ahead_max);
        if stream.ahead * 2 > bytes_max || stream.wrong >= WRONG_MAX || stream.at.is_empty() {
            return None;
        }
        if stream.read > 0 {
            stream.bytes_max = (bytes_max * 2).min(ahead_max);
        }
        let room = stream.bytes_max.min(ahead_max).saturating_sub(stream.ahead);
        (room > 0).then(|| Room {
            bytes: room,
            at: std::mem::take(&mut stream.at),
            order: stream.order,
        })
    }

    /// So much was asked for, up to there.
    pub fn asked(&mut self, id: StreamId, files: u32, bytes: u64, at: Vec<Cursor>) {
        if let Some(stream) = self.stream(id) {
            stream.asked += files;
            stream.total.asks += 1;
            stream.total.files += u64::from(files);
            stream.total.bytes += bytes;
            stream.ahead += bytes;
            stream.at = at;
        }
    }

    /// A file that was asked for will not come.
    pub fn refused(&mut self, id: StreamId, bytes: u64) {
        if let Some(stream) = self.stream(id) {
            stream.asked = stream.asked.saturating_sub(1);
            stream.total.files -= 1;
            stream.total.bytes -= bytes;
            stream.ahead = stream.ahead.saturating_sub(bytes);
        }
    }

    pub fn reports(&self) -> impl Iterator<Item = WalkReport> {
        self.streams.iter().map(Stream::report)
    }

    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.id == id)
    }
}

impl Stream {
    /// It is in the directory of the file at `path`, or below it, or reads that above it.
    fn is_about(&self, path: &[Spot]) -> bool {
        let (here, parent) = innermost(path);
        let (is_in, reads) = (self.passes(here), self.reads(parent));
        here.is_some() && (is_in || (parent.is_some() && reads))
    }

    fn passes(&self, dir: Option<Fid>) -> bool {
        self.at.iter().any(|cursor| Some(cursor.dir) == dir)
    }

    fn reads(&self, dir: Option<Fid>) -> bool {
        self.at.last().map(|cursor| cursor.dir) == dir
    }

    fn turn(&mut self, path: &[Spot], gaps: &Gaps, now: Tick) -> Option<StreamId> {
        if self.wrong >= WRONG_MAX {
            self.seen = now;
            return None;
        }
        let order = self.order_shown(path, gaps);
        let is_other = order != self.order && self.orders < ORDERS_MAX;
        match (2 * self.read >= self.asked, is_other) {
            (true, _) => (self.wrong, self.orders) = (0, 0),
            (false, true) => self.orders += 1,
            (false, false) => self.wrong += 1,
        }
        self.order = order;
        self.begin(path, now);
        (self.wrong < WRONG_MAX).then_some(self.id)
    }

    /// The order that its reader follows, who is at `path` and not where the stream is.
    fn order_shown(&self, path: &[Spot], gaps: &Gaps) -> Order {
        let (here, parent) = innermost(path);
        let key = gaps.key(self.order.key).unwrap_or(self.order.key);
        let descent = match key == self.order.key {
            // By another key the subdirectories are others, too.
            false => self.order.descent,
            true if self.reads(here) => self.order.descent,
            // The reader has passed over a subdirectory in which the stream is.
            true if self.passes(here) => Descent::AfterFiles,
            // The reader has gone below before all files were read.
            true if self.reads(parent) => Descent::InPlace,
            true => self.order.descent,
        };
        Order { key, descent }
    }

    fn begin(&mut self, path: &[Spot], now: Tick) {
        let cursor = |spot: &Spot| Cursor::new(spot.dir, spot.cookie);
        self.at = path.iter().map(cursor).collect();
        self.bytes_max = AHEAD_BYTES_FIRST >> self.wrong;
        (self.ahead, self.asked, self.read) = (0, 0, 0);
        self.seen = now;
        self.total.turns += 1;
    }

    fn report(&self) -> WalkReport {
        let total = &self.total;
        WalkReport {
            pattern: match self.order.key {
                Key::Cookie => Pattern::Files,
                Key::Name => Pattern::FilesName,
                Key::Inode => Pattern::FilesInode,
            },
            dir: self.root,
            requests: total.asks,
            fetched: total.files,
            used: total.read,
            missed: total.turns,
            window: self.bytes_max,
            bytes: total.bytes,
            bytes_unused: total.bytes.saturating_sub(total.bytes_read),
            ended: self.wrong >= WRONG_MAX,
        }
    }
}

/// The directory of the file at `path`, and the one above that.
fn innermost(path: &[Spot]) -> (Option<Fid>, Option<Fid>) {
    let mut dirs = path.iter().rev().map(|spot| spot.dir);
    (dirs.next(), dirs.next())
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
