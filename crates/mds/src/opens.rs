//! Which files are open, by whom, and for what. In memory only: clients tell again after a restart.

use std::collections::BTreeSet;

use base::{ClientId, Fid, FsError};
use dlm::IdMap;
use wire::mdt::{Access, OpenHandle, WriteTicket};

/// Files one client may have registered as open. Beyond: refused, `TryAgain`.
pub const OPENS_PER_CLIENT_MAX: usize = 1 << 20;

/// Bits of a handle or an open epoch below the boot count.
const COUNT_BITS: u32 = 40;

/// One open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// Which file.
    pub fid: Fid,
    /// Whose.
    pub client: ClientId,
    /// For what.
    pub access: Access,
}

/// All open files.
#[derive(Debug)]
pub struct Opens {
    boot: u32,
    last_handle: u64,
    last_epoch: u64,
    handles: IdMap<OpenHandle, Open>,
    files: IdMap<Fid, Vec<OpenHandle>>,
    clients: IdMap<ClientId, BTreeSet<OpenHandle>>,
    /// Opens for writing beside which another client had the file open for writing, at any time.
    overlapped: BTreeSet<OpenHandle>,
}

impl Opens {
    /// None yet, in this boot of the target: handles and epochs of different boots differ.
    pub fn new(boot: u32) -> Opens {
        let first = u64::from(boot) << COUNT_BITS;
        Opens {
            boot,
            last_handle: first,
            last_epoch: first,
            handles: IdMap::default(),
            files: IdMap::default(),
            clients: IdMap::default(),
            overlapped: BTreeSet::new(),
        }
    }

    /// Which boot of the target this is.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// None is open.
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Open> {
        self.handles.values()
    }

    /// Registers an open file.
    pub fn add(&mut self, open: Open) -> Result<OpenHandle, FsError> {
        let of_client = self.clients.entry(open.client).or_default();
        if of_client.len() >= OPENS_PER_CLIENT_MAX {
            return Err(FsError::TryAgain);
        }
        self.last_handle += 1;
        let handle = OpenHandle(self.last_handle);
        of_client.insert(handle);
        if open.access.write {
            self.note_overlap(handle, open);
        }
        self.handles.insert(handle, open);
        self.files.entry(open.fid).or_default().push(handle);
        Ok(handle)
    }

    /// The client can register so many more.
    pub fn has_room(&self, client: ClientId, count: usize) -> bool {
        let registered = self.clients.get(&client).map_or(0, BTreeSet::len);
        registered + count <= OPENS_PER_CLIENT_MAX
    }

    fn note_overlap(&mut self, handle: OpenHandle, open: Open) {
        let others: Vec<OpenHandle> = self
            .beside(open.fid, handle)
            .filter(|(_, other)| other.access.write && other.client != open.client)
            .map(|(handle, _)| handle)
            .collect();
        if !others.is_empty() {
            self.overlapped.insert(handle);
            self.overlapped.extend(others);
        }
    }

    /// The open file `handle` of `client`, which must be `fid`.
    pub fn get(&self, handle: OpenHandle, client: ClientId, fid: Fid) -> Result<Open, FsError> {
        let open = self.handles.get(&handle).ok_or(FsError::BadHandle)?;
        if open.client != client || open.fid != fid {
            return Err(FsError::BadHandle);
        }
        Ok(*open)
    }

    /// Forgets one.
    pub fn remove(&mut self, handle: OpenHandle) -> Option<Open> {
        let open = self.handles.remove(&handle)?;
        self.overlapped.remove(&handle);
        if let Some(of_file) = self.files.get_mut(&open.fid) {
            of_file.retain(|h| *h != handle);
            if of_file.is_empty() {
                self.files.remove(&open.fid);
            }
        }
        if let Some(of_client) = self.clients.get_mut(&open.client) {
            of_client.remove(&handle);
            if of_client.is_empty() {
                self.clients.remove(&open.client);
            }
        }
        Some(open)
    }

    /// All of a client.
    pub fn of_client(&self, client: ClientId) -> Vec<OpenHandle> {
        let handles = self.clients.get(&client);
        handles.into_iter().flatten().copied().collect()
    }

    /// Forgets all of a client; says which files these were.
    pub fn remove_client(&mut self, client: ClientId) -> Vec<Fid> {
        let handles = self.clients.get(&client).cloned().unwrap_or_default();
        handles
            .into_iter()
            .filter_map(|handle| Some(self.remove(handle)?.fid))
            .collect()
    }

    pub(crate) fn of(&self, fid: Fid) -> impl Iterator<Item = &Open> {
        self.files
            .get(&fid)
            .into_iter()
            .flatten()
            .filter_map(|handle| self.handles.get(handle))
    }

    /// All uses of the file.
    pub fn handles(&self, fid: Fid) -> impl Iterator<Item = OpenHandle> {
        self.files.get(&fid).into_iter().flatten().copied()
    }

    /// Somebody has it open.
    pub fn is_open(&self, fid: Fid) -> bool {
        self.files.contains_key(&fid)
    }

    /// Somebody has it open for writing.
    pub fn has_writer(&self, fid: Fid) -> bool {
        self.of(fid).any(|open| open.access.write)
    }

    fn beside(&self, fid: Fid, handle: OpenHandle) -> impl Iterator<Item = (OpenHandle, &Open)> {
        let handles = self.files.get(&fid).into_iter().flatten();
        let others = handles.filter(move |other| **other != handle);
        others.filter_map(|other| Some((*other, self.handles.get(other)?)))
    }

    /// What its user says of the file's bytes is true now. Nobody else has it open for writing, and
    /// no other client had since it was made. What one says may have been on its way for long, and
    /// been overtaken by all that another did.
    pub fn knows_bytes(&self, fid: Fid, handle: OpenHandle) -> bool {
        let mut beside = self.beside(fid, handle);
        !self.overlapped.contains(&handle) && !beside.any(|(_, open)| open.access.write)
    }

    /// It is open by another handle than `handle`.
    pub fn is_open_beside(&self, fid: Fid, handle: OpenHandle) -> bool {
        self.files
            .get(&fid)
            .is_some_and(|handles| handles.iter().any(|h| *h != handle))
    }

    /// `client` has it open.
    pub fn is_user(&self, fid: Fid, client: ClientId) -> bool {
        self.of(fid).any(|open| open.client == client)
    }

    /// Somebody but `client` has it open.
    pub fn is_used_by_others(&self, fid: Fid, client: ClientId) -> bool {
        self.of(fid).any(|open| open.client != client)
    }

    /// Somebody but `client` has it open for writing.
    pub fn has_other_writer(&self, fid: Fid, client: ClientId) -> bool {
        self.of(fid)
            .any(|open| open.access.write && open.client != client)
    }

    /// `client` has it open for writing.
    pub fn is_writer(&self, fid: Fid, client: ClientId) -> bool {
        self.of(fid)
            .any(|open| open.access.write && open.client == client)
    }

    /// Somebody has it open for executing.
    pub fn has_executor(&self, fid: Fid) -> bool {
        self.of(fid).any(|open| open.access.exec)
    }

    /// The right to write under a new open epoch.
    pub fn ticket(&mut self, layout_generation: u32) -> WriteTicket {
        self.last_epoch += 1;
        WriteTicket {
            layout_generation,
            open_epoch: self.last_epoch,
        }
    }

    /// No ticket has a higher open epoch than this.
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Access = Access {
        read: false,
        write: true,
        exec: false,
    };
    const READ: Access = Access {
        read: true,
        write: false,
        exec: false,
    };

    #[test]
    fn tells_writers_apart() {
        let (a, b, file) = (ClientId(1), ClientId(2), Fid(9));
        let mut opens = Opens::new(1);
        let writing = opens
            .add(Open {
                fid: file,
                client: a,
                access: WRITE,
            })
            .expect("room");
        let reading = opens
            .add(Open {
                fid: file,
                client: b,
                access: READ,
            })
            .expect("room");
        assert!(opens.has_other_writer(file, b) && !opens.has_other_writer(file, a));
        assert!(opens.is_writer(file, a) && !opens.is_writer(file, b));
        assert_eq!(opens.get(writing, b, file), Err(FsError::BadHandle));
        assert_eq!(opens.get(reading, b, Fid(8)), Err(FsError::BadHandle));
        assert_eq!(opens.remove_client(a), [file]);
        assert!(opens.is_open(file) && !opens.has_writer(file));
        assert!(opens.remove(reading).is_some() && !opens.is_open(file) && opens.is_empty());
    }

    #[test]
    fn who_was_not_alone_does_not_know_the_bytes() {
        let (a, b, file) = (ClientId(1), ClientId(2), Fid(9));
        let mut opens = Opens::new(1);
        let open = |opens: &mut Opens, client, access| {
            let open = Open {
                fid: file,
                client,
                access,
            };
            opens.add(open).expect("room")
        };
        let first = open(&mut opens, a, WRITE);
        let reading = open(&mut opens, b, READ);
        assert!(opens.knows_bytes(file, first), "readers change nothing");
        opens.remove(reading);
        let second = open(&mut opens, b, WRITE);
        opens.remove(second);
        assert!(
            !opens.knows_bytes(file, first),
            "another was there, and is gone"
        );
        opens.remove(first);
        let third = open(&mut opens, b, WRITE);
        assert!(opens.knows_bytes(file, third));
        let own = open(&mut opens, b, WRITE);
        assert!(!opens.knows_bytes(file, third));
        opens.remove(own);
        assert!(opens.knows_bytes(file, third), "its own other use");
    }

    #[test]
    fn boots_do_not_share_handles_or_epochs() {
        let (mut first, mut second) = (Opens::new(1), Opens::new(2));
        let open = Open {
            fid: Fid(9),
            client: ClientId(1),
            access: WRITE,
        };
        assert_ne!(first.add(open), second.add(open));
        assert!(first.ticket(1).open_epoch < second.ticket(1).open_epoch);
    }
}
