//! Uses of files that others wait for to end. That a descriptor is closed, or a program has ended, those who
//! did it know before this mount: the kernel tells a little later that nothing has the file open.

use std::time::Duration;

use base::{Fid, Tick};

use crate::executor::{Oneshot, Sender, oneshot};

/// How long a use that has ended may be taken for one that goes on.
const PATIENCE: Duration = Duration::from_secs(1);

/// Uses that end, and those who wait for that.
#[derive(Default)]
pub(crate) struct EndingUses {
    /// Those who wait: told when these are dropped.
    waiting: Vec<(Fid, Tick, Sender<()>)>,
    /// Files of uses that are over here, of which the MDT is being told. Once for each use.
    reported: Vec<Fid>,
}

impl EndingUses {
    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Somebody waits for the end of a use of `fid`.
    pub fn is_awaited(&self, fid: Fid) -> bool {
        self.waiting.iter().any(|(of, ..)| *of == fid)
    }

    /// A use of `fid` is over here, and the MDT is about to be told.
    pub fn begin_report(&mut self, fid: Fid) {
        self.reported.push(fid);
    }

    /// The MDT has been told of one.
    pub fn end_report(&mut self, fid: Fid) {
        if let Some(first) = self.reported.iter().position(|of| *of == fid) {
            self.reported.swap_remove(first);
        }
    }

    /// The MDT may not know yet that a use of `fid` is over.
    pub fn is_reported(&self, fid: Fid) -> bool {
        self.reported.contains(&fid)
    }

    /// Resolves when the use of `fid` is over, or it seems that it goes on.
    pub fn wait(&mut self, fid: Fid, now: Tick) -> Oneshot<()> {
        let (sender, ends) = oneshot();
        self.waiting.push((fid, now, sender));
        ends
    }

    /// Those that wait for uses of `fid`.
    #[must_use]
    pub fn of(&mut self, fid: Fid) -> Vec<Sender<()>> {
        self.take(|(of, ..)| *of == fid)
    }

    /// Those that wait for longer than a use that has ended takes.
    #[must_use]
    pub fn late(&mut self, now: Tick) -> Vec<Sender<()>> {
        self.take(|(_, since, _)| now.since(*since) >= PATIENCE)
    }

    fn take(&mut self, which: impl Fn(&(Fid, Tick, Sender<()>)) -> bool) -> Vec<Sender<()>> {
        let taken = self.waiting.extract_if(.., |waiting| which(waiting));
        taken.map(|(.., sender)| sender).collect()
    }
}
