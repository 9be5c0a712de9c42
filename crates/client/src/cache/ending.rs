//! Uses of files that others wait for to end. That a descriptor is closed, or a program has ended, those who
//! did it know before this mount: the kernel tells a little later that nothing has the file open.

use std::time::Duration;

use base::{Fid, Tick};

use crate::cache::State;
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

impl State {
    /// A process here has the file open to write it, or executes it, as far as the kernel has told.
    pub fn excludes_others(&mut self, fid: Fid) -> bool {
        let is_written = self.file_known(fid).is_some_and(|file| file.writers > 0);
        is_written || !self.handles.executing(fid).is_empty()
    }

    /// Resolves when that is over, or it seems that it goes on. None: it is over.
    pub fn wait_for_end_of_use(&mut self, fid: Fid, now: Tick) -> Option<Oneshot<()>> {
        self.excludes_others(fid).then(|| {
            let (sender, ends) = oneshot();
            self.ending_uses.0.push((fid, now, sender));
            ends
        })
    }
}
