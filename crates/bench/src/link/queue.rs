//! Packets on their way: a bounded first-in, first-out store in a few large, reused buffers.

use std::collections::VecDeque;

use base::Tick;

/// The largest packet with its offload header, rounded up.
pub(crate) const PACKET_BYTES_MAX: usize = (64 << 10) + 64;
/// Bytes in one buffer.
const CHUNK_BYTES: usize = 1 << 20;
/// Buffers per direction: 10 Gbit/s for 50 ms. Beyond: no more is taken from the sender.
const CHUNKS_MAX: usize = 64;
/// Packets per direction, so that small ones are bounded too.
const PACKETS_MAX: usize = 1 << 17;

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    /// Bytes before this are packets; of those, bytes before `taken` have left.
    filled: usize,
    taken: usize,
}

impl Chunk {
    fn new() -> Chunk {
        Chunk {
            bytes: vec![0; CHUNK_BYTES].into_boxed_slice(),
            filled: 0,
            taken: 0,
        }
    }

    fn has_room(&self) -> bool {
        CHUNK_BYTES - self.filled >= PACKET_BYTES_MAX
    }
}

/// A packet's length and when it is due.
#[derive(Debug, Clone, Copy)]
struct Held {
    due: Tick,
    bytes: usize,
}

/// The packets in flight in one direction, in order. A packet is read straight into the queue's memory and
/// written straight out of it. Emptied buffers are reused last-in, first-out, so that a link with little in
/// flight stays within the processor's cache.
#[derive(Debug)]
pub(crate) struct PacketQueue {
    chunks: VecDeque<Chunk>,
    spare: Vec<Chunk>,
    held: VecDeque<Held>,
}

impl PacketQueue {
    pub(crate) fn new() -> PacketQueue {
        PacketQueue {
            chunks: VecDeque::new(),
            spare: Vec::new(),
            held: VecDeque::new(),
        }
    }

    /// Whether [`room`](Self::room) would give nothing.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= PACKETS_MAX
            || (self.chunks.len() >= CHUNKS_MAX && !self.chunks.back().is_some_and(Chunk::has_room))
    }

    /// Room for one packet of any size, to be followed by [`push`](Self::push) if it is to stay.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        if self.is_full() {
            return None;
        }
        if !self.chunks.back().is_some_and(Chunk::has_room) {
            let chunk = self.spare.pop().unwrap_or_else(Chunk::new);
            self.chunks.push_back(chunk);
        }
        let chunk = self.chunks.back_mut()?;
        Some(&mut chunk.bytes[chunk.filled..][..PACKET_BYTES_MAX])
    }

    /// Keeps what was written to the start of [`room`](Self::room).
    pub(crate) fn push(&mut self, bytes: usize, due: Tick) {
        debug_assert!(bytes <= PACKET_BYTES_MAX);
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.filled += bytes;
            self.held.push_back(Held { due, bytes });
        }
    }

    /// When the oldest packet is due.
    pub(crate) fn next_due(&self) -> Option<Tick> {
        self.held.front().map(|held| held.due)
    }

    /// The oldest packet.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        let held = self.held.front()?;
        let chunk = self.chunks.front()?;
        Some(&chunk.bytes[chunk.taken..][..held.bytes])
    }

    /// Forgets the oldest packet.
    pub(crate) fn pop(&mut self) {
        let (Some(held), Some(chunk)) = (self.held.pop_front(), self.chunks.front_mut()) else {
            return;
        };
        chunk.taken += held.bytes;
        if chunk.taken < chunk.filled {
            return;
        }
        // Emptied: the only buffer is used again from its start, any other goes to the spares.
        (chunk.taken, chunk.filled) = (0, 0);
        if self.chunks.len() > 1 {
            self.spare.extend(self.chunks.pop_front());
        }
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Rng, SeededRng};

    #[test]
    fn gives_back_what_it_was_given_in_order() {
        let mut rng = SeededRng::new(11);
        let mut queue = PacketQueue::new();
        let mut expected = VecDeque::new();
        for n in 0..20_000u64 {
            if rng.below(100) < 52 {
                let bytes = 1 + rng.below(PACKET_BYTES_MAX as u64) as usize;
                let Some(room) = queue.room() else { continue };
                room[..bytes].fill(n as u8);
                queue.push(bytes, Tick(n));
                expected.push_back((bytes, n));
            } else if let Some((bytes, n)) = expected.pop_front() {
                assert_eq!(queue.next_due(), Some(Tick(n)));
                let packet = queue.front().unwrap();
                assert_eq!(packet.len(), bytes);
                assert!(packet.iter().all(|&b| b == n as u8));
                queue.pop();
            }
            assert_eq!(queue.is_empty(), expected.is_empty());
        }
    }

    #[test]
    fn is_bounded_in_bytes_and_recovers() {
        let mut queue = PacketQueue::new();
        let mut packets = 0;
        while queue.room().is_some() {
            queue.push(PACKET_BYTES_MAX, Tick(packets));
            packets += 1;
        }
        assert!(queue.is_full());
        assert!(packets as usize * PACKET_BYTES_MAX <= CHUNKS_MAX * CHUNK_BYTES);
        for _ in 0..packets {
            queue.pop();
        }
        assert!(queue.is_empty() && queue.room().is_some());
        assert!(queue.spare.len() < CHUNKS_MAX);
    }

    #[test]
    fn is_bounded_in_packets() {
        let mut queue = PacketQueue::new();
        let mut packets = 0;
        while queue.room().is_some() {
            queue.push(1, Tick(0));
            packets += 1;
        }
        assert_eq!(packets, PACKETS_MAX);
    }

    #[test]
    fn a_short_queue_uses_one_buffer() {
        let mut queue = PacketQueue::new();
        for n in 0..1000 {
            assert!(queue.room().is_some());
            queue.push(PACKET_BYTES_MAX, Tick(n));
            queue.pop();
        }
        assert_eq!(queue.chunks.len() + queue.spare.len(), 1);
    }
}
