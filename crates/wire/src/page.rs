//! Pages of directories, which are most of what a walk brings. What entries of a directory have in
//! common is written once: each is what differs from those before it. docs/wire.md, "Pages of
//! directories", is the normative text.

mod numbers;
mod prior;
#[cfg(test)]
mod tests;

use base::limits::PAGE_ENTRIES_MAX;
use base::{Fid, Name};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::attr::{DirState, FileKind, Lease, Node};
use numbers::{Malformed, Take, put};
use prior::Prior;

/// One directory entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The entry's own cookie: the next page is asked for with the last one's.
    pub cookie: u64,
    /// Its name.
    pub name: Name,
    /// The file.
    pub fid: Fid,
    /// Its kind.
    pub kind: FileKind,
    /// Attributes, where asked for and to be had without disturbing a writer.
    pub node: Option<Node>,
    /// The page's lease does not cover the name: a change of it is under way.
    pub is_outside: bool,
}

/// A part of a directory, in cookie order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// What covers names and attributes.
    pub lease: Lease,
    /// The directory when the page was read.
    pub dir: DirState,
    /// In cookie order; at most `base::limits::PAGE_ENTRIES_MAX`.
    pub entries: Vec<DirEntry>,
    /// Nothing follows.
    pub end: bool,
    /// The lease covers the list as a whole, which names there are: none of them comes or goes now.
    pub covers_list: bool,
}

/// About what an entry takes.
const ENTRY_BYTES: usize = 48;
/// What an entry takes at least: head, cookie, FID, length of the name and one byte of it.
const ENTRY_BYTES_MIN: usize = 5;

/// Bits of an entry's first byte. They are the kind, the bytes of the cookie less one, whether attributes
/// follow, and whether the lease does not cover the name.
const KIND_BITS: u8 = 0b111;
const COOKIE_SHIFT: u8 = 3;
const HAS_NODE: u8 = 1 << 6;
const IS_OUTSIDE: u8 = 1 << 7;

/// Of the number that counts the entries: its bits below the count.
const COUNT_SHIFT: u32 = 2;
const END: u64 = 1;
const COVERS_LIST: u64 = 1 << 1;

/// Of the directory and its entries; the lease is before them.
struct Packed<'a>(&'a [u8]);

impl Serialize for Packed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl Serialize for Page {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.lease, Packed(&self.packed())).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Page {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Page, D::Error> {
        let (lease, packed) = <(Lease, &[u8])>::deserialize(deserializer)?;
        Page::unpacked(lease, packed).map_err(|Malformed(what)| D::Error::custom(what))
    }
}

impl Page {
    fn packed(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity((2 + self.entries.len()) * ENTRY_BYTES);
        let mut prior = Prior::new();
        prior.put_dir(&self.dir, &mut out);
        let count = self.entries.len() as u64;
        let end = if self.end { END } else { 0 };
        let list = if self.covers_list { COVERS_LIST } else { 0 };
        put(&mut out, count << COUNT_SHIFT | list | end);
        for entry in &self.entries {
            put_entry(&mut prior, entry, &mut out);
        }
        out
    }

    fn unpacked(lease: Lease, packed: &[u8]) -> Result<Page, Malformed> {
        let mut take = Take(packed);
        let mut prior = Prior::new();
        let dir = prior.take_dir(&mut take)?;
        let number = take.number()?;
        let count = (number >> COUNT_SHIFT) as usize;
        if count > PAGE_ENTRIES_MAX || count > take.0.len() / ENTRY_BYTES_MIN {
            return Err(Malformed("a page of more entries than there can be"));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(take_entry(&mut prior, &mut take)?);
        }
        match take.0 {
            [] => Ok(Page {
                lease,
                dir,
                entries,
                end: number & END != 0,
                covers_list: number & COVERS_LIST != 0,
            }),
            _ => Err(Malformed("bytes left over behind a page")),
        }
    }
}

fn put_entry(prior: &mut Prior, entry: &DirEntry, out: &mut Vec<u8>) {
    let step = entry.cookie.wrapping_sub(prior.cookie);
    let step_bytes = (8 - step.leading_zeros() / 8).max(1) as u8;
    let has_node = if entry.node.is_some() { HAS_NODE } else { 0 };
    let outside = if entry.is_outside { IS_OUTSIDE } else { 0 };
    out.push(entry.kind as u8 | (step_bytes - 1) << COOKIE_SHIFT | has_node | outside);
    out.extend_from_slice(&step.to_le_bytes()[..usize::from(step_bytes)]);
    let name = entry.name.as_bytes();
    // A name has 255 bytes at most.
    out.push(name.len() as u8);
    out.extend_from_slice(name);
    prior.put_fid(entry.fid, out);
    prior.cookie = entry.cookie;
    if let Some(node) = &entry.node {
        prior.put_node(entry.fid, entry.kind, node, out);
    }
}

fn take_entry(prior: &mut Prior, take: &mut Take<'_>) -> Result<DirEntry, Malformed> {
    let head = take.byte()?;
    let kind = prior::kind(head & KIND_BITS)?;
    let mut step = [0; 8];
    let step_bytes = usize::from(head >> COOKIE_SHIFT & 7) + 1;
    step[..step_bytes].copy_from_slice(take.slice(step_bytes)?);
    let cookie = prior.cookie.wrapping_add(u64::from_le_bytes(step));
    let length = take.byte()?;
    let name = Name::new(take.slice(length.into())?).map_err(|_| Malformed("no name"))?;
    let fid = prior.take_fid(take)?;
    prior.cookie = cookie;
    let node = match head & HAS_NODE {
        0 => None,
        _ => Some(prior.take_node(fid, kind, take)?),
    };
    Ok(DirEntry {
        cookie,
        name,
        fid,
        kind,
        node,
        is_outside: head & IS_OUTSIDE != 0,
    })
}
