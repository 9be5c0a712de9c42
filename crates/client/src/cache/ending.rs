//! Uses of files that others wait for to end. That a descriptor is closed, or a program has ended, those who
//! did it know before this mount: the kernel tells a little later that nothing has the file open.

use std::time::Duration;

use base::{Fid, Tick};

use crate::executor::{Oneshot, Sender, oneshot};

/// How long a use that has ended may be taken for one that goes on.
const PATIENCE: Duration = Duration::from_secs(1);

/// Those who wait for the ends of uses: told when these are dropped.
#[derive(Default)]
pub(crate) struct EndingUses(Vec<(Fid, Tick, Sender<()>)>);

impl EndingUses {
    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Resolves when the use of `fid` is over, or it seems that it goes on.
    pub fn wait(&mut self, fid: Fid, now: Tick) -> Oneshot<()> {
        let (sender, ends) = oneshot();
        self.0.push((fid, now, sender));
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
        let taken = self.0.extract_if(.., |waiting| which(waiting));
        taken.map(|(.., sender)| sender).collect()
    }
}
