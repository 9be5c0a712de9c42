//! Numbers of the model disk, each with its source. They were written down before the first run, and no run
//! changed them. `glint bench aging --part scale` repeats its conclusions with each of them 25 % off.

use serde::{Deserialize, Serialize};

/// One disk drive. Positions are bytes from its outer edge, times are seconds, rates are bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    /// Bytes.
    pub capacity: f64,
    /// Of one revolution.
    pub revolution: f64,
    /// At the outer edge, sustained.
    pub outer_rate: f64,
    /// At the inner edge.
    pub inner_rate: f64,
    /// Seek to the next track, read and write.
    pub single_track: [f64; 2],
    /// Seek over a third of the tracks.
    pub average_seek: [f64; 2],
    /// Seek over all tracks.
    pub full_stroke: [f64; 2],
}

/// The array that a target lies on, and the work of the paper's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Of each drive.
    pub drive: Drive,
    /// The path between clients and the array, bytes a second.
    pub path_rate: f64,
    /// Writers, and later readers, of an optimal job.
    pub streams: f64,
    /// MiB of requests that the array's scheduler has at once, and sorts.
    pub queue_mib: f64,
    /// MiB by which a stream may be ahead of the slowest one.
    pub lead_mib: f64,
}

/// Drives whose chunks hold data. The two others of a stripe hold parity, and move as these do.
pub const DATA_DRIVES: u64 = 8;
/// Bytes of a stripe on one drive: with eight of them a stripe is one request of 1 MiB.
pub const CHUNK_BYTES: u64 = 128 << 10;
/// Where the tested area begins: group 60,000 of the target, as in the paper.
pub const AREA_START_GROUP: u64 = 60_000;
/// Targets of one unit of the paper (SSU).
pub const TARGETS_OF_UNIT: f64 = 8.0;

impl Default for Parameters {
    /// - Size, rotation and rates: Seagate Constellation ES.3 SAS, product manual, rev. B, section 4.1,
    ///   model ST3000NM0023: 3 TB, 7,200 rpm, 83 to 175 MB/s sustained.
    /// - Seeks, without controller overhead: Seagate Constellation SAS, product manual, rev. E, section
    ///   5.2.1, typical, of a drive with the same rotation. Hitachi Ultrastar 7K4000 SAS, section
    ///   4.4.1.1, has 8.2 ms for the average.
    /// - Eight data drives and two for parity: the paper, and Cray's description of the unit. Chunks of
    ///   128 KiB make a stripe as large as a request.
    /// - The path: the paper's nominal 5 GB/s a unit of eight targets.
    /// - The queue: `max_rpcs_in_flight=64` of 1 MiB, as in the paper. Streams and lead are not in the
    ///   paper. They are assumptions: eight files a target, which stay within eight requests of each other.
    fn default() -> Parameters {
        Parameters {
            drive: Drive {
                capacity: 3e12,
                revolution: 60.0 / 7200.0,
                outer_rate: 175e6,
                inner_rate: 83e6,
                single_track: [0.5e-3, 0.7e-3],
                average_seek: [8.0e-3, 8.4e-3],
                full_stroke: [17.35e-3, 17.82e-3],
            },
            path_rate: 625e6,
            streams: 8.0,
            queue_mib: 64.0,
            lead_mib: 8.0,
        }
    }
}

/// A number that conclusions must not hang on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// All three seeks.
    Seek,
    /// The time of a revolution.
    Revolution,
    /// At the outer edge.
    OuterRate,
    /// At the inner edge.
    InnerRate,
    /// Between clients and array.
    PathRate,
    /// Writers and readers of a job.
    Streams,
    /// Requests that are sorted together.
    Queue,
    /// How far streams run apart.
    Lead,
}

impl Knob {
    /// All of them.
    pub const ALL: [Knob; 8] = [
        Knob::Seek,
        Knob::Revolution,
        Knob::OuterRate,
        Knob::InnerRate,
        Knob::PathRate,
        Knob::Streams,
        Knob::Queue,
        Knob::Lead,
    ];

    /// In a table.
    pub fn name(self) -> &'static str {
        match self {
            Knob::Seek => "seek times",
            Knob::Revolution => "time of a revolution",
            Knob::OuterRate => "rate at the outer edge",
            Knob::InnerRate => "rate at the inner edge",
            Knob::PathRate => "rate of the path",
            Knob::Streams => "streams of a job",
            Knob::Queue => "requests sorted together",
            Knob::Lead => "lead of a stream",
        }
    }
}

impl Parameters {
    /// The same with one number `times` as large.
    pub fn scaled(mut self, knob: Knob, times: f64) -> Parameters {
        let drive = &mut self.drive;
        let numbers: &mut [f64] = match knob {
            Knob::Seek => {
                for seek in [
                    &mut drive.single_track,
                    &mut drive.average_seek,
                    &mut drive.full_stroke,
                ] {
                    *seek = seek.map(|time| time * times);
                }
                &mut []
            }
            Knob::Revolution => std::slice::from_mut(&mut drive.revolution),
            Knob::OuterRate => std::slice::from_mut(&mut drive.outer_rate),
            Knob::InnerRate => std::slice::from_mut(&mut drive.inner_rate),
            Knob::PathRate => std::slice::from_mut(&mut self.path_rate),
            Knob::Streams => std::slice::from_mut(&mut self.streams),
            Knob::Queue => std::slice::from_mut(&mut self.queue_mib),
            Knob::Lead => std::slice::from_mut(&mut self.lead_mib),
        };
        for number in numbers {
            *number *= times;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_knob_changes_the_parameters() {
        let usual = Parameters::default();
        for knob in Knob::ALL {
            assert_ne!(usual.scaled(knob, 1.25), usual, "{}", knob.name());
            assert_eq!(usual.scaled(knob, 1.0), usual, "{}", knob.name());
        }
    }
}
