//! The numbers of frames, by which each end notices one that vanished, came twice or came out of its turn.
//! The normative text is docs/wire.md, "The numbers of frames".

/// Offset of the checksum that covers header and body.
pub(super) const CRC_AT: usize = 16;

/// The numbers of the frames that go one way over a connection, from the first after the handshake on. A
/// number is in the checksum of its frame and nowhere else: both ends count.
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
    pub(super) fn next(&mut self, plain: u32) -> u32 {
        let number = self.next.to_le_bytes();
        self.next += 1;
        crc32c::crc32c_append(
            crc32c::crc32c_append(plain, &self.start.to_le_bytes()),
            &number,
        )
    }
}
