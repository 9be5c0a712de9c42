//! Streams that write or read files side by side, in requests that reach the disk in batches.

use allocator::Extent;
use base::{Rng, SeededRng};

use super::medium::{BLOCK_BYTES, Direction, MIB_BLOCKS, Medium};
use super::parameters::Parameters;
use super::target::{File, FileId, Target};
use crate::error::Result;
use crate::interrupt::StopFlag;

/// How a job's streams work.
#[derive(Debug, Clone)]
pub struct Work {
    /// Files at once.
    pub streams: usize,
    /// Blocks of a request.
    pub request: u64,
    /// Requests in a batch.
    pub queue: usize,
    /// Requests that a stream may be ahead of the slowest one.
    pub lead: u64,
    /// Writers say how long their files will be.
    pub known: bool,
    /// Set to end early.
    pub stop: StopFlag,
}

impl Work {
    /// An optimal job with requests of `request_mib`.
    pub fn optimal(parameters: &Parameters, request_mib: u64, stop: &StopFlag) -> Work {
        let requests = |mib: f64| (mib / request_mib as f64).round().max(1.0);
        Work {
            streams: parameters.streams.round().max(1.0) as usize,
            request: request_mib * MIB_BLOCKS,
            queue: requests(parameters.queue_mib) as usize,
            lead: requests(parameters.lead_mib) as u64,
            known: false,
            stop: stop.clone(),
        }
    }
}

/// The order in which streams that stay together send their requests.
struct Turns {
    sent: Vec<u64>,
    requests: u64,
    lead: u64,
}

impl Turns {
    fn new(streams: usize, requests: u64, lead: u64) -> Turns {
        Turns {
            sent: vec![0; streams],
            requests,
            lead,
        }
    }

    /// The stream of the next request; `None` when all are sent.
    fn next(&mut self, rng: &mut SeededRng) -> Option<usize> {
        let slowest = self.sent.iter().copied().min()?;
        if slowest == self.requests {
            return None;
        }
        let limit = self.requests.min(slowest + self.lead);
        loop {
            let stream = rng.below(self.sent.len() as u64) as usize;
            if self.sent[stream] < limit {
                self.sent[stream] += 1;
                return Some(stream);
            }
        }
    }
}

/// Bytes, and the seconds that they took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moved {
    /// How many.
    pub bytes: u64,
    /// Of the disk's clock.
    pub seconds: f64,
}

impl Moved {
    /// MB/s.
    pub fn rate(self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }
}

/// Writes a file of `requests` requests for each stream.
pub fn write(
    target: &mut Target,
    medium: &mut dyn Medium,
    work: &Work,
    requests: u64,
    rng: &mut SeededRng,
) -> Result<(Vec<FileId>, Moved)> {
    let files: Vec<FileId> = (0..work.streams).map(|_| target.create()).collect();
    let known = work.known.then_some(requests * work.request);
    let mut turns = Turns::new(work.streams, requests, work.lead);
    let moved = transfer(medium, Direction::Write, work, || {
        let Some(stream) = turns.next(rng) else {
            return Ok(None);
        };
        target.append(files[stream], work.request, known).map(Some)
    })?;
    for file in &files {
        target.close(*file);
    }
    Ok((files, moved))
}

/// Reads files side by side, a stream each.
pub fn read(
    target: &Target,
    medium: &mut dyn Medium,
    work: &Work,
    files: &[FileId],
    rng: &mut SeededRng,
) -> Result<Moved> {
    let readers = files.iter().map(|file| target.file(*file).map(Reader::new));
    let mut readers = readers.collect::<Result<Vec<Reader>>>()?;
    let requests = readers.iter().map(|reader| reader.left / work.request);
    let requests = requests.min().unwrap_or(0);
    let mut turns = Turns::new(readers.len(), requests, work.lead);
    transfer(medium, Direction::Read, work, || {
        let stream = turns.next(rng);
        Ok(stream.map(|stream| readers[stream].take(work.request)))
    })
}

/// Sends requests, as extents, until there are no more.
fn transfer(
    medium: &mut dyn Medium,
    direction: Direction,
    work: &Work,
    mut next: impl FnMut() -> Result<Option<Vec<Extent>>>,
) -> Result<Moved> {
    let mut blocks = 0;
    loop {
        work.stop.check()?;
        let mut batch = Vec::new();
        for _ in 0..work.queue {
            let Some(request) = next()? else { break };
            batch.extend(request);
        }
        if batch.is_empty() {
            break;
        }
        blocks += batch.iter().map(|one| u64::from(one.blocks)).sum::<u64>();
        medium.batch(direction, &batch)?;
    }
    Ok(Moved {
        bytes: blocks * BLOCK_BYTES,
        seconds: medium.drain()?,
    })
}

/// A file's extents, taken from the start.
pub struct Reader<'f> {
    extents: std::slice::Iter<'f, Extent>,
    rest: Option<Extent>,
    /// Blocks.
    pub left: u64,
}

impl<'f> Reader<'f> {
    /// At the start.
    pub fn new(file: &'f File) -> Reader<'f> {
        Reader {
            extents: file.extents().iter(),
            rest: None,
            left: file.blocks(),
        }
    }

    /// The next `blocks` blocks, or as many as there are.
    pub fn take(&mut self, blocks: u64) -> Vec<Extent> {
        let mut taken = Vec::new();
        let mut wanted = blocks.min(self.left);
        self.left -= wanted;
        while wanted > 0 {
            let Some(extent) = self.rest.take().or_else(|| self.extents.next().copied()) else {
                break;
            };
            let (first, rest) = extent.split(wanted.min(u64::from(u32::MAX)) as u32);
            wanted -= u64::from(first.blocks);
            taken.push(first);
            self.rest = Some(rest).filter(|rest| rest.blocks > 0);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use allocator::Options;

    use super::super::array::Array;
    use super::*;

    fn work() -> Work {
        Work::optimal(&Parameters::default(), 1, &StopFlag::new())
    }

    #[test]
    fn streams_stay_together_and_all_is_sent() {
        let mut turns = Turns::new(8, 100, 8);
        let mut rng = SeededRng::new(1);
        let mut count = 0;
        while turns.next(&mut rng).is_some() {
            count += 1;
            let (least, most) = (turns.sent.iter().min(), turns.sent.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 8);
        }
        assert_eq!(count, 800);
    }

    #[test]
    fn what_was_written_is_read_again_block_for_block() {
        let mut target = Target::empty(4, Options::default());
        let mut array = Array::new(Parameters::default());
        let mut rng = SeededRng::new(1);
        let (files, written) = write(&mut target, &mut array, &work(), 50, &mut rng).unwrap();
        let read = read(&target, &mut array, &work(), &files, &mut rng).unwrap();
        assert_eq!((written.bytes, read.bytes), (400 << 20, 400 << 20));
        assert!(written.rate() > 0.0 && read.rate() > 0.0);
        let mut reader = Reader::new(target.file(files[0]).unwrap());
        let mut blocks = 0;
        while reader.left > 0 {
            blocks += reader.take(7).iter().map(|one| one.blocks).sum::<u32>();
        }
        assert_eq!(blocks, 50 * 256);
    }

    #[test]
    fn a_job_that_is_stopped_ends() {
        let work = work();
        work.stop.set();
        let mut target = Target::empty(4, Options::default());
        let mut array = Array::new(Parameters::default());
        let mut rng = SeededRng::new(1);
        assert!(write(&mut target, &mut array, &work, 50, &mut rng).is_err());
    }
}
