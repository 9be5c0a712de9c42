//! Counts of what was sent and received, cheap to add to and to read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::frame::{Frame, FrameKind};

/// Counts by the first byte of a message's body.
type Page = [AtomicU64; 256];

/// What a peer or a target has sent and received.
///
/// Sub-requests are counted by opcode and by the first byte of their body, which is where
/// messages carry their operation.
#[derive(Debug)]
pub struct Counters {
    requests_sent: AtomicU64,
    requests_resent: AtomicU64,
    frames_sent: AtomicU64,
    frames_received: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    messages: [OnceLock<Box<Page>>; 256],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            requests_sent: AtomicU64::new(0),
            requests_resent: AtomicU64::new(0),
            frames_sent: AtomicU64::new(0),
            frames_received: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            messages: [const { OnceLock::new() }; 256],
        }
    }
}

impl Counters {
    /// Request frames sent, resends included: `rpcs_sent`.
    pub fn rpcs_sent(&self) -> u64 {
        self.requests_sent.load(Ordering::Relaxed)
    }

    /// Request frames sent again after a reconnect.
    pub fn rpcs_resent(&self) -> u64 {
        self.requests_resent.load(Ordering::Relaxed)
    }

    /// Frames of every kind sent.
    pub fn frames_sent(&self) -> u64 {
        self.frames_sent.load(Ordering::Relaxed)
    }

    /// Frames of every kind received.
    pub fn frames_received(&self) -> u64 {
        self.frames_received.load(Ordering::Relaxed)
    }

    /// Bytes of frames sent, as encoded.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Ordering::Relaxed)
    }

    /// Bytes of frames received, as if not compacted.
    pub fn bytes_received(&self) -> u64 {
        self.bytes_received.load(Ordering::Relaxed)
    }

    /// Sub-requests by (opcode, first byte of the body), those that occurred, in order. Opcodes
    /// from 256 on are counted by their low byte.
    pub fn messages(&self) -> Vec<(u8, u8, u64)> {
        let pages = self.messages.iter().zip(0u8..=255);
        let pages = pages.filter_map(|(page, opcode)| Some((page.get()?, opcode)));
        let counts = pages.flat_map(|(page, opcode)| {
            page.iter()
                .zip(0u8..=255)
                .map(move |(count, operation)| (opcode, operation, count.load(Ordering::Relaxed)))
        });
        counts.filter(|&(_, _, count)| count != 0).collect()
    }

    /// Sub-requests with this opcode.
    pub fn messages_of(&self, opcode: u16) -> u64 {
        let page = self.messages[usize::from(opcode as u8)].get();
        page.map_or(0, |page| {
            page.iter().map(|count| count.load(Ordering::Relaxed)).sum()
        })
    }

    pub(crate) fn count_sent(&self, frame: &Frame, bytes: usize) {
        self.frames_sent.fetch_add(1, Ordering::Relaxed);
        self.bytes_sent.fetch_add(bytes as u64, Ordering::Relaxed);
        if frame.header.kind == FrameKind::Request {
            self.requests_sent.fetch_add(1, Ordering::Relaxed);
            match frame.header.resent {
                true => _ = self.requests_resent.fetch_add(1, Ordering::Relaxed),
                false => self.count_messages(frame),
            }
        }
    }

    pub(crate) fn count_received(&self, frame: &Frame) {
        self.frames_received.fetch_add(1, Ordering::Relaxed);
        let bytes = frame.payload.frame_bytes() as u64;
        self.bytes_received.fetch_add(bytes, Ordering::Relaxed);
        if frame.header.kind == FrameKind::Request && !frame.header.resent {
            self.count_messages(frame);
        }
    }

    fn count_messages(&self, frame: &Frame) {
        for sub in &frame.payload.subs {
            let page = self.messages[usize::from(sub.opcode as u8)]
                .get_or_init(|| Box::new([const { AtomicU64::new(0) }; 256]));
            let operation = sub.body.first().copied().unwrap_or(0);
            page[usize::from(operation)].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::frame::{Header, Payload, Sub};

    use super::*;

    #[test]
    fn counts_messages_once_and_resends_apart() {
        let sub = |opcode, operation| Sub {
            opcode,
            status: 0,
            body: vec![operation],
        };
        let mut frame = Frame::bare(Header::new(FrameKind::Request));
        frame.payload = Payload {
            subs: vec![sub(0x20, 3), sub(0x20, 3), sub(0x30, 1)],
            bulk: Default::default(),
        }
        .into();
        let counters = Counters::default();
        counters.count_sent(&frame, 100);
        frame.header.resent = true;
        counters.count_sent(&frame, 100);
        assert_eq!(counters.messages(), [(0x20, 3, 2), (0x30, 1, 1)]);
        assert_eq!((counters.rpcs_sent(), counters.rpcs_resent()), (2, 1));
        assert_eq!(
            (counters.bytes_sent(), counters.messages_of(0x20)),
            (200, 2)
        );
    }
}
