//! Randomness as an argument.

/// A source of random numbers. Cores take one; rims seed it.
pub trait Rng: Send {
    /// The next 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// A number in `0..bound`; zero when `bound` is zero.
    fn below(&mut self, bound: u64) -> u64 {
        // Multiply-shift: the bias is below 2^-32 for every bound used here.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// SplitMix64: small, seedable, the same on every machine. Not for secrets.
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> SeededRng {
        SeededRng(seed)
    }
}

impl Rng for SeededRng {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers_within_bounds() {
        let (mut a, mut b) = (SeededRng::new(7), SeededRng::new(7));
        for _ in 0..1000 {
            let n = a.below(10);
            assert!(n < 10 && n == b.below(10));
        }
    }
}
