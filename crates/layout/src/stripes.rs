//! What a layout is made of, small in memory: a mount keeps the layouts of millions of files.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use base::TargetIndex;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// The length of a chunk: a power of two, as the arithmetic wants it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct StripeBytes {
    exponent: u8,
}

/// A number that is no chunk's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAPowerOfTwo(pub u64);

impl fmt::Display for NotAPowerOfTwo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stripe of {} bytes, which is no power of two", self.0)
    }
}

impl std::error::Error for NotAPowerOfTwo {}

impl StripeBytes {
    /// 1 MiB, Lustre's default.
    pub const DEFAULT: StripeBytes = StripeBytes { exponent: 20 };

    /// In bytes.
    pub fn get(self) -> u64 {
        1 << self.exponent
    }
}

impl TryFrom<u64> for StripeBytes {
    type Error = NotAPowerOfTwo;

    fn try_from(bytes: u64) -> Result<StripeBytes, NotAPowerOfTwo> {
        match bytes.is_power_of_two() {
            true => Ok(StripeBytes {
                exponent: bytes.trailing_zeros() as u8,
            }),
            false => Err(NotAPowerOfTwo(bytes)),
        }
    }
}

impl From<StripeBytes> for u64 {
    fn from(bytes: StripeBytes) -> u64 {
        bytes.get()
    }
}

impl fmt::Debug for StripeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

/// The OST of each stripe, in order. A few, as nearly all files have, take no allocation.
#[derive(Clone)]
pub struct Stripes(Kept);

/// Stripes kept in place.
const FEW_MAX: usize = 3;

#[derive(Clone)]
enum Kept {
    /// The first `count` of `osts`.
    Few {
        count: u8,
        osts: [TargetIndex; FEW_MAX],
    },
    /// More than [`FEW_MAX`].
    Many(Box<[TargetIndex]>),
}

impl Stripes {
    /// No stripe: nowhere to put bytes.
    pub const NONE: Stripes = Stripes(Kept::Few {
        count: 0,
        osts: [TargetIndex(0); FEW_MAX],
    });

    /// These, in order.
    pub fn new(osts: &[TargetIndex]) -> Stripes {
        let mut few = [TargetIndex(0); FEW_MAX];
        Stripes(match few.get_mut(..osts.len()) {
            Some(start) => {
                start.copy_from_slice(osts);
                Kept::Few {
                    count: osts.len() as u8,
                    osts: few,
                }
            }
            None => Kept::Many(osts.into()),
        })
    }
}

impl Deref for Stripes {
    type Target = [TargetIndex];

    fn deref(&self) -> &[TargetIndex] {
        match &self.0 {
            Kept::Few { count, osts } => &osts[..usize::from(*count)],
            Kept::Many(osts) => osts,
        }
    }
}

impl PartialEq for Stripes {
    fn eq(&self, other: &Stripes) -> bool {
        **self == **other
    }
}

impl Eq for Stripes {}

impl Hash for Stripes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Stripes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for Stripes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Stripes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Stripes, D::Error> {
        deserializer.deserialize_seq(StripesVisitor)
    }
}

struct StripesVisitor;

impl<'de> Visitor<'de> for StripesVisitor {
    type Value = Stripes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the OSTs of stripes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut osts: A) -> Result<Stripes, A::Error> {
        let (mut few, mut count) = ([TargetIndex(0); FEW_MAX], 0);
        while let Some(ost) = osts.next_element()? {
            let Some(place) = few.get_mut(count) else {
                let mut many = few.to_vec();
                many.push(ost);
                while let Some(ost) = osts.next_element()? {
                    many.push(ost);
                }
                return Ok(Stripes::new(&many));
            };
            *place = ost;
            count += 1;
        }
        Ok(Stripes::new(&few[..count]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_a_power_of_two() {
        for bytes in [1, 1 << 20, 1 << 63] {
            assert_eq!(StripeBytes::try_from(bytes).map(u64::from), Ok(bytes));
        }
        for bytes in [0, 3, u64::MAX] {
            assert_eq!(StripeBytes::try_from(bytes), Err(NotAPowerOfTwo(bytes)));
        }
    }

    #[test]
    fn any_number_of_stripes_is_kept_and_none_takes_much() {
        for count in 0..6 {
            let osts: Vec<_> = (0..count).map(TargetIndex).collect();
            let stripes = Stripes::new(&osts);
            assert_eq!(*stripes, *osts);
            assert_eq!(matches!(stripes.0, Kept::Many(_)), osts.len() > FEW_MAX);
        }
        assert!(size_of::<Stripes>() <= 16);
    }
}
