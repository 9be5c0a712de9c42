//! Files in memory, as simple as can be: what a file system in user space must at least do. Time is an
//! argument. It knows neither owners' rights nor a limit; the kernel checks modes, and the caller is root.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use base::Timestamp;
use fuse::kernel::{Attributes, Errno, ROOT_NODEID};

/// A result of a call.
pub type Result<T> = std::result::Result<T, Errno>;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const BLOCK: u32 = 4096;

/// All files.
pub struct Tree {
    files: HashMap<u64, File>,
    last: u64,
}

struct File {
    attributes: Attributes,
    /// What the kernel has not given back.
    lookups: u64,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>),
    Target(Vec<u8>),
    Names(Names),
    Device,
}

/// A directory: names in the order in which they were made.
#[derive(Default)]
struct Names {
    cookies: HashMap<Vec<u8>, u64>,
    entries: BTreeMap<u64, (Vec<u8>, u64)>,
    last: u64,
}

impl Names {
    fn find(&self, name: &[u8]) -> Option<u64> {
        let cookie = self.cookies.get(name)?;
        self.entries.get(cookie).map(|(_, nodeid)| *nodeid)
    }

    fn put(&mut self, name: &[u8], nodeid: u64) {
        self.take(name);
        self.last += 1;
        self.cookies.insert(name.to_vec(), self.last);
        self.entries.insert(self.last, (name.to_vec(), nodeid));
    }

    fn take(&mut self, name: &[u8]) -> Option<u64> {
        let cookie = self.cookies.remove(name)?;
        self.entries.remove(&cookie).map(|(_, nodeid)| nodeid)
    }
}

/// A new file.
pub struct NewFile<'a> {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Of a device.
    pub rdev: u32,
    /// Of a symlink.
    pub target: Option<&'a [u8]>,
}

impl Tree {
    /// An empty root directory.
    pub fn new(now: Timestamp) -> Tree {
        let root = NewFile {
            mode: S_IFDIR | 0o755,
            owner: (0, 0),
            rdev: 0,
            target: None,
        };
        let mut tree = Tree {
            files: HashMap::new(),
            last: ROOT_NODEID,
        };
        tree.files
            .insert(ROOT_NODEID, file(ROOT_NODEID, &root, now));
        tree
    }

    /// A file's attributes.
    pub fn attributes(&self, nodeid: u64) -> Result<Attributes> {
        Ok(self.file(nodeid)?.attributes)
    }

    /// The file of a name; the kernel knows it from now on.
    pub fn look_up(&mut self, dir: u64, name: &[u8]) -> Result<Attributes> {
        let nodeid = self.names(dir)?.find(name).ok_or(Errno::ENOENT)?;
        self.remember(nodeid)
    }

    /// The kernel knows the file.
    pub fn remember(&mut self, nodeid: u64) -> Result<Attributes> {
        let file = self.file_mut(nodeid)?;
        file.lookups += 1;
        Ok(file.attributes)
    }

    /// The kernel has given so many lookups back.
    pub fn forget(&mut self, nodeid: u64, lookups: u64) {
        if let Ok(file) = self.file_mut(nodeid) {
            file.lookups = file.lookups.saturating_sub(lookups);
            self.drop_unused(nodeid);
        }
    }

    /// Makes a file under a free name; the kernel knows it.
    pub fn make(
        &mut self,
        dir: u64,
        name: &[u8],
        new: &NewFile<'_>,
        now: Timestamp,
    ) -> Result<Attributes> {
        if self.names(dir)?.find(name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.last += 1;
        let nodeid = self.last;
        self.files.insert(nodeid, file(nodeid, new, now));
        self.attach(dir, name, nodeid, now)?;
        self.remember(nodeid)
    }

    /// A further name of a file.
    pub fn link(
        &mut self,
        nodeid: u64,
        dir: u64,
        name: &[u8],
        now: Timestamp,
    ) -> Result<Attributes> {
        if self.names(dir)?.find(name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.file_mut(nodeid)?.attributes.nlink += 1;
        self.attach(dir, name, nodeid, now)?;
        self.remember(nodeid)
    }

    /// Removes a name, of a directory or of anything else.
    pub fn remove(&mut self, dir: u64, name: &[u8], is_dir: bool, now: Timestamp) -> Result<()> {
        let nodeid = self.names(dir)?.find(name).ok_or(Errno::ENOENT)?;
        self.check_removable(nodeid, is_dir)?;
        self.detach(dir, name, now)?;
        let nlink = &mut self.file_mut(nodeid)?.attributes.nlink;
        *nlink = if is_dir { 0 } else { *nlink - 1 };
        self.drop_unused(nodeid);
        Ok(())
    }

    /// Moves a name; what was there is removed.
    pub fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), now: Timestamp) -> Result<()> {
        let nodeid = self.names(from.0)?.find(from.1).ok_or(Errno::ENOENT)?;
        match self.names(to.0)?.find(to.1) {
            Some(same) if same == nodeid => return Ok(()),
            Some(_) => self.remove(to.0, to.1, self.is_dir(nodeid), now)?,
            None => {}
        }
        self.detach(from.0, from.1, now)?;
        self.attach(to.0, to.1, nodeid, now)
    }

    /// The names after a cookie, with theirs.
    pub fn list(
        &self,
        dir: u64,
        after: u64,
    ) -> Result<impl Iterator<Item = (u64, &[u8], Attributes)>> {
        let entries = self.names(dir)?.entries.range(after + 1..);
        Ok(entries.filter_map(|(cookie, (name, nodeid))| {
            let attributes = self.attributes(*nodeid).ok()?;
            Some((*cookie, &name[..], attributes))
        }))
    }

    /// Changes attributes by `change`; the file then has as many bytes as they say.
    pub fn change(
        &mut self,
        nodeid: u64,
        now: Timestamp,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<Attributes> {
        let file = self.file_mut(nodeid)?;
        file.attributes.ctime = now;
        change(&mut file.attributes);
        if let Content::Bytes(bytes) = &mut file.content {
            bytes.resize(file.attributes.size as usize, 0);
            file.attributes.blocks = blocks(bytes.len());
        }
        Ok(file.attributes)
    }

    /// The bytes of a file there, as far as it has any.
    pub fn read(&self, nodeid: u64, range: Range<u64>) -> Result<&[u8]> {
        let Content::Bytes(bytes) = &self.file(nodeid)?.content else {
            return Err(Errno::EINVAL);
        };
        let within = |at: u64| bytes.len().min(at as usize);
        Ok(&bytes[within(range.start)..within(range.end)])
    }

    /// Writes.
    pub fn write(&mut self, nodeid: u64, offset: u64, data: &[u8], now: Timestamp) -> Result<()> {
        let end = offset + data.len() as u64;
        let size = self.attributes(nodeid)?.size.max(end);
        self.change(nodeid, now, |attributes| {
            (attributes.size, attributes.mtime) = (size, now);
        })?;
        match &mut self.file_mut(nodeid)?.content {
            Content::Bytes(bytes) => {
                bytes[offset as usize..end as usize].copy_from_slice(data);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// What a symlink leads to.
    pub fn target(&self, nodeid: u64) -> Result<&[u8]> {
        match &self.file(nodeid)?.content {
            Content::Target(target) => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }

    fn file(&self, nodeid: u64) -> Result<&File> {
        self.files.get(&nodeid).ok_or(Errno::ESTALE)
    }

    fn file_mut(&mut self, nodeid: u64) -> Result<&mut File> {
        self.files.get_mut(&nodeid).ok_or(Errno::ESTALE)
    }

    fn is_dir(&self, nodeid: u64) -> bool {
        self.names(nodeid).is_ok()
    }

    fn names(&self, dir: u64) -> Result<&Names> {
        match &self.file(dir)?.content {
            Content::Names(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The names of a directory, of which one changes.
    fn changing(&mut self, dir: u64, now: Timestamp) -> Result<&mut Names> {
        let file = self.file_mut(dir)?;
        (file.attributes.mtime, file.attributes.ctime) = (now, now);
        match &mut file.content {
            Content::Names(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn attach(&mut self, dir: u64, name: &[u8], nodeid: u64, now: Timestamp) -> Result<()> {
        self.changing(dir, now)?.put(name, nodeid);
        self.count_subdirectory(dir, nodeid, 1)
    }

    fn detach(&mut self, dir: u64, name: &[u8], now: Timestamp) -> Result<()> {
        let nodeid = self.changing(dir, now)?.take(name).ok_or(Errno::ENOENT)?;
        self.count_subdirectory(dir, nodeid, -1)
    }

    fn count_subdirectory(&mut self, dir: u64, nodeid: u64, by: i32) -> Result<()> {
        if self.is_dir(nodeid) {
            let nlink = &mut self.file_mut(dir)?.attributes.nlink;
            *nlink = nlink.saturating_add_signed(by);
        }
        Ok(())
    }

    fn check_removable(&self, nodeid: u64, is_dir: bool) -> Result<()> {
        match (&self.file(nodeid)?.content, is_dir) {
            (Content::Names(names), true) if names.entries.is_empty() => Ok(()),
            (Content::Names(_), true) => Err(Errno::ENOTEMPTY),
            (Content::Names(_), false) => Err(Errno::EISDIR),
            (_, true) => Err(Errno::ENOTDIR),
            (_, false) => Ok(()),
        }
    }

    fn drop_unused(&mut self, nodeid: u64) {
        let unused = |file: &File| file.lookups == 0 && file.attributes.nlink == 0;
        if self.files.get(&nodeid).is_some_and(unused) {
            self.files.remove(&nodeid);
        }
    }
}

fn file(nodeid: u64, new: &NewFile<'_>, now: Timestamp) -> File {
    let is_dir = new.mode & S_IFMT == S_IFDIR;
    let content = match (is_dir, new.target) {
        (true, _) => Content::Names(Names::default()),
        (false, Some(target)) => Content::Target(target.to_vec()),
        (false, None) if new.mode & S_IFMT == 0o100_000 => Content::Bytes(Vec::new()),
        (false, None) => Content::Device,
    };
    File {
        attributes: Attributes {
            ino: nodeid,
            size: new.target.map_or(0, |target| target.len() as u64),
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            mode: new.mode,
            nlink: if is_dir { 2 } else { 1 },
            uid: new.owner.0,
            gid: new.owner.1,
            rdev: new.rdev,
            block_size: BLOCK,
        },
        lookups: 0,
        content,
    }
}

/// In units of 512 bytes.
fn blocks(bytes: usize) -> u64 {
    let block = BLOCK as usize;
    (bytes.next_multiple_of(block) / 512) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { secs: 1, nanos: 0 };

    fn new(mode: u32) -> NewFile<'static> {
        NewFile {
            mode,
            owner: (0, 0),
            rdev: 0,
            target: None,
        }
    }

    #[test]
    fn bytes_are_read_as_they_were_written_with_zeros_between() {
        let mut tree = Tree::new(NOW);
        let file = tree
            .make(ROOT_NODEID, b"f", &new(0o100_644), NOW)
            .unwrap()
            .ino;
        tree.write(file, 2, b"ab", NOW).unwrap();
        assert_eq!(tree.read(file, 0..100).unwrap(), b"\0\0ab");
        tree.change(file, NOW, |attributes| attributes.size = 3)
            .unwrap();
        assert_eq!(tree.read(file, 1..100).unwrap(), b"\0a");
    }

    #[test]
    fn a_removed_file_stays_until_the_kernel_forgets_it() {
        let mut tree = Tree::new(NOW);
        let file = tree
            .make(ROOT_NODEID, b"f", &new(0o100_644), NOW)
            .unwrap()
            .ino;
        tree.remove(ROOT_NODEID, b"f", false, NOW).unwrap();
        assert_eq!(tree.attributes(file).unwrap().nlink, 0);
        tree.forget(file, 1);
        assert_eq!(tree.attributes(file), Err(Errno::ESTALE));
    }

    #[test]
    fn directories_count_their_subdirectories_and_go_only_when_empty() {
        let mut tree = Tree::new(NOW);
        let dir = tree
            .make(ROOT_NODEID, b"d", &new(0o040_755), NOW)
            .unwrap()
            .ino;
        tree.make(dir, b"f", &new(0o100_644), NOW).unwrap();
        assert_eq!(tree.attributes(ROOT_NODEID).unwrap().nlink, 3);
        assert_eq!(
            tree.remove(ROOT_NODEID, b"d", true, NOW),
            Err(Errno::ENOTEMPTY)
        );
        tree.rename((dir, b"f"), (ROOT_NODEID, b"g"), NOW).unwrap();
        tree.remove(ROOT_NODEID, b"d", true, NOW).unwrap();
        let names: Vec<_> = tree
            .list(ROOT_NODEID, 0)
            .unwrap()
            .map(|entry| entry.1)
            .collect();
        assert_eq!(names, [b"g"]);
        assert_eq!(tree.attributes(ROOT_NODEID).unwrap().nlink, 2);
    }
}
