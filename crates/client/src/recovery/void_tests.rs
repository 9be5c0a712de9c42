//! What a client tells an MDT that has restarted, or that gave it up, while what it asked before is
//! unanswered.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use base::limits::SLOTS_MAX;
use base::{Name, TargetKind};
use handover::{Death, Region};
use wire::mdt::{Caller, OpenIntent, Request};

use super::*;
use crate::cache::handle::HandleId;
use crate::calls::write::WriteWish;
use crate::coherence::glimpse::Glimpsing;
use crate::executor::block_on;
use crate::mount::Mounted;
use crate::recovery::takeover::TakeoverState;
use crate::rig::servers::{Heard, SECRET, Servers, told_again};
use crate::session::client::Place;
use crate::session::file_handle::OpenWish;

/// More than there are slots, and than may be asked of at once.
const FILES: u32 = 100;

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(20);

const WRITING: Access = Access {
    read: true,
    write: true,
    exec: false,
};

fn is_told_again(heard: &Heard) -> bool {
    told_again(heard).is_some()
}

fn open_files(client: &Client) {
    let client = client.clone();
    block_on(async move {
        for object in 1..=FILES {
            let wish = OpenWish {
                access: WRITING,
                append: false,
            };
            let opened = client.open(Fid::new(0x100, object), wish).await;
            opened.expect("it is answered");
        }
    });
}

/// The MDT has answered nothing about open files, and dies once more. Its next boot hears of all of them
/// before it hears that the client is ready, and might serve others.
fn all_is_told_before_the_client_is_ready(servers: &mut Servers) {
    let at_least = AT_ONCE.min(SLOTS_MAX.into());
    servers.wait_for(at_least, is_told_again);
    servers.restart_mdt();
    servers.wait_for(at_least, is_told_again);
    servers.answer();
    servers.wait_for(1, |heard| *heard == Heard::Ready);
    let heard = servers.heard();
    let before = heard.split(|heard| *heard == Heard::Ready).next();
    let is_new = |heard: &&Heard| matches!(heard, Heard::Mdt(_, false));
    let told = before.unwrap_or_default().iter().filter(is_new);
    let mut told: Vec<Fid> = told.filter_map(told_again).collect();
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), FILES as usize, "told before it was ready");
}

/// Opens `count` files to read them.
fn open_to_read(client: &Client, count: u32) {
    let client = client.clone();
    block_on(async move {
        for object in 1..=count {
            let wish = OpenWish {
                access: Access {
                    read: true,
                    ..Access::default()
                },
                append: false,
            };
            let opened = client.open(Fid::new(0x100, object), wish).await;
            opened.expect("it is answered");
        }
    });
}

#[test]
fn many_open_files_are_asked_about_in_few_frames_after_a_restart() {
    const MANY: usize = 1000;
    const FRAMES_MAX: usize = 20;
    let mut servers = Servers::start();
    let mount = servers.mount(None);
    open_to_read(mount.client(), MANY as u32);
    let is_glimpse = |heard: &Heard| matches!(heard, Heard::Ost(ost::Request::Glimpse { .. }));
    servers.take_frames();
    servers.restart_mdt();
    servers.wait_for(MANY, is_told_again);
    servers.wait_for(MANY, is_glimpse);
    let frames = servers.take_frames();
    assert!(
        frames <= FRAMES_MAX,
        "{frames} frames, of the MDT's restart"
    );
    servers.restart_ost();
    let is_watch = |heard: &Heard| matches!(heard, Heard::Ost(ost::Request::Watch { .. }));
    servers.wait_for(MANY, is_watch);
    servers.wait_for(MANY, is_glimpse);
    let frames = servers.take_frames();
    assert!(
        frames <= FRAMES_MAX,
        "{frames} frames, of the OST's restart"
    );
}

#[test]
fn what_is_asked_again_after_a_restart_leaves_slots_for_what_the_next_life_hears_first() {
    let mut servers = Servers::start();
    let mount = servers.mount(None);
    open_files(mount.client());
    servers.hold(is_told_again);
    servers.restart_mdt();
    all_is_told_before_the_client_is_ready(&mut servers);
}

fn is_glimpse(heard: &Heard) -> bool {
    matches!(heard, Heard::Ost(ost::Request::Glimpse { .. }))
}

/// An OST that has restarted keeps most calls waiting until all have joined. They leave slots for what a
/// client has to do before it joins.
#[test]
fn calls_that_wait_for_an_ost_to_be_joined_leave_slots_for_joining_it() {
    let mut servers = Servers::start();
    servers.may_lose_writes();
    let mount = servers.mount(None);
    open_files(mount.client());
    let (fid, handle) = made(&mount);
    let client = mount.client().clone();
    block_on(async move {
        let wish = WriteWish::default();
        let written = client.write(fid, Some(handle), 0, b"bytes", wish).await;
        written.expect("it is in the cache");
        client.write_out(fid, ByteRange::ALL).await;
    });
    servers.hold(is_glimpse);
    for object in 1..=FILES {
        let client = mount.client().clone();
        crate::executor::spawn(async move {
            // It waits for as long as the test does.
            let _ = client
                .glimpse_object(Fid::new(0x100, object), Glimpsing::Alone)
                .await;
        });
    }
    let most = usize::from(SLOTS_MAX - SLOTS_MAX / 8);
    servers.wait_for(most, is_glimpse);
    servers.restart_ost();
    servers.wait_for(most, is_glimpse);
    servers.wait_for(1, |heard| {
        matches!(heard, Heard::Ost(ost::Request::Join { .. }))
    });
    servers.answer();
}

fn takeover(memory: &OwnedFd) -> Arc<TakeoverState> {
    let region = Region::map(memory).expect("it is there");
    Arc::new(TakeoverState::open(region, SECRET).expect("it is in order"))
}

/// A mount whose process is killed when the test says so.
fn mortal(memory: &OwnedFd, servers: &Servers) -> (Mounted, Death) {
    let death = Death::after(u64::MAX);
    let region = Region::mapped_until(memory, &death).expect("it is there");
    let takeover = TakeoverState::open(region, SECRET).expect("it is in order");
    (servers.mount(Some(Arc::new(takeover))), death)
}

/// Its process is killed: it is not heard any more, and what it remembered stays.
fn is_killed((mut mount, death): (Mounted, Death), servers: &mut Servers) {
    death.come();
    servers.stop();
    mount.abandon();
    servers.boot_anew();
}

/// The next process, which goes on.
fn takes_over(memory: &OwnedFd, servers: &Servers) -> Mounted {
    let mount = servers.mount(Some(takeover(memory)));
    assert!(mount.client().take_over(), "there was one before");
    mount
}

/// What comes of a write of the kernel's request 77, which is never answered.
fn write_for_77(
    mount: &Mounted,
    (fid, handle): (Fid, HandleId),
    durable: bool,
) -> Receiver<Result<u64, FsError>> {
    let (told, comes) = channel();
    let client = mount.client().clone();
    crate::executor::spawn_for(77, async move {
        let wish = WriteWish {
            durable,
            ..WriteWish::default()
        };
        let written = client.write(fid, Some(handle), 0, b"bytes", wish).await;
        // The test may be over.
        let _ = told.send(written);
        drop(client);
        std::future::poll_fn(|task| {
            std::mem::forget(task.waker().clone());
            Poll::Pending
        })
        .await
    });
    comes
}

fn is_write(heard: &Heard) -> bool {
    matches!(heard, Heard::Ost(ost::Request::Write { .. }))
}

/// Others may have written there since its bytes were durable.
#[test]
fn a_write_that_is_durable_is_not_done_again_for_the_same_request() {
    let memory = Region::create(8 << 20).expect("there is memory");
    let mut servers = Servers::start();
    let first = mortal(&memory, &servers);
    let made = made(&first.0);
    let written = write_for_77(&first.0, made, false).recv_timeout(PATIENCE);
    assert_eq!(written.expect("it ends"), Ok(0));
    assert_eq!(fsync(&first.0, made.1), Ok(()));
    is_killed(first, &mut servers);
    let mount = takes_over(&memory, &servers);
    let written = write_for_77(&mount, made, false).recv_timeout(PATIENCE);
    assert_eq!(written.expect("it ends"), Ok(0));
    assert_eq!(fsync(&mount, made.1), Ok(()));
    assert!(!servers.heard().iter().any(is_write));
}

/// Its servers gave the client up meanwhile.
#[test]
fn a_write_that_must_be_durable_and_is_lost_is_an_error_for_the_same_request() {
    let memory = Region::create(8 << 20).expect("there is memory");
    let servers = Servers::start();
    let (mut mount, death) = mortal(&memory, &servers);
    let made = made(&mount);
    servers.hold(is_write);
    write_for_77(&mount, made, true);
    servers.wait_for(1, is_write);
    death.come();
    mount.abandon();
    servers.answer();
    let mount = takes_over(&memory, &servers);
    let written = write_for_77(&mount, made, true).recv_timeout(PATIENCE);
    assert_eq!(written.expect("it ends"), Err(FsError::Io));
}

#[test]
fn what_is_asked_while_a_process_takes_over_leaves_slots_for_what_the_next_life_hears_first() {
    let memory = Region::create(8 << 20).expect("there is memory");
    let mut servers = Servers::start();
    let mut died = servers.mount(Some(takeover(&memory)));
    open_files(died.client());
    // It is not heard any more, and what it remembered stays.
    servers.stop();
    died.abandon();
    std::mem::forget(died);
    servers.hold(is_told_again);
    servers.boot_anew();
    let mount = servers.mount(Some(takeover(&memory)));
    let client = mount.client().clone();
    let taking_over = std::thread::spawn(move || client.take_over());
    all_is_told_before_the_client_is_ready(&mut servers);
    assert!(taking_over.join().expect("it ends"), "there was one before");
}

/// A file made here, with a mode that was set since.
fn made(mount: &Mounted) -> (Fid, HandleId) {
    let client = mount.client().clone();
    block_on(async move {
        let caller = Caller::default();
        let place = Place {
            dir: Fid::ROOT,
            name: Name::new(b"made").expect("a name"),
            caller,
        };
        let made = client.create(place, 0o644, WRITING, false).await;
        let (entry, handle) = made.expect("it is answered");
        let change = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        let set = client.setattr(caller, entry.fid, change, None).await;
        set.expect("it is its maker's alone");
        (entry.fid, handle)
    })
}

fn fsync(mount: &Mounted, handle: HandleId) -> Result<(), FsError> {
    let client = mount.client().clone();
    block_on(async move { client.fsync(handle).await })
}

/// What is lost is told once.
fn is_lost(mount: &Mounted, handle: HandleId) {
    assert_eq!(fsync(mount, handle), Err(FsError::Io));
    assert_eq!(fsync(mount, handle), Ok(()));
}

fn sets_mode(heard: &Heard) -> bool {
    matches!(heard, Heard::Mdt(Request::SetAttr { change, .. }, _) if change.mode.is_some())
}

/// Nobody who has the file open asked for that.
fn sync_in_background(mount: &Mounted) -> std::thread::JoinHandle<Result<(), FsError>> {
    let client = mount.client().clone();
    std::thread::spawn(move || block_on(async move { client.sync().await }))
}

#[test]
fn what_is_being_told_when_an_eviction_comes_is_lost_and_fsync_says_so() {
    let servers = Servers::start();
    let mount = servers.mount(None);
    let (_, handle) = made(&mount);
    servers.hold(sets_mode);
    let syncing = sync_in_background(&mount);
    servers.wait_for(1, sets_mode);
    servers.evict(TargetKind::Mdt);
    syncing.join().expect("it ends").expect("fsync tells it");
    is_lost(&mount, handle);
    assert!(
        !servers.heard().iter().any(sets_mode),
        "others may have set it"
    );
}

#[test]
fn what_is_being_written_when_an_eviction_comes_is_lost_and_fsync_says_so() {
    let has_come_back =
        |heard: &Heard| matches!(heard, Heard::Ready | Heard::Ost(ost::Request::Join { .. }));
    for kind in [TargetKind::Mdt, TargetKind::Ost] {
        let servers = Servers::start();
        let mount = servers.mount(None);
        let (fid, handle) = made(&mount);
        assert_eq!(fsync(&mount, handle), Ok(()));
        let client = mount.client().clone();
        servers.hold(is_write);
        let written = block_on(async move {
            let wish = WriteWish::default();
            client.write(fid, Some(handle), 0, b"bytes", wish).await
        });
        written.expect("it stays here");
        let syncing = sync_in_background(&mount);
        servers.wait_for(1, is_write);
        servers.evict(kind);
        servers.wait_for(1, has_come_back);
        servers.answer();
        let _ = syncing.join().expect("it ends");
        is_lost(&mount, handle);
    }
}

/// Nothing is known of its space: it may be full, which the writer must be told.
#[test]
fn a_write_is_answered_by_an_ost_that_was_not_met_before() {
    let mut servers = Servers::start();
    servers.stop_ost();
    let mount = servers.mount_unmet(None);
    let made = made(&mount);
    let written = write_for_77(&mount, made, false);
    assert!(written.try_recv().is_err(), "the OST is away");
    servers.boot_anew();
    assert_eq!(written.recv_timeout(PATIENCE).expect("it ends"), Ok(0));
    assert!(servers.heard().iter().any(is_write));
}

#[test]
fn who_is_evicted_does_not_ask_again_for_what_it_had_to_itself() {
    let mut servers = Servers::start();
    let mount = servers.mount(None);
    let (fid, handle) = made(&mount);
    servers.hold(is_told_again);
    servers.restart_mdt();
    servers.wait_for(1, is_told_again);
    let asks_alone = |heard: &Heard| match heard {
        Heard::Mdt(Request::Open { intent, .. }, _) => *intent == OpenIntent::ReopenExclusive,
        _ => false,
    };
    assert!(servers.heard().iter().any(asks_alone), "nobody has seen it");
    servers.evict(TargetKind::Mdt);
    servers.answer();
    servers.wait_for(1, |heard| told_again(heard) == Some(fid));
    is_lost(&mount, handle);
    let heard = servers.heard();
    assert!(
        !heard.iter().any(asks_alone),
        "others may have it: {heard:?}"
    );
    assert!(!heard.iter().any(sets_mode), "others may have set it");
}

/// A file without a name goes with its last use. Where the MDT has done that and dies before it says so,
/// its next boot knows nothing of the file, and nothing is lost.
#[test]
fn a_file_that_went_with_its_close_is_not_lost_with_a_restart() {
    let is_close = |heard: &Heard| matches!(heard, Heard::Mdt(Request::Close { .. }, _));
    let mut servers = Servers::start();
    let mut mount = servers.mount(None);
    let (_, handle) = made(&mount);
    assert_eq!(fsync(&mount, handle), Ok(()));
    servers.hold(is_close);
    mount.client().release(handle);
    servers.wait_for(1, is_close);
    servers.forget(is_told_again);
    servers.restart_mdt();
    servers.wait_for(1, is_told_again);
    servers.answer();
    servers.wait_for(1, |heard| *heard == Heard::Ready);
    assert_eq!(mount.leave(), Ok(()));
}

/// One that is open is.
#[test]
fn a_file_that_is_open_and_unknown_after_a_restart_is_lost() {
    let mut servers = Servers::start();
    let mut mount = servers.mount(None);
    let (_, handle) = made(&mount);
    servers.forget(is_told_again);
    servers.restart_mdt();
    servers.wait_for(1, |heard| *heard == Heard::Ready);
    mount.client().release(handle);
    assert_eq!(mount.leave().map_err(|unwritten| unwritten.lost()), Err(1));
}

/// An MDT waits for what is acknowledged then, and would evict the client.
#[test]
fn nothing_waits_for_a_watch_of_an_ost_that_goes_away() {
    let mut servers = Servers::start();
    let mount = servers.mount(None);
    open_files(mount.client());
    let fid = Fid::new(0x100, 1);
    let is_watch = |heard: &Heard| matches!(heard, Heard::Ost(ost::Request::Watch { .. }));
    servers.hold(is_watch);
    let watches = servers
        .heard()
        .iter()
        .filter(|heard| is_watch(heard))
        .count();
    mount.client().lock().cache.file(fid).locks.take_watch();
    let (told, comes) = channel();
    let client = mount.client().clone();
    spawn(async move {
        client.watch_uncovered(vec![fid]).await;
        // The test may be over.
        let _ = told.send(());
    });
    servers.wait_for(watches + 1, is_watch);
    assert!(comes.try_recv().is_err(), "the OST may answer");
    servers.stop();
    assert_eq!(comes.recv_timeout(PATIENCE), Ok(()));
}

/// Says that a task may go on, which goes on when the test polls it.
struct Woken(Sender<()>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // The test may be over.
        let _ = self.0.send(());
    }
}

/// A task is woken by the answer, and runs when the eviction is over. The MDT has burnt the FIDs by then.
#[test]
fn fids_that_were_granted_before_an_eviction_are_not_used_after_it() {
    let is_grant = |heard: &Heard| matches!(heard, Heard::Mdt(Request::AllocSequences, _));
    let servers = Servers::start();
    let mount = servers.mount(None);
    let (woken, wakes) = channel();
    let waker = Waker::from(Arc::new(Woken(woken)));
    let mut context = Context::from_waker(&waker);
    let mut minting = pin!(mount.client().0.mint(Fid::ROOT));
    servers.hold(is_grant);
    assert!(minting.as_mut().poll(&mut context).is_pending());
    servers.wait_for(1, is_grant);
    servers.answer();
    wakes.recv_timeout(PATIENCE).expect("it is answered");
    servers.evict(TargetKind::Mdt);
    servers.wait_for(1, |heard| *heard == Heard::Ready);
    while minting.as_mut().poll(&mut context).is_pending() {
        wakes.recv_timeout(PATIENCE).expect("it is answered");
    }
    assert!(servers.heard().iter().any(is_grant), "it was asked anew");
}
