//! Maps by number: a quick hash, with a secret of each map so that nobody can prepare numbers that
//! collide.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map whose keys are made of numbers.
pub type IdMap<K, V> = HashMap<K, V, IdHash>;
/// A set of keys made of numbers.
pub type IdSet<K> = HashSet<K, IdHash>;

/// Odd, with about as many ones as zeros: the fraction of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Makes the hashers of one map.
#[derive(Debug, Clone)]
pub struct IdHash {
    secret: u64,
}

impl Default for IdHash {
    fn default() -> IdHash {
        IdHash {
            secret: RandomState::new().hash_one(FACTOR),
        }
    }
}

impl BuildHasher for IdHash {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher {
            secret: self.secret,
            state: self.secret,
        }
    }
}

/// Multiplies each number in, folding the product's high half onto its low one.
#[derive(Debug, Clone)]
pub struct IdHasher {
    secret: u64,
    state: u64,
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.state ^ number) * u128::from(FACTOR ^ self.secret | 1);
        self.state = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_spread_over_high_and_low_bits() {
        let hash = IdHash::default();
        for shift in [0, 57] {
            let places = (0..4096_u64).map(|n| hash.hash_one((n, 7_u8)) >> shift & 127);
            let mut counts = [0; 128];
            places.for_each(|place| counts[place as usize] += 1);
            let most = counts.iter().max().copied().unwrap_or(0);
            assert!(most < 96, "32 each would be even, one has {most}");
        }
    }

    #[test]
    fn maps_have_secrets_of_their_own() {
        let (one, other) = (IdHash::default(), IdHash::default());
        assert_ne!(one.hash_one(1_u64), other.hash_one(1_u64));
        assert_eq!(one.hash_one((1_u64, 2_u32)), one.hash_one((1_u64, 2_u32)));
    }
}
