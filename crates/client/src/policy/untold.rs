//! What is being told to the MDT over all files, and for what of it a new life of the MDT waits.

/// Over all files.
#[derive(Debug, Default)]
pub(crate) struct AllUntold {
    pub count: usize,
    /// How often the MDT's locks went: it restarted, or gave this mount up.
    pub life: u64,
    /// Of lives before this one, for which the MDT waits. What is told of this life waits for the MDT.
    old: usize,
    /// What the process before this one left is among it.
    pub inherited: bool,
    /// The MDT waits for the last of those: what holds up word to it that this client is ready.
    awaited: Option<u64>,
}

impl AllUntold {
    /// The MDT's locks have gone. One that lives anew waits for what is untold: that holds up word that
    /// this client is ready.
    pub fn await_all(&mut self, hold: Option<u64>) {
        self.life += 1;
        self.old = self.count;
        self.awaited = self.awaited.max(hold);
    }

    /// What the process before left is to be told, to an MDT that lives anew before it hears that
    /// this client is ready. Till then nobody else sees what a file was like.
    pub fn await_inherited(&mut self, hold: u64) {
        self.awaited = self.awaited.max(Some(hold));
    }

    /// It is told.
    pub fn inheritance_told(&mut self) {
        self.inherited = false;
    }

    /// Something is, that was begun in that life.
    pub fn is_told(&mut self, life: u64) {
        self.count -= 1;
        if life < self.life {
            self.old -= 1;
        }
    }

    /// It need not wait any more. Says so once.
    pub fn all_told(&mut self) -> Option<u64> {
        let is_told = self.old == 0 && !self.inherited;
        self.awaited.take_if(|_| is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_life_waits_for_what_is_of_those_before() {
        let mut untold = AllUntold {
            count: 2,
            ..AllUntold::default()
        };
        untold.await_all(Some(1));
        untold.count += 1;
        untold.is_told(1);
        assert_eq!(untold.all_told(), None, "that was of the new life");
        untold.is_told(0);
        assert_eq!(untold.all_told(), None);
        untold.await_all(Some(2));
        untold.is_told(0);
        assert_eq!(untold.all_told(), Some(2));
        assert_eq!(untold.all_told(), None, "once");
    }

    #[test]
    fn a_new_life_waits_for_what_the_process_before_left() {
        let mut untold = AllUntold {
            inherited: true,
            ..AllUntold::default()
        };
        untold.await_all(Some(2));
        assert_eq!(untold.all_told(), None);
        untold.await_inherited(1);
        assert_eq!(untold.all_told(), None);
        untold.inheritance_told();
        assert_eq!(untold.all_told(), Some(2));
    }
}
