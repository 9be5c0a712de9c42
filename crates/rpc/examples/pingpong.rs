//! How long a call takes: one request of 128 bytes, and 256 of them in one frame, over each
//! transport. Prints medians; run with `--release`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{BootEpoch, ClientId, SystemClock, TargetName, Transno, Xid};
use rpc::{
    Address, Batch, CallbackResponder, ClientHandler, ClientSecret, Connected, Departure, Key,
    LastCommitted, MemPort, Message, Peer, PeerConfig, Policy, ReplyBatch, ReplyMessage, Responder,
    ServedTarget, Server, ServerConfig, Service, Unwelcome,
};

struct Echo;

impl Service for Echo {
    fn connected(&self, _: Arc<Connected>) -> Result<(), Unwelcome> {
        Ok(())
    }

    fn request(&self, _: &Arc<Connected>, _: Xid, _: bool, batch: Batch, responder: Responder) {
        let replies = batch.messages.into_iter().map(|message| ReplyMessage {
            status: 0,
            body: message.body,
        });
        responder.reply(ReplyBatch {
            replies: replies.collect(),
            bulk: batch.bulk,
            transno: Transno(0),
        });
    }

    fn disconnected(&self, _: ClientId) {}

    fn succeeded(&self, _: Arc<Connected>) {}

    fn expired(&self, _: ClientId, _: Departure) {}
}

struct Deaf;

impl ClientHandler for Deaf {
    fn callback(&self, message: Message, responder: CallbackResponder) {
        responder.reply(message);
    }

    fn epoch_changed(&self, _: BootEpoch, _: BootEpoch) {}

    fn evicted(&self) {}

    fn last_committed(&self, _: Transno) {}
}

fn batch(count: usize) -> Batch {
    let message = |n: usize| {
        let mut body = vec![17; 128];
        body[..8].copy_from_slice(&(n as u64 * 7_919).to_le_bytes());
        body[64..68].copy_from_slice(&(n as u32 * 104_729).to_le_bytes());
        Message { opcode: 1, body }
    };
    Batch {
        messages: (0..count).map(message).collect(),
        bulk: Default::default(),
    }
}

/// The median and the 99th percentile of `rounds` calls of `make()`.
fn measure(rounds: usize, mut call: impl FnMut()) -> (Duration, Duration) {
    let mut took: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed()
        })
        .collect();
    took.sort_unstable();
    (took[rounds / 2], took[rounds * 99 / 100])
}

fn run(name: &str, listen: Address) {
    let key = Key::new([1; 32]);
    let target = TargetName::mdt(0);
    let served = ServedTarget {
        name: target,
        key: Some(key.clone()),
        server_key: None,
        boot_epoch: BootEpoch(1),
        last_committed: LastCommitted::new(Transno(0)),
        service: Arc::new(Echo),
    };
    let server = Server::start(ServerConfig::new(vec![listen]), vec![served]).expect("listens");
    let config = PeerConfig {
        target,
        addresses: server.local_addresses().to_vec(),
        secret: ClientSecret([1; 16]),
        incarnation: 1,
        key: Some(key),
        credential: rpc::Credential::Client,
        insecure: false,
        policy: Policy::Hard,
        lanes: 2,
        keeping: rpc::Keeping::Nothing,
        legacy: None,
        clocks: rpc::Clocks::default(),
    };
    let clock = Arc::new(SystemClock::default());
    let peer = Peer::new(config, Arc::new(Deaf), clock).expect("starts");
    let one = || drop(peer.call(batch(1)).wait());
    measure(1000, one);
    let (p50, p99) = measure(20_000, one);
    println!("{name}: 1 a frame       p50 {p50:?}, p99 {p99:?}");
    let (p50, p99) = measure(2000, || drop(peer.call(batch(256)).wait()));
    println!(
        "{name}: 256 a frame     p50 {p50:?}, p99 {p99:?}, {:?} each",
        p50 / 256
    );
    let (p50, p99) = measure(300, || {
        let bulk = vec![0; 1 << 20];
        drop(
            peer.call_bulk(Batch {
                bulk: bulk.into(),
                ..batch(1)
            })
            .wait(),
        );
    });
    println!("{name}: 1 MiB of bulk there and back  p50 {p50:?}, p99 {p99:?}");
    let start = Instant::now();
    let calls: Vec<_> = (0..50_000).map(|_| peer.call(batch(1))).collect();
    for call in calls {
        drop(call.wait());
    }
    let rate = 50_000.0 / start.elapsed().as_secs_f64();
    println!("{name}: in flight up to the slots: {rate:.0} calls/s");
}

/// What the same exchange takes with nothing in between: 128 bytes over blocking sockets.
fn bare() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut buffer = [0; 128];
        while stream.read_exact(&mut buffer).is_ok() {
            stream.write_all(&buffer)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (p50, p99) = measure(20_000, || {
        let mut buffer = [0; 128];
        drop(stream.write_all(&buffer));
        drop(stream.read_exact(&mut buffer));
    });
    println!("bare TCP:                p50 {p50:?}, p99 {p99:?}");
    drop(stream);
    echo.join().expect("the echo thread does not panic")
}

fn main() -> std::io::Result<()> {
    bare()?;
    let socket = std::env::temp_dir().join(format!("glint-pingpong-{}", std::process::id()));
    run("tcp ", Address::Tcp("127.0.0.1:0".into()));
    run("unix", Address::Unix(socket));
    run("mem ", Address::Mem(MemPort::new("pingpong")));
    Ok(())
}
