//! A link that is cut for some seconds, and mounts that wait for each other longer than usual.
// SEMANTICS: crash.server

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mounted::{Cluster, Layout, Work, in_own_network};
use nix::unistd::geteuid;

/// So long that TCP, left to itself, would next try again more than ten seconds later.
const CUT: Duration = Duration::from_millis(13_500);
/// Until a call goes on when the link is back: two seconds, and what a busy machine takes.
const BACK_MAX: Duration = Duration::from_secs(5);
/// Longer than a silent target is waited for before the MGS is asked where it is, twice over.
const WAIT: Duration = Duration::from_secs(15);

fn with_links() -> Cluster {
    let layout = Layout {
        has_links: true,
        ..Layout::default()
    };
    Cluster::of(layout)
}

#[test]
fn calls_go_on_within_two_seconds_of_a_link_that_is_back() {
    if !geteuid().is_root() {
        println!("skipped: only root can make a network to be cut");
        return;
    }
    in_own_network(|| {
        let mut cluster = with_links();
        let [one, two] = [cluster.mount(), cluster.mount()].map(|n| cluster.root(n).to_owned());
        let mut held = File::create(one.join("held")).unwrap();
        held.write_all(b"not sent").unwrap();
        cluster.cut_off(0);
        // Here something waits for a server, there something for what the mount here holds.
        let made = one.join("made");
        let ours = Work::start(move |_| {
            fs::write(made, "words").unwrap();
            Instant::now()
        });
        let wanted = two.join("held");
        let theirs = Work::start(move |_| {
            let read = fs::read(wanted).unwrap();
            (read, Instant::now())
        });
        sleep(CUT);
        assert!(!ours.has_ended() && !theirs.has_ended());
        cluster.mend(0);
        let mended = Instant::now();
        let ours = cluster.timed("ours", || ours.end());
        let (read, theirs) = cluster.timed("theirs", || theirs.end());
        let [ours, theirs] = [ours, theirs].map(|ended| ended.saturating_duration_since(mended));
        println!("after the link was back: ours {ours:?}, theirs {theirs:?}");
        assert_eq!(read, b"not sent");
        assert!(ours < BACK_MAX && theirs < BACK_MAX, "{ours:?}, {theirs:?}");
        drop(held);
        (0..2).for_each(|mount| cluster.unmount(mount));
    });
}

#[test]
fn who_waits_for_another_mount_does_not_ask_again_and_again_where_servers_are() {
    let mut cluster = Cluster::with_mounts(2);
    let [one, two] = [0, 1].map(|number| cluster.root(number).to_owned());
    let mut held = File::create(one.join("held")).unwrap();
    held.write_all(b"not sent").unwrap();
    let sessions = |cluster: &Cluster| {
        let said = cluster.server_said();
        let new = said.lines().filter(|line| line.contains("new client"));
        new.filter(|line| line.contains("MGS")).count()
    };
    cluster.freeze_mount(0);
    let before = sessions(&cluster);
    assert!(before >= 2, "mounts are told of: {}", cluster.server_said());
    let wanted = two.join("held");
    let waiting = Work::start(move |_| fs::read(wanted).unwrap());
    sleep(WAIT);
    assert!(!waiting.has_ended(), "nothing was waited for");
    let after = sessions(&cluster);
    cluster.thaw_mount(0);
    assert_eq!(cluster.timed("reading", || waiting.end()), b"not sent");
    assert_eq!(after, before, "{}", cluster.server_said());
    drop(held);
    (0..2).for_each(|mount| cluster.unmount(mount));
}
