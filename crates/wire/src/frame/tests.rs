//! Golden bytes, round trips, compaction, and hostile bytes.

use proptest::prelude::*;

use super::*;

fn example(kind: FrameKind) -> Frame {
    let subs = match kind {
        FrameKind::Request | FrameKind::Reply => vec![sub(0x20, 0, b"ab"), sub(0x30, 7, b"")],
        FrameKind::Callback | FrameKind::CallbackReply | FrameKind::Handshake => {
            vec![sub(1, 0, b"xyz")]
        }
        _ => Vec::new(),
    };
    let bulk = match kind {
        FrameKind::Request => b"file data".to_vec(),
        _ => Vec::new(),
    };
    Frame {
        header: Header {
            kind,
            resent: kind == FrameKind::Request,
            replay: false,
            slot: 3,
            credits: 64,
            session: SessionId(0x0a0b_0c0d),
            epoch: 9,
            xid: Xid(0x0102_0304_0506_0708),
            last_committed: Transno(77),
            transno: Transno(78),
        },
        payload: Arc::new(Payload {
            subs,
            bulk: bulk.into(),
        }),
    }
}

fn sub(opcode: u16, status: u16, body: &[u8]) -> Sub {
    Sub {
        opcode,
        status,
        body: body.to_vec(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Offset of the body's length, and of the check of the lengths.
const BODY_BYTES_AT: usize = 8;
const CHECK_AT: usize = 30;

/// Slot and credits of every example's header; and what it ends with, session to transno.
const SLOT: &str = "03004000";
const TAIL: &str = "0d0c0b0a09000000\
                    08070605040302014d000000000000004e00000000000000";

/// Kind, flags, body length, bulk length, both checksums, count; behind [`SLOT`] the check of the lengths;
/// behind [`TAIL`] the body.
const GOLDEN: [(FrameKind, &str, &str, &str); 11] = [
    (
        FrameKind::Request,
        "0101001200000009000000daebd77c98976a280200",
        "f05d",
        "200000000200000061623000070000000000",
    ),
    (
        FrameKind::Reply,
        "020000120000000000000037ff58c4000000000200",
        "b981",
        "200000000200000061623000070000000000",
    ),
    (
        FrameKind::Callback,
        "0300000b00000000000000ef6a0167000000000100",
        "3106",
        "010000000300000078797a",
    ),
    (
        FrameKind::CallbackReply,
        "0400000b0000000000000029171b2b000000000100",
        "655a",
        "010000000300000078797a",
    ),
    (
        FrameKind::Handshake,
        "0500000b000000000000009a189770000000000100",
        "0000",
        "010000000300000078797a",
    ),
    (
        FrameKind::Ping,
        "060000000000000000000093e45527000000000000",
        "a540",
        "",
    ),
    (
        FrameKind::Pong,
        "07000000000000000000007f103613000000000000",
        "64b7",
        "",
    ),
    (
        FrameKind::Ready,
        "08000000000000000000009af430ce000000000000",
        "fc8e",
        "",
    ),
    (
        FrameKind::Committed,
        "0900000000000000000000760053fa000000000000",
        "3d79",
        "",
    ),
    (
        FrameKind::Evicted,
        "0a000000000000000000005bbcd543000000000000",
        "8f17",
        "",
    ),
    (
        FrameKind::Goodbye,
        "0b00000000000000000000b748b677000000000000",
        "4ee0",
        "",
    ),
];

#[test]
fn a_replay_carries_requests_and_answers() {
    let requests = Payload {
        subs: vec![sub(7, 0, b"make"), sub(8, 0, b"")],
        bulk: b"data".to_vec().into(),
    };
    let answers = Payload {
        subs: vec![sub(7, 0, b"made"), sub(8, 5, b"")],
        ..Payload::default()
    };
    let replay = Payload::replay(&requests, &answers);
    assert_eq!(replay.subs[0], sub(7, 0, b"\x04\0\0\0makemade"));
    assert_eq!(replay.subs[1], sub(8, 5, b"\0\0\0\0"));
    let (asked, answered) = replay.replayed().expect("well formed");
    assert_eq!((asked, answered), (requests, answers.subs));
    let header = Header {
        replay: true,
        ..example(FrameKind::Request).header
    };
    let frame = Frame::bare(header);
    let bytes = frame.encode(true).unwrap();
    assert_eq!(bytes[6..8], [5, 0], "resent and replay");
    assert_eq!(Frame::decode(&bytes, Vec::new()), Ok(frame));
    for nonsense in [&b""[..], b"\x01\0\0", b"\x02\0\0\0x", b"\xff\xff\xff\xffx"] {
        let subs = vec![sub(1, 0, nonsense)];
        let payload = Payload {
            subs,
            ..Payload::default()
        };
        assert_eq!(payload.replayed(), None);
    }
}

#[test]
fn golden_bytes_of_every_kind() {
    for ((kind, head, check, body), listed) in GOLDEN.into_iter().zip(FrameKind::ALL) {
        assert_eq!(kind, listed, "every kind has its golden bytes");
        let bytes = example(kind).encode(true).unwrap();
        let golden = format!("474c4e5401{head}{SLOT}{check}{TAIL}{body}");
        assert_eq!(hex(&bytes), golden, "{kind:?}");
    }
}

#[test]
fn every_kind_survives_the_trip() {
    for kind in FrameKind::ALL {
        let frame = example(kind);
        let head = frame.encode(true).unwrap();
        assert_eq!(Frame::decode(&head, frame.payload.bulk.clone()), Ok(frame));
    }
}

/// A reply's body as messages really look: varints of slightly different lengths between fields
/// that are alike in one directory.
fn attribute_reply(n: u64) -> Vec<u8> {
    let mut body = vec![1, 0, 0x80, 0x80, 0x80];
    let varint = |body: &mut Vec<u8>, mut value: u64| {
        while value >= 0x80 {
            body.push(value as u8 | 0x80);
            value >>= 7;
        }
        body.push(value as u8);
    };
    varint(&mut body, 0x412 << 24 | (n + 100));
    for same in [0o100_644, 1000, 1000, 1, 0, 0, 0, 1 << 20, 1, 0, 1 << 20] {
        varint(&mut body, same);
    }
    for time in 0..4 {
        varint(&mut body, 3_600_000_000 + time);
        varint(&mut body, (n * 7_919_317 + time) % 1_000_000_000);
    }
    for field in [n * n * 37, n * n / 14, 1_000_000 + n] {
        varint(&mut body, field);
    }
    body
}

fn reply_of(bodies: impl Iterator<Item = Vec<u8>>) -> Frame {
    let subs = bodies.map(|body| sub(0x20, 0, &body)).collect();
    Frame {
        header: Header::new(FrameKind::Reply),
        payload: Arc::new(Payload {
            subs,
            bulk: Bulk::default(),
        }),
    }
}

#[test]
fn compaction_halves_256_attribute_replies() {
    let frame = reply_of((0..256).map(attribute_reply));
    let (plain, compact) = (frame.encode(false).unwrap(), frame.encode(true).unwrap());
    println!("plain {} bytes, compact {}", plain.len(), compact.len());
    assert!(compact.len() * 2 < plain.len());
    assert_eq!(Frame::decode(&compact, Vec::new()), Ok(frame.clone()));
    assert_eq!(Frame::decode(&plain, Vec::new()), Ok(frame));
}

#[test]
fn what_does_not_shrink_is_sent_plain() {
    let mut state = 1u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let frame = reply_of(
        (0..64)
            .map(|_| (0..100).map(|_| noise()).collect::<Vec<u8>>())
            .collect::<Vec<_>>()
            .into_iter(),
    );
    assert_eq!(frame.encode(true), frame.encode(false));
}

#[test]
fn an_expansion_beyond_a_frame_is_refused() {
    let mut body = (FRAME_BYTES_MAX as u32).to_le_bytes().to_vec();
    body.extend_from_slice(&[0x1f, 0, 1, 0, 255, 255, 255, 255]);
    let head = reseal(&example(FrameKind::Reply), FLAG_COMPACT, &body);
    let refused = Frame::decode(&head, Vec::new());
    assert_eq!(
        refused,
        Err(FrameError::too_large(
            (HEADER_BYTES + FRAME_BYTES_MAX) as u64
        ))
    );
}

/// The frame with other flags and body, and checksums that are right.
fn reseal(frame: &Frame, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut head = frame.encode(false).unwrap();
    head.truncate(HEADER_BYTES);
    head.extend_from_slice(body);
    head[6..8].copy_from_slice(&flags.to_le_bytes());
    head[BODY_BYTES_AT..][..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    check_lengths(&mut head);
    let crc = checksum(&head);
    head[CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
    head
}

/// Makes the check of the lengths right.
fn check_lengths(head: &mut [u8]) {
    let check = crc32c::crc32c(&head[..CRC_AT]) as u16;
    head[CHECK_AT..][..2].copy_from_slice(&check.to_le_bytes());
}

#[test]
fn lengths_are_bounded_before_anything_is_read() {
    let head = example(FrameKind::Request).encode(true).unwrap();
    assert_eq!(
        lengths(&head, FRAME_BYTES_MAX),
        Ok(Lengths { body: 18, bulk: 9 })
    );
    let refused = lengths(&head, 90).unwrap_err();
    assert_eq!(refused.to_string(), "91 bytes, over the limit of 90");
    let mut huge = head;
    huge[BODY_BYTES_AT..][..4].fill(0xff);
    huge[12..16].fill(0xff);
    assert_eq!(lengths(&huge, usize::MAX), Err(FrameError::Lengths));
    check_lengths(&mut huge);
    assert!(matches!(
        lengths(&huge, usize::MAX),
        Err(FrameError::TooLarge { .. })
    ));
}

/// Or what comes next would be taken for the rest of the frame, for as long as it takes to come.
#[test]
fn a_bit_that_flips_in_front_of_the_checksum_is_found_by_the_header_alone() {
    for kind in FrameKind::ALL {
        if kind == FrameKind::Handshake {
            continue;
        }
        let head = example(kind).encode(true).unwrap();
        for bit in 0..8 * CRC_AT {
            let mut head = head.clone();
            head[bit / 8] ^= 1 << (bit % 8);
            assert!(lengths(&head, FRAME_BYTES_MAX).is_err(), "{kind:?}, {bit}");
        }
    }
}

#[test]
fn each_fault_has_its_name() {
    let frame = example(FrameKind::Request);
    let head = frame.encode(true).unwrap();
    let bulk = || frame.payload.bulk.clone();
    let spoilt = |at: usize, byte: u8| {
        let mut head = head.clone();
        head[at] = byte;
        Frame::decode(&head, bulk()).unwrap_err()
    };
    assert!(matches!(spoilt(0, 0), FrameError::Magic(_)));
    assert_eq!(spoilt(4, 9), FrameError::Version(9));
    assert_eq!(spoilt(5, 0), FrameError::Kind(0));
    assert_eq!(spoilt(5, 12), FrameError::Kind(12));
    assert_eq!(spoilt(6, 0x80), FrameError::Flags(0x80));
    assert_eq!(spoilt(25, 0xff), FrameError::TooMany(0xff02));
    assert_eq!(spoilt(8, 1), FrameError::Lengths);
    assert_eq!(spoilt(40, 0), FrameError::Checksum);
    assert_eq!(spoilt(70, 1), FrameError::Checksum);
    assert_eq!(
        Frame::decode(&head, b"file dat4".to_vec()),
        Err(FrameError::BulkChecksum)
    );
    assert_eq!(Frame::decode(&head, Vec::new()), Err(FrameError::Truncated));
    assert_eq!(
        Frame::decode(&head[..63], bulk()),
        Err(FrameError::Truncated)
    );
    let surplus = reseal(&frame, 0, &[0; 40]);
    assert!(matches!(
        Frame::decode(&surplus, bulk()),
        Err(FrameError::Body(_))
    ));
}

#[test]
fn too_much_is_refused_by_the_sender() {
    let frame = reply_of((0..=FRAME_REQUESTS_MAX).map(|_| Vec::new()));
    assert_eq!(
        frame.encode(true),
        Err(FrameError::TooMany(FRAME_REQUESTS_MAX + 1))
    );
    let frame = reply_of(std::iter::once(vec![0; FRAME_BYTES_MAX]));
    assert!(matches!(
        frame.encode(true),
        Err(FrameError::TooLarge { .. })
    ));
}

const HELLO: &[u8] = b"hello";

fn numbered(numbers: &mut FrameNumbers) -> Vec<u8> {
    let mut head = Frame::bare(Header::new(FrameKind::Ping))
        .encode(false)
        .unwrap();
    numbers.number(&mut head);
    head
}

#[test]
fn golden_checksums_of_numbered_frames() {
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
            .take_while(|at| Frame::decode_next(&frames[**at], Vec::new(), &mut numbers).is_ok());
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

prop_compose! {
    fn any_sub()(
        opcode in 0u16..4,
        status in prop_oneof![Just(0), any::<u16>()],
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(0u8..2, 0..2000),
        ],
    ) -> Sub {
        Sub { opcode, status, body }
    }
}

proptest! {
    #[test]
    fn any_payload_survives(
        subs in prop::collection::vec(any_sub(), 0..40),
        bulk in prop::collection::vec(any::<u8>(), 0..100),
        compact: bool,
    ) {
        let mut frame = example(FrameKind::Reply);
        let bulk = Bulk::from(bulk);
        frame.payload = Arc::new(Payload { subs, bulk: bulk.clone() });
        let head = frame.encode(compact).unwrap();
        prop_assert_eq!(Frame::decode(&head, bulk), Ok(frame));
    }

    #[test]
    fn any_bytes_are_survived(
        head in prop::collection::vec(any::<u8>(), 0..300),
        bulk in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let _ = lengths(&head, FRAME_BYTES_MAX);
        prop_assert!(Frame::decode(&head, bulk).is_err());
    }

    /// Past the checksum too: the body is hostile, the header is right.
    #[test]
    fn any_body_is_survived(
        body in prop::collection::vec(any::<u8>(), 0..300),
        expanded in 0u32..100_000,
        plain: bool,
    ) {
        let frame = example(FrameKind::Reply);
        let head = if plain {
            reseal(&frame, 0, &body)
        } else {
            let framed = [&expanded.to_le_bytes()[..], &body].concat();
            reseal(&frame, FLAG_COMPACT, &framed)
        };
        let _ = Frame::decode(&head, Vec::new());
    }

    #[test]
    fn one_flipped_bit_is_noticed(at in 0usize..82, bit in 0u8..8) {
        let frame = example(FrameKind::Request);
        let mut head = frame.encode(true).unwrap();
        head[at] ^= 1 << bit;
        prop_assert!(Frame::decode(&head, frame.payload.bulk.clone()).is_err());
    }
}
