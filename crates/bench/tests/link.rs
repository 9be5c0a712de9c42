//! A real link: its round trip, its throughput, its loss, changes while it is used, and that nothing
//! is left of it. Needs root and /dev/net/tun; says so and ends where they are missing.
#![allow(clippy::unwrap_used)] // A test may panic, in its helpers too.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bench::link::{FarEnd, SERVER_VARIABLE, run_behind_link, send_control};
use bench::{BenchError, Link, LinkConfig, LinkSettings, StopFlag};

/// Links measure time, so only one test uses the processors at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const MS: Duration = Duration::from_millis(1);

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link, or none where this machine cannot have one.
fn link(settings: LinkSettings) -> Option<Link> {
    let config = LinkConfig {
        settings,
        ..LinkConfig::default()
    };
    match Link::create(config) {
        Ok(link) => Some(link),
        Err(error @ BenchError::Unavailable { .. }) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn with_rtt(rtt: Duration) -> LinkSettings {
    LinkSettings {
        rtt,
        ..LinkSettings::default()
    }
}

/// Sends `count` datagrams, one after the other, to an echo at the server's end. Returns the round trips of
/// those that came back, shortest first.
fn round_trips(link: &Link, count: u32) -> Vec<Duration> {
    let address = (link.server_address(), 7777);
    let echo = link
        .server()
        .run(|| UdpSocket::bind(address).unwrap())
        .unwrap();
    let socket = link
        .client()
        .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap())
        .unwrap();
    socket.connect(address).unwrap();
    let patience = link.settings().rtt + 200 * MS;
    socket.set_read_timeout(Some(patience)).unwrap();
    echo.set_read_timeout(Some(100 * MS)).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 64];
            while !done.load(Ordering::Acquire) {
                if let Ok((length, from)) = echo.recv_from(&mut bytes) {
                    echo.send_to(&bytes[..length], from).unwrap();
                }
            }
        });
        let mut trips: Vec<Duration> = (0..count).filter_map(|n| trip(&socket, n)).collect();
        done.store(true, Ordering::Release);
        trips.sort();
        trips
    })
}

fn trip(socket: &UdpSocket, number: u32) -> Option<Duration> {
    let start = Instant::now();
    socket.send(&number.to_le_bytes()).unwrap();
    let mut bytes = [0; 64];
    loop {
        let length = socket.recv(&mut bytes).ok()?;
        // Answers to earlier datagrams that were given up are passed over.
        if bytes[..length] == number.to_le_bytes() {
            return Some(start.elapsed());
        }
    }
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

/// Bytes per second of a TCP connection from the server to the client over `period`, and what
/// happened in the middle of it.
fn throughput(link: &Link, period: Duration, halfway: impl FnOnce() + Send) -> f64 {
    let address = (link.server_address(), 7778);
    let listener = link
        .server()
        .run(|| TcpListener::bind(address).unwrap())
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| send_for(listener, period));
        let stream = link
            .client()
            .run(|| TcpStream::connect(address).unwrap())
            .unwrap();
        scope.spawn(move || {
            std::thread::sleep(period / 2);
            halfway();
        });
        let (start, bytes) = (Instant::now(), drain(stream));
        bytes as f64 / start.elapsed().as_secs_f64()
    })
}

fn send_for(listener: TcpListener, period: Duration) {
    let (mut stream, _) = listener.accept().unwrap();
    let (block, start) = (vec![7u8; 256 << 10], Instant::now());
    while start.elapsed() < period {
        stream.write_all(&block).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

fn drain(mut stream: TcpStream) -> u64 {
    let (mut total, mut block) = (0, vec![0u8; 256 << 10]);
    loop {
        match stream.read(&mut block).unwrap() {
            0 => return total,
            bytes => {
                assert!(block[..bytes].iter().all(|&b| b == 7), "bytes were changed");
                total += bytes as u64;
            }
        }
    }
}

/// The first of some measurements whose best is below `limit`, or the last of them. On a busy machine no
/// packet of one may be handed on at once.
fn undisturbed(measure: impl Fn() -> Vec<Duration>, limit: Duration) -> Vec<Duration> {
    let mut trips = measure();
    for _ in 0..20 {
        if trips[0] < limit {
            break;
        }
        trips = measure();
    }
    trips
}

#[test]
fn the_round_trip_is_what_was_set() {
    let _alone = alone();
    let Some(link) = link(LinkSettings::default()) else {
        return;
    };
    for (rtt, count) in [
        (Duration::ZERO, 400),
        (MS, 200),
        (5 * MS, 100),
        (20 * MS, 20),
    ] {
        link.set(with_rtt(rtt)).unwrap();
        let trips = undisturbed(|| round_trips(&link, count), rtt + MS / 4);
        let (best, middle) = (trips[0], median(&trips));
        eprintln!(
            "rtt {rtt:?}: best {best:?}, median {middle:?} of {}",
            trips.len()
        );
        assert_eq!(trips.len(), count as usize, "no packet is lost");
        assert!(best >= rtt, "{best:?} is faster than {rtt:?}");
        assert!(best < rtt + MS / 4, "{best:?} at {rtt:?}");
        // On a busy machine the two ends, not the link, take most of the rest.
        assert!(middle < rtt + 20 * MS, "{middle:?} at {rtt:?}");
    }
}

#[test]
fn it_carries_more_than_a_gigabit() {
    let _alone = alone();
    let Some(link) = link(LinkSettings::default()) else {
        return;
    };
    for rtt in [Duration::ZERO, MS] {
        link.set(with_rtt(rtt)).unwrap();
        let best = (0..3)
            .map(|_| 8.0 * throughput(&link, 500 * MS, || {}) / 1e9)
            .fold(0.0, f64::max);
        eprintln!("rtt {rtt:?}: {best:.1} Gbit/s");
        assert!(best >= 1.0, "{best} Gbit/s at {rtt:?}");
    }
    let traffic = link.traffic();
    assert!(traffic.to_client.bytes > traffic.to_server.bytes);
    assert!(traffic.to_client.packets > traffic.to_client.bytes / 1500);
    assert_eq!((traffic.to_client.lost, traffic.to_client.refused), (0, 0));
}

#[test]
fn bandwidth_is_kept_and_can_change_while_a_connection_is_open() {
    let _alone = alone();
    let mut settings = with_rtt(MS);
    settings.bandwidth = Some(400_000_000);
    let Some(link) = link(settings) else { return };
    let rate = 8.0 * throughput(&link, 1000 * MS, || {}) / 1e6;
    assert!((200.0..=400.0).contains(&rate), "{rate} Mbit/s of 400");
    let slower = || {
        link.set(LinkSettings {
            bandwidth: Some(100_000_000),
            ..settings
        })
        .unwrap();
    };
    let mixed = 8.0 * throughput(&link, 1000 * MS, slower) / 1e6;
    eprintln!("400 Mbit/s: {rate:.0}; 400 then 100: {mixed:.0}");
    assert!((100.0..=280.0).contains(&mixed), "{mixed} Mbit/s of 250");
}

#[test]
fn loss_loses_and_ends_when_unset() {
    let _alone = alone();
    let Some(link) = link(with_rtt(Duration::ZERO)) else {
        return;
    };
    let mut settings = link.settings();
    settings.loss_ppm = 300_000;
    link.set(settings).unwrap();
    let back = {
        let mut received = 0;
        for _ in 0..4 {
            received += round_trips(&link, 10).len();
        }
        received
    };
    // Each of 40 round trips survives with probability 0.49; the bounds are six deviations away.
    assert!((1..=39).contains(&back), "{back} of 40");
    let traffic = link.traffic();
    assert!(traffic.to_server.lost + traffic.to_client.lost > 0);
    settings.loss_ppm = 0;
    link.set(settings).unwrap();
    assert_eq!(round_trips(&link, 40).len(), 40);
    settings.loss_ppm = 1_000_000;
    link.set(settings).unwrap();
    assert_eq!(round_trips(&link, 2).len(), 0);
}

#[test]
fn tcp_survives_loss_with_every_byte() {
    let _alone = alone();
    let mut settings = with_rtt(MS);
    settings.loss_ppm = 5_000;
    let Some(link) = link(settings) else { return };
    // `throughput` checks the bytes.
    assert!(throughput(&link, 500 * MS, || {}) > 0.0);
    assert!(link.traffic().to_client.lost > 0);
}

#[test]
fn ping_agrees() {
    let _alone = alone();
    let Some(link) = link(with_rtt(5 * MS)) else {
        return;
    };
    let mut ping = link.client().command("ping");
    ping.args(["-n", "-q", "-i", "0.02", "-c", "50"]);
    ping.arg(link.server_address().to_string());
    let Ok(output) = ping.output() else {
        return eprintln!("not tested: ping is not installed");
    };
    let text = String::from_utf8(output.stdout).unwrap();
    eprintln!("{text}");
    assert!(text.contains(" 0% packet loss"), "{text}");
    let numbers = text.split(" = ").nth(1).expect("a summary");
    let best: f64 = numbers.split('/').next().unwrap().parse().unwrap();
    let mean: f64 = numbers.split('/').nth(1).unwrap().parse().unwrap();
    assert!((5.0..5.3).contains(&best), "best {best} ms");
    assert!(mean < 25.0, "mean {mean} ms");
}

#[test]
fn iperf3_agrees() {
    let _alone = alone();
    let Some(link) = link(LinkSettings::default()) else {
        return;
    };
    let address = link.server_address().to_string();
    for (rtt, bandwidth, least, most) in [
        (Duration::ZERO, None, 1.0, f64::MAX),
        (MS, None, 1.0, f64::MAX),
        (MS, Some(1_000_000_000), 0.6, 1.0),
    ] {
        link.set(LinkSettings {
            bandwidth,
            ..with_rtt(rtt)
        })
        .unwrap();
        let mut server = link.server().command("iperf3");
        let Ok(mut server) = server
            .args(["-s", "-1", "-B", &address])
            .stdout(Stdio::null())
            .spawn()
        else {
            return eprintln!("not tested: iperf3 is not installed");
        };
        let report = iperf3_client(&link, &address);
        server.wait().unwrap();
        let rate = report["end"]["sum_received"]["bits_per_second"]
            .as_f64()
            .unwrap()
            / 1e9;
        eprintln!("rtt {rtt:?} bandwidth {bandwidth:?}: {rate:.2} Gbit/s");
        assert!(rate >= least && rate <= most, "{rate} Gbit/s");
    }
}

/// Until the server listens, iperf3 fails at once.
fn iperf3_client(link: &Link, address: &str) -> serde_json::Value {
    let start = Instant::now();
    loop {
        let mut client = link.client().command("iperf3");
        let output = client
            .args(["-c", address, "-t", "2", "-J"])
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        if report.get("error").is_none() {
            return report;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{report}");
    }
}

#[test]
fn a_command_behind_the_link_reaches_a_server_here() {
    let _alone = alone();
    if link(LinkSettings::default()).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let said = directory.path().join("said");
    let script = format!(
        "ping -n -q -c 1 -W 2 ${SERVER_VARIABLE} >/dev/null && echo reached > {}; exit 7",
        said.display()
    );
    let words: Vec<OsString> = ["sh", "-c", &script].iter().map(Into::into).collect();
    let config = LinkConfig {
        settings: with_rtt(MS),
        ..LinkConfig::default()
    };
    let code = run_behind_link(config, &words, &StopFlag::new(), |_, _| {}).unwrap();
    assert_eq!(code, 7);
    assert_eq!(fs::read_to_string(said).unwrap(), "reached\n");
}

#[test]
fn the_control_socket_changes_a_running_link() {
    let _alone = alone();
    if link(LinkSettings::default()).is_none() {
        return;
    }
    let stop = StopFlag::new();
    let words: Vec<OsString> = ["sleep", "600"].iter().map(Into::into).collect();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let command = scope.spawn(|| {
            run_behind_link(LinkConfig::default(), &words, &stop, |_, path| {
                sender.send(path.to_path_buf()).unwrap();
            })
        });
        let path = receiver.recv().unwrap();
        let answer = send_control(&path, "set rtt 20ms loss 1%").unwrap();
        assert_eq!(answer, "rtt 20ms jitter 0ns bandwidth unlimited loss 1%");
        assert_eq!(send_control(&path, "get").unwrap(), answer);
        for bad in [
            "",
            "set rtt",
            "set rtt 5ms speed 1",
            "jump",
            &"x".repeat(5000),
        ] {
            assert!(send_control(&path, bad).is_err(), "{bad}");
        }
        assert_eq!(
            send_control(&path, "get").unwrap(),
            answer,
            "nothing was changed"
        );
        stop.set();
        assert_eq!(
            command.join().unwrap().unwrap(),
            128 + 15,
            "the command was ended"
        );
        assert!(!path.exists());
    });
}

/// What a link of this process could leave behind.
#[derive(Debug, PartialEq, Eq, Default)]
struct Traces {
    namespaces: usize,
    devices_here: usize,
    threads: usize,
    mounts: usize,
}

impl Traces {
    fn now() -> Traces {
        let pid = std::process::id();
        let count = |directory: &str, prefix: &str| {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            names.filter(|name| name.starts_with(prefix)).count()
        };
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let threads = threads.filter(|task| {
            let comm = fs::read_to_string(task.path().join("comm"));
            comm.is_ok_and(|comm| comm.starts_with("link-to-"))
        });
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let name = format!("glint-{pid}-");
        Traces {
            namespaces: count("/run/netns", &name),
            devices_here: count("/sys/class/net", &format!("glint{pid}-")),
            threads: threads.count(),
            mounts: mounts.lines().filter(|line| line.contains(&name)).count(),
        }
    }

    /// A new thread has its name a moment later, and a joined one stays listed for a moment.
    fn become_these(&self) {
        let start = Instant::now();
        while Traces::now() != *self {
            let late = start.elapsed() > Duration::from_secs(5);
            assert!(!late, "{:?} instead of {self:?}", Traces::now());
            std::thread::yield_now();
        }
    }
}

#[test]
fn nothing_is_left() {
    let _alone = alone();
    for (far_end, namespaces, devices_here) in [(FarEnd::Namespace, 2, 0), (FarEnd::Here, 1, 1)] {
        Traces::default().become_these();
        let config = LinkConfig {
            far_end,
            ..LinkConfig::default()
        };
        let Ok(link) = Link::create(config) else {
            return;
        };
        let expected = Traces {
            namespaces,
            devices_here,
            threads: 2,
            mounts: namespaces,
        };
        expected.become_these();
        assert_eq!(round_trips(&link, 3).len(), 3);
        drop(link);
        Traces::default().become_these();
    }
}

#[test]
fn names_left_by_a_killed_process_are_removed() {
    let _alone = alone();
    if link(LinkSettings::default()).is_none() {
        return;
    }
    // A process that has ended and been waited for: its id is free.
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let stale = format!("/run/netns/glint-{}-0a", child.id());
    let other = "/run/netns/somebody-else";
    fs::write(&stale, "").unwrap();
    fs::write(other, "").unwrap();
    drop(link(LinkSettings::default()));
    let kept = fs::remove_file(other).is_ok();
    assert!(!fs::exists(&stale).unwrap() && kept);
}

#[test]
fn without_privilege_the_error_says_what_to_do() {
    let _alone = alone();
    if link(LinkSettings::default()).is_none() {
        return;
    }
    // A user namespace of its own would allow it; plain loss of privilege must not.
    let program = std::env::current_exe().unwrap();
    let output = Command::new("setpriv")
        .args([
            "--bounding-set=-all",
            "--inh-caps=-all",
            "--reuid=65534",
            "--clear-groups",
        ])
        .arg(program)
        .args(["--exact", "unprivileged", "--ignored", "--nocapture"])
        .output();
    let Ok(output) = output else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("setpriv") {
        return eprintln!("not tested: {said}");
    }
    assert!(said.contains("run as root"), "{said}");
}

/// Run by `without_privilege_the_error_says_what_to_do` as an ordinary user.
#[test]
#[ignore = "run by another test, without privilege"]
fn unprivileged() {
    match Link::create(LinkConfig::default()) {
        Ok(_) => eprintln!("a link was made"),
        Err(error) => eprintln!("{error}"),
    }
}
