//! Golden bytes, versions, proofs, hostile bytes.

use proptest::prelude::*;

use super::*;

fn hello() -> Hello {
    Hello {
        versions: Versions { min: 1, max: 3 },
        client: ClientSecret([0xaa; 16]),
        incarnation: 5,
        target: TargetName::mdt(2),
        lane: Lane::Bulk,
        nonce: Nonce([1; 32]),
        session: SessionId(300),
        boot_epoch: BootEpoch(4),
        last_committed: Transno(200),
        credential: Credential::Server,
        wants_proof: true,
    }
}

fn all() -> [Handshake; 5] {
    [
        Handshake::Hello(hello()),
        Handshake::Challenge(Challenge {
            version: 1,
            nonce: Nonce([2; 32]),
            proof: [3; 32],
        }),
        Handshake::Proof(Proof([4; 32])),
        Handshake::Welcome(Welcome {
            version: 1,
            session: SessionId(300),
            resumed: true,
            client: ClientId(300),
            boot_epoch: BootEpoch(4),
            slots: 64,
            last_committed: Transno(201),
            survived: Transno(7),
            evicted: true,
            now: Timestamp {
                secs: 300,
                nanos: 7,
            },
        }),
        Handshake::Refusal(Refusal::new(RefusalReason::NotServed, "MDT2 is not here")),
    ]
}

#[test]
fn golden_bytes() {
    let golden = [
        format!(
            "0103{}05010201{}ac0204c8010101",
            "aa".repeat(16),
            "01".repeat(32)
        ),
        format!("01{}{}", "02".repeat(32), "03".repeat(32)),
        "04".repeat(32),
        "01ac0201ac020440c9010701d80407".to_owned(),
        "03104d445432206973206e6f742068657265".to_owned(),
    ];
    for (index, (message, golden)) in all().iter().zip(golden).enumerate() {
        let frame = message.to_frame();
        let sub = &frame.payload.subs[0];
        let bytes: String = sub.body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((usize::from(sub.opcode), bytes), (index + 1, golden));
        assert_eq!(Handshake::from_frame(&frame).as_ref(), Ok(message));
    }
}

#[test]
fn a_later_hello_with_more_fields_is_read() {
    let mut frame = Handshake::Hello(hello()).to_frame();
    let payload = Arc::make_mut(&mut frame.payload);
    payload.subs[0].body.extend_from_slice(b"later fields");
    assert_eq!(Handshake::from_frame(&frame), Ok(Handshake::Hello(hello())));
}

#[test]
fn the_versions_of_an_older_hello_are_read() {
    let mut frame = Handshake::Hello(hello()).to_frame();
    let payload = Arc::make_mut(&mut frame.payload);
    let fields = payload.subs[0].body.len();
    payload.subs[0].body.truncate(fields - 2);
    assert!(Handshake::from_frame(&frame).is_err());
    assert_eq!(versions_of(&frame), Ok(hello().versions));
}

#[test]
fn the_highest_common_version_wins() {
    let versions = |min, max| Versions { min, max };
    assert_eq!(negotiate(versions(1, 4), versions(2, 9)), Ok(4));
    assert_eq!(negotiate(versions(3, 3), versions(1, 3)), Ok(3));
    let refusal = negotiate(versions(1, 2), versions(3, 5)).unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Version);
    assert!(refusal.text.contains("version 3 to 5, the server 1 to 2"));
}

#[test]
fn a_proof_holds_for_one_key_role_hello_version_and_nonce() {
    let (key, other) = (Key::new([7; 32]), Key::new([8; 32]));
    let (hello, nonce) = (hello().to_bytes(), Nonce([2; 32]));
    let proof = prove(&key, Role::Client, &hello, 1, &nonce);
    let check =
        |key, role, hello: &[u8], version, nonce| verify(key, role, hello, version, nonce, &proof);
    assert!(check(&key, Role::Client, &hello, 1, &nonce));
    assert!(!check(&other, Role::Client, &hello, 1, &nonce));
    assert!(!check(&key, Role::Server, &hello, 1, &nonce));
    assert!(!check(&key, Role::Client, &hello[1..], 1, &nonce));
    assert!(!check(&key, Role::Client, &hello, 2, &nonce));
    assert!(!check(&key, Role::Client, &hello, 1, &Nonce([9; 32])));
}

#[test]
fn a_client_is_named_by_what_does_not_tell_its_secret() {
    let secret = ClientSecret([0xaa; 16]);
    let name = secret.uuid().to_string();
    assert_eq!(name, "b81f2f727fdb9e0aa07ed53485949ee7");
    assert_eq!(format!("{secret:?}"), format!("ClientSecret(of {name})"));
    assert_ne!(ClientSecret(secret.uuid().0).uuid(), secret.uuid());
}

#[test]
fn keys_are_read_and_never_shown() {
    let key = Key::new([0x5a; 32]);
    assert_eq!(format!("{}\n", key.to_hex()).parse(), Ok(key.clone()));
    assert_eq!(format!("{key:?}"), "Key(secret)");
    for bad in [
        "",
        "5a",
        &"zz".repeat(32),
        &"5a".repeat(33),
        &"é".repeat(32),
    ] {
        assert_eq!(bad.parse::<Key>(), Err(KeyParseError));
    }
}

#[test]
fn other_frames_are_no_handshake() {
    let bare = Frame::bare(Header::new(FrameKind::Handshake));
    assert!(Handshake::from_frame(&bare).is_err());
    let mut request = all()[0].to_frame();
    request.header.kind = FrameKind::Request;
    assert!(Handshake::from_frame(&request).is_err());
}

#[test]
fn the_longest_refusal_fits_its_frame() {
    let refusal = Refusal::new(RefusalReason::Service, "é".repeat(10_000));
    let frame = Handshake::Refusal(refusal).to_frame();
    assert!(frame.payload.frame_bytes() <= HANDSHAKE_BYTES_MAX);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(opcode in 0u16..7, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut frame = all()[0].to_frame();
        Arc::make_mut(&mut frame.payload).subs[0] = Sub { opcode, status: 0, body };
        let _ = Handshake::from_frame(&frame);
    }
}
