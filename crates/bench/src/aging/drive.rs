//! One drive in virtual time: its head's place, its rotation, and what a transfer takes. Only additions,
//! multiplications and square roots, so that it is the same on every machine.

use super::medium::Direction;
use super::parameters::Drive;

/// Part of a revolution that rounding may lose. A head that far behind its sector is still in time.
const IN_TIME: f64 = 1e-6;

/// A drive's head.
#[derive(Debug, Clone)]
pub struct Head {
    drive: Drive,
    /// Byte behind the last transfer.
    at: f64,
    /// When it ended.
    free: f64,
}

impl Drive {
    /// The radius of a byte as a part of the outer one. Tracks lie evenly on the radius. The rate is
    /// proportional to it, for the disk turns evenly.
    fn radius(&self, byte: f64) -> f64 {
        let inner = self.inner_rate / self.outer_rate;
        let part = byte / self.capacity;
        (1.0 - part * (1.0 - inner * inner)).sqrt()
    }

    /// The track of a byte, as a part of all tracks.
    fn track(&self, byte: f64) -> f64 {
        let inner = self.inner_rate / self.outer_rate;
        (1.0 - self.radius(byte)) / (1.0 - inner)
    }

    /// Seconds that reading from the outer edge to this byte takes. By this time sectors lie on the platter:
    /// what is read in a row waits for nothing.
    fn reading_time(&self, byte: f64) -> f64 {
        let whole = 2.0 * self.capacity / (self.outer_rate + self.inner_rate);
        whole * self.track(byte)
    }

    /// Seconds of a seek over a part of all tracks: by the root up to a third, evenly from there.
    fn seek(&self, direction: Direction, tracks: f64) -> f64 {
        let of = |times: [f64; 2]| match direction {
            Direction::Read => times[0],
            Direction::Write => times[1],
        };
        let (single, average, full) = (
            of(self.single_track),
            of(self.average_seek),
            of(self.full_stroke),
        );
        let thirds = tracks * 3.0;
        match thirds <= 1.0 {
            true => single + (average - single) * thirds.sqrt(),
            false => average + (full - average) * (thirds - 1.0) / 2.0,
        }
    }
}

impl Head {
    /// At a byte, at time zero.
    pub fn new(drive: Drive, at: f64) -> Head {
        Head {
            drive,
            at,
            free: 0.0,
        }
    }

    /// Transfers `bytes` from `start` on, not before `from`. `turns`: whole revolutions besides.
    pub fn transfer(
        &mut self,
        direction: Direction,
        from: f64,
        start: f64,
        bytes: f64,
        turns: f64,
    ) -> f64 {
        let drive = &self.drive;
        let begin = self.free.max(from);
        let sector = drive.reading_time(start);
        let is_next = start == self.at;
        let tracks = (drive.track(start) - drive.track(self.at)).abs();
        let settled = match is_next {
            true => begin,
            false => begin + drive.seek(direction, tracks),
        };
        let late = (settled - sector) / drive.revolution;
        let part = late - late.floor();
        let wait = match part < IN_TIME {
            true => 0.0,
            false => (1.0 - part) * drive.revolution,
        };
        let reading = drive.reading_time(start + bytes) - sector;
        self.at = start + bytes;
        self.free = settled + wait + reading + turns * drive.revolution;
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters::Parameters;
    use super::*;

    const READ: Direction = Direction::Read;

    fn drive() -> Drive {
        Parameters::default().drive
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-3 * b.abs()
    }

    #[test]
    fn rates_are_those_of_the_datasheet_at_both_edges() {
        let mut head = Head::new(drive(), 0.0);
        let took = head.transfer(READ, 0.0, 0.0, 1e9, 0.0);
        assert!(near(1e9 / took, 175e6), "{took}");
        let last = drive().capacity - 1e9;
        let mut head = Head::new(drive(), last);
        let begin = drive().reading_time(last);
        let took = head.transfer(READ, begin, last, 1e9, 0.0) - begin;
        assert!(near(1e9 / took, 83e6), "{took}");
    }

    #[test]
    fn what_is_read_in_a_row_waits_for_nothing() {
        let mut head = Head::new(drive(), 0.0);
        for part in 0..1000 {
            head.transfer(READ, 0.0, f64::from(part) * 1e6, 1e6, 0.0);
        }
        let once = Head::new(drive(), 0.0).transfer(READ, 0.0, 0.0, 1e9, 0.0);
        assert!(near(head.free, once));
        // Read again, the same byte comes round a revolution later.
        let (end, again) = (1e9, 1e9 - 1000.0);
        let at_end = head.free;
        assert!(near(at_end, once));
        let turn = head.transfer(READ, 0.0, again, 1000.0, 0.0) - at_end;
        assert!(near(turn, drive().revolution), "{turn}");
        assert_eq!(head.at, end);
    }

    #[test]
    fn seeks_are_those_of_the_datasheet() {
        let seek = |tracks| drive().seek(READ, tracks);
        assert!(near(seek(1.0 / 3.0), 8.0e-3));
        assert!(near(seek(1.0), 17.35e-3));
        assert!(seek(1e-9) < 0.51e-3 && seek(1e-9) >= 0.5e-3);
        assert!(drive().seek(Direction::Write, 0.1) > seek(0.1));
    }

    #[test]
    fn a_random_place_costs_a_seek_and_half_a_revolution() {
        let mut head = Head::new(drive(), 0.0);
        let mut place = 1.0_f64;
        for _ in 0..10_000 {
            // A generator of fractions.
            place = (place * 7919.0 + 0.7548776662466927) % 1.0;
            head.transfer(READ, 0.0, place * 2.9e12, 4096.0, 0.0);
        }
        let each = head.free / 1e4;
        // 8 ms and 4.17 ms.
        assert!((11.0e-3..13.5e-3).contains(&each), "{each}");
    }

    #[test]
    fn a_revolution_more_is_a_revolution_more() {
        let plain = Head::new(drive(), 0.0).transfer(READ, 0.0, 0.0, 1e6, 0.0);
        let more = Head::new(drive(), 0.0).transfer(READ, 0.0, 0.0, 1e6, 1.0);
        assert!(near(more - plain, drive().revolution));
    }
}
