//! Programs: each makes one call after the other on its mount, by the throw of its own dice, and
//! writes down what it saw.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{Fid, FsError, Name, Rng, SeededRng};
use client::executor::block_on;
use client::{Client, HandleId, NewNode, OpenWish, PageEntry, Place, WriteWish};
use threads::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use wire::FileKind;
use wire::mdt::{Access, Caller, RenameMode};

use crate::history::{Call, Entry, Seen, Slot};
use crate::scheduler::Scheduler;

/// Directories that programs work in.
pub const DIRS: u8 = 3;
/// Names in each.
pub const NAMES: u8 = 4;
/// The longest pause between two calls.
const PAUSE_MAX: Duration = Duration::from_millis(40);

const ROOT_USER: Caller = Caller { uid: 0, gid: 0 };

/// What all programs write down.
#[derive(Default)]
pub struct Log {
    entries: Mutex<Vec<Entry>>,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many calls have returned.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Nothing was called.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it.
    pub fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.lock())
    }
}

/// Files whose bytes programs read and write; their names nobody touches.
pub const FILES: u8 = 3;
/// Bytes that are written and read at once.
const BYTES: usize = 64;

/// Makes the files through one mount.
pub fn make_files(client: &Client) -> Result<Vec<Fid>, FsError> {
    (0..FILES)
        .map(|file| {
            let place = Place {
                dir: Fid::ROOT,
                name: Name::new(format!("f{file}")).map_err(|_| FsError::Invalid)?,
                caller: ROOT_USER,
            };
            make(client, place, FileKind::Regular)
        })
        .collect()
}

/// The number that `bytes` are full of; nothing written is zero. What is torn is a number that
/// nobody writes.
fn value_of(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks(8).map(|word| {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        u64::from_le_bytes(padded)
    });
    let first = words.next().unwrap_or(0);
    match words.all(|word| word == first) {
        true => first,
        false => u64::MAX,
    }
}

/// The locks that the kernel of a node has on directories: whoever changes names in one has it
/// alone, lookups and listings share it. The client is never asked otherwise.
pub type DirectoryLocks = Arc<Vec<RwLock<()>>>;

/// Free ones.
pub fn directory_locks() -> DirectoryLocks {
    Arc::new((0..DIRS).map(|_| RwLock::new(())).collect())
}

/// What a call holds.
enum Held<'a> {
    Nothing,
    Shared {
        _dir: RwLockReadGuard<'a, ()>,
    },
    Alone {
        _dirs: Vec<RwLockWriteGuard<'a, ()>>,
    },
}

fn hold<'a>(locks: &'a DirectoryLocks, call: &Call) -> Held<'a> {
    let dirs = match call {
        Call::Lookup(Slot { dir, .. }) | Call::List(dir) => {
            let lock = locks[usize::from(*dir)].read();
            let _dir = lock.unwrap_or_else(PoisonError::into_inner);
            return Held::Shared { _dir };
        }
        Call::Put(..) | Call::Get(_) => return Held::Nothing,
        // In one order: no two calls wait for each other.
        Call::Rename(from, to) if from.dir != to.dir => {
            vec![from.dir.min(to.dir), from.dir.max(to.dir)]
        }
        Call::Create(slot)
        | Call::Mkdir(slot)
        | Call::Unlink(slot)
        | Call::Rmdir(slot)
        | Call::Rename(slot, _)
        | Call::Link(_, slot) => vec![slot.dir],
    };
    let locks = dirs.into_iter().map(|dir| locks[usize::from(dir)].write());
    let _dirs = locks.map(|lock| lock.unwrap_or_else(PoisonError::into_inner));
    Held::Alone {
        _dirs: _dirs.collect(),
    }
}

/// One program.
pub struct Program {
    /// Its number.
    pub number: u32,
    /// Its mount.
    pub client: Client,
    /// The directories, by number.
    pub dirs: Vec<Fid>,
    /// The files, by number.
    pub files: Vec<Fid>,
    /// Whether it reads and writes them.
    pub bytes: bool,
    /// Its node's locks on the directories.
    pub locks: DirectoryLocks,
    /// Its dice.
    pub numbers: SeededRng,
    /// Where it writes down what it saw.
    pub log: Arc<Log>,
    /// Whose time it is.
    pub scheduler: Arc<Scheduler>,
}

fn name_of(letter: u8) -> Result<Name, FsError> {
    Name::new([b'a' + letter]).map_err(|_| FsError::Invalid)
}

fn letter_of(name: &Name) -> Option<u8> {
    match name.as_bytes() {
        [letter] => letter.checked_sub(b'a'),
        _ => None,
    }
}

/// Makes the directories through one mount.
pub fn make_directories(client: &Client) -> Result<Vec<Fid>, FsError> {
    (0..DIRS)
        .map(|dir| {
            let place = Place {
                dir: Fid::ROOT,
                name: Name::new(format!("d{dir}")).map_err(|_| FsError::Invalid)?,
                caller: ROOT_USER,
            };
            make(client, place, FileKind::Directory)
        })
        .collect()
}

fn make(client: &Client, place: Place, kind: FileKind) -> Result<Fid, FsError> {
    let client = client.clone();
    let node = NewNode {
        kind,
        mode: 0o755,
        rdev: 0,
        target: Vec::new(),
    };
    block_on(async move { client.make(place, node).await }).map(|entry| entry.fid)
}

/// Reads a directory to its end, and says in how many pages it came.
async fn read_all(client: &Client, handle: HandleId) -> Result<(Vec<PageEntry>, usize), FsError> {
    let (mut entries, mut pages) = (Vec::<PageEntry>::new(), 0);
    loop {
        let after = entries.last().map_or(0, |entry| entry.cookie);
        let page = client.readdir(handle, after, 1000).await?;
        if page.entries.is_empty() {
            return Ok((entries, pages));
        }
        entries.extend(page.entries);
        pages += 1;
    }
}

async fn open(client: &Client, fid: Fid, write: bool) -> Result<HandleId, FsError> {
    let access = Access {
        read: !write,
        write,
        exec: false,
    };
    let wish = OpenWish {
        access,
        append: false,
    };
    let opened = match client.open(fid, wish).await {
        // The kernel asks for the path's names again then, and to open, once.
        Err(FsError::Stale) => {
            let again = client.lookup_self(fid).await?;
            client.forget(again.fid, 1);
            client.open(again.fid, wish).await
        }
        opened => opened,
    };
    opened.map(|opened| opened.handle)
}

impl Program {
    /// Makes `calls` calls.
    pub fn run(mut self, calls: usize) {
        self.know_all();
        for _ in 0..calls {
            let pause = self.numbers.below(PAUSE_MAX.as_nanos() as u64);
            threads::sleep(Duration::from_nanos(pause));
            let call = self.choose();
            self.make_call(call);
        }
    }

    /// A kernel knows what its programs use, and the client keeps that as long.
    fn know_all(&self) {
        let dirs = (0..DIRS).map(|dir| format!("d{dir}"));
        for text in dirs.chain((0..FILES).map(|file| format!("f{file}"))) {
            let client = self.client.clone();
            let known = Name::new(text)
                .map(|name| block_on(async move { client.lookup(Fid::ROOT, &name).await }));
            assert!(matches!(known, Ok(Ok(_))), "{known:?}");
        }
    }

    fn slot(&mut self) -> Slot {
        Slot {
            dir: self.numbers.below(u64::from(DIRS)) as u8,
            name: self.numbers.below(u64::from(NAMES)) as u8,
        }
    }

    fn choose(&mut self) -> Call {
        let slot = self.slot();
        let file = self.numbers.below(u64::from(FILES)) as u8;
        match self.numbers.below(if self.bytes { 22 } else { 16 }) {
            0..3 => Call::Create(slot),
            3 => Call::Mkdir(slot),
            4..6 => Call::Unlink(slot),
            6 => Call::Rmdir(slot),
            7..9 => Call::Rename(slot, self.slot()),
            9 => {
                let Seen::File(fid) = self.make_call(Call::Lookup(slot)) else {
                    return Call::Lookup(slot);
                };
                Call::Link(fid, self.slot())
            }
            10..14 => Call::Lookup(slot),
            16..19 => Call::Put(file, self.numbers.next_u64() >> 1),
            19..22 => Call::Get(file),
            _ => Call::List(slot.dir),
        }
    }

    fn make_call(&mut self, call: Call) -> Seen {
        let start = self.scheduler.time();
        let held = hold(&self.locks, &call);
        let seen = self.perform(&call);
        drop(held);
        let entry = Entry {
            caller: self.number,
            start,
            end: self.scheduler.time(),
            call,
            seen: seen.clone(),
        };
        self.log.lock().push(entry);
        seen
    }

    fn place(&self, slot: Slot) -> Result<Place, FsError> {
        Ok(Place {
            dir: self.dirs[usize::from(slot.dir)],
            name: name_of(slot.name)?,
            caller: ROOT_USER,
        })
    }

    fn perform(&self, call: &Call) -> Seen {
        let result = match call {
            Call::Create(slot) => self.create(*slot),
            Call::Mkdir(slot) => self.mkdir(*slot),
            Call::Unlink(slot) => self.unlink(*slot, false),
            Call::Rmdir(slot) => self.unlink(*slot, true),
            Call::Rename(from, to) => self.rename(*from, *to),
            Call::Link(fid, slot) => self.link(*fid, *slot),
            Call::Lookup(slot) => self.lookup(*slot),
            Call::List(dir) => self.list(*dir),
            Call::Put(file, value) => self.put(*file, *value),
            Call::Get(file) => self.get(*file),
        };
        match result {
            Ok(seen) => seen,
            Err(FsError::Io | FsError::TryAgain | FsError::NoDevice | FsError::Interrupted) => {
                Seen::Unknown
            }
            Err(error) => Seen::Failed(error),
        }
    }

    fn create(&self, slot: Slot) -> Result<Seen, FsError> {
        let (place, client) = (self.place(slot)?, self.client.clone());
        let access = Access {
            read: true,
            write: true,
            exec: false,
        };
        block_on(async move {
            let (entry, handle) = client.create(place, 0o644, access, false).await?;
            client.release(handle);
            Ok(Seen::File(entry.fid))
        })
    }

    fn mkdir(&self, slot: Slot) -> Result<Seen, FsError> {
        make(&self.client, self.place(slot)?, FileKind::Directory).map(Seen::File)
    }

    fn unlink(&self, slot: Slot, directory: bool) -> Result<Seen, FsError> {
        let (place, client) = (self.place(slot)?, self.client.clone());
        block_on(async move { client.unlink(place, directory).await }).map(|()| Seen::Done)
    }

    fn rename(&self, from: Slot, to: Slot) -> Result<Seen, FsError> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        let client = self.client.clone();
        let renamed = async move {
            let mode = RenameMode::Replace;
            client.rename(from, to.dir, to.name, mode).await
        };
        block_on(renamed).map(|()| Seen::Done)
    }

    fn link(&self, fid: Fid, slot: Slot) -> Result<Seen, FsError> {
        let (place, client) = (self.place(slot)?, self.client.clone());
        block_on(async move { client.link(fid, place.dir, place.name).await }).map(|_| Seen::Done)
    }

    fn lookup(&self, slot: Slot) -> Result<Seen, FsError> {
        let (place, client) = (self.place(slot)?, self.client.clone());
        let found = async move {
            let entry = client.lookup(place.dir, &place.name).await?;
            client.forget(entry.fid, 1);
            Ok(entry.fid)
        };
        block_on(found).map(Seen::File)
    }

    /// Durable when it returns: of a client that is given up nothing else survives.
    fn put(&self, file: u8, value: u64) -> Result<Seen, FsError> {
        let (fid, client) = (self.files[usize::from(file)], self.client.clone());
        block_on(async move {
            let handle = open(&client, fid, true).await?;
            let bytes = value.to_le_bytes().repeat(BYTES / 8);
            let wish = WriteWish {
                append: false,
                write_back: false,
                kill_privileges: false,
            };
            let written = client.write(fid, Some(handle), 0, &bytes, wish).await;
            let synced = client.fsync(handle).await;
            client.release(handle);
            written?;
            synced.map(|()| Seen::Done)
        })
    }

    fn get(&self, file: u8) -> Result<Seen, FsError> {
        let (fid, client) = (self.files[usize::from(file)], self.client.clone());
        block_on(async move {
            let handle = open(&client, fid, false).await?;
            let read = client.read(handle, 0, BYTES as u64).await;
            let bytes = read.map(|data| data.pieces.concat());
            client.release(handle);
            Ok(Seen::Value(value_of(&bytes?)))
        })
    }

    fn list(&self, dir: u8) -> Result<Seen, FsError> {
        let (fid, client) = (self.dirs[usize::from(dir)], self.client.clone());
        let (entries, pages) = block_on(async move {
            let (handle, _) = client.opendir(fid);
            let read = read_all(&client, handle).await;
            client.releasedir(handle);
            read
        })?;
        let entries = entries.iter();
        let mut names: Vec<_> = entries
            .filter_map(|entry| Some((letter_of(&entry.name)?, entry.fid)))
            .collect();
        names.sort_unstable();
        Ok(match pages {
            0 | 1 => Seen::Names(names),
            _ => Seen::Parts,
        })
    }
}
