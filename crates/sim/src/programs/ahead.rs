//! What makes the client fetch ahead of need: walks, names asked for in turn, and programs that say
//! what they will need. Nothing of it holds a lock of the kernel while the client fetches, so names
//! are changed meanwhile, by other programs of the same mount too.

use base::{Fid, FsError};
use client::executor::block_on;
use client::{Advice, NameRange};
use wire::mdt::WalkLevel;

use super::bounds::{DIRS, NAMES};
use super::names::read_dir;
use super::program::Program;
use crate::history::{Call, Seen, Slot};

impl Program {
    /// Fetches all names and attributes that there are, as `glint fs prefetch` does.
    pub(super) fn prefetch(&self) -> Result<Seen, FsError> {
        let client = self.client.clone();
        let mut levels = vec![WalkLevel {
            dir: Fid::ROOT,
            cookie: 0,
            listed: false,
        }];
        while !levels.is_empty() {
            let (client, wanted) = (client.clone(), levels);
            levels = block_on(async move { client.prefetch_tree(wanted).await })?.next;
        }
        Ok(Seen::Done)
    }

    /// Lists every directory, from the root on, and of that looks at each file, as `ls -l` and `find`
    /// do. The last one is left to do.
    pub(super) fn walk(&mut self) -> Call {
        let client = self.client.clone();
        // That the root cannot be read is seen by the program that asks for what is in it.
        let root = block_on(async move { read_dir(&client, Fid::ROOT).await });
        for entry in root.map(|(entries, _)| entries).unwrap_or_default() {
            let (_held, client) = (self.locks.root(), self.client.clone());
            let looked = async move { client.lookup(Fid::ROOT, &entry.name).await };
            if let Ok(looked) = block_on(looked) {
                self.client.forget(looked.fid, 1);
            }
        }
        for dir in 0..DIRS - 1 {
            self.make_call(Call::List(dir));
        }
        Call::List(DIRS - 1)
    }

    /// Says that all names of a directory will be needed, and asks for one after the other. The last
    /// one is left to do.
    pub(super) fn ask_in_turn(&mut self, dir: u8) -> Call {
        let (client, fid) = (self.client.clone(), self.dirs[usize::from(dir)]);
        let (handle, _) = client.opendir(fid);
        let range = NameRange {
            prefix: Vec::new(),
            suffix: Vec::new(),
            width: 1,
            first: 0,
            last: u64::from(NAMES) - 1,
            step: 1,
        };
        let heard = client.advise(handle, Advice::Range(range));
        assert!(heard.is_ok(), "{heard:?}");
        for name in 0..NAMES - 1 {
            self.make_call(Call::Lookup(Slot { dir, name }));
        }
        client.releasedir(handle);
        Call::Lookup(Slot {
            dir,
            name: NAMES - 1,
        })
    }
}
