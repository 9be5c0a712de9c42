//! OPENDIR, READDIR and READDIRPLUS. READDIRPLUS is always asked for, never the kernel's own guess.

use base::{Fid, Name};
use client::{DirPage, HandleId, PageEntry, Reached};
use wire::FileKind;

use super::nodes::{Telling, Told};
use super::retries::Question;
use super::shape::{entry_of, kind_bits};
use super::{Asked, shape};
use crate::kernel::{Delivery, DirEntry, DirectoryBuffer, Opened, attributes};
use client::executor::oneshot;
use client::kernel::{Forget, KernelCache};

/// Bytes of the smallest READDIRPLUS entry: what a buffer's size says of its entries.
const ENTRY_BYTES_MIN: u32 = 160;
/// Offset after `.`, and after `..`. The file system's own are larger.
const AFTER_DOT: u64 = 1;
const AFTER_DOT_DOT: u64 = 2;

pub(super) fn opendir(asked: Asked, fid: Fid) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run_at(fid, (Reached::ByPath, Question::Use), async move {
        let (handle, keep_cache) = client.opendir(fid);
        let opened = Opened {
            handle: handle.0,
            keep_cache,
            cache_dir: true,
            ..Opened::default()
        };
        if !answer.opened(opened) {
            client.releasedir(handle);
        }
    });
}

pub(super) fn readdir(
    asked: Asked,
    fid: Fid,
    handle: HandleId,
    offset: u64,
    size: u32,
    plus: bool,
) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move {
        let cookie = if offset <= AFTER_DOT_DOT { 0 } else { offset };
        let entries_max = (size / ENTRY_BYTES_MIN).max(1) as usize;
        let page = match client.readdir(handle, cookie, entries_max).await {
            Ok(page) => page,
            Err(failure) => return answer.error(failure),
        };
        let parent = client.parent_hint(fid);
        answer.page(fid, parent, &page, offset, size, plus);
    });
}

impl Asked {
    fn page(&self, fid: Fid, parent: Fid, page: &DirPage, offset: u64, size: u32, plus: bool) {
        let client = self.client();
        // Counted first: what nobody refers to goes without a word to the kernel.
        let known = page.entries.iter().filter_map(|entry| entry.entry.as_ref());
        let counted: Vec<Fid> = known.filter(|_| plus).map(|known| known.fid).collect();
        client.remember(counted.iter().copied());
        let (mut given, mut uncovered) = (Vec::new(), Vec::new());
        let mut passage = self.context.gate.pass();
        let current = client.stamp() == page.stamp;
        let mut buffer = DirectoryBuffer::new(size);
        let dots = push_dots(&mut buffer, fid, parent, offset, plus);
        if dots {
            for entry in &page.entries {
                let known = entry.entry.as_ref().filter(|_| plus && current);
                let known =
                    known.and_then(|known| Some((known, self.tell_listed(&entry.name, known)?)));
                let reference = known.map(|(known, told)| (told.node, known.fid));
                if !push(&mut buffer, entry, known, plus) {
                    self.take_back(reference);
                    break;
                }
                given.extend(reference);
                let known = known.map(|(known, _)| known);
                uncovered.extend(known.filter(|known| !known.attr_valid));
            }
        }
        passage.note(self.thread, fid, Fid::NONE);
        for known in uncovered {
            self.tell_rights(&mut passage, known.fid, (&known.attr, false));
        }
        let taken = self
            .replier()
            .is_some_and(|replier| replier.directory(&buffer) == Delivery::Taken);
        drop(passage);
        if !taken {
            self.take_back(given.drain(..));
        }
        let mut given = given.into_iter().map(|(_, fid)| fid).peekable();
        for fid in counted {
            if given.next_if_eq(&fid).is_none() {
                client.forget(fid, 1);
            }
        }
        if !current {
            // What the kernel keeps of this page is older than a withdrawal.
            let (done, _) = oneshot();
            let range = base::ByteRange::ALL;
            self.context.gate.forget(Forget::Pages { fid, range }, done);
        }
    }
}

impl Asked {
    /// By which node a page tells the kernel of what it has an entry of. None: it tells the name alone, as
    /// nobody would hear whether the kernel could move the directory.
    fn tell_listed(&self, name: &Name, known: &client::Entry) -> Option<Told> {
        let nodes = self.context.nodes();
        match known.attr.kind {
            FileKind::Directory => {
                nodes.tell((self.place(name), known.fid), Telling::Listing, |_| None)
            }
            _ => Some(Told::of_file(known.fid)),
        }
    }

    /// The kernel was not given these references.
    fn take_back(&self, references: impl IntoIterator<Item = (u64, Fid)>) {
        let nodes = self.context.nodes();
        for (node, _) in references {
            nodes.forget(node, 1);
        }
    }
}

/// `.` and `..`, where the reader has not had them. False: the buffer is full.
fn push_dots(buffer: &mut DirectoryBuffer, fid: Fid, parent: Fid, offset: u64, plus: bool) -> bool {
    let dots = [
        (AFTER_DOT, fid, &b"."[..]),
        (AFTER_DOT_DOT, parent, &b".."[..]),
    ];
    let kind = DirEntry::kind_of(kind_bits(wire::FileKind::Directory));
    dots.into_iter()
        .filter(|(next, ..)| offset < *next)
        .all(|(next, ino, name)| {
            let entry = DirEntry {
                ino: ino.0,
                next,
                kind,
                name,
            };
            match plus {
                true => buffer.push_plus(&entry, &bare()),
                false => buffer.push(&entry),
            }
        })
}

fn push(
    buffer: &mut DirectoryBuffer,
    entry: &PageEntry,
    known: Option<(&client::Entry, Told)>,
    plus: bool,
) -> bool {
    let kind = DirEntry::kind_of(kind_bits(entry.kind));
    let name = entry.name.as_bytes();
    let dirent = DirEntry {
        ino: entry.fid.0,
        next: entry.cookie,
        kind,
        name,
    };
    match (plus, known) {
        (true, Some((known, told))) => {
            buffer.push_plus(&dirent, &entry_of(known, told, true, true))
        }
        (true, None) => buffer.push_plus(&dirent, &bare()),
        (false, _) => buffer.push(&dirent),
    }
}

/// No attributes: the kernel asks for them when they are wanted.
fn bare() -> attributes::Entry {
    attributes::Entry::negative(shape::timeout(false))
}
