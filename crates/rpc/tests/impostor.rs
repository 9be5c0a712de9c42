//! Peers that have proven nothing, or another thing than they claim: nothing follows from what they say.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should panic")]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use base::{BootEpoch, ClientId, Timestamp, Transno};
use rpc::{
    Batch, ClientSecret, Credential, Key, PeerConfig, PeerState, Policy, Refusal, RefusalReason,
};
use support::*;
use wire::frame::{Frame, SessionId};
use wire::handshake::{Challenge, Handshake, Hello, Lane, Nonce, PROTOCOL, Versions, Welcome};

/// Answers each hello at an address with the same words.
struct Impostor {
    stop: Arc<AtomicBool>,
    heard: Arc<AtomicUsize>,
    address: std::net::SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Impostor {
    fn at(address: &str, words: Vec<Handshake>) -> Impostor {
        // The server that was there has ended a moment ago.
        let mut listener = None;
        until("the address is free", || {
            listener = TcpListener::bind(address).ok();
            listener.is_some()
        });
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, heard) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stopped, counted) = (stop.clone(), heard.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                let mut stream = stream.unwrap();
                let mut hello = [0; 64];
                if stream.read_exact(&mut hello).is_err() {
                    continue;
                }
                for word in &words {
                    // Who has heard enough hangs up.
                    let _ = stream.write_all(&word.to_frame().encode(false).unwrap());
                }
                counted.fetch_add(1, Ordering::AcqRel);
            }
        });
        Impostor {
            stop,
            heard,
            address,
            thread: Some(thread),
        }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn refusals() -> Vec<Vec<Handshake>> {
    use RefusalReason::*;
    let reasons = [
        Version, Key, User, NotServed, Damaged, Replaced, NoSession, Service, Garbled, Busy,
    ];
    let refusal = |reason| Handshake::Refusal(Refusal::new(reason, "give up\nroot: all is lost"));
    let mut all: Vec<_> = reasons
        .into_iter()
        .map(|reason| vec![refusal(reason)])
        .collect();
    let forged = Handshake::Challenge(Challenge {
        version: PROTOCOL,
        nonce: Nonce([5; 32]),
        proof: [6; 32],
    });
    let older = Handshake::Challenge(Challenge {
        version: 1,
        nonce: Nonce([5; 32]),
        proof: [6; 32],
    });
    let welcome = Handshake::Welcome(Welcome {
        version: PROTOCOL,
        session: SessionId(9),
        resumed: false,
        client: ClientId(9),
        boot_epoch: BootEpoch(9),
        slots: 64,
        last_committed: Transno(1 << 60),
        survived: Transno(0),
        evicted: true,
        now: Timestamp::default(),
    });
    all.push(vec![forged.clone()]);
    all.push(vec![forged, refusal(Replaced)]);
    all.push(vec![older]);
    all.push(vec![welcome]);
    all
}

/// A server dies, and a stranger takes its port.
#[test]
fn no_word_of_a_stranger_ends_a_call() {
    for words in refusals() {
        let mut place = Place::new(Over::Tcp);
        let (server, service) = place.serve(1);
        let (peer, handler) = place.peer();
        echo(&peer, "before");
        let parked = peer.call(Batch::of(PARK, Vec::new()));
        service.wait_for_line("parked");
        server.stop();
        let told = format!("{words:?}");
        let impostor = Impostor::at(&place.listen.to_string(), words);
        until("the stranger was asked", || {
            impostor.heard.load(Ordering::Acquire) >= 2
        });
        let waits = peer.call(Batch::of(ECHO, b"waits".to_vec()));
        assert!(
            matches!(peer.state(), PeerState::WaitingSince(_)),
            "{told}: {:?}",
            peer.state()
        );
        drop(impostor);
        let (_server, service) = place.serve(2);
        assert_eq!(waits.wait().unwrap().replies[0].body, b"waits", "{told}");
        service.wait_for_parked().reply(reply_of([Vec::new()]));
        assert!(parked.wait().is_ok(), "{told}");
        handler.heard.change(|heard| {
            let evicted = heard.lines.iter().any(|line| line.contains("evicted"));
            assert!(!evicted, "{told}: {:?}", heard.lines);
        });
    }
}

fn hello(credential: Credential) -> Hello {
    Hello {
        versions: Versions::OURS,
        client: ClientSecret([9; 16]),
        incarnation: 1,
        target: target(),
        lane: Lane::Control,
        nonce: Nonce([1; 32]),
        session: SessionId::NONE,
        boot_epoch: BootEpoch(0),
        last_committed: Transno(0),
        credential,
        wants_proof: true,
    }
}

fn hear(stream: &mut TcpStream) -> Handshake {
    let mut head = vec![0; 64];
    stream.read_exact(&mut head).unwrap();
    let lengths = wire::frame::lengths(&head, usize::MAX).unwrap();
    head.resize(64 + lengths.body, 0);
    stream.read_exact(&mut head[64..]).unwrap();
    Handshake::from_frame(&Frame::decode(&head, Vec::new()).unwrap()).unwrap()
}

/// What the server answers to a hello that is proven with `key`.
fn answer(place: &Place, hello: &Hello, key: [u8; 32]) -> (TcpStream, Handshake) {
    let mut stream = TcpStream::connect(place.listen.to_string()).unwrap();
    let say = |stream: &mut TcpStream, message: Handshake| {
        let frame = message.to_frame().encode(false).unwrap();
        stream.write_all(&frame).unwrap();
    };
    say(&mut stream, Handshake::Hello(hello.clone()));
    let Handshake::Challenge(challenge) = hear(&mut stream) else {
        panic!("no challenge")
    };
    let role = wire::handshake::Role::Client;
    let (version, nonce) = (challenge.version, &challenge.nonce);
    let bytes = hello.to_bytes();
    let proof = wire::handshake::prove(&Key::new(key), role, &bytes, version, nonce);
    say(&mut stream, Handshake::Proof(wire::handshake::Proof(proof)));
    let answer = hear(&mut stream);
    (stream, answer)
}

fn reason(answer: &Handshake) -> RefusalReason {
    match answer {
        Handshake::Refusal(refusal) => refusal.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_speaks_for_targets_has_the_key_of_the_servers() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(1);
    let claimed = hello(Credential::Server);
    let (_stream, refused) = answer(&place, &claimed, KEY);
    assert_eq!(reason(&refused), RefusalReason::Key);
    let (_stream, refused) = answer(&place, &hello(Credential::Client), SERVER_KEY);
    assert_eq!(reason(&refused), RefusalReason::Key);
    service.log.change(|log| assert!(log.sessions.is_empty()));
    let (_stream, welcome) = answer(&place, &claimed, SERVER_KEY);
    assert!(matches!(welcome, Handshake::Welcome(_)), "{welcome:?}");
    assert!(service.session().peer().is_server());
    // Nor does its session go on for a client that has learnt of it.
    for lane in [Lane::Control, Lane::Bulk] {
        let theft = Hello {
            lane,
            session: SessionId(1),
            boot_epoch: BootEpoch(1),
            ..hello(Credential::Client)
        };
        let (_stream, refused) = answer(&place, &theft, KEY);
        assert!(matches!(refused, Handshake::Refusal(_)), "{refused:?}");
    }
}

/// In the server's own process, and as its own user, who claims to speak for targets proves it, too.
#[test]
fn who_the_kernel_knows_proves_to_be_a_server() {
    for over in [Over::Unix, Over::Mem] {
        let mut place = Place::new(over);
        let (_server, service) = place.serve(1);
        for key in [None, Some(Key::new(KEY))] {
            let (peer, _) = place.peer_with(PeerConfig {
                key,
                credential: Credential::Server,
                policy: Policy::Trial { timeout: None },
                ..place.config()
            });
            peer.call(Batch::of(ECHO, Vec::new())).wait().unwrap_err();
        }
        service.log.change(|log| assert!(log.sessions.is_empty()));
        let (peer, _) = place.peer_with(PeerConfig {
            key: Some(Key::new(SERVER_KEY)),
            credential: Credential::Server,
            ..place.config()
        });
        echo(&peer, "for a target");
        assert!(service.session().peer().is_server());
    }
}

#[test]
fn what_a_client_says_of_the_past_ends_nothing_but_its_own_session() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(3);
    let (peer, _) = place.peer();
    echo(&peer, "before");
    let of_the_future = [
        Hello {
            last_committed: Transno(1 << 60),
            ..hello(Credential::Client)
        },
        Hello {
            boot_epoch: BootEpoch(4),
            client: ClientSecret([8; 16]),
            ..hello(Credential::Client)
        },
    ];
    for hello in &of_the_future {
        let (_stream, refused) = answer(&place, hello, KEY);
        assert_eq!(reason(&refused), RefusalReason::Damaged);
    }
    echo(&peer, "after");
    let lost = || "lost changes".to_owned();
    service
        .log
        .change(|log| assert!(!log.lines.contains(&lost())));
    // Who speaks for targets is believed.
    let server = Hello {
        client: ClientSecret([7; 16]),
        credential: Credential::Server,
        ..of_the_future[0].clone()
    };
    let (_stream, refused) = answer(&place, &server, SERVER_KEY);
    assert_eq!(reason(&refused), RefusalReason::Damaged);
    service.wait_for_line("lost changes");
}

/// A server that may have no more connections tells one more, which comes again; a command that has nothing
/// to lose does so, too.
#[test]
fn a_full_server_says_that_it_is_busy_and_is_waited_for() {
    let mut place = Place::new(Over::Tcp);
    place.connections_max = 2;
    let (_server, _) = place.serve(1);
    let connect = || TcpStream::connect(place.listen.to_string()).unwrap();
    let idle = [connect(), connect()];
    assert_eq!(reason(&hear(&mut connect())), RefusalReason::Busy);
    let policies = [Policy::Hard, Policy::Trial { timeout: None }];
    let peers = policies.map(|policy| {
        place.peer_with(PeerConfig {
            policy,
            lanes: 1,
            ..place.config()
        })
    });
    let calls = peers
        .each_ref()
        .map(|(peer, _)| peer.call(Batch::of(ECHO, b"waits".to_vec())));
    for (peer, _) in &peers {
        until("it is told", || {
            let told = peer.obstacle();
            told.is_some_and(|told| told.contains("as many connections as"))
        });
        assert!(matches!(peer.state(), PeerState::WaitingSince(_)));
    }
    drop(idle);
    for call in calls {
        assert_eq!(call.wait().unwrap().replies[0].body, b"waits");
    }
}
