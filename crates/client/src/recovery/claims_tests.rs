//! What a restarted MDT hears of files that have changes here, before it hears that the client is ready.

use std::sync::{Arc, Mutex};

use base::Tick;
use wire::mdt::Access;
use wire::update::AttrUpdate;

use super::*;
use crate::cache::edits::Amendment;
use crate::executor::{Sender, block_on};
use crate::rig::servers::{Heard, Servers, told_again};
use crate::session::file_handle::OpenWish;
use crate::session::kernel::{Forget, ForgetName, KernelCache};

const FILE: Fid = Fid(7);
const DIR: Fid = Fid(8);

/// A kernel whose calls hold what it is to forget.
#[derive(Default)]
struct BusyKernel {
    asked: Mutex<Vec<Sender<()>>>,
}

impl BusyKernel {
    fn hold(&self, done: Sender<()>) {
        self.asked.lock().expect("nobody failed").push(done);
    }
}

impl KernelCache for BusyKernel {
    fn forget(&self, _: Forget, done: Sender<()>) {
        self.hold(done);
    }

    fn forget_name(&self, _: ForgetName, _: Sender<()>, done: Sender<()>) {
        self.hold(done);
    }

    fn forget_all_names(&self) -> bool {
        true
    }

    fn extend(&self, _: Fid, _: u64, done: Sender<()>) {
        done.send(());
    }

    fn after_closes(&self, done: Sender<()>) {
        done.send(());
    }

    fn is_appending(&self, _: Fid) -> bool {
        false
    }

    fn let_go(&self, _: Vec<Fid>) {}
}

fn open(client: &Client) {
    let client = client.clone();
    let opened = block_on(async move {
        let access = Access {
            read: true,
            ..Access::default()
        };
        let append = false;
        client.open(FILE, OpenWish { access, append }).await
    });
    opened.expect("it is answered");
}

/// Attributes of the file change here, under the lease of the directory.
fn amend(client: &Client) {
    let amendment = Amendment {
        lease: DIR,
        fid: FILE,
        attr: AttrUpdate::default(),
    };
    let mut state = client.lock();
    state.cache.inode(DIR).directory();
    state.births.amend(amendment, Tick(1));
}

fn is_claim(heard: &Heard) -> bool {
    matches!(heard, Heard::Mdt(Request::ReclaimLease { dir: DIR }, _))
}

#[test]
fn a_file_with_changes_is_reported_as_open_too() {
    let mut servers = Servers::start();
    let mount = servers.mount(None);
    open(mount.client());
    amend(mount.client());
    servers.restart_mdt();
    servers.wait_for(1, |heard| *heard == Heard::Ready);
    let heard = servers.heard();
    let before = heard.split(|heard| *heard == Heard::Ready).next();
    let before = before.unwrap_or_default();
    assert!(before.iter().any(is_claim), "{before:?}");
    assert!(
        before.iter().any(|heard| told_again(heard) == Some(FILE)),
        "{before:?}"
    );
}

/// A call in the directory may wait for the MDT, which waits for this client.
#[test]
fn a_client_is_ready_before_the_kernel_has_forgotten_a_directory_whose_lease_is_refused() {
    let mut servers = Servers::start();
    let kernel = Arc::new(BusyKernel::default());
    let mount = servers.mount_under(kernel.clone(), None);
    open(mount.client());
    amend(mount.client());
    servers.restart_mdt();
    servers.wait_for(1, is_claim);
    servers.wait_for(1, |heard| *heard == Heard::Ready);
    let asked = std::mem::take(&mut *kernel.asked.lock().expect("nobody failed"));
    assert_ne!(asked.len(), 0, "the directory is to be forgotten");
    asked.into_iter().for_each(|done| done.send(()));
}
