//! What was changed of one file's attributes under the MDT's EX lock, until the MDT has acknowledged it.

use handover::Record;
use wire::Attr;
use wire::mdt::SetTime::At;
use wire::mdt::{Privileges, SetAttr};

use crate::cache::attributes::dropped_privileges;

/// The pending change of one file.
#[derive(Debug, Default)]
pub(crate) struct PendingChange {
    /// Attributes changed and not yet reported.
    attrs: SetAttr,
    /// The record of that for the next process.
    record: Option<Record>,
    /// How many updates of the file are being reported.
    updates: u32,
}

impl PendingChange {
    /// Something is to be reported.
    pub fn is_any(&self) -> bool {
        self.attrs != SetAttr::default()
    }

    /// What is to be reported.
    pub fn attrs(&self) -> &SetAttr {
        &self.attrs
    }

    /// Adds `change`, as the values in `attr` that it led to.
    pub fn merge(&mut self, change: &SetAttr, attr: &Attr) {
        let attrs = &mut self.attrs;
        attrs.mode = change.mode.or(attrs.mode);
        if dropped_privileges(change) != Privileges::Keep {
            attrs.mode = Some(attr.mode);
        }
        attrs.uid = change.uid.or(attrs.uid);
        attrs.gid = change.gid.or(attrs.gid);
        attrs.atime = change.atime.map(|_| At(attr.atime)).or(attrs.atime);
        attrs.mtime = change.mtime.map(|_| At(attr.mtime)).or(attrs.mtime);
        attrs.ctime = Some(attr.ctime);
    }

    /// The content was changed: a time that was set before counts no more.
    pub fn drop_mtime(&mut self) {
        self.attrs.mtime = None;
    }

    /// The journal has this record of the change instead of the one before, which goes after that.
    pub fn keep_record(&mut self, record: Option<Record>) {
        self.record = record;
    }

    /// What is to be reported, and its record, which is to be kept until that is acknowledged.
    pub fn take(&mut self) -> (SetAttr, Option<Record>) {
        (std::mem::take(&mut self.attrs), self.record.take())
    }

    /// The change went with an eviction. Returns whether there was one.
    pub fn lose(&mut self) -> bool {
        std::mem::take(&mut self.attrs) != SetAttr::default()
    }

    /// An update begins.
    pub fn begin_update(&mut self) {
        self.updates += 1;
    }

    /// An update is acknowledged, or lost.
    pub fn end_update(&mut self) {
        self.updates -= 1;
    }

    /// An update is being reported.
    pub fn is_updating(&self) -> bool {
        self.updates > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::attr_at;
    use base::TargetIndex;

    #[test]
    fn later_changes_are_added_to_earlier_ones_and_taken_once() {
        let (mut pending, mut attr) = (PendingChange::default(), attr_at(TargetIndex(0)));
        attr.mode = 0o600;
        let mode = SetAttr {
            mode: Some(attr.mode),
            ..SetAttr::default()
        };
        pending.merge(&mode, &attr);
        let owner = SetAttr {
            gid: Some(5),
            ..SetAttr::default()
        };
        pending.merge(&owner, &attr);
        let (attrs, _) = pending.take();
        assert_eq!((attrs.mode, attrs.gid), (Some(0o600), Some(5)));
        assert!(attrs.ctime.is_some() && !pending.is_any());
    }

    #[test]
    fn a_write_overrides_a_time_that_was_set() {
        let (mut pending, attr) = (PendingChange::default(), attr_at(TargetIndex(0)));
        let times = SetAttr {
            mtime: Some(At(attr.mtime)),
            ..SetAttr::default()
        };
        pending.merge(&times, &attr);
        assert!(pending.attrs().mtime.is_some());
        pending.drop_mtime();
        assert!(pending.attrs().mtime.is_none() && pending.is_any());
        assert!(pending.lose() && !pending.lose());
    }

    #[test]
    fn updates_are_counted_until_each_is_acknowledged() {
        let mut pending = PendingChange::default();
        pending.begin_update();
        pending.begin_update();
        pending.end_update();
        assert!(pending.is_updating());
        pending.end_update();
        assert!(!pending.is_updating());
    }
}
