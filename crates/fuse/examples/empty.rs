//! A file system that does nothing, as fast as this layer can: the floor for the cost of an upcall.
//!
//! `empty MNT` mounts it until it is unmounted or told to stop (SIGINT, SIGTERM). The root is an
//! empty directory. Names that begin with `file` lead to one empty file; others do not exist. No
//! answer may be cached, so each stat(2) is a LOOKUP, each fstat(2) a GETATTR.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fuse::kernel::mount::Unmount;
use fuse::kernel::{
    Attributes, DirectoryBuffer, Entry, Errno, FileSystemStatus, Handler, Heard, InitOffer,
    InitWish, MountOptions, Op, Opened, ROOT_NODEID, Replier, Request, Session, SessionConfig,
    mount,
};
use nix::sys::signal::{SigSet, Signal};

const FILE_NODEID: u64 = 2;

struct Empty;

fn attributes(nodeid: u64) -> Attributes {
    let directory = nodeid == ROOT_NODEID;
    Attributes {
        ino: nodeid,
        mode: if directory { 0o040_755 } else { 0o100_644 },
        nlink: if directory { 2 } else { 1 },
        block_size: 4096,
        ..Attributes::default()
    }
}

fn entry(nodeid: u64) -> Entry {
    Entry {
        nodeid,
        generation: 0,
        entry_valid: Duration::ZERO,
        attributes_valid: Duration::ZERO,
        attributes: attributes(nodeid),
    }
}

impl Handler for Empty {
    fn init(&self, _: &InitOffer) -> InitWish {
        InitWish::default()
    }

    fn handle(&self, request: Request<'_>, replier: Replier) {
        match request.op {
            Op::Getattr { .. } => replier.attributes(Duration::ZERO, &attributes(request.nodeid)),
            Op::Lookup { name: b"." | b".." } => replier.entry(&entry(ROOT_NODEID)),
            Op::Lookup { name } if name.starts_with(b"file") => replier.entry(&entry(FILE_NODEID)),
            Op::Lookup { .. } => replier.error(Errno::ENOENT),
            Op::Open { .. } | Op::Opendir { .. } => replier.opened(&Opened::default()),
            Op::Readdir { .. } | Op::Readdirplus { .. } => {
                replier.directory(&DirectoryBuffer::new(0))
            }
            Op::Read { .. } => replier.data(&[]),
            Op::Statfs => replier.status(&FileSystemStatus::default()),
            Op::Release(_) | Op::Releasedir(_) | Op::Flush { .. } => replier.done(),
            _ => replier.error(Errno::ENOSYS),
        };
    }

    fn forget(&self, _: u64, _: u64) {}

    fn interrupt(&self, _: u64) -> Heard {
        Heard::Noted
    }

    fn destroy(&self) {}
}

fn serve(point: &Path) -> Result<(), Box<dyn Error>> {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGINT);
    stop.add(Signal::SIGTERM);
    // Before any thread is started, so that all inherit it.
    stop.thread_block()?;
    let (mounted, device) = mount(point, &MountOptions::default())?;
    let session = Session::start(device, Arc::new(Empty), SessionConfig::default())?;
    eprintln!("mounted on {}", mounted.point().display());
    thread::spawn(move || {
        if stop.wait().is_ok()
            && let Err(error) = mounted.unmount(Unmount::Lazy)
        {
            eprintln!("{error}");
        }
    });
    session.join();
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args_os().nth(1) {
        Some(point) => serve(Path::new(&point)),
        None => Err("usage: empty MNT".into()),
    }
}
