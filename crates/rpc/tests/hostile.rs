//! Whom a server lets in, and what it does with bytes that are no protocol.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should panic")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use base::limits::UNTAKEN_BYTES_MAX;
use base::{Disrupted, TargetName};
use rpc::{
    Address, Batch, ClientSecret, Credential, Key, Peer, PeerConfig, PeerState, Policy,
    RefusalReason, Server, ServerConfig,
};
use support::*;
use wire::frame::{Frame, FrameKind, FrameNumbers, Header, SessionId};
use wire::handshake::{Handshake, Hello, Lane, Nonce, Versions};

fn refusal_of(peer: &Peer) -> (RefusalReason, String) {
    match peer.state() {
        PeerState::Refused(refusal) => (refusal.reason, refusal.text),
        other => panic!("{other:?}"),
    }
}

fn refused(place: &Place, config: PeerConfig) -> (RefusalReason, String) {
    let (peer, _) = place.peer_with(PeerConfig {
        policy: Policy::Trial { timeout: None },
        ..config
    });
    let answer = peer.call(Batch::of(ECHO, Vec::new())).wait();
    assert!(answer.is_err(), "{answer:?}");
    refusal_of(&peer)
}

#[test]
fn over_tcp_the_key_is_proven_on_loopback_too() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(1);
    let wrong = PeerConfig {
        key: Some(Key::new([1; 32])),
        ..place.config()
    };
    let (reason, text) = refused(&place, wrong);
    assert_eq!(reason, RefusalReason::Key);
    assert!(text.contains("another key"), "{text}");
    let (reason, text) = refused(
        &place,
        PeerConfig {
            key: None,
            ..place.config()
        },
    );
    assert_eq!(reason, RefusalReason::Key);
    assert!(text.contains("--key FILE"), "{text}");
    service.log.change(|log| assert!(log.sessions.is_empty()));
    echo(&place.peer().0, "the right key");
}

#[test]
fn over_unix_sockets_and_in_memory_no_key_is_needed() {
    for over in [Over::Unix, Over::Mem] {
        let mut place = Place::new(over);
        let (_server, service) = place.serve(1);
        let (peer, _) = place.peer_with(PeerConfig {
            key: None,
            ..place.config()
        });
        echo(&peer, "who I am is known");
        assert!(service.session().peer().uid.is_some());
    }
}

#[test]
fn a_target_that_is_not_there_is_refused_by_name() {
    let mut place = Place::new(Over::Tcp);
    let (_server, _) = place.serve(1);
    let (peer, _) = place.peer_with(PeerConfig {
        target: TargetName::MGS,
        ..place.config()
    });
    let answer = peer.call(Batch::of(ECHO, Vec::new())).wait();
    assert_eq!(answer, Err(Disrupted::WrongTarget));
    assert_eq!(refusal_of(&peer).1, "MGS is not served here");
}

/// The MGS says where it is: it may be on its way there.
#[test]
fn another_target_that_is_not_there_is_waited_for() {
    let mut place = Place::new(Over::Tcp);
    let (_server, _) = place.serve(1);
    let mut elsewhere = Place::new(Over::Tcp);
    let (_other, _) = elsewhere.serve_as(TargetName::ost(7), 1);
    let (peer, _) = place.peer_with(PeerConfig {
        target: TargetName::ost(7),
        ..place.config()
    });
    let call = peer.call(Batch::of(ECHO, b"waits".to_vec()));
    // Long enough to be refused.
    std::thread::sleep(Duration::from_millis(300));
    assert!(matches!(peer.state(), PeerState::WaitingSince(_)));
    peer.set_addresses(vec![elsewhere.address()]);
    assert_eq!(call.wait().unwrap().replies[0].body, b"waits");
}

#[test]
fn addresses_are_tried_in_turn() {
    let mut place = Place::new(Over::Tcp);
    let (_server, _) = place.serve(1);
    let mut elsewhere = Place::new(Over::Tcp);
    let (other, _) = elsewhere.serve(1);
    drop(other);
    let addresses = vec![elsewhere.address(), place.address()];
    let (peer, _) = place.peer_with(PeerConfig {
        addresses,
        ..place.config()
    });
    echo(&peer, "at the second");
}

#[test]
fn a_target_that_moves_is_followed_and_calls_only_wait() {
    let mut place = Place::new(Over::Tcp);
    let (first, _) = place.serve(1);
    let (peer, _) = place.peer();
    echo(&peer, "where it was");
    first.stop();
    // Somebody else serves there now: the target is on its way.
    let elsewhere = Server::start(ServerConfig::new(vec![place.listen.clone()]), Vec::new());
    let _elsewhere = elsewhere.unwrap();
    let under_way = peer.call(Batch::of(ECHO, b"on the way".to_vec()));
    place.listen = Address::Tcp("127.0.0.1:0".into());
    let (_second, _) = place.serve(2);
    assert!(peer.set_addresses(vec![place.address()]));
    assert!(!peer.set_addresses(vec![place.address()]), "the same");
    assert_eq!(under_way.wait().unwrap().replies[0].body, b"on the way");
    echo(&peer, "where it is");
}

#[test]
fn beyond_loopback_nothing_goes_unless_said() {
    let any = Address::Tcp("0.0.0.0:0".into());
    let error = Server::start(ServerConfig::new(vec![any.clone()]), Vec::new())
        .err()
        .unwrap();
    assert!(error.to_string().contains("say --insecure"), "{error}");
    let insecure = ServerConfig {
        insecure: true,
        ..ServerConfig::new(vec![any])
    };
    assert!(Server::start(insecure, Vec::new()).is_ok());

    let place = Place::new(Over::Tcp);
    let far = Address::Tcp("192.0.2.1:7988".into());
    let start = Instant::now();
    let (_, text) = refused(
        &place,
        PeerConfig {
            addresses: vec![far],
            ..place.config()
        },
    );
    assert!(text.contains("192.0.2.1:7988 is beyond loopback"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(1), "not even tried");
}

#[test]
fn a_socket_left_by_a_dead_server_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let config = || ServerConfig::new(vec![Address::Unix(path.clone())]);
    let server = Server::start(config(), Vec::new()).unwrap();
    let error = Server::start(config(), Vec::new())
        .err()
        .unwrap()
        .to_string();
    assert!(error.starts_with("cannot listen on unix:"), "{error}");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let config = || ServerConfig::new(vec![Address::Unix(path.clone())]);
    std::fs::write(&path, "words").unwrap();
    let error = Server::start(config(), Vec::new()).err().unwrap();
    assert!(error.to_string().contains("not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "words");
    // Nor does an end remove what has taken the place of the server's socket.
    std::fs::remove_file(&path).unwrap();
    let server = Server::start(config(), Vec::new()).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "words").unwrap();
    drop(server);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "words");
}

#[test]
fn a_listener_whose_queue_is_full_keeps_its_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _queued = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let config = ServerConfig::new(vec![Address::Unix(path.clone())]);
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || said.send(Server::start(config, Vec::new()).err()));
    let error = heard.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(error.is_some());
    assert!(path.exists());
}

/// A raw connection to a TCP server.
fn raw(place: &Place) -> TcpStream {
    let stream = TcpStream::connect(place.listen.to_string()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn garbage_ends_the_connection_and_nothing_else() {
    let mut place = Place::new(Over::Tcp);
    let (_server, _) = place.serve(1);
    let (peer, _) = place.peer();
    echo(&peer, "before");
    let huge = {
        let mut head = Frame::bare(Header::new(FrameKind::Handshake))
            .encode(false)
            .unwrap();
        head[8..12].copy_from_slice(&(1u32 << 20).to_le_bytes());
        head
    };
    let early = Frame::bare(Header::new(FrameKind::Request))
        .encode(false)
        .unwrap();
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: somewhere.example.org\r\nAccept: everything\r\n\r\n".to_vec(),
        vec![0; 64],
        huge,
        early,
    ] {
        let mut stream = raw(&place);
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(stream));
    }
    let mut half = raw(&place);
    half.write_all(b"GLNT").unwrap();
    drop(half);
    echo(&peer, "after");
}

fn hello(versions: Versions) -> Hello {
    Hello {
        versions,
        client: ClientSecret([9; 16]),
        incarnation: 1,
        target: target(),
        lane: Lane::Control,
        nonce: Nonce([1; 32]),
        session: SessionId::NONE,
        boot_epoch: base::BootEpoch(0),
        last_committed: base::Transno(0),
        credential: Credential::Client,
        wants_proof: true,
    }
}

fn say(stream: &mut TcpStream, message: &Handshake) {
    stream
        .write_all(&message.to_frame().encode(false).unwrap())
        .unwrap();
}

fn hear(stream: &mut TcpStream) -> Handshake {
    let mut head = vec![0; 64];
    stream.read_exact(&mut head).unwrap();
    let lengths = wire::frame::lengths(&head, usize::MAX).unwrap();
    head.resize(64 + lengths.body, 0);
    stream.read_exact(&mut head[64..]).unwrap();
    Handshake::from_frame(&Frame::decode(&head, Vec::new()).unwrap()).unwrap()
}

#[test]
fn a_version_that_is_not_spoken_is_refused_naming_both() {
    let mut place = Place::new(Over::Tcp);
    let (_server, _) = place.serve(1);
    let mut stream = raw(&place);
    say(
        &mut stream,
        &Handshake::Hello(hello(Versions { min: 98, max: 99 })),
    );
    let Handshake::Refusal(refusal) = hear(&mut stream) else {
        panic!("let in")
    };
    assert_eq!(refusal.reason, RefusalReason::Version);
    assert!(
        refusal.text.contains("98 to 99")
            && refusal
                .text
                .contains(&format!("the server {}", Versions::OURS.max)),
        "{refusal}"
    );
    assert!(is_closed(stream));
}

#[test]
fn a_forged_proof_is_refused_and_the_servers_own_is_no_use() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(1);
    for echoed in [false, true] {
        let mut stream = raw(&place);
        say(&mut stream, &Handshake::Hello(hello(Versions::OURS)));
        let Handshake::Challenge(challenge) = hear(&mut stream) else {
            panic!("no challenge")
        };
        let proof = if echoed { challenge.proof } else { [0; 32] };
        say(
            &mut stream,
            &Handshake::Proof(wire::handshake::Proof(proof)),
        );
        let Handshake::Refusal(refusal) = hear(&mut stream) else {
            panic!("let in")
        };
        assert_eq!(
            (refusal.reason, &*refusal.text),
            (RefusalReason::Key, "wrong key for MDT0")
        );
        assert!(is_closed(stream));
    }
    service.log.change(|log| assert!(log.sessions.is_empty()));
}

#[test]
fn a_server_that_asks_for_no_proof_over_tcp_is_not_trusted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new(Over::Tcp);
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let Handshake::Hello(_) = hear(&mut stream) else {
            panic!("no hello")
        };
        let welcome = wire::handshake::Welcome {
            version: wire::handshake::PROTOCOL,
            session: SessionId(1),
            resumed: false,
            client: base::ClientId(1),
            boot_epoch: base::BootEpoch(1),
            slots: 64,
            last_committed: base::Transno(0),
            survived: base::Transno(0),
            evicted: false,
            now: base::Timestamp::default(),
        };
        say(&mut stream, &Handshake::Welcome(welcome));
    });
    let (reason, text) = refused(
        &place,
        PeerConfig {
            addresses: vec![address],
            ..place.config()
        },
    );
    assert_eq!(reason, RefusalReason::Key);
    assert!(text.contains("did not prove its key"), "{text}");
    impostor.join().unwrap();
}

/// A raw connection that has said hello.
struct Greeted {
    stream: TcpStream,
    numbers: FrameNumbers,
}

impl Greeted {
    fn send(&mut self, frame: &Frame) -> std::io::Result<()> {
        let mut bytes = frame.encode(false).unwrap();
        self.numbers.number(&mut bytes);
        bytes.extend(frame.payload.bulk.joined().iter());
        self.stream.write_all(&bytes)
    }
}

/// A raw connection that has shaken hands.
fn welcome(place: &Place) -> (Greeted, wire::handshake::Welcome) {
    welcome_to(place, hello(Versions::OURS))
}

fn welcome_to(place: &Place, hello: Hello) -> (Greeted, wire::handshake::Welcome) {
    let mut stream = proven(place, hello);
    match hear(&mut stream.stream) {
        Handshake::Welcome(welcome) => (stream, welcome),
        other => panic!("{other:?}"),
    }
}

/// The same before the server's last word.
fn proven(place: &Place, hello: Hello) -> Greeted {
    let mut stream = raw(place);
    let numbers = FrameNumbers::to_server(&hello.to_bytes());
    say(&mut stream, &Handshake::Hello(hello.clone()));
    let Handshake::Challenge(challenge) = hear(&mut stream) else {
        panic!("no challenge")
    };
    let (key, role) = (Key::new(KEY), wire::handshake::Role::Client);
    let proof = wire::handshake::prove(
        &key,
        role,
        &hello.to_bytes(),
        challenge.version,
        &challenge.nonce,
    );
    say(
        &mut stream,
        &Handshake::Proof(wire::handshake::Proof(proof)),
    );
    Greeted { stream, numbers }
}

/// Nothing comes but the end.
fn is_broken_off(mut greeted: Greeted) -> bool {
    greeted.stream.read(&mut [0]).is_ok_and(|bytes| bytes == 0)
}

#[test]
fn a_target_that_stops_says_nothing_to_whom_it_hears_from() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(1);
    *service.stops.lock().unwrap() = true;
    assert!(is_broken_off(proven(&place, hello(Versions::OURS))));
    *service.stops.lock().unwrap() = false;
    welcome(&place);
}

#[test]
fn who_was_given_up_by_an_earlier_boot_is_known_by_its_hello() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(2);
    let session = SessionId(7);
    let of_boot = |number, epoch| Hello {
        client: ClientSecret([number; 16]),
        boot_epoch: base::BootEpoch(epoch),
        ..hello(Versions::OURS)
    };
    let with_session = Hello {
        session,
        ..of_boot(4, 1)
    };
    let hellos = [
        (of_boot(1, 1), true),
        (of_boot(2, 0), false),
        (of_boot(3, 2), false),
        (with_session, false),
    ];
    for (hello, expected) in hellos {
        let (_stream, _) = welcome_to(&place, hello);
        let session = service.session();
        let found = session.peer().was_given_up;
        assert_eq!(found, expected, "{:?}", session.peer());
    }
}

/// Status tells everybody a client's name, and its session's number and incarnation are guessed.
#[test]
fn who_knows_a_clients_name_and_the_key_gets_a_session_of_its_own() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(1);
    let (mut owner, owned) = welcome(&place);
    let name = service.session().peer().uuid;
    for (lane, session) in [(Lane::Control, owned.session), (Lane::Bulk, owned.session)] {
        let thief = Hello {
            client: ClientSecret(name.0),
            incarnation: u64::MAX,
            lane,
            session,
            boot_epoch: owned.boot_epoch,
            ..hello(Versions::OURS)
        };
        let mut stream = proven(&place, thief);
        match hear(&mut stream.stream) {
            Handshake::Welcome(welcome) => assert!(!welcome.resumed, "{welcome:?}"),
            Handshake::Refusal(refusal) => assert_eq!(refusal.reason, RefusalReason::NoSession),
            other => panic!("{other:?}"),
        }
    }
    let ask = request(0, Batch::of(PARK, Vec::new()));
    owner.send(&ask).unwrap();
    service.wait_for_line("parked");
    let again = Hello {
        session: owned.session,
        boot_epoch: owned.boot_epoch,
        ..hello(Versions::OURS)
    };
    assert!(welcome_to(&place, again).1.resumed);
}

fn request(slot: u16, batch: Batch) -> Frame {
    let mut frame = Frame::bare(Header::new(FrameKind::Request));
    frame.header.session = SessionId(1);
    frame.header.epoch = 1;
    frame.header.slot = slot;
    frame.header.xid = base::Xid(u64::from(slot) + 1);
    frame.payload = std::sync::Arc::new(batch.into());
    frame
}

#[test]
fn a_client_that_breaks_the_rules_is_disconnected_and_its_session_lives() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(1);
    let (mut stream, welcome) = welcome(&place);
    stream.send(&request(9999, Batch::default())).unwrap();
    assert!(is_closed(stream.stream));
    service.wait_for_line(&format!("disconnected {}", welcome.client));
}

#[test]
fn a_client_that_does_not_take_its_replies_is_not_heard() {
    let mut place = Place::new(Over::Tcp);
    let (server, _) = place.serve(1);
    let (mut stream, _) = welcome(&place);
    const BYTES: usize = 4 << 20;
    for slot in 0..64 {
        let batch = Batch::of(READ, (BYTES as u32).to_le_bytes().to_vec());
        stream.send(&request(slot, batch)).unwrap();
    }
    let (peer, _) = place.peer();
    until("its replies wait", || {
        server.replies_bytes().0 > UNTAKEN_BYTES_MAX
    });
    for _ in 0..20 {
        echo(&peer, "served");
    }
    let mut reply = vec![0; 64 + 8 + BYTES];
    for taken in 0..64 {
        // Of the replies that do not fit the sockets: the bound, and the last one in.
        let untaken = server.replies_bytes().0;
        assert!(
            untaken <= UNTAKEN_BYTES_MAX + BYTES + 4096,
            "{untaken}, {taken} taken"
        );
        stream.stream.read_exact(&mut reply).unwrap();
    }
}

/// Its requests had come before its end was seen.
#[test]
fn nothing_more_is_done_for_a_client_that_is_gone() {
    let mut place = Place::new(Over::Tcp);
    let (server, service) = place.serve(1);
    let (mut stream, _) = welcome(&place);
    const BYTES: usize = 4 << 20;
    for slot in 0..64 {
        let batch = Batch::of(READ, (BYTES as u32).to_le_bytes().to_vec());
        stream.send(&request(slot, batch)).unwrap();
    }
    until("its replies wait", || {
        server.replies_bytes().0 > UNTAKEN_BYTES_MAX
    });
    drop(stream);
    until("its connection is gone", || {
        server.connections() == 0 && server.replies_bytes().0 == 0
    });
    let executed = service.log.change(|log| log.executed.len());
    // The replies in the sockets' buffers of both ends, the bound, and the one under way.
    assert!(executed < 32, "{executed} of 64 requests were run");
}

/// A client that has a session of its own.
fn another(place: &Place, number: u8) -> (Greeted, SessionId) {
    let client = ClientSecret([number; 16]);
    let hello = Hello {
        client,
        ..hello(Versions::OURS)
    };
    let (stream, welcome) = welcome_to(place, hello);
    (stream, welcome.session)
}

fn ask(stream: &mut Greeted, session: SessionId, slot: u16, batch: Batch) -> bool {
    let mut frame = request(slot, batch);
    frame.header.session = session;
    stream.send(&frame).is_ok()
}

#[test]
fn clients_that_take_no_replies_are_cut_before_theirs_fill_memory() {
    let mut place = Place::new(Over::Tcp);
    place.replies_bytes_max = 48 << 20;
    let (server, _) = place.serve(1);
    let (peer, _) = place.peer();
    const BYTES: usize = 2 << 20;
    let mut most = 0;
    let streams: Vec<_> = (10..26)
        .map(|number| {
            let (mut stream, session) = another(&place, number);
            for slot in 0..32 {
                let batch = Batch::of(READ, (BYTES as u32).to_le_bytes().to_vec());
                // It may be cut already.
                if !ask(&mut stream, session, slot, batch) {
                    break;
                }
                most = most.max(server.replies_bytes().0);
            }
            echo(&peer, "served");
            stream
        })
        .collect();
    until("all is answered or cut", || {
        most = most.max(server.replies_bytes().0);
        server.replies_bytes().0 <= place.replies_bytes_max
    });
    // One frame each that their writers are sending, and one that has just come.
    assert!(
        most <= place.replies_bytes_max + 17 * (BYTES + 4096),
        "{most}"
    );
    let asked = Batch::of(READ, (BYTES as u32).to_le_bytes().to_vec());
    assert_eq!(peer.call(asked).wait().unwrap().bulk.len(), BYTES);
    let cut = streams.into_iter().filter(|Greeted { stream, .. }| {
        // What is in the sockets' buffers comes, and then the end, or nothing.
        stream
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        is_closed(stream.try_clone().unwrap())
    });
    assert!(cut.count() > 0);
}

#[test]
fn clients_whose_kept_answers_are_too_many_are_ended_and_others_are_not() {
    let mut place = Place::new(Over::Tcp);
    place.replies_bytes_max = 16 << 20;
    let (server, service) = place.serve(1);
    let (mut honest, session) = another(&place, 2);
    assert!(ask(&mut honest, session, 0, Batch::of(CHANGE, Vec::new())));
    let mut answer = [0; 64 + 8 + 8];
    honest.stream.read_exact(&mut answer).unwrap();
    let mut kept = Vec::new();
    for number in 10..18 {
        let (mut stream, session) = another(&place, number);
        for slot in 0..8 {
            let mut change = Batch::of(CHANGE, Vec::new());
            change.bulk = vec![7; 1 << 20].into();
            let mut answer = vec![0; 64 + 8 + 8 + (1 << 20)];
            let is_asked = ask(&mut stream, session, slot, change);
            if !is_asked || stream.stream.read_exact(&mut answer).is_err() {
                break;
            }
            kept.push(server.replies_bytes().1);
        }
    }
    let most = kept.iter().max().unwrap();
    assert!(*most <= place.replies_bytes_max + (2 << 20), "{most}");
    let lines = service.log.change(|log| log.lines.clone());
    let expired = lines.iter().filter(|line| line.starts_with("expired"));
    assert!(expired.count() >= 5, "{lines:?}");
    // A resend of what was answered: its answer is still there.
    assert!(ask(&mut honest, session, 0, Batch::of(CHANGE, Vec::new())));
    let mut again = [0; 64 + 8 + 8];
    honest.stream.read_exact(&mut again).unwrap();
    assert_eq!(again[64..], answer[64..]);
}

/// The server has restarted; the process that it made a session for dies before it hears of it.
#[test]
fn the_next_process_gets_the_session_that_the_one_before_did_not_hear_of() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(2);
    let of_process = |incarnation| Hello {
        incarnation,
        session: SessionId(7),
        boot_epoch: base::BootEpoch(1),
        ..hello(Versions::OURS)
    };
    let mut streams = Vec::new();
    for incarnation in 1..4 {
        let (stream, welcome) = welcome_to(&place, of_process(incarnation));
        streams.push(stream);
        let told = (welcome.session, welcome.resumed, welcome.evicted);
        assert_eq!(told, (SessionId(1), false, false), "{incarnation}");
        assert_eq!(service.session().peer().incarnation, incarnation);
    }
    service.log.change(|log| {
        let lines = log.lines.iter();
        assert!(
            !lines.clone().any(|line| line.starts_with("expired")),
            "{lines:?}"
        );
    });
    // What a process before says in it is not heard; what this one says is.
    let mut last = streams.pop().unwrap();
    streams
        .into_iter()
        .for_each(|greeted| assert!(is_closed(greeted.stream)));
    let mut ask = request(0, Batch::of(PARK, Vec::new()));
    ask.header.epoch = 2;
    last.send(&ask).unwrap();
    service.wait_for_line("parked");
}

#[test]
fn who_is_given_up_while_it_comes_is_told_when_that_is_durable() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(2);
    *service.revocation.lock().unwrap() = Revocation::Soon;
    let hello = Hello {
        session: SessionId(7),
        boot_epoch: base::BootEpoch(1),
        ..hello(Versions::OURS)
    };
    let (_stream, welcome) = welcome_to(&place, hello);
    assert!(welcome.evicted && !welcome.resumed);
    assert_eq!(*service.revocation.lock().unwrap(), Revocation::Durably);
    let lines = service.log.change(|log| log.lines.clone());
    assert_eq!(lines, ["connected 0x1", "expired 0x1", "connected 0x2"]);
}

/// Its client has given it up, and said hello again over another connection.
#[test]
fn a_hello_that_comes_late_ends_no_session() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(1);
    service.hold_hello.change(|hold| *hold = Hold::Next);
    let stale = proven(&place, hello(Versions::OURS));
    let held = |hold: &mut Hold| (*hold == Hold::Held).then_some(());
    service.hold_hello.wait_for("the first hello", held);
    let (mut stream, _) = welcome(&place);
    let ask = |slot| request(slot, Batch::of(PARK, Vec::new()));
    stream.send(&ask(0)).unwrap();
    service.wait_for_line("parked");
    service.hold_hello.change(|hold| *hold = Hold::Nothing);
    assert!(is_broken_off(stale));
    stream.send(&ask(1)).unwrap();
    service
        .log
        .wait_for("the session", |log| (log.parked.len() == 2).then_some(()));
    let lines = service.log.change(|log| log.lines.clone());
    assert_eq!(lines, ["connected 0x1", "parked", "parked"]);
}
