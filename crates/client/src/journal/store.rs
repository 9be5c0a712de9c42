//! The journal of this process: what it writes down for the next, and what it found of the one before. Each
//! open file keeps the records of its own bytes and errors. The whole is docs/adr/0011-supervisor.md.

use std::collections::HashMap;

use base::{BootEpoch, Fid, LockHandle, Tick, Timestamp};
use handover::{Found, Record, Records};
use wire::mdt::{SetAttr, WriteTicket};

use super::attempts::{AttemptBody, AttemptJournal, AttemptRecord, FoundAttempts};
use super::births::{BirthBody, FoundBirths, RecordedBirths};
use super::bytes::RememberedBytes;
use super::edits::{EditBody, FoundEdit, RecordedEdits};
use super::failures::Reported;
use super::handles::{OpenedAs, remember_handle};
use super::nodes::FurtherNode;
use super::record::{self, CHANGE, ChangeBody, NODE, Noted, PINNED};
use super::resizes::{self, RememberedResize, Resize};
use super::written::{WrittenBefore, remember_written};
use crate::executor;
use wire::shape::Shape;

/// The journal; without a supervisor's memory it is empty and stays so.
#[derive(Default)]
pub(crate) struct Journal {
    records: Option<Records>,
    /// One record for each file that the kernel knows.
    nodes: HashMap<Fid, Record>,
    /// Further nodes of directories in the kernel, which the process before had made.
    inherited_nodes: Vec<FurtherNode>,
    /// Second attempts of calls that the process before knew of.
    inherited_attempts: FoundAttempts,
    /// The next write's place in the order of all.
    next_order: u64,
    written_before: WrittenBefore,
    births: RecordedBirths,
    edits: RecordedEdits,
    /// Requests of the kernel for which the process before had changed a size or space. Each note is kept
    /// until its request is answered.
    resized_for: HashMap<u64, Noted>,
}

impl Journal {
    /// From now on changes are written to `records`.
    pub fn begin(&mut self, records: Records) {
        self.records = Some(records);
    }

    /// The memory, where a supervisor holds one.
    pub fn records(&self) -> Option<&Records> {
        self.records.as_ref()
    }

    /// The kernel holds `lookups` references to `fid`.
    pub fn note_lookups(&mut self, fid: Fid, lookups: u64) {
        let Some(records) = &self.records else {
            return;
        };
        match (lookups, self.nodes.get(&fid)) {
            (0, _) => drop(self.nodes.remove(&fid)),
            (_, Some(node)) => node.set_mark(lookups),
            (_, None) => {
                let node = record::put(records, NODE, lookups, &record::encode(&fid));
                self.nodes.extend(node.map(|node| (fid, node)));
            }
        }
    }

    /// The record of a file that the kernel knows was found.
    pub fn adopt_node(&mut self, fid: Fid, record: Record) {
        self.nodes.insert(fid, record);
    }

    /// The files that the kernel knows.
    pub fn nodes(&self) -> impl Iterator<Item = Fid> {
        self.nodes.keys().copied()
    }

    /// Further nodes were found.
    pub fn adopt_further_nodes(&mut self, nodes: impl Iterator<Item = FurtherNode>) {
        self.inherited_nodes.extend(nodes);
    }

    /// The further nodes that were found, once.
    pub fn take_further_nodes(&mut self) -> Vec<FurtherNode> {
        std::mem::take(&mut self.inherited_nodes)
    }

    /// Second attempts of calls were found.
    pub fn adopt_attempts(&mut self, found: Vec<Found>) {
        self.inherited_attempts = FoundAttempts::new(found);
    }

    /// Where such attempts are recorded, and those that were found, once.
    pub fn take_attempts(&mut self) -> (AttemptJournal, Vec<(AttemptBody, AttemptRecord)>) {
        let found = std::mem::take(&mut self.inherited_attempts);
        let journal = AttemptJournal::new(self.records.clone(), found.last());
        (journal, found.read())
    }

    /// A call that has found `fid` must find it again, also in the next process.
    pub fn put_pinned(&self, fid: Fid) -> Option<Record> {
        let records = self.records.as_ref()?;
        record::put(records, PINNED, 0, &record::encode(&fid))
    }

    /// Writes and changes made from now on come after the `order` first ones.
    pub fn go_on_after(&mut self, order: u64) {
        self.next_order = self.next_order.max(order);
    }

    fn take_order(&mut self) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        order
    }

    /// Bytes that a program wrote are written to the records of their file. False: there is no room, and
    /// they must be sent at once.
    pub fn put_bytes(
        &mut self,
        bytes: &mut RememberedBytes,
        (fid, mtime): (Fid, Timestamp),
        at: u64,
        data: &[u8],
    ) -> bool {
        let order = self.take_order();
        match &self.records {
            Some(records) => bytes.wrote(records, (fid, mtime, order), at, data),
            None => true,
        }
    }

    /// A file or directory is opened: the record of its handle.
    pub fn put_handle(
        &self,
        id: u64,
        fid: Fid,
        opened: OpenedAs,
        reported: Reported,
    ) -> Option<Record> {
        let records = self.records.as_ref()?;
        remember_handle(records, id, fid, opened, reported)
    }

    /// Attributes were changed under the lock `under` of that boot of the MDT.
    pub fn put_change(
        &mut self,
        fid: Fid,
        (under, epoch): (LockHandle, BootEpoch),
        change: &SetAttr,
    ) -> Option<Record> {
        let order = self.take_order();
        let records = self.records.as_ref()?;
        let body = ChangeBody {
            fid,
            under,
            epoch,
            change: change.clone(),
            order,
        };
        record::put(records, CHANGE, 0, &record::encode(&body))
    }

    /// A file is made that the MDT does not know, or is another now. `origin`: the kernel may repeat the
    /// request that made it. False: there is no room for it.
    pub fn put_birth(&mut self, body: BirthBody, origin: bool) -> bool {
        let order = self.take_order();
        let Some(records) = &self.records else {
            return true;
        };
        let number = executor::origin().filter(|_| origin);
        let origin = number.map_or(0, |origin| origin.number());
        self.births.put(
            records,
            &BirthBody {
                order,
                origin,
                ..body
            },
        )
    }

    /// The MDT has the file, or it is lost.
    pub fn end_birth(&mut self, fid: Fid) {
        self.births.end(fid);
    }

    /// A file that the MDT does not know is removed.
    pub fn birth_removed(&mut self, fid: Fid) {
        self.births.removed(fid);
    }

    /// A directory has lost a name that the MDT does not know.
    pub fn date_directory(&mut self, dir: Fid, at: Timestamp) {
        if let Some(records) = &self.records {
            self.births.date(records, dir, at);
        }
    }

    /// The MDT knows when names of the directory changed.
    pub fn end_date(&mut self, dir: Fid) {
        self.births.end_date(dir);
    }

    /// Records of such directories were found: when names of each changed last.
    pub fn adopt_dates(&mut self, found: Vec<Found>) -> Vec<(Fid, Timestamp)> {
        self.births.adopt_dates(found)
    }

    /// Records of such files were found.
    pub fn adopt_births(&mut self, found: Vec<Found>) -> FoundBirths {
        self.births.adopt(found)
    }

    /// The file that the process before had made for the present task's origin. Says so once.
    pub fn was_made(&mut self) -> Option<Fid> {
        self.births.was_made()
    }

    /// The file that it had removed.
    pub fn was_removed(&mut self) -> Option<Fid> {
        let removed = self.births.was_removed();
        removed.or_else(|| self.edits.was_removed())
    }

    /// The change of a file that the MDT knows has that number, and is this one now. False: there is no room
    /// for it.
    pub fn put_edit(&mut self, number: u64, edit: EditBody) -> bool {
        let order = self.take_order();
        match &self.records {
            Some(records) => self.edits.put(records, number, edit, order),
            None => true,
        }
    }

    /// The MDT has the change, or never will.
    pub fn end_edit(&mut self, number: u64) {
        self.edits.end(number);
    }

    /// All such changes are lost.
    pub fn end_edits(&mut self) {
        self.edits.end_all();
    }

    /// Records of such changes were found.
    pub fn adopt_edits(&mut self, found: Vec<Found>) -> Vec<FoundEdit> {
        self.edits.adopt(found)
    }

    /// A change that was found has that number now.
    pub fn keep_edit(&mut self, number: u64, found: FoundEdit) {
        self.edits.keep(number, found);
    }

    /// A file's size or space is about to be changed. `is_sent`: its OST has to be told. None: there is no
    /// room, and the change must be durable before anybody hears of it.
    pub fn put_resize(
        &mut self,
        fid: Fid,
        (shape, is_sent): (Shape, bool),
        ticket: WriteTicket,
        mtime: Timestamp,
    ) -> Option<Option<RememberedResize>> {
        let order = self.take_order();
        let Some(records) = &self.records else {
            return Some(None);
        };
        let resize = Resize {
            fid,
            shape,
            ticket,
            mtime,
            order,
        };
        resizes::remember(records, &resize, is_sent)
    }

    /// A change of size or space was found whose request the kernel may repeat.
    pub fn adopt_resized(&mut self, unanswered: Option<(u64, Noted)>) {
        self.resized_for.extend(unanswered);
    }

    /// Whether the present task's origin asks for a change of size or space that is made already. Says so
    /// once.
    pub fn was_resized(&mut self) -> bool {
        let Some(origin) = executor::origin() else {
            return false;
        };
        let Some(noted) = self.resized_for.remove(&origin.number()) else {
            return false;
        };
        origin.keep(Box::new(noted));
        true
    }

    /// The bytes of the present task's origin are written, and their records with them. A successor must
    /// not write them again.
    pub fn note_written(&self) {
        if let Some(records) = &self.records {
            remember_written(records);
        }
    }

    /// Whether the process before had written the bytes of the present task's origin. Says so once.
    pub fn was_written(&mut self) -> bool {
        self.written_before.take()
    }

    /// The record of a request whose bytes are written was found.
    pub fn adopt_written(&mut self, body: &[u8], record: Record) {
        self.written_before.adopt(body, record);
    }

    /// Bytes were found that the request `number` had written.
    pub fn add_written(&mut self, number: u64) {
        if let Some(records) = &self.records {
            self.written_before.add(records, number);
        }
    }

    /// The kernel repeats requests for a while only: what it has not repeated by then was answered.
    pub fn grow_old(&mut self, now: Tick) {
        self.written_before.grow_old(now);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use base::ByteRange;
    use handover::{Found, Region};

    use super::*;
    use crate::executor::Origin;
    use crate::journal::record::{BYTES, decode};

    const FILE: Fid = Fid(7);

    fn open(memory: &OwnedFd) -> (Journal, Vec<Found>) {
        let (records, found) = Records::open(Region::map(memory).unwrap()).unwrap();
        let mut journal = Journal::default();
        journal.begin(records);
        (journal, found)
    }

    #[test]
    fn without_a_supervisor_nothing_is_written_and_nothing_lacks_room() {
        let (mut journal, mut bytes) = (Journal::default(), RememberedBytes::default());
        journal.note_lookups(FILE, 1);
        assert_eq!(journal.nodes().count(), 0);
        let now = Timestamp::default();
        assert!(journal.put_bytes(&mut bytes, (FILE, now), 0, b"bytes") && bytes.is_empty());
        let resized = journal.put_resize(FILE, (Shape::Size(1), true), WriteTicket::default(), now);
        assert!(matches!(resized, Some(None)));
        let under = (LockHandle(1), BootEpoch(1));
        assert!(
            journal
                .put_change(FILE, under, &SetAttr::default())
                .is_none()
        );
    }

    #[test]
    fn a_node_is_known_to_the_next_process_until_the_kernel_forgets_it() {
        let memory = Region::create(8 << 20).unwrap();
        let (mut journal, _) = open(&memory);
        journal.note_lookups(FILE, 1);
        journal.note_lookups(FILE, 3);
        let (_, found) = open(&memory);
        let marks: Vec<u64> = found.iter().map(|found| found.mark).collect();
        assert_eq!(marks, [3]);
        std::mem::forget(found);
        journal.note_lookups(FILE, 0);
        assert_eq!(journal.records().unwrap().bytes(), 0);
    }

    #[test]
    fn writes_and_changes_have_one_order_that_goes_on_in_the_next_process() {
        let memory = Region::create(8 << 20).unwrap();
        let (mut journal, _) = open(&memory);
        let mut bytes = RememberedBytes::default();
        let now = Timestamp::default();
        assert!(journal.put_bytes(&mut bytes, (FILE, now), 0, b"bytes"));
        let under = (LockHandle(1), BootEpoch(1));
        let first = journal.put_change(FILE, under, &SetAttr::default());
        journal.go_on_after(40);
        journal.go_on_after(9);
        let second = journal.put_change(FILE, under, &SetAttr::default());
        let (_, found) = open(&memory);
        let changes = found.iter().filter(|found| found.kind == CHANGE);
        let bodies = changes.filter_map(|found| decode::<ChangeBody>(&found.bytes));
        let mut orders: Vec<u64> = bodies.map(|body| body.order).collect();
        orders.sort_unstable();
        assert_eq!(orders, [1, 40]);
        assert_eq!(found.iter().filter(|found| found.kind == BYTES).count(), 1);
        std::mem::forget((found, first, second));
        bytes.settled(journal.records().unwrap(), ByteRange::ALL);
    }

    #[test]
    fn a_change_of_size_is_known_as_made_once_for_its_request() {
        let memory = Region::create(8 << 20).unwrap();
        let (mut first, _) = open(&memory);
        let origin = Origin::new(7);
        let now = Timestamp::default();
        let put = || first.put_resize(FILE, (Shape::Size(1), true), WriteTicket::default(), now);
        std::mem::forget((Origin::run(&origin, put), origin));
        let (mut second, found) = open(&memory);
        for found in found.into_iter().filter_map(resizes::found) {
            second.adopt_resized(found.unanswered);
        }
        let again = Origin::new(7);
        let mut ask = || Origin::run(&again, || second.was_resized());
        assert!(ask() && !ask());
    }
}
