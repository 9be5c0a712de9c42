//! Peers that hold the client's key and misuse it, beside a mount that goes on.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::limits::{BULK_BYTES_MAX, FRAME_REQUESTS_MAX, SLOTS_MAX, UNANSWERED_BYTES_MAX};
use base::{ByteRange, Fid, TargetName, Timestamp};
use dlm::Mode;
use layout::ObjectId;
use rpc::{ClientSecret, Credential, RefusalReason};
use wire::frame::{Bulk, Frame, FrameKind, Header};
use wire::mdt::{Request, WriteTicket};
use wire::ost;

use crate::Cluster;
use crate::peer::{Await, Outcome, Peer, Place, Who, hello};
use crate::support::{Staying, glint, needs_root, shell};

/// Bytes of attributes of one file, but for their names.
const ATTRIBUTES: &str = "import os\n\
    for n in range(4): os.setxattr('mnt/file', f'user.a{n}', os.urandom(60000))";
/// Requests for them in one frame: nearly all that fit.
const AT_ONCE: usize = 16;

/// Frames that ask for more than a connection may have queued.
const FRAMES: usize = 20;

/// What `/proc` tells in kB, as of memory.
fn kilobytes(path: &str, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.unwrap().trim_start_matches(':').trim();
    number.trim_end_matches("kB").trim().parse().unwrap()
}

/// What it is when it no longer changes much: the allocator gives back some time later what was freed.
fn settled(measure: impl Fn() -> u64) -> u64 {
    let mut last = measure();
    for _ in 0..15 {
        std::thread::sleep(Duration::from_secs(2));
        let now = measure();
        if now.abs_diff(last) < 4 << 20 {
            return now;
        }
        last = now;
    }
    last
}

fn mount(cluster: &Cluster) -> Staying {
    fs::create_dir(cluster.dir.path().join("mnt")).unwrap();
    let words = ["mount", &cluster.place.tcp, "mnt", "--key", "D/key"];
    Staying::start(cluster.dir.path(), &words)
}

#[track_caller]
fn goes_on(dir: &Path) {
    shell(
        dir,
        "echo words > mnt/new && grep -q words mnt/new && rm mnt/new",
    )
    .worked();
}

/// A session that asks as much as it may and takes no reply.
fn glutton(place: &Place, number: u64, fid: Fid) -> Peer {
    let target = TargetName::mdt(0);
    let mut peer = Peer::silent(place, true, target).unwrap();
    let hello = hello(target, number, Credential::Client).to_bytes();
    assert_eq!(peer.greet(place, &hello, Who::Client), Outcome::Welcome);
    for _ in 0..FRAMES {
        let mut frame = peer.request(wire::encode(&Request::GetXattrs { fid }));
        let payload = Arc::make_mut(&mut frame.payload);
        payload.subs = vec![payload.subs[0].clone(); AT_ONCE];
        // It may be cut already.
        if peer.say(&frame).is_err() {
            break;
        }
    }
    peer
}

#[test]
fn peers_that_take_no_replies_cost_a_server_no_more_than_it_may_spend() {
    if needs_root() {
        return;
    }
    let cluster = Cluster::new();
    let (dir, mounted) = (cluster.dir.path().to_owned(), mount(&cluster));
    fs::write(dir.join("mnt/file"), "words").unwrap();
    fs::write(dir.join("attributes.py"), ATTRIBUTES).unwrap();
    shell(&dir, "python3 attributes.py && sync -f mnt").worked();
    let fid = glint(&dir, &["fs", "path2fid", "mnt/file"]);
    let fid: Fid = fid.worked().trim().parse().unwrap();

    let of_server = format!("/proc/{}/status", cluster.server.pid());
    let memory = || kilobytes(&of_server, "VmRSS") << 10;
    let machine = kilobytes("/proc/meminfo", "MemTotal") << 10;
    let may =
        (machine / base::limits::REPLIES_MEMORY_SHARE).max(base::limits::REPLIES_BYTES_MIN as u64);
    let before = memory();
    let count = 4 + 3 * may / base::limits::PEER_QUEUE_BYTES_MAX as u64 / 2;
    let peers: Vec<Peer> = (0..count)
        .map(|number| {
            if number % 4 == 0 {
                goes_on(&dir);
            }
            glutton(&cluster.place, (2 << 32) + number, fid)
        })
        .collect();
    let kept = settled(|| memory() - before);
    goes_on(&dir);
    // A frame that each peer's writer is at, and one that is made for it.
    let at_work = count * 2 * base::limits::FRAME_BYTES_MAX as u64;
    println!("{count} peers, {} MiB of {} MiB", kept >> 20, may >> 20);
    assert!(
        kept < may + at_work,
        "{} MiB of {} MiB",
        kept >> 20,
        may >> 20
    );
    drop(peers);
    goes_on(&dir);
    drop(mounted);
    cluster.ends_well("after peers that take no replies");
}

/// Sessions that append to what another has locked, and does not give back.
const APPENDERS: u64 = 6;

#[test]
fn data_of_peers_that_wait_costs_a_server_no_more_than_it_may_spend() {
    if needs_root() {
        return;
    }
    let cluster = Cluster::new();
    let (dir, mounted) = (cluster.dir.path().to_owned(), mount(&cluster));
    goes_on(&dir);
    let ost = |number| {
        let target = TargetName::ost(0);
        let mut peer = Peer::silent(&cluster.place, true, target).unwrap();
        let hello = hello(target, (3 << 32) + number, Credential::Client).to_bytes();
        let greeted = peer.greet(&cluster.place, &hello, Who::Client);
        assert_eq!(greeted, Outcome::Welcome);
        peer
    };
    let object = ObjectId {
        fid: Fid::new(1 << 30, 1),
        stripe: 0,
    };
    let mut holder = ost(0);
    let lock = ost::Request::Enqueue {
        object,
        range: ByteRange::ALL,
        mode: Mode::PW.index() as u8,
    };
    let locked = holder.request(wire::encode(&lock));
    assert_eq!(holder.ask(&locked, Await::Answer), Outcome::Done);

    let of_server = format!("/proc/{}/status", cluster.server.pid());
    let memory = || kilobytes(&of_server, "VmRSS") << 10;
    let before = memory();
    let append = wire::encode(&ost::Request::Append {
        object,
        bulk: (0, BULK_BYTES_MAX as u32),
        ticket: WriteTicket {
            layout_generation: 1,
            open_epoch: 1,
        },
        mtime: Timestamp::default(),
    });
    let data = Bulk::from(vec![7; BULK_BYTES_MAX]);
    let mut appenders: Vec<Peer> = (1..=APPENDERS).map(ost).collect();
    for _ in 0..SLOTS_MAX {
        for appender in &mut appenders {
            if !appender.is_full() {
                let mut frame = appender.request(append.clone());
                Arc::make_mut(&mut frame.payload).bulk = data.clone();
                appender.ask(&frame, Await::Turn);
            }
        }
        goes_on(&dir);
    }
    let kept = memory() - before;
    println!("{} MiB", kept >> 20);
    assert!(kept < 3 * UNANSWERED_BYTES_MAX as u64, "{} MiB", kept >> 20);
    // More data than a frame carries is not made of it.
    let mut frame = holder.request(append);
    let payload = Arc::make_mut(&mut frame.payload);
    payload.bulk = data;
    payload.subs = vec![payload.subs[0].clone(); 1000];
    holder.ask(&frame, Await::Turn);
    let kept = memory() - before;
    assert!(kept < 3 * UNANSWERED_BYTES_MAX as u64, "{} MiB", kept >> 20);
    goes_on(&dir);
    drop((holder, appenders, mounted));
    cluster.ends_well("after peers that wait");
}

/// Sessions beside a mount that keep the MDT busy.
const BUSY: u64 = 21;

/// As many requests as a frame may have.
fn full_frame(peer: &mut Peer, fid: Fid) -> Frame {
    let mut frame = peer.request(wire::encode(&Request::GetAttr { fid, dir: fid }));
    let payload = Arc::make_mut(&mut frame.payload);
    payload.bulk = Bulk::default();
    payload.subs = vec![payload.subs[0].clone(); FRAME_REQUESTS_MAX];
    frame
}

/// A session that has four frames under way, and counts those that are answered.
fn keeps_busy(
    place: &Place,
    (number, fid): (u64, Fid),
    (is_over, answered): (&AtomicBool, &AtomicU64),
) {
    let target = TargetName::mdt(0);
    let mut peer = Peer::silent(place, true, target).unwrap();
    let hello = hello(target, number, Credential::Client).to_bytes();
    assert_eq!(peer.greet(place, &hello, Who::Client), Outcome::Welcome);
    for _ in 0..4 {
        let frame = full_frame(&mut peer, fid);
        peer.say(&frame).unwrap();
    }
    while !is_over.load(Ordering::Relaxed) {
        let heard = peer.hear().unwrap();
        match heard.header.kind {
            FrameKind::Reply => {
                answered.fetch_add(1, Ordering::Relaxed);
                peer.is_answered(&heard);
                let frame = full_frame(&mut peer, fid);
                peer.say(&frame).unwrap();
            }
            FrameKind::Callback => peer.answer(&heard).unwrap(),
            _ => {}
        }
    }
}

/// Each call of a mount waits for a part of a frame of each other session, and not for all that they ask.
#[test]
fn sessions_that_keep_a_server_busy_hold_no_mount_up() {
    if needs_root() {
        return;
    }
    let cluster = Cluster::new();
    let (dir, mounted) = (cluster.dir.path().to_owned(), mount(&cluster));
    fs::create_dir(dir.join("mnt/other")).unwrap();
    glint(&dir, &["fs", "sync", "mnt"]).worked();
    let fid = glint(&dir, &["fs", "path2fid", "mnt/other"]);
    let fid: Fid = fid.worked().trim().parse().unwrap();
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..BUSY {
            let (place, counts) = (&cluster.place, (&is_over, &answered));
            scope.spawn(move || keeps_busy(place, ((3 << 32) + number, fid), counts));
        }
        let count = || answered.load(Ordering::Relaxed);
        while count() < BUSY {
            std::thread::sleep(Duration::from_millis(10));
        }
        let before = count();
        for number in 0..5 {
            fs::create_dir(dir.join(format!("mnt/dir{number}"))).unwrap();
        }
        let meanwhile = count() - before;
        is_over.store(true, Ordering::Relaxed);
        assert!(meanwhile < 2 * BUSY, "{meanwhile} frames of others");
    });
    goes_on(&dir);
    drop(mounted);
    cluster.ends_well("after sessions that keep it busy");
}

#[test]
fn what_status_shows_of_a_mount_does_not_give_its_session_away() {
    if needs_root() {
        return;
    }
    let cluster = Cluster::new();
    let (dir, mounted) = (cluster.dir.path().to_owned(), mount(&cluster));
    fs::write(dir.join("mnt/file"), "words").unwrap();
    let status = glint(&dir, &["status", "mnt", "--json"]);
    let status: serde_json::Value = serde_json::from_str(status.worked()).unwrap();
    let uuid = u128::from_str_radix(status[0]["uuid"].as_str().unwrap(), 16).unwrap();
    for target in [TargetName::MGS, TargetName::mdt(0), TargetName::ost(0)] {
        let mut thief = hello(target, 0, Credential::Client);
        thief.client = ClientSecret(uuid.to_be_bytes());
        thief.incarnation = u64::MAX;
        let mut peer = Peer::silent(&cluster.place, false, target).unwrap();
        let greeted = peer.greet(&cluster.place, &thief.to_bytes(), Who::Client);
        assert_eq!(greeted, Outcome::Welcome);
        peer.leave();
    }
    goes_on(&dir);
    let said = mounted.said();
    assert!(
        !said.contains("refuses us") && !said.contains("evicted"),
        "{said}"
    );
    drop(mounted);
    cluster.ends_well("after a thief");
}

#[test]
fn nonsense_of_who_has_the_key_makes_no_more_lines_than_a_person_can_read() {
    let mut cluster = Cluster::new();
    let lines = |cluster: &Cluster| cluster.server.said().lines().count();
    let (before, began) = (lines(&cluster), Instant::now());
    let target = TargetName::ost(0);
    for number in 0..1500 {
        cluster.number += 1;
        let mut hello = hello(target, cluster.number, Credential::Client);
        let mut peer = Peer::silent(&cluster.place, true, target).unwrap();
        if number % 2 == 0 {
            hello.last_committed = base::Transno(1 << 60);
            let damaged = Outcome::Refused(RefusalReason::Damaged);
            let greeted = peer.greet(&cluster.place, &hello.to_bytes(), Who::Client);
            assert_eq!(greeted, damaged);
            continue;
        }
        let greeted = peer.greet(&cluster.place, &hello.to_bytes(), Who::Client);
        assert_eq!(greeted, Outcome::Welcome);
        let mut forbidden = Header::new(FrameKind::Committed);
        peer.stamp(&mut forbidden);
        peer.say(&Frame::bare(forbidden)).unwrap();
        while peer.hear().is_ok() {}
    }
    cluster.is_well("after nonsense");
    // New clients, refusals, and frames that are none: at once, and then twenty a second.
    let each = 200 + 20 * (began.elapsed().as_secs() as usize + 1);
    let more = lines(&cluster) - before;
    assert!(more <= 3 * each + 20, "{more} lines, {each} of each kind");
    cluster.ends_well("after nonsense");
}
