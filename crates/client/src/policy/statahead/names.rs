//! Names in an order: numbered ones, or a list. Each has a place, its number or that in the list.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use base::Name;

/// Digits of a number.
pub(crate) const DIGITS_MAX: usize = 18;

/// Names in an order.
#[derive(Debug)]
pub(crate) enum Names {
    Numbers(Numbering),
    List(NameList),
}

/// How numbered names are written: what comes before and after the number, and how many digits that
/// has at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbering {
    before: Vec<u8>,
    after: Vec<u8>,
    digits: usize,
}

/// A list of names without the first ones, which are not needed any more. None is there twice.
#[derive(Debug, Default)]
pub(crate) struct NameList {
    names: VecDeque<Name>,
    places: HashMap<Name, u64>,
    /// The place of the first of `names`.
    first: u64,
    bytes: usize,
}

/// Memory that a name takes in a list beside its text: here twice and its place.
const NAME_BYTES: usize = 96;

impl Names {
    /// Where `name` is among them.
    pub fn place_of(&self, name: &Name) -> Option<u64> {
        match self {
            Names::Numbers(numbering) => numbering.number_of(name),
            Names::List(list) => list.places.get(name).copied(),
        }
    }

    /// The name at `place`.
    pub fn at(&self, place: u64) -> Option<Name> {
        match self {
            Names::Numbers(numbering) => numbering.name(place),
            Names::List(list) => list.at(place),
        }
    }

    /// Names before `place` are not needed any more.
    pub fn forget_before(&mut self, place: u64) {
        if let Names::List(list) = self {
            list.forget_before(place);
        }
    }
}

impl Numbering {
    /// Numbers of `digits` digits at least between `before` and `after`.
    pub fn new(before: &[u8], after: &[u8], digits: usize) -> Numbering {
        Numbering {
            before: before.to_vec(),
            after: after.to_vec(),
            digits: digits.max(1),
        }
    }

    /// How a name is written whose last digits are its number, and that. One that begins with a
    /// zero tells how many digits all others have.
    pub fn of(name: &Name) -> Option<(Numbering, u64)> {
        let (bytes, range) = (name.as_bytes(), last_digits(name)?);
        let number = value(&bytes[range.clone()])?;
        let digits = match bytes[range.start] {
            b'0' => range.len(),
            _ => 1,
        };
        let (before, after) = (&bytes[..range.start], &bytes[range.end..]);
        Some((Numbering::new(before, after, digits), number))
    }

    /// The number alone.
    pub fn number_in(name: &Name) -> Option<u64> {
        value(&name.as_bytes()[last_digits(name)?])
    }

    /// The number of a name that is written so.
    pub fn number_of(&self, name: &Name) -> Option<u64> {
        let rest = name.as_bytes().strip_prefix(&self.before[..])?;
        let digits = rest.strip_suffix(&self.after[..])?;
        let as_long = match digits.first()? {
            b'0' => digits.len() == self.digits,
            _ => digits.len() >= self.digits,
        };
        value(digits).filter(|_| as_long)
    }

    /// The name with this number, if there can be such a name.
    pub fn name(&self, number: u64) -> Option<Name> {
        let digits = format!("{number:0width$}", width = self.digits);
        let bytes = [&self.before[..], digits.as_bytes(), &self.after[..]].concat();
        (digits.len() <= DIGITS_MAX).then(|| Name::new(&bytes).ok())?
    }
}

/// Where the last digits of a name are.
fn last_digits(name: &Name) -> Option<Range<usize>> {
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let is_other = |byte: &u8| !byte.is_ascii_digit();
    let before = bytes[..end].iter().rposition(is_other);
    Some(before.map_or(0, |at| at + 1)..end)
}

fn value(digits: &[u8]) -> Option<u64> {
    let is_number = digits.len() <= DIGITS_MAX && digits.iter().all(u8::is_ascii_digit);
    let add = |number: u64, digit: &u8| number * 10 + u64::from(digit - b'0');
    is_number.then(|| digits.iter().fold(0, add))
}

impl NameList {
    /// Adds names at the end, but for those that are there.
    pub fn append(&mut self, names: Vec<Name>) {
        for name in names {
            if !self.places.contains_key(&name) {
                self.places.insert(name.clone(), self.end());
                self.bytes += bytes_of(&name);
                self.names.push_back(name);
            }
        }
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that these would take.
    pub fn bytes_of(names: &[Name]) -> usize {
        names.iter().map(bytes_of).sum()
    }

    /// The place after the last one.
    pub fn end(&self) -> u64 {
        self.first + self.names.len() as u64
    }

    fn at(&self, place: u64) -> Option<Name> {
        let index = place.checked_sub(self.first)?;
        self.names.get(index as usize).cloned()
    }

    fn forget_before(&mut self, place: u64) {
        while self.first < place
            && let Some(name) = self.names.pop_front()
        {
            self.places.remove(&name);
            self.bytes -= bytes_of(&name);
            self.first += 1;
        }
    }
}

fn bytes_of(name: &Name) -> usize {
    NAME_BYTES + name.as_bytes().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::try_from(text).expect("valid")
    }

    #[test]
    fn the_last_digits_of_a_name_are_its_number() {
        let of = |text| Numbering::of(&name(text));
        let plain = Numbering::new(b"v2-file", b".dat", 1);
        assert_eq!(of("v2-file17.dat"), Some((plain, 17)));
        let padded = Numbering::new(b"shot", b"", 4);
        assert_eq!(of("shot0010"), Some((padded, 10)));
        assert_eq!(of("none"), None);
        assert_eq!(of(&"9".repeat(19)), None);
    }

    #[test]
    fn a_name_has_the_number_that_makes_it_and_no_other() {
        let frames = Numbering::new(b"shot", b".v2.mp4", 3);
        for number in [0, 7, 42, 999, 1000, 123_456] {
            let made = frames.name(number).expect("a name");
            assert_eq!(frames.number_of(&made), Some(number), "{made}");
        }
        let others = [
            "shot7.v2.mp4",
            "shot0007.v2.mp4",
            "shot007.v1.mp4",
            "shot.v2.mp4",
            "shot+07.v2.mp4",
        ];
        let number = |text: &str| frames.number_of(&name(text));
        assert!(others.iter().all(|text| number(text).is_none()));
        assert_eq!(
            Numbering::new(b"aa", b"aa", 1).number_of(&name("aaa")),
            None
        );
    }

    #[test]
    fn a_list_knows_places_and_drops_what_is_behind() {
        let mut list = NameList::default();
        list.append(["a", "b", "a", "c"].map(name).to_vec());
        list.append(["d", "b"].map(name).to_vec());
        assert_eq!((list.bytes(), list.end()), (4 * (NAME_BYTES + 1), 4));
        let mut names = Names::List(list);
        names.forget_before(2);
        assert_eq!(names.place_of(&name("b")), None);
        assert_eq!(names.place_of(&name("c")), Some(2));
        assert_eq!((names.at(1), names.at(3)), (None, Some(name("d"))));
        names.forget_before(99);
        assert_eq!(names.at(3), None);
    }
}
