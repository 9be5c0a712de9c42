//! Name hashes, and the cookies of directory entries that are made of them (docs/disk.md, "Cookies").

use base::Name;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bits of a cookie below the hash: 128 names of one directory may share a hash.
const COLLISION_BITS: u32 = 7;
/// Bits of the hash in a cookie; with the collision index 63, so that `off_t` holds it.
const HASH_BITS: u32 = 56;

/// The hash of names, keyed for each target so that nobody can prepare names that collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHasher {
    key: u64,
    bits: u32,
}

impl NameHasher {
    /// The hasher of a target, whose state holds `key`.
    pub fn new(key: u64) -> NameHasher {
        NameHasher {
            key,
            bits: HASH_BITS,
        }
    }

    /// One that keeps only the highest `bits` of 56: tests make names collide with it.
    pub fn narrow(key: u64, bits: u32) -> NameHasher {
        NameHasher {
            key,
            bits: bits.clamp(1, HASH_BITS),
        }
    }

    /// 56 bits, never zero: cookies up to 127 belong to `.`, `..` and the start.
    pub fn hash(&self, name: &Name) -> u64 {
        let hash = xxh3_64_with_seed(name.as_bytes(), self.key) >> (64 - HASH_BITS);
        let dropped = HASH_BITS - self.bits;
        ((hash >> dropped) << dropped).max(1)
    }

    /// The key of a name under a directory's lease: 64 bits that are never a FID's, unless the very last
    /// sequences are used.
    pub fn lease_key(&self, name: &Name) -> u64 {
        xxh3_64_with_seed(name.as_bytes(), self.key) | 1 << 63
    }
}

/// Where names of this hash may be: the first and the last cookie.
pub fn bucket(hash: u64) -> (u64, u64) {
    let first = hash << COLLISION_BITS;
    (first, first | ((1 << COLLISION_BITS) - 1))
}

/// The hash a cookie was made of.
pub fn hash_of(cookie: u64) -> u64 {
    cookie >> COLLISION_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_stay_between_dots_and_the_sign_bit() {
        for hash in [1, (1 << HASH_BITS) - 1] {
            let (first, last) = bucket(hash);
            assert!(first > 2 && last < 1 << 63 && last - first == 127);
            assert_eq!((hash_of(first), hash_of(last)), (hash, hash));
        }
    }

    #[test]
    fn a_narrow_hasher_collides_and_is_never_zero() {
        let narrow = NameHasher::narrow(7, 1);
        let name = |i: u32| Name::new(format!("n{i}")).expect("valid");
        let hashes: std::collections::BTreeSet<u64> =
            (0..100).map(|i| narrow.hash(&name(i))).collect();
        assert_eq!(hashes.len(), 2);
        assert!(!hashes.contains(&0));
        assert_ne!(
            NameHasher::new(1).hash(&name(1)),
            NameHasher::new(2).hash(&name(1))
        );
    }
}
