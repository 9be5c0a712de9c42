//! How far the changes of one file's bytes have come at its OST: sent, answered, durable.

use base::Transno;

/// The changes of one file, by the OST's numbers.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    /// Frames with data on their way.
    writing: u32,
    /// The OST's transno of the last change that it answered.
    written: Transno,
    /// How often the OST restarted, which makes dirty again what was not durable.
    restarts: u32,
    /// The OST has all of it durably.
    committed: bool,
    /// Up to where the OST's transnos were durable when that was last looked at for this file.
    settled: Transno,
    /// The OST has no change of it, not durable yet, with a smaller number.
    first_unsettled: Transno,
}

impl Durability {
    /// A write sets out.
    pub fn begin_write(&mut self) {
        self.writing += 1;
    }

    /// A write is answered.
    pub fn end_write(&mut self) {
        self.writing -= 1;
    }

    /// Writes on their way.
    pub fn writing(&self) -> u32 {
        self.writing
    }

    /// The OST's transno of the last change that it answered.
    pub fn written(&self) -> Transno {
        self.written
    }

    /// How often the OST restarted.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// The OST has restarted.
    pub fn restarted(&mut self) {
        self.restarts += 1;
    }

    /// The OST has made a change, which is not durable yet.
    pub fn sent(&mut self, transno: Transno) {
        self.first_unsettled = match self.is_settled() {
            true => transno,
            false => self.first_unsettled.min(transno),
        };
        self.committed = false;
        self.written = self.written.max(transno);
    }

    /// Whether something may be durable that was not before, where everything up to `durable` is.
    pub fn can_settle(&self, durable: Transno) -> bool {
        durable > self.settled || durable >= self.written
    }

    /// Everything up to `durable` is durable at the OST. `first`: the first change that is not, as far as
    /// that is known.
    pub fn settle(&mut self, durable: Transno, first: Option<Transno>) {
        self.settled = self.settled.max(durable);
        self.committed = durable >= self.written;
        self.first_unsettled = first.unwrap_or(self.written).min(self.written);
    }

    /// Everything is durable.
    pub fn commit(&mut self) {
        self.committed = true;
    }

    /// The OST has all of it durably.
    pub fn is_committed(&self) -> bool {
        self.committed
    }

    /// No change is at the OST that is not durable.
    pub fn is_settled(&self) -> bool {
        self.committed || self.written == Transno(0)
    }

    /// The OST has no change, not durable yet, with a smaller number.
    pub fn first_unsettled(&self) -> Transno {
        self.first_unsettled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_settled_when_its_last_change_is_durable() {
        let mut durability = Durability::default();
        assert!(durability.is_settled() && !durability.is_committed());
        durability.sent(Transno(7));
        durability.sent(Transno(5));
        assert_eq!(
            durability.written(),
            Transno(7),
            "answers overtake each other"
        );
        assert_eq!(durability.first_unsettled(), Transno(5));
        durability.settle(Transno(6), Some(Transno(7)));
        assert!(!durability.is_settled());
        assert!(!durability.can_settle(Transno(6)) && durability.can_settle(Transno(7)));
        durability.settle(Transno(7), None);
        assert!(durability.is_settled() && durability.is_committed());
        durability.sent(Transno(9));
        assert_eq!(durability.first_unsettled(), Transno(9));
    }
}
