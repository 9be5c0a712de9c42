//! OPENDIR, READDIR and READDIRPLUS. READDIRPLUS is always asked for, never the kernel's own guess.

use base::Fid;
use client::{DirPage, HandleId, PageEntry, Reached};

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
        let mut told = 0;
        let mut passage = self.context.gate.pass();
        let current = client.stamp() == page.stamp;
        let mut buffer = DirectoryBuffer::new(size);
        let dots = push_dots(&mut buffer, fid, parent, offset, plus);
        if dots {
            for entry in &page.entries {
                let known = entry.entry.as_ref().filter(|_| plus && current);
                if !push(&mut buffer, entry, known, plus) {
                    break;
                }
                told += usize::from(known.is_some());
            }
        }
        passage.note(self.thread, fid, Fid::NONE);
        let taken = self
            .replier()
            .is_some_and(|replier| replier.directory(&buffer) == Delivery::Taken);
        drop(passage);
        let told = if taken { told } else { 0 };
        for fid in &counted[told..] {
            client.forget(*fid, 1);
        }
        if !current {
            // What the kernel keeps of this page is older than a withdrawal.
            let (done, _) = oneshot();
            let range = base::ByteRange::ALL;
            self.context.gate.forget(Forget::Pages { fid, range }, done);
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
    known: Option<&client::Entry>,
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
        (true, Some(known)) => buffer.push_plus(&dirent, &entry_of(known, true, true)),
        (true, None) => buffer.push_plus(&dirent, &bare()),
        (false, _) => buffer.push(&dirent),
    }
}

/// No attributes: the kernel asks for them when they are wanted.
fn bare() -> attributes::Entry {
    attributes::Entry::negative(shape::timeout(false))
}
