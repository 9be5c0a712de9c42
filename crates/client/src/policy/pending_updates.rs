//! Counts the updates of all files that the MDT has not acknowledged yet. A restarted MDT waits for those of
//! its earlier boots before it serves this client.

/// The pending updates of all files.
#[derive(Debug, Default)]
pub(crate) struct PendingUpdates {
    count: usize,
    /// How often the MDT's locks were lost: it restarted, or it evicted this mount.
    generation: u64,
    /// Updates of earlier generations. The MDT waits for these; those of this generation wait for the MDT.
    old: usize,
    /// The updates that the previous process left are among them.
    inherited: bool,
    /// The hold on this client's ready message, until the last old update is acknowledged.
    awaited: Option<u64>,
}

impl PendingUpdates {
    /// An update begins. Returns its generation.
    pub fn begin(&mut self) -> u64 {
        self.count += 1;
        self.generation
    }

    /// The MDT's locks are lost. If it restarted, `hold` keeps the ready message back until all updates
    /// that are pending now are acknowledged.
    pub fn await_all(&mut self, hold: Option<u64>) {
        self.generation += 1;
        self.old = self.count;
        self.awaited = self.awaited.max(hold);
    }

    /// The updates of the previous process go to a restarted MDT before this client is ready. Until then
    /// no other client sees the file as it was before them.
    pub fn await_inherited(&mut self, hold: u64) {
        self.awaited = self.awaited.max(Some(hold));
    }

    /// The previous process has left updates.
    pub fn inherits(&mut self) {
        self.inherited = true;
    }

    /// The MDT has acknowledged the updates of the previous process.
    pub fn inherited_acknowledged(&mut self) {
        self.inherited = false;
    }

    /// The MDT has acknowledged one update that began in `generation`.
    pub fn acknowledged(&mut self, generation: u64) {
        self.count -= 1;
        if generation < self.generation {
            self.old -= 1;
        }
    }

    /// The hold on the ready message, once, when the MDT has acknowledged everything that it waits for.
    pub fn all_acknowledged(&mut self) -> Option<u64> {
        let is_acknowledged = self.old == 0 && !self.inherited;
        self.awaited.take_if(|_| is_acknowledged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_mdt_waits_for_the_updates_of_earlier_boots() {
        let mut updates = PendingUpdates {
            count: 2,
            ..PendingUpdates::default()
        };
        updates.await_all(Some(1));
        updates.count += 1;
        updates.acknowledged(1);
        assert_eq!(updates.all_acknowledged(), None, "that was of this boot");
        updates.acknowledged(0);
        assert_eq!(updates.all_acknowledged(), None);
        updates.await_all(Some(2));
        updates.acknowledged(0);
        assert_eq!(updates.all_acknowledged(), Some(2));
        assert_eq!(updates.all_acknowledged(), None, "once");
    }

    #[test]
    fn a_restarted_mdt_waits_for_the_updates_of_the_previous_process() {
        let mut updates = PendingUpdates {
            inherited: true,
            ..PendingUpdates::default()
        };
        updates.await_all(Some(2));
        assert_eq!(updates.all_acknowledged(), None);
        updates.await_inherited(1);
        assert_eq!(updates.all_acknowledged(), None);
        updates.inherited_acknowledged();
        assert_eq!(updates.all_acknowledged(), Some(2));
    }
}
