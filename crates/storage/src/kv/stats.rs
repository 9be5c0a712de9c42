//! What a store has done.

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvStats {
    /// Batches committed.
    pub batches: u64,
    /// Engine transactions that made them durable.
    pub flushes: u64,
    /// Bytes in the overlay now.
    pub overlay_bytes: usize,
}
