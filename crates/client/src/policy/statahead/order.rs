//! The order in which a program reads directories (ADR 8): as listed, by name or by inode number,
//! subdirectories among the files or after them. A view of the cached list; no other file knows how entries
//! are sorted.

use std::cmp::Ordering;

use base::Fid;
use wire::FileKind;

use crate::cache::directory::Directory;
use crate::cache::listed::Listed;

/// Entries of a directory that are sorted. Larger ones are gone through in the order of their list.
pub(crate) const SORT_MAX: u64 = 1 << 16;
/// Files that somebody may leave out and still be seen to follow an order.
const GAP_MAX: u32 = 8;

/// What entries are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Key {
    /// Where the list has them.
    #[default]
    Cookie,
    /// The bytes of their names, as in whole paths: a directory is where `name/` is.
    Name,
    /// Inode numbers.
    Inode,
}

/// Where subdirectories are entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Descent {
    /// Where they are among the files.
    #[default]
    InPlace,
    /// When all files of the directory have been read.
    AfterFiles,
}

/// An order of a depth-first reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Order {
    pub key: Key,
    pub descent: Descent,
}

/// A place in a directory's entries, as somebody goes through them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub dir: Fid,
    /// The entry passed last; zero: none yet.
    pub cookie: u64,
    /// Cookies of those still to come, last first, where they are not in the order of the list.
    rest: Option<Vec<u64>>,
}

/// How many readable files lie between two of a directory, for each key. `None`: too many, or the second is
/// before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gaps {
    pub cookie: Option<u32>,
    pub name: Option<u32>,
    pub inode: Option<u32>,
}

/// An entry and its cookie.
type Placed<'d> = (u64, &'d Listed);

impl Key {
    fn compare(self, one: Placed<'_>, other: Placed<'_>) -> Ordering {
        match self {
            Key::Cookie => one.0.cmp(&other.0),
            Key::Name => compare_paths(one.1, other.1),
            Key::Inode => one.1.fid.cmp(&other.1.fid),
        }
    }

    fn is_between(self, first: Placed<'_>, entry: Placed<'_>, last: Placed<'_>) -> bool {
        self.compare(first, entry).is_lt() && self.compare(entry, last).is_lt()
    }
}

/// As paths of what is below them compare.
fn compare_paths(one: &Listed, other: &Listed) -> Ordering {
    let is_directory = |entry: &Listed| entry.kind == FileKind::Directory;
    if !is_directory(one) && !is_directory(other) {
        return one.name.cmp(&other.name);
    }
    fn path(entry: &Listed, slash: bool) -> impl Iterator<Item = &u8> {
        entry.name.as_bytes().iter().chain(slash.then_some(&b'/'))
    }
    path(one, is_directory(one)).cmp(path(other, is_directory(other)))
}

impl Order {
    fn is_of_the_list(self) -> bool {
        self == Order::default()
    }

    fn compare(self, one: Placed<'_>, other: Placed<'_>) -> Ordering {
        let is_late = |entry: Placed<'_>| {
            self.descent == Descent::AfterFiles && entry.1.kind == FileKind::Directory
        };
        let late = is_late(one).cmp(&is_late(other));
        late.then_with(|| self.key.compare(one, other))
    }

    /// Cookies of what comes after the entry at `cookie`, last first.
    fn rest(self, directory: &Directory, cookie: u64) -> Vec<u64> {
        let mut entries: Vec<Placed<'_>> = directory.after(0).0.collect();
        entries.sort_unstable_by(|one, other| self.compare(*other, *one));
        if let Some(passed) = entries.iter().position(|entry| entry.0 == cookie) {
            entries.truncate(passed);
        }
        entries.into_iter().map(|(cookie, _)| cookie).collect()
    }
}

impl Cursor {
    /// Just after the entry at `cookie`, or at the start.
    pub fn new(dir: Fid, cookie: u64) -> Cursor {
        Cursor {
            dir,
            cookie,
            rest: None,
        }
    }

    /// The next entry of the directory, whose whole list is known; always in the same order.
    pub fn next<'d>(&mut self, directory: &'d Directory, order: Order) -> Option<&'d Listed> {
        let as_listed = order.is_of_the_list() || directory.listed() > SORT_MAX;
        let (cookie, entry) = match (&mut self.rest, as_listed) {
            (None, true) => directory.after(self.cookie).0.next()?,
            (rest, _) => {
                let rest = rest.get_or_insert_with(|| order.rest(directory, self.cookie));
                loop {
                    let cookie = rest.pop()?;
                    if let Some(entry) = directory.at(cookie) {
                        break (cookie, entry);
                    }
                }
            }
        };
        self.cookie = cookie;
        Some(entry)
    }
}

impl Gaps {
    /// Between the files at the cookies `from` and `to`; only files of which `counts` is true.
    /// Where the directory is to be looked through, `thoroughly`; else only by cookie.
    pub fn between(
        directory: &Directory,
        (from, to): (u64, u64),
        thoroughly: bool,
        counts: impl Fn(Fid) -> bool,
    ) -> Gaps {
        let (Some(first), Some(last)) = (directory.at(from), directory.at(to)) else {
            return Gaps::default();
        };
        let (first, last) = ((from, first), (to, last));
        let gap = |key: Key, after: u64, before: u64| {
            key.compare(first, last).is_lt().then_some(())?;
            let range = directory.after(after).0;
            let between = range
                .take_while(|(cookie, _)| *cookie < before)
                .filter(|(_, entry)| entry.kind == FileKind::Regular)
                .filter(|entry| key.is_between(first, *entry, last) && counts(entry.1.fid))
                .take(GAP_MAX as usize + 1)
                .count() as u32;
            (between <= GAP_MAX).then_some(between)
        };
        let throughout = |key| thoroughly.then(|| gap(key, 0, u64::MAX)).flatten();
        Gaps {
            cookie: gap(Key::Cookie, from, to),
            name: throughout(Key::Name),
            inode: throughout(Key::Inode),
        }
    }

    /// By which key the second comes soonest: `present`, where it does so about as soon. `None`: it
    /// follows no order.
    pub fn key(&self, present: Key) -> Option<Key> {
        let gaps = [
            (Key::Cookie, self.cookie),
            (Key::Name, self.name),
            (Key::Inode, self.inode),
        ];
        let known = gaps.into_iter().filter_map(|(key, gap)| Some((gap?, key)));
        let (least, key) = known.clone().min_by_key(|(gap, _)| *gap)?;
        let stays = |(gap, key): (u32, Key)| key == present && gap <= 2 * least + 1;
        Some(if known.into_iter().any(stays) {
            present
        } else {
            key
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid(7);

    /// Entries in the order of the list; those that end with a slash are directories, and inode
    /// numbers are as given.
    fn directory(entries: &[(&str, u64)]) -> Directory {
        let listed = entries.iter().enumerate().map(|(at, (name, fid))| {
            let entry = Listed {
                name: name.trim_end_matches('/').try_into().expect("valid"),
                fid: Fid(*fid),
                kind: match name.ends_with('/') {
                    true => FileKind::Directory,
                    false => FileKind::Regular,
                },
            };
            (10 * (at as u64 + 1), entry)
        });
        let mut directory = Directory::default();
        directory.extend(0, listed, true);
        directory
    }

    fn sample() -> Directory {
        directory(&[
            ("c", 5),
            ("a/", 9),
            ("b", 3),
            ("a.h", 8),
            ("d", 1),
            ("z/", 2),
        ])
    }

    fn all(directory: &Directory, mut cursor: Cursor, order: Order) -> String {
        let names = std::iter::from_fn(|| cursor.next(directory, order));
        let names: Vec<String> = names.map(|entry| entry.name.to_string()).collect();
        names.join(" ")
    }

    #[test]
    fn entries_come_by_each_key_with_directories_in_place_or_last() {
        use {Descent::*, Key::*};
        let expected = [
            (Cookie, InPlace, "c a b a.h d z"),
            (Cookie, AfterFiles, "c b a.h d a z"),
            (Name, InPlace, "a.h a b c d z"),
            (Name, AfterFiles, "a.h b c d a z"),
            (Inode, InPlace, "d z b c a.h a"),
            (Inode, AfterFiles, "d b c a.h z a"),
        ];
        for (key, descent, names) in expected {
            let order = Order { key, descent };
            assert_eq!(
                all(&sample(), Cursor::new(DIR, 0), order),
                names,
                "{order:?}"
            );
        }
    }

    #[test]
    fn a_cursor_goes_on_after_what_was_passed_whatever_has_changed() {
        let mut directory = sample();
        let order = Order {
            key: Key::Name,
            descent: Descent::AfterFiles,
        };
        assert_eq!(all(&directory, Cursor::new(DIR, 30), order), "c d a z");
        let mut cursor = Cursor::new(DIR, 30);
        cursor.next(&directory, order);
        directory.remove(&"d".try_into().expect("valid"));
        assert_eq!(all(&directory, cursor, order), "a z");
        assert_eq!(all(&directory, Cursor::new(DIR, 50), order), "a.h b c a z");
    }

    fn gaps(from: u64, to: u64) -> Gaps {
        Gaps::between(&sample(), (from, to), true, |fid| fid != Fid(8))
    }

    #[test]
    fn what_lies_between_two_files_is_counted_by_each_key() {
        let of = |cookie, name, inode| Gaps {
            cookie,
            name,
            inode,
        };
        assert_eq!(gaps(10, 30), of(Some(0), None, None));
        assert_eq!(gaps(30, 50), of(Some(0), Some(1), None));
        assert_eq!(gaps(50, 10), of(None, None, Some(1)));
        assert_eq!(gaps(40, 30), of(None, Some(0), None));
        assert_eq!(gaps(40, 77), Gaps::default());
    }

    #[test]
    fn the_key_is_the_one_by_which_a_file_comes_soonest() {
        let key = |cookie, name, present| {
            let inode = None;
            Gaps {
                cookie,
                name,
                inode,
            }
            .key(present)
        };
        assert_eq!(key(Some(0), Some(0), Key::Cookie), Some(Key::Cookie));
        assert_eq!(key(Some(0), Some(0), Key::Name), Some(Key::Name));
        assert_eq!(key(Some(4), Some(0), Key::Cookie), Some(Key::Name));
        assert_eq!(key(Some(1), Some(0), Key::Cookie), Some(Key::Cookie));
        assert_eq!(key(Some(3), None, Key::Name), Some(Key::Cookie));
        assert_eq!(key(None, None, Key::Name), None);
    }
}
