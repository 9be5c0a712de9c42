//! Bits that flip under way: each is noticed, costs a connection, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should panic")]

mod support;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rpc::{Address, Batch, MemPort, Way};
use support::{CHANGE, Over, PARK, Place, echo, reply_of};

/// Flips a bit of a frame now and then.
#[derive(Default)]
struct Flips {
    /// Frames to the client until the next is flipped; zero: none is.
    countdown: AtomicU64,
    /// Which bit.
    bit: AtomicU64,
    /// Frames in any direction, of which every so manieth is flipped; zero: none is.
    every: AtomicU64,
    sent: AtomicU64,
    flipped: AtomicU64,
}

impl Way for Flips {
    fn connect(&self) -> io::Result<()> {
        Ok(())
    }

    fn arrival(&self, _: bool, _: usize) -> Instant {
        Instant::now()
    }

    fn flipped(&self, to_server: bool) -> Option<u64> {
        let sent = self.sent.fetch_add(1, Ordering::SeqCst) + 1;
        let every = self.every.load(Ordering::SeqCst);
        let is_due = every > 0 && sent.is_multiple_of(every);
        let counted = !to_server && {
            let down = |left: u64| left.checked_sub(1);
            let before = self
                .countdown
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, down);
            before == Ok(1)
        };
        if !is_due && !counted {
            return None;
        }
        self.flipped.fetch_add(1, Ordering::SeqCst);
        Some(self.bit.fetch_add(1237, Ordering::SeqCst))
    }
}

fn place() -> (Place, Arc<Flips>) {
    let flips = Arc::<Flips>::default();
    let mut place = Place::new(Over::Mem);
    place.listen = Address::Mem(MemPort::over("test", flips.clone()));
    (place, flips)
}

#[test]
fn a_flipped_bit_in_any_frame_costs_a_connection_and_no_more() {
    let (mut place, flips) = place();
    let (_server, service) = place.serve(1);
    let (peer, _) = place.peer();
    echo(&peer, "first");
    flips.every.store(13, Ordering::SeqCst);
    for count in 1..=100u64 {
        let changed = peer.call(Batch::of(CHANGE, Vec::new())).wait();
        assert_eq!(changed.map(|reply| reply.transno.0), Ok(count));
        echo(
            &peer,
            "what is longer than the header of a frame, by quite a few bytes",
        );
    }
    assert!(flips.flipped.load(Ordering::SeqCst) > 20);
    service.log.change(|log| {
        assert!(log.lines.iter().any(|line| line.starts_with("resumed")));
        assert_eq!(log.sessions.len(), 1, "{:?}", log.lines);
    });
}

#[test]
fn a_client_that_was_not_told_of_its_session_is_not_given_up() {
    let (mut place, flips) = place();
    let (server, service) = place.serve(1);
    let (peer, handler) = place.peer();
    let parked = peer.call(Batch::of(PARK, Vec::new()));
    service.wait_for_line("parked");
    drop(server);
    // Whatever the bit is, the first frame of the new boot is its welcome.
    flips.countdown.store(1, Ordering::SeqCst);
    let (_server, service) = place.serve(2);
    service.wait_for_line("parked, resent");
    let answer = reply_of([b"from the new one".to_vec()]);
    service.wait_for_parked().reply(answer);
    let answered = parked.wait().map(|reply| reply.replies[0].body.clone());
    assert_eq!(answered, Ok(b"from the new one".to_vec()));
    let heard = handler.heard.change(|heard| heard.lines.clone());
    assert_eq!(heard, ["epoch 0x1 to 0x2"]);
    assert_eq!(flips.flipped.load(Ordering::SeqCst), 1);
    service.log.change(|log| {
        assert_eq!(log.sessions.len(), 1, "{:?}", log.lines);
        assert!(!log.lines.iter().any(|line| line.starts_with("expired")));
    });
}

/// Copies frames to the client. Of the reply that makes `countdown` zero the body's length is wrong.
fn relay(mut from: TcpStream, mut to: TcpStream, countdown: &AtomicU64) -> io::Result<()> {
    loop {
        let mut head = [0; wire::frame::HEADER_BYTES];
        from.read_exact(&mut head)?;
        let lengths = wire::frame::lengths(&head, usize::MAX).unwrap();
        let mut rest = vec![0; lengths.body + lengths.bulk];
        from.read_exact(&mut rest)?;
        let is_reply = head[5] == wire::frame::FrameKind::Reply as u8;
        let down = |left: u64| left.checked_sub(1);
        if is_reply && countdown.fetch_update(Ordering::SeqCst, Ordering::SeqCst, down) == Ok(1) {
            head[10] ^= 0x10;
        }
        to.write_all(&head)?;
        to.write_all(&rest)?;
    }
}

/// Listens in the server's place.
fn relay_all(place: &Place, countdown: &Arc<AtomicU64>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let (server, countdown) = (place.listen.to_string(), countdown.clone());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, countdown) = (client.unwrap(), countdown.clone());
            let Ok(server) = TcpStream::connect(&server) else {
                continue;
            };
            let (mut to, mut from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || {
                drop(io::copy(&mut from, &mut to));
                drop(to.shutdown(Shutdown::Both));
            });
            thread::spawn(move || {
                drop(relay(server, client.try_clone().unwrap(), &countdown));
                drop(client.shutdown(Shutdown::Both));
            });
        }
    });
    address
}

/// The bytes that a length promises wrongly are not waited for: signs of life would go on coming.
#[test]
fn a_wrong_length_costs_a_connection_at_once() {
    let mut place = Place::new(Over::Tcp);
    let (_server, service) = place.serve(1);
    let countdown = Arc::<AtomicU64>::default();
    let mut config = place.config();
    config.addresses = vec![relay_all(&place, &countdown)];
    let (peer, _) = place.peer_with(config);
    echo(&peer, "first");
    countdown.store(1, Ordering::SeqCst);
    let (done, is_done) = mpsc::channel();
    let peer = Arc::new(peer);
    let asking = peer.clone();
    thread::spawn(move || {
        echo(&asking, "second");
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(10)).unwrap();
    service.log.change(|log| {
        assert!(log.lines.iter().any(|line| line.starts_with("resumed")));
        assert_eq!(log.sessions.len(), 1, "{:?}", log.lines);
    });
}
