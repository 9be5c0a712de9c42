//! Statahead over bytes: small files that are read in the order of their directories' lists come
//! before they are asked for, many in one request (ADR 8).
//!
//! A stream begins at the second file in order. What is ahead of its reader is bounded in bytes and
//! doubles while it is read; where the reader turns elsewhere before it has read most of what came,
//! three times in a row, it ends.
//!
//! Pure: told of what is read and what came, says how much to ask for.

use std::collections::VecDeque;
use std::time::Duration;

use base::{Fid, Tick};

use super::report::{Pattern, WalkReport};

/// Streams remembered. Beyond: the one that was begun first is forgotten.
const STREAMS_MAX: usize = 8;
/// Directories remembered with the file read last. Beyond: the first of them is forgotten.
const RECENT_MAX: usize = 16;
/// Bytes ahead of a reader at first.
const AHEAD_BYTES_FIRST: u64 = 256 << 10;
/// Turns in a row after which most of what came had not been read, before a stream ends for good.
const WRONG_MAX: u8 = 3;
/// After so long without its reader a stream is forgotten.
const IDLE: Duration = Duration::from_secs(30);

/// Names a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamId(u64);

/// What statahead has to do with a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Ahead {
    /// Nothing.
    #[default]
    No,
    /// They are on their way.
    Coming,
    /// They came with a stream, and were not read yet.
    Came(StreamId),
    /// They could not be had without disturbing somebody.
    Refused,
}

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
    recent: VecDeque<Spot>,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    /// The outermost directory where it was begun.
    root: Fid,
    /// Up to where files were asked for: directories below each other, outermost first.
    at: Vec<Spot>,
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
    /// The file of `dir` that was read last.
    pub fn recent(&self, dir: Fid) -> Option<Spot> {
        self.recent.iter().find(|spot| spot.dir == dir).copied()
    }

    /// The file at `spot` is read.
    pub fn note(&mut self, spot: Spot) {
        self.recent.retain(|known| known.dir != spot.dir);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(spot);
    }

    /// A file was read soon after the one before it in the list, and was not at hand; `at` is where
    /// it is. The stream that begins there.
    pub fn turn(&mut self, at: Vec<Spot>, now: Tick) -> Option<StreamId> {
        self.streams.retain(|stream| now.since(stream.seen) < IDLE);
        let here = at.last()?.dir;
        let has = |stream: &&mut Stream| stream.at.iter().any(|spot| spot.dir == here);
        if let Some(stream) = self.streams.iter_mut().find(has) {
            if stream.wrong >= WRONG_MAX {
                stream.seen = now;
                return None;
            }
            stream.wrong = match 2 * stream.read >= stream.asked {
                true => 0,
                false => stream.wrong + 1,
            };
            stream.begin(at, now);
            return (stream.wrong < WRONG_MAX).then_some(stream.id);
        }
        self.last += 1;
        if self.streams.len() >= STREAMS_MAX {
            self.streams.pop_front();
        }
        let mut stream = Stream {
            id: StreamId(self.last),
            root: at.first()?.dir,
            at: Vec::new(),
            bytes_max: 0,
            ahead: 0,
            asked: 0,
            read: 0,
            wrong: 0,
            seen: now,
            total: Total::default(),
        };
        stream.begin(at, now);
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

    /// How many bytes to ask for, and from where on; only where less than half of what may be is ahead.
    pub fn room(&mut self, id: StreamId, ahead_max: u64) -> Option<(u64, Vec<Spot>)> {
        let stream = self.stream(id)?;
        let bytes_max = stream.bytes_max.min(ahead_max);
        if stream.ahead * 2 > bytes_max || stream.wrong >= WRONG_MAX || stream.at.is_empty() {
            return None;
        }
        if stream.read > 0 {
            stream.bytes_max = (bytes_max * 2).min(ahead_max);
        }
        let room = stream.bytes_max.min(ahead_max).saturating_sub(stream.ahead);
        (room > 0).then(|| (room, stream.at.clone()))
    }

    /// So much was asked for, up to there.
    pub fn asked(&mut self, id: StreamId, files: u32, bytes: u64, at: Vec<Spot>) {
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
    fn begin(&mut self, at: Vec<Spot>, now: Tick) {
        self.at = at;
        self.bytes_max = AHEAD_BYTES_FIRST >> self.wrong;
        (self.ahead, self.asked, self.read) = (0, 0, 0);
        self.seen = now;
        self.total.turns += 1;
    }

    fn report(&self) -> WalkReport {
        let total = &self.total;
        WalkReport {
            pattern: Pattern::Files,
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

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid(7 << 24 | 1);
    const NOW: Tick = Tick(0);
    const PLENTY: u64 = 16 << 20;

    fn spot(cookie: u64) -> Spot {
        Spot { dir: DIR, cookie }
    }

    #[test]
    fn what_is_ahead_doubles_while_it_is_read_up_to_the_bound() {
        let mut files = Files::default();
        let stream = files.turn(vec![spot(10)], NOW).expect("begun");
        let mut sizes = Vec::new();
        for n in 0..9 {
            let (room, at) = files.room(stream, PLENTY).expect("room");
            sizes.push(room);
            files.asked(stream, 4, room, at);
            assert_eq!(files.room(stream, PLENTY), None, "enough is ahead");
            (0..4).for_each(|_| files.read(stream, room / 4, NOW));
            assert_eq!(files.recent(DIR), (n > 0).then(|| spot(n)));
            files.note(spot(n + 1));
        }
        assert_eq!(sizes[..3], [256 << 10, 512 << 10, 1 << 20]);
        assert_eq!(sizes[8], PLENTY);
    }

    #[test]
    fn who_turns_without_reading_what_came_gets_less_and_then_nothing() {
        let mut files = Files::default();
        let mut sizes = Vec::new();
        for n in 0..9 {
            let Some(stream) = files.turn(vec![spot(n)], NOW) else {
                continue;
            };
            let (room, at) = files.room(stream, PLENTY).expect("room");
            sizes.push(room);
            files.asked(stream, 10, room, at);
        }
        assert_eq!(sizes, [256 << 10, 128 << 10, 64 << 10]);
    }

    #[test]
    fn what_is_refused_is_not_waited_for_and_a_reader_that_is_gone_is_forgotten() {
        let mut files = Files::default();
        let stream = files.turn(vec![spot(1)], NOW).expect("begun");
        files.asked(stream, 1, PLENTY, vec![spot(2)]);
        assert_eq!(files.room(stream, PLENTY), None);
        files.refused(stream, PLENTY);
        assert!(files.room(stream, PLENTY).is_some());
        let other = Spot {
            dir: Fid(8 << 24),
            cookie: 1,
        };
        files.turn(vec![other], NOW.after(IDLE));
        assert_eq!(files.room(stream, PLENTY), None);
    }
}
