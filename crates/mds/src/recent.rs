//! What was read from the store since the last change, for the operation that reads it again.

use base::Fid;

use crate::keys::Table;
use crate::records::Dirent;

/// Values remembered; an operation reads few.
const VALUES_MAX: usize = 8;
/// Longer values are not remembered.
const VALUE_BYTES_MAX: usize = 4096;

/// A directory and a range of its cookies, both ends inside.
pub type Stretch = (Fid, u64, u64);

/// What was read lately. Its owner makes it forget with each change.
#[derive(Debug, Default)]
pub struct Recent {
    values: Vec<Value>,
    /// The place of the next value, and how many of the places are in use: those beyond keep
    /// their buffers.
    next: usize,
    used: usize,
    names: Option<(Stretch, Vec<(u64, Dirent)>)>,
}

/// A key, and its value if it has one.
#[derive(Debug)]
struct Value {
    table: Table,
    key: Vec<u8>,
    bytes: Vec<u8>,
    is_there: bool,
}

impl Recent {
    /// What is known of `key`: its value, or that it has none.
    pub fn value(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        let mut values = self.values[..self.used].iter();
        let value = values.find(|value| value.table == table && value.key == key)?;
        Some(value.is_there.then_some(&value.bytes))
    }

    /// `key` has this value, or none. The oldest of too many is forgotten.
    pub fn learn(&mut self, table: Table, key: &[u8], bytes: Option<&[u8]>) {
        if bytes.is_some_and(|bytes| bytes.len() > VALUE_BYTES_MAX) {
            return;
        }
        if self.next == self.values.len() {
            self.values.push(Value {
                table,
                key: Vec::new(),
                bytes: Vec::new(),
                is_there: false,
            });
        }
        let value = &mut self.values[self.next];
        value.table = table;
        value.is_there = bytes.is_some();
        value.key.clear();
        value.key.extend_from_slice(key);
        value.bytes.clear();
        value.bytes.extend_from_slice(bytes.unwrap_or_default());
        self.used = self.used.max(self.next + 1);
        self.next = (self.next + 1) % VALUES_MAX;
    }

    /// The names of a stretch, if it is the last one that was learnt.
    pub fn names(&self, stretch: Stretch) -> Option<&[(u64, Dirent)]> {
        let (known, names) = self.names.as_ref()?;
        (*known == stretch).then_some(names)
    }

    /// These are all names of `stretch`.
    pub fn learn_names(&mut self, stretch: Stretch, names: &[(u64, Dirent)]) {
        self.names = Some((stretch, names.to_vec()));
    }

    /// Something changed.
    pub fn forget(&mut self) {
        (self.next, self.used) = (0, 0);
        self.names = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_values_absences_and_nothing_once_something_changed() {
        let mut recent = Recent::default();
        recent.learn(Table::Places, b"a", Some(b"1"));
        recent.learn(Table::Inodes, b"a", None);
        assert_eq!(recent.value(Table::Places, b"a"), Some(Some(&b"1"[..])));
        assert_eq!(recent.value(Table::Inodes, b"a"), Some(None));
        assert_eq!(recent.value(Table::Inodes, b"b"), None);
        recent.learn_names((Fid(1), 0, 127), &[]);
        assert!(recent.names((Fid(1), 0, 127)).is_some());
        assert!(recent.names((Fid(1), 128, 255)).is_none());
        recent.forget();
        assert_eq!(recent.value(Table::Places, b"a"), None);
        assert!(recent.names((Fid(1), 0, 127)).is_none());
    }

    #[test]
    fn the_oldest_goes_and_long_values_stay_out() {
        let mut recent = Recent::default();
        for n in 0..=VALUES_MAX as u8 {
            recent.learn(Table::Places, &[n], Some(&[n]));
        }
        assert_eq!(recent.value(Table::Places, &[0]), None);
        assert_eq!(recent.value(Table::Places, &[1]), Some(Some(&[1][..])));
        assert_eq!(recent.values.len(), VALUES_MAX);
        recent.learn(Table::Xattrs, b"x", Some(&[0; VALUE_BYTES_MAX + 1]));
        assert_eq!(recent.value(Table::Xattrs, b"x"), None);
    }
}
