//! The layer under real system calls: a small file system, really mounted, as root.
#![allow(unsafe_code, reason = "extended attributes have no safe wrapper here")]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails where something is missing"
)]

mod memory;

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use base::ByteRange;
use fuse::kernel::mount::{MountState, Unmount, UsedBy, is_same_or_below, resolve, state, unmount};
use fuse::kernel::{
    InitFlags, KernelLevel, Lane, Mount, MountError, MountOptions, Notice, NoticeOutcome, Notifier,
    NotifyError, NotifyQueue, Pages, ROOT_NODEID, Session, SessionConfig, mount,
};
use memory::MemoryFs;
use nix::fcntl::RenameFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Held while something is mounted. A test that starts a process lends it, from fork to exec, the
/// open files of all other tests, whose mounts would then be busy at a bad moment.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that does nothing in a directory; gone when dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new(directory: &Path) -> Sleeper {
        Sleeper(
            Command::new("sleep")
                .arg("1000")
                .current_dir(directory)
                .spawn()
                .unwrap(),
        )
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A mounted file system; ends clean, with all threads joined, or the test fails.
struct Mounted {
    fs: Arc<MemoryFs>,
    mount: Mount,
    session: Option<Session>,
    _directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Mounted {
    fn new() -> Mounted {
        Mounted::with(SessionConfig::default())
    }

    fn with(config: SessionConfig) -> Mounted {
        let alone = alone();
        let fs = MemoryFs::new();
        let directory = tempfile::tempdir().unwrap();
        let (mount, device) = mount(directory.path(), &MountOptions::default()).unwrap();
        let session = Session::start(device, fs.clone(), config).unwrap();
        Mounted {
            fs,
            mount,
            session: Some(session),
            _directory: directory,
            _alone: alone,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount.point().join(name)
    }

    fn notifier(&self) -> &Notifier {
        self.session.as_ref().unwrap().notifier()
    }

    /// Adds a file without telling the kernel.
    fn add(&self, name: &str) -> u64 {
        self.fs.lock().add_file(ROOT_NODEID, name.as_bytes())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        if std::thread::panicking() {
            // What fails now would hide why the test failed.
            let _ = self.mount.unmount(Unmount::Abort);
            return;
        }
        self.mount.unmount(Unmount::Clean).unwrap();
        session.join();
        assert_eq!(self.fs.lock().destroyed, 1);
        assert!(!self.mount.is_mounted());
    }
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn files_are_written_and_read_back() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    let data: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(&path, &data).unwrap();
    assert_eq!(fs::read(&path).unwrap(), data);
    assert_eq!(mounted.fs.lock().nodes[&2].data, data);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.ino()), (data.len() as u64, 2));
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(5)
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), data[..5]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(mounted.fs.lock().nodes[&2].attributes.mode, 0o100_640);
    let when = std::time::UNIX_EPOCH + Duration::new(77, 123_456_789);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(when)
        .unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), when);
}

#[test]
fn large_writes_come_in_requests_of_one_mebibyte() {
    let mounted = Mounted::new();
    assert_eq!(
        mounted.session.as_ref().unwrap().granted().max_write,
        1 << 20
    );
    let mut file = File::create(mounted.path("file")).unwrap();
    file.write_all(&vec![1; 4 << 20]).unwrap();
    assert_eq!(mounted.fs.count("Write"), 4);
}

#[test]
fn names_are_made_renamed_and_removed() {
    let mounted = Mounted::new();
    let path = |name: &str| mounted.path(name);
    fs::create_dir(path("directory")).unwrap();
    assert_eq!(errno(fs::create_dir(path("directory"))), Some(libc::EEXIST));
    fs::write(path("directory/a"), "a").unwrap();
    fs::write(path("b"), "b").unwrap();
    fs::rename(path("directory/a"), path("c")).unwrap();
    assert_eq!(fs::read(path("c")).unwrap(), b"a");
    let rename = |from: &str, to: &str, flags| {
        nix::fcntl::renameat2(
            nix::fcntl::AT_FDCWD,
            &path(from),
            nix::fcntl::AT_FDCWD,
            &path(to),
            flags,
        )
    };
    assert_eq!(
        rename("b", "c", RenameFlags::RENAME_NOREPLACE),
        Err(nix::errno::Errno::EEXIST)
    );
    rename("b", "c", RenameFlags::RENAME_EXCHANGE).unwrap();
    assert_eq!(fs::read(path("c")).unwrap(), b"b");
    fs::hard_link(path("c"), path("d")).unwrap();
    fs::remove_file(path("c")).unwrap();
    assert_eq!(fs::read(path("d")).unwrap(), b"b");
    assert_eq!(errno(fs::metadata(path("c"))), Some(libc::ENOENT));
    fs::remove_dir(path("directory")).unwrap();
    symlink("d", path("link")).unwrap();
    assert_eq!(fs::read_link(path("link")).unwrap(), Path::new("d"));
    assert_eq!(fs::read(path("link")).unwrap(), b"b");
}

#[test]
fn extended_attributes_come_and_go() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), "").unwrap();
    let path = CString::new(mounted.path("file").as_os_str().as_bytes()).unwrap();
    let set = |value: &[u8], flags| {
        // SAFETY: both strings end in NUL, the value's pointer and length belong together.
        unsafe {
            libc::setxattr(
                path.as_ptr(),
                c"user.colour".as_ptr(),
                value.as_ptr().cast(),
                value.len(),
                flags,
            )
        }
    };
    let get = |buffer: &mut [u8]| {
        // SAFETY: the string ends in NUL, the buffer's pointer and length belong together.
        unsafe {
            libc::getxattr(
                path.as_ptr(),
                c"user.colour".as_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        }
    };
    assert_eq!(get(&mut [0; 8]), -1);
    assert_eq!(
        io::Error::last_os_error().raw_os_error(),
        Some(libc::ENODATA)
    );
    assert_eq!(set(b"green", libc::XATTR_CREATE), 0);
    assert_eq!(set(b"blue", libc::XATTR_CREATE), -1);
    assert_eq!((get(&mut []), get(&mut [0; 2])), (5, -1));
    let mut buffer = [0; 8];
    assert_eq!((get(&mut buffer), &buffer[..5]), (5, &b"green"[..]));
    let long = vec![7; 60_000];
    assert_eq!(set(&long, libc::XATTR_REPLACE), 0);
    assert_eq!(
        mounted.fs.lock().nodes[&2].xattrs[&b"user.colour"[..]],
        long
    );
}

#[test]
fn ten_thousand_entries_come_once_each_with_their_attributes() {
    let mounted = Mounted::new();
    let expected: HashSet<String> = (0..10_000).map(|n| format!("entry-{n}")).collect();
    for name in &expected {
        mounted.add(name);
    }
    let mut seen = HashSet::new();
    for entry in fs::read_dir(mounted.mount.point()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().ino(),
            entry.path().metadata().unwrap().ino()
        );
        assert!(
            seen.insert(entry.file_name().into_string().unwrap()),
            "{entry:?} came twice"
        );
    }
    assert_eq!(seen, expected);
    assert_eq!(
        (mounted.fs.count("Lookup"), mounted.fs.count("Readdir")),
        (0, 0)
    );
    assert!(mounted.fs.count("Readdirplus") > 10);
}

#[test]
fn lookups_are_all_forgotten() {
    let mounted = Mounted::new();
    for n in 0..1000 {
        mounted.add(&format!("entry-{n}"));
    }
    for entry in fs::read_dir(mounted.mount.point()).unwrap() {
        fs::metadata(entry.unwrap().path()).unwrap();
    }
    let known = |state: &memory::State| state.nodes.values().filter(|n| n.lookups > 0).count();
    assert_eq!(known(&mounted.fs.lock()), 1000);
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    drop(mounted.fs.wait_for(|state| known(state) == 0));
}

#[test]
fn a_parked_request_ends_when_its_caller_is_signalled() {
    for readers in [1, 4] {
        let mounted = Mounted::with(SessionConfig {
            readers,
            ..SessionConfig::default()
        });
        mounted.add("parked");
        fs::write(mounted.path("other"), "x").unwrap();
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let mut cat = Command::new("cat")
                .arg(mounted.path("parked"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            mounted.fs.wait_for(|state| state.parked() == 1).deaf = 5;
            assert_eq!(
                fs::read(mounted.path("other")).unwrap(),
                b"x",
                "readers stay free"
            );
            kill(Pid::from_raw(cat.id() as i32), signal).unwrap();
            assert!(!cat.wait().unwrap().success());
            let state = mounted.fs.lock();
            assert_eq!((state.parked(), state.deaf), (0, 0));
        }
        assert_eq!(mounted.fs.lock().interrupted, 2);
    }
}

#[test]
fn unusual_answers_reach_the_caller() {
    let mounted = Mounted::new();
    for name in ["dropped", "elsewhere", "panics", "unknown"] {
        mounted.add(name);
    }
    let open = |name: &str| errno(File::open(mounted.path(name)));
    assert_eq!(open("dropped"), Some(libc::EIO));
    assert_eq!(open("elsewhere"), None);
    assert_eq!(open("panics"), Some(libc::EIO));
    assert_eq!(
        open("unknown"),
        Some(libc::EIO),
        "not ENOSYS, which would stay"
    );
    fs::write(mounted.path("after"), "x").unwrap();
    assert_eq!(open("after"), None);
    assert!(mounted.fs.count("Open") >= 5);
}

#[test]
fn attributes_change_when_the_kernel_is_told() {
    let mounted = Mounted::new();
    let nodeid = mounted.add("file");
    let size = || fs::metadata(mounted.path("file")).unwrap().len();
    assert_eq!(size(), 0);
    mounted
        .fs
        .lock()
        .nodes
        .get_mut(&nodeid)
        .unwrap()
        .attributes
        .size = 5;
    assert_eq!(size(), 0, "cached without end");
    let told = mounted.notifier().inval_inode(nodeid, Pages::Keep);
    assert_eq!((told, size()), (Ok(NoticeOutcome::Done), 5));
    let unknown = mounted.notifier().inval_inode(12345, Pages::Keep);
    assert_eq!(unknown, Ok(NoticeOutcome::NotCached));
}

#[test]
fn cached_pages_change_when_the_kernel_is_told() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), vec![b'a'; 4 * 4096]).unwrap();
    let file = File::open(mounted.path("file")).unwrap();
    // One byte of each page.
    let bytes = || {
        let mut buffer = [0; 4];
        for (page, byte) in buffer.chunks_mut(1).enumerate() {
            file.read_exact_at(byte, page as u64 * 4096 + 7).unwrap();
        }
        String::from_utf8(buffer.to_vec()).unwrap()
    };
    assert_eq!(bytes(), "aaaa");
    mounted.fs.lock().nodes.get_mut(&2).unwrap().data.fill(b'b');
    assert_eq!(bytes(), "aaaa", "cached without end");
    let middle = Pages::Drop(ByteRange::new(4096, 3 * 4096));
    assert_eq!(
        mounted.notifier().inval_inode(2, middle),
        Ok(NoticeOutcome::Done)
    );
    assert_eq!(bytes(), "abba");
    mounted
        .notifier()
        .inval_inode(2, Pages::Drop(ByteRange::ALL))
        .unwrap();
    assert_eq!(bytes(), "bbbb");
}

/// Puts another file behind a cached name, tells the kernel somehow, and says what stat shows.
fn replaced_behind_the_kernel(
    mounted: &Mounted,
    name: &str,
    tell: impl Fn(&Notifier) -> Result<NoticeOutcome, NotifyError>,
) {
    let old = mounted.add(name);
    let ino = || fs::metadata(mounted.path(name)).unwrap().ino();
    assert_eq!(ino(), old);
    let new = mounted.add(name);
    assert_eq!(ino(), old, "cached without end");
    assert_eq!(tell(mounted.notifier()), Ok(NoticeOutcome::Done));
    assert_eq!(ino(), new);
}

#[test]
fn names_change_when_the_kernel_is_told() {
    let mounted = Mounted::new();
    let tell = |name: &'static str| {
        let name = name.as_bytes();
        move |notifier: &Notifier| notifier.inval_entry(ROOT_NODEID, name)
    };
    replaced_behind_the_kernel(&mounted, "dropped-entry", tell("dropped-entry"));
    replaced_behind_the_kernel(&mounted, "expired", |n| {
        n.expire_entry(ROOT_NODEID, b"expired")
    });
    replaced_behind_the_kernel(&mounted, "epoch", Notifier::inc_epoch);
    let deleted = mounted.add("deleted");
    fs::metadata(mounted.path("deleted")).unwrap();
    mounted
        .fs
        .lock()
        .nodes
        .get_mut(&ROOT_NODEID)
        .unwrap()
        .children
        .remove(&b"deleted"[..]);
    assert_eq!(
        mounted.notifier().delete(ROOT_NODEID, deleted, b"deleted"),
        Ok(NoticeOutcome::Done)
    );
    assert_eq!(
        errno(fs::metadata(mounted.path("deleted"))),
        Some(libc::ENOENT)
    );
    let absent = mounted.notifier().inval_entry(ROOT_NODEID, b"never");
    assert_eq!(absent, Ok(NoticeOutcome::NotCached));
}

#[test]
fn what_is_expired_stays_a_working_directory_and_what_is_dropped_does_not() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("directory")).unwrap();
    let sleeper = Sleeper::new(&mounted.path("directory"));
    let cwd = || fs::read_link(format!("/proc/{}/cwd", sleeper.id())).unwrap();
    let notifier = mounted.notifier();
    let expired = notifier.expire_entry(ROOT_NODEID, b"directory");
    assert_eq!(
        (expired, cwd()),
        (Ok(NoticeOutcome::Done), mounted.path("directory"))
    );
    let dropped = notifier.inval_entry(ROOT_NODEID, b"directory");
    assert_eq!(
        (dropped, cwd()),
        (Ok(NoticeOutcome::Done), mounted.path("directory (deleted)"))
    );
    drop(sleeper);
}

#[test]
fn data_is_stored_into_and_retrieved_from_the_page_cache() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), vec![b'a'; 4096]).unwrap();
    let notifier = mounted.notifier();
    assert_eq!(notifier.store(2, 0, &[b'c'; 4096]), Ok(NoticeOutcome::Done));
    assert_eq!(fs::read(mounted.path("file")).unwrap(), vec![b'c'; 4096]);
    assert!(notifier.retrieve(2, 0, 4096).unwrap().is_some());
    let state = mounted.fs.wait_for(|state| !state.retrieved.is_empty());
    assert_eq!(state.retrieved[0], vec![b'c'; 4096]);
    drop(state);
    assert_eq!(notifier.retrieve(777, 0, 4096), Ok(None));
}

#[test]
fn unused_inodes_are_pruned() {
    let mounted = Mounted::new();
    let nodeid = mounted.add("file");
    fs::metadata(mounted.path("file")).unwrap();
    assert_eq!(mounted.notifier().prune(&[nodeid]), Ok(NoticeOutcome::Done));
    drop(
        mounted
            .fs
            .wait_for(|state| state.nodes[&nodeid].lookups == 0),
    );
}

#[test]
fn queued_notices_reach_the_kernel() {
    let mounted = Mounted::new();
    let old = mounted.add("file");
    let ino = || fs::metadata(mounted.path("file")).unwrap().ino();
    assert_eq!(ino(), old);
    let new = mounted.add("file");
    let port = Arc::new(mounted.notifier().clone());
    let queue = NotifyQueue::start(port, Default::default(), |_| {}).unwrap();
    let (done, finished) = mpsc::channel();
    let notice = Notice::ExpireEntry {
        parent: ROOT_NODEID,
        name: Box::from(&b"file"[..]),
    };
    queue
        .submit(Lane(ROOT_NODEID), notice, move |outcome| {
            done.send(outcome).unwrap()
        })
        .unwrap();
    assert_eq!(finished.recv().unwrap(), Ok(NoticeOutcome::Done));
    assert_eq!(ino(), new);
}

#[test]
fn older_kernels_are_emulated() {
    for (kernel, tmpfile) in [
        (KernelLevel::Linux5_14, false),
        (KernelLevel::Linux6_1, true),
    ] {
        let mounted = Mounted::with(SessionConfig {
            kernel,
            ..SessionConfig::default()
        });
        let granted = *mounted.session.as_ref().unwrap().granted();
        assert!(
            granted
                .flags
                .contains(InitFlags::PARALLEL_DIROPS | InitFlags::DO_READDIRPLUS)
        );
        fs::write(mounted.path("file"), "data").unwrap();
        assert_eq!(fs::read(mounted.path("file")).unwrap(), b"data");
        assert_eq!(fs::read_dir(mounted.mount.point()).unwrap().count(), 1);
        let notifier = mounted.notifier();
        assert_eq!(
            notifier.expire_entry(ROOT_NODEID, b"file"),
            Err(NotifyError::Unsupported)
        );
        assert_eq!(notifier.inc_epoch(), Err(NotifyError::Unsupported));
        assert_eq!(
            notifier.inval_entry(ROOT_NODEID, b"file"),
            Ok(NoticeOutcome::Done)
        );
        let flags = nix::fcntl::OFlag::O_TMPFILE | nix::fcntl::OFlag::O_RDWR;
        let mode = nix::sys::stat::Mode::empty();
        assert!(nix::fcntl::open(mounted.mount.point(), flags, mode).is_err());
        assert_eq!(mounted.fs.count("Tmpfile") > 0, tmpfile);
    }
}

#[test]
fn a_busy_mount_names_its_users_and_stays() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("work")).unwrap();
    let sleeper = Sleeper::new(&mounted.path("work"));
    let open = File::create(mounted.path("open")).unwrap();
    let error = mounted.mount.unmount(Unmount::Clean).unwrap_err();
    let text = error.to_string();
    let MountError::Busy { users, .. } = error else {
        panic!("{error}")
    };
    let user = |pid| users.iter().find(|user| user.pid == pid).unwrap();
    let cwd = user(sleeper.id());
    assert_eq!(
        (cwd.by, &cwd.path),
        (UsedBy::WorkingDirectory, &mounted.path("work"))
    );
    let mine = user(std::process::id());
    assert_eq!(
        (mine.by, &mine.path),
        (UsedBy::OpenFile, &mounted.path("open"))
    );
    assert!(
        text.contains(&format!("pid {} (sleep) works in", sleeper.id())),
        "{text}"
    );
    assert!(mounted.mount.is_mounted());
    fs::write(mounted.path("still"), "works").unwrap();
    drop(open);
    drop(sleeper);
}

#[test]
fn abort_ends_a_mount_that_is_in_use() {
    let mut mounted = Mounted::new();
    mounted.add("parked");
    let mut file = File::open(mounted.path("parked")).unwrap();
    let reader = std::thread::spawn(move || errno(file.read(&mut [0; 10])));
    drop(mounted.fs.wait_for(|state| state.parked() == 1));
    mounted.mount.unmount(Unmount::Abort).unwrap();
    assert!(matches!(
        reader.join().unwrap(),
        Some(libc::ECONNABORTED | libc::ENOTCONN)
    ));
    mounted.session.take().unwrap().join();
    assert!(!mounted.mount.is_mounted());
}

#[test]
fn a_lazy_unmount_serves_who_is_still_inside() {
    let mut mounted = Mounted::new();
    let file = File::create(mounted.path("file")).unwrap();
    mounted.mount.unmount(Unmount::Lazy).unwrap();
    assert!(!mounted.mount.is_mounted());
    file.write_all_at(b"late", 0).unwrap();
    assert_eq!(mounted.fs.lock().nodes[&2].data, b"late");
    drop(file);
    mounted.session.take().unwrap().join();
}

#[test]
fn dead_and_silent_mounts_are_told_apart_and_removed() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    // Another file system's: what becomes of it is not for us to say.
    let others = MountOptions {
        subtype: "other".into(),
        ..MountOptions::default()
    };
    let (mounted, device) = mount(directory.path(), &others).unwrap();
    let point = mounted.point().to_owned();
    assert_eq!(
        state(&point, Duration::from_millis(20)).unwrap(),
        MountState::Silent
    );
    assert!(
        is_same_or_below(&point.join("deep/inside"), &point).unwrap(),
        "without asking it"
    );
    assert!(!is_same_or_below(Path::new("/"), &point).unwrap());
    assert_eq!(resolve(&point).unwrap(), point);
    drop(device);
    assert_eq!(
        state(&point, Duration::from_secs(10)).unwrap(),
        MountState::Dead
    );
    let error = mount(&point, &MountOptions::default()).unwrap_err();
    assert!(matches!(error, MountError::Dead(_)));
    assert!(
        error
            .to_string()
            .contains("Transport endpoint is not connected"),
        "{error}"
    );
    assert!(error.to_string().contains("umount -l"), "{error}");
    // The probe that got no answer is waking up and may still hold the mount.
    unmount(&point, Unmount::Lazy).unwrap();
    assert_eq!(
        state(&point, Duration::from_secs(10)).unwrap(),
        MountState::NotFuse
    );
    assert!(matches!(
        unmount(&point, Unmount::Clean),
        Err(MountError::NotMounted(_))
    ));
}

#[test]
fn a_dead_mount_of_ours_gives_way_to_a_new_one() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let (_first, device) = mount(directory.path(), &MountOptions::default()).unwrap();
    drop(device);
    let (second, device) = mount(directory.path(), &MountOptions::default()).unwrap();
    drop(device);
    second.unmount(Unmount::Lazy).unwrap();
    assert_eq!(
        state(second.point(), Duration::from_secs(10)).unwrap(),
        MountState::NotFuse
    );
}

#[test]
fn a_second_mount_on_the_same_point_is_refused() {
    let mounted = Mounted::new();
    let error = mount(mounted.mount.point(), &MountOptions::default()).unwrap_err();
    assert!(matches!(error, MountError::AlreadyMounted(_)), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = mount(file.path(), &MountOptions::default()).unwrap_err();
    assert!(matches!(error, MountError::NotDirectory(_)), "{error}");
    let error = mount(Path::new("/not/there"), &MountOptions::default()).unwrap_err();
    assert!(error.to_string().contains("mkdir -p /not/there"), "{error}");
}

#[test]
fn the_mount_looks_as_asked_and_reads_ahead_as_told() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let options = MountOptions {
        source: "a b".into(),
        read_only: true,
        ..Default::default()
    };
    let (mounted, device) = mount(directory.path(), &options).unwrap();
    let session = Session::start(device, MemoryFs::new(), SessionConfig::default()).unwrap();
    let all = fuse::kernel::mount::mounts().unwrap();
    let entry = all
        .iter()
        .find(|entry| entry.point == mounted.point())
        .unwrap();
    assert_eq!(
        (entry.kind.as_str(), entry.source.to_str()),
        ("fuse.glint", Some("a b"))
    );
    assert_eq!(
        errno(fs::write(mounted.point().join("file"), "x")),
        Some(libc::EROFS)
    );
    mounted.set_read_ahead(1 << 20).unwrap();
    let number = mounted.number().unwrap();
    let setting = format!(
        "/sys/class/bdi/{}:{}/read_ahead_kb",
        number.major, number.minor
    );
    assert_eq!(fs::read_to_string(setting).unwrap().trim(), "1024");
    drop(mounted);
    session.join();
}
