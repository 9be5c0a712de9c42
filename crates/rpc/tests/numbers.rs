//! Frames that vanish, come twice, change places or come again later: each costs a connection, and nothing
//! else.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should panic")]

mod support;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use rpc::{Address, Batch, PeerConfig};
use support::{CHANGE, ECHO, Over, Place, until};
use wire::frame::{FrameKind, HEADER_BYTES};

/// What a relay does to frames of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Drop,
    Half,
    Repeat,
    Swap,
    /// The first frame of the first connection stands in the place of the first of the second.
    Former,
}

/// One direction of a relay.
#[derive(Default)]
struct Way {
    /// What happens, and behind how many frames. The handshake's do not count.
    fate: Option<(Fate, u32)>,
    /// The first frame of each connection.
    first: Vec<Vec<u8>>,
    /// The test closes the connections that there are.
    streams: Vec<TcpStream>,
    done: bool,
}

type Shared = Arc<Mutex<Way>>;

fn next_frame(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER_BYTES];
    from.read_exact(&mut frame)?;
    let lengths = wire::frame::lengths(&frame, usize::MAX).unwrap();
    frame.resize(HEADER_BYTES + lengths.body + lengths.bulk, 0);
    from.read_exact(&mut frame[HEADER_BYTES..])?;
    Ok(frame)
}

/// What goes on in the place of `frame`, which may be held back for the next one.
fn changed(way: &mut Way, number: u32, held: &mut Option<Vec<u8>>, frame: Vec<u8>) -> Vec<u8> {
    if number == 0 {
        way.first.push(frame.clone());
    }
    if let Some(held) = held.take() {
        return [frame, held].concat();
    }
    let Some((fate, behind)) = way.fate else {
        return frame;
    };
    let is_due = match fate {
        Fate::Former => number == 0 && way.first.len() == 2,
        _ => number == behind,
    };
    if !is_due || std::mem::replace(&mut way.done, true) {
        return frame;
    }
    match fate {
        Fate::Drop => Vec::new(),
        Fate::Half => frame[..frame.len() / 2].to_vec(),
        Fate::Repeat => [&frame[..], &frame].concat(),
        Fate::Swap => {
            *held = Some(frame);
            Vec::new()
        }
        Fate::Former => way.first[0].clone(),
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, way: &Shared) -> io::Result<()> {
    let (mut number, mut held) = (0, None);
    loop {
        let mut frame = next_frame(&mut from)?;
        if frame[5] != FrameKind::Handshake as u8 {
            frame = changed(&mut way.lock().unwrap(), number, &mut held, frame);
            number += 1;
        }
        to.write_all(&frame)?;
    }
}

/// Listens in the server's place. The ways to the server and to the client.
fn relay_all(place: &Place, ways: [Shared; 2]) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let server = place.listen.to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let Ok(server) = TcpStream::connect(&server) else {
                continue;
            };
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
            }
            let pair =
                |a: &TcpStream, b: &TcpStream| (a.try_clone().unwrap(), b.try_clone().unwrap());
            let pairs = [pair(&client, &server), pair(&server, &client)];
            for ((from, to), way) in pairs.into_iter().zip(ways.clone()) {
                way.lock().unwrap().streams.push(to.try_clone().unwrap());
                thread::spawn(move || {
                    drop(relay(
                        from.try_clone().unwrap(),
                        to.try_clone().unwrap(),
                        &way,
                    ));
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    address
}

/// Changes and echoes through the relay. All are answered rightly, and no change was made twice. How often
/// the session was resumed.
fn resumed(fate: Fate, behind: u32, way: usize) -> usize {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(1);
    let ways = [Shared::default(), Shared::default()];
    ways[way].lock().unwrap().fate = Some((fate, behind));
    let config = PeerConfig {
        addresses: vec![relay_all(&place, ways.clone())],
        lanes: 1,
        ..place.config()
    };
    let (peer, _) = place.peer_with(config);
    let (done, is_done) = mpsc::channel();
    let told = format!("{fate:?} behind {behind}");
    let cut = ways[0].clone();
    thread::spawn(move || {
        for round in 0..4u64 {
            let calls: Vec<_> = (1..=8u64)
                .map(|count| {
                    let text = format!("{round} {count} {}", "more ".repeat(200));
                    let echo = peer.call(Batch::of(ECHO, text.clone().into()));
                    (peer.call(Batch::of(CHANGE, Vec::new())), echo, text)
                })
                .collect();
            for (at, (change, echo, text)) in calls.into_iter().enumerate() {
                let transno = change.wait().unwrap().transno.0;
                assert_eq!(transno, round * 8 + at as u64 + 1, "{told}");
                assert_eq!(
                    echo.wait().unwrap().replies[0].body,
                    text.as_bytes(),
                    "{told}"
                );
            }
            if fate == Fate::Former && round == 0 {
                let way = cut.lock().unwrap();
                let _ = way.streams[0].shutdown(Shutdown::Both);
            }
        }
        done.send(peer).unwrap();
    });
    let peer = is_done.recv_timeout(Duration::from_secs(30));
    let _peer = peer.unwrap_or_else(|_| panic!("{fate:?} behind {behind}: not all is answered"));
    assert!(
        ways[way].lock().unwrap().done,
        "{fate:?}: it did not happen"
    );
    let resumed = |lines: &[String]| {
        lines
            .iter()
            .filter(|line| line.starts_with("resumed"))
            .count()
    };
    let expected = 1 + usize::from(fate == Fate::Former);
    until("the session is resumed", || {
        service.log.change(|log| resumed(&log.lines) >= expected)
    });
    service.log.change(|log| {
        assert_eq!(log.sessions.len(), 1, "{:?}", log.lines);
        resumed(&log.lines)
    })
}

#[test]
fn a_frame_that_vanishes_costs_a_connection_and_no_more() {
    for fate in [Fate::Drop, Fate::Half] {
        for way in [0, 1] {
            assert_eq!(resumed(fate, 5, way), 1, "{fate:?}");
        }
    }
}

#[test]
fn a_frame_that_comes_twice_costs_a_connection_and_no_more() {
    for way in [0, 1] {
        assert_eq!(resumed(Fate::Repeat, 5, way), 1);
    }
}

#[test]
fn frames_that_change_places_cost_a_connection_and_no_more() {
    for way in [0, 1] {
        assert_eq!(resumed(Fate::Swap, 5, way), 1);
    }
}

#[test]
fn a_frame_of_a_former_connection_is_refused() {
    for way in [0, 1] {
        assert_eq!(resumed(Fate::Former, 0, way), 2);
    }
}
