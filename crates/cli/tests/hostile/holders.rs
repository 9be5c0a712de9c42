//! Peers that hold the client's key and misuse it, beside a mount that goes on.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Fid, TargetName};
use rpc::{ClientSecret, Credential, RefusalReason};
use wire::frame::{Frame, FrameKind, Header};
use wire::mdt::Request;

use crate::Cluster;
use crate::peer::{Outcome, Peer, Place, Who, hello};
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
