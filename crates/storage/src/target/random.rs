//! Random bytes from the system.

use std::fs::File;
use std::io::{self, Read};

use base::Rng;

/// Random numbers from /dev/urandom, for ids and keys.
#[derive(Debug)]
pub struct SystemRandom(File);

impl SystemRandom {
    /// Opens the system's source.
    pub fn open() -> io::Result<SystemRandom> {
        Ok(SystemRandom(File::open("/dev/urandom")?))
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Rng for SystemRandom {
    fn next_u64(&mut self) -> u64 {
        let bytes = self.bytes();
        u64::from_le_bytes(bytes.expect("an open /dev/urandom can always be read"))
    }
}
