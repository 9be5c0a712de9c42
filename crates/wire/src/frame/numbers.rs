//! The numbers of frames, by which each end notices one that vanished, came twice or came out of its turn. The
//! normative text is docs/wire.md, "The numbers of frames".

use super::{CRC_AT, Frame, FrameError};

/// The numbers of the frames that go one way over a connection, from the first after the handshake on. A number
/// is in the checksum of its frame and nowhere else: both ends count.
#[derive(Debug, Clone)]
pub struct FrameNumbers {
    /// Differs between connections, and between the two ways of one.
    start: u32,
    next: u64,
}

impl FrameNumbers {
    /// The numbers of what goes to the server, on the connection that began with these bytes of a Hello.
    pub fn to_server(hello: &[u8]) -> FrameNumbers {
        FrameNumbers::of(b"glint frames to the server\0", hello)
    }

    /// The numbers of what comes from the server.
    pub fn to_client(hello: &[u8]) -> FrameNumbers {
        FrameNumbers::of(b"glint frames to the client\0", hello)
    }

    /// A Hello has a nonce, so no two connections have the same start.
    fn of(way: &[u8], hello: &[u8]) -> FrameNumbers {
        FrameNumbers {
            start: crc32c::crc32c_append(crc32c::crc32c(way), hello),
            next: 0,
        }
    }

    /// Gives an encoded frame the next number. `head` is its header and body.
    pub fn number(&mut self, head: &mut [u8]) {
        let Some(field) = head.get_mut(CRC_AT..CRC_AT + 4) else {
            return;
        };
        let plain = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
        field.copy_from_slice(&self.next(plain).to_le_bytes());
    }

    /// The checksum of the next frame, where `plain` is the one that it would have without a number.
    fn next(&mut self, plain: u32) -> u32 {
        let number = self.next.to_le_bytes();
        self.next += 1;
        crc32c::crc32c_append(
            crc32c::crc32c_append(plain, &self.start.to_le_bytes()),
            &number,
        )
    }

    /// The inverse of [`Frame::encode`] and [`FrameNumbers::number`]: fails unless it is the next frame.
    pub fn decode(
        &mut self,
        head: &[u8],
        bulk: impl Into<super::Bulk>,
    ) -> Result<Frame, FrameError> {
        Frame::decode_as(head, bulk.into(), |plain| self.next(plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameKind, Header};

    const HELLO: &[u8] = b"hello";

    fn numbered(numbers: &mut FrameNumbers) -> Vec<u8> {
        let mut head = Frame::bare(Header::new(FrameKind::Ping))
            .encode(false)
            .unwrap();
        numbers.number(&mut head);
        head
    }

    #[test]
    fn golden_checksums() {
        let mut numbers = FrameNumbers::to_server(HELLO);
        let [first, second] = [(); 2].map(|()| numbered(&mut numbers));
        let twelve = |number: u8| {
            let way = crc32c::crc32c(b"glint frames to the server\0hello").to_le_bytes();
            [&way[..], &[number, 0, 0, 0, 0, 0, 0, 0]].concat()
        };
        for (number, head) in [(0, &first), (1, &second)] {
            let mut covered = head.clone();
            covered[CRC_AT..CRC_AT + 4].fill(0);
            covered.extend(twelve(number));
            assert_eq!(
                head[CRC_AT..CRC_AT + 4],
                crc32c::crc32c(&covered).to_le_bytes()
            );
        }
    }

    #[test]
    fn only_the_next_frame_of_its_way_is_taken() {
        let mut numbers = FrameNumbers::to_server(HELLO);
        let frames: Vec<_> = (0..3).map(|_| numbered(&mut numbers)).collect();
        let taken = |start: FrameNumbers, order: &[usize]| {
            let mut numbers = start;
            let taken = order
                .iter()
                .take_while(|at| numbers.decode(&frames[**at], Vec::new()).is_ok());
            taken.count()
        };
        let theirs = || FrameNumbers::to_server(HELLO);
        assert_eq!(taken(theirs(), &[0, 1, 2]), 3);
        for (order, expected) in [([1, 2, 0], 0), ([0, 0, 1], 1), ([0, 2, 1], 1)] {
            assert_eq!(taken(theirs(), &order), expected, "{order:?}");
        }
        assert_eq!(taken(FrameNumbers::to_client(HELLO), &[0]), 0);
        assert_eq!(taken(FrameNumbers::to_server(b"another"), &[0]), 0);
        assert!(Frame::decode(&frames[0], Vec::new()).is_err());
    }
}
