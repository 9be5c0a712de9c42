//! A session against a kernel played by the test: a socket that keeps messages apart stands in
//! for /dev/fuse.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use zerocopy::FromBytes;

use super::*;
use crate::kernel::abi::{InHeader, Opcode, OutHeader};
use crate::kernel::negotiation::{InitFlags, InitOffer, InitWish};

/// The kernel's end.
struct Kernel {
    socket: File,
}

fn connected() -> (Kernel, Device) {
    let kind = SockType::SeqPacket;
    let (ours, theirs): (OwnedFd, OwnedFd) =
        socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap();
    (
        Kernel {
            socket: File::from(ours),
        },
        Device::from_fd(theirs).unwrap(),
    )
}

impl Kernel {
    fn ask(&mut self, opcode: u32, unique: u64, body: &[u8]) {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode,
            unique,
            nodeid: 1,
            uid: 0,
            gid: 0,
            pid: 0,
            extension_words: 0,
            padding: 0,
        };
        self.socket
            .write_all(&[header.as_bytes(), body].concat())
            .unwrap();
    }

    fn ask_known(&mut self, opcode: Opcode, unique: u64, body: &[u8]) {
        self.ask(opcode as u32, unique, body);
    }

    /// `unique`, error and body of the next message.
    fn hear(&mut self) -> (u64, i32, Vec<u8>) {
        let mut buffer = vec![0; 4096];
        let size = self.socket.read(&mut buffer).unwrap();
        let (header, body) = OutHeader::read_from_prefix(&buffer[..size]).unwrap();
        assert_eq!(header.len as usize, size);
        (header.unique, header.error, body.to_vec())
    }

    fn offer(&mut self, major: u32, minor: u32) {
        let mut body = [0u32; 16];
        body[..4].copy_from_slice(&[major, minor, 1 << 17, u32::MAX]);
        body[4] = u32::MAX;
        self.ask_known(Opcode::Init, 2, body.as_bytes());
    }
}

/// Notes what it is called with.
#[derive(Default)]
struct Notes {
    seen: Mutex<Vec<String>>,
    knows_interrupted: bool,
    /// Until the end of a use is noted.
    release_takes: Duration,
}

impl Notes {
    fn note(&self, text: String) {
        self.seen.lock().unwrap().push(text);
    }
}

impl Handler for Notes {
    fn init(&self, offer: &InitOffer) -> InitWish {
        self.note(format!("init {}", offer.minor));
        InitWish::default()
    }

    fn ready(&self, granted: &Granted, _: &Notifier) {
        self.note(format!("ready {}", granted.minor));
    }

    fn handle(&self, request: Request<'_>, replier: Replier) {
        if request.opcode == Opcode::Release {
            thread::sleep(self.release_takes);
        }
        self.note(format!("handle {:?}", request.opcode));
        replier.done();
    }

    fn forget(&self, nodeid: u64, lookups: u64) {
        assert!(lookups != 666, "on purpose");
        self.note(format!("forget {nodeid} {lookups}"));
    }

    fn interrupt(&self, unique: u64) -> Heard {
        self.note(format!("interrupt {unique}"));
        if self.knows_interrupted {
            Heard::Noted
        } else {
            Heard::Unknown
        }
    }

    fn destroy(&self) {
        self.note("destroy".into());
    }
}

const ONE: SessionConfig = SessionConfig {
    readers: 1,
    kernel: KernelLevel::Running,
};

/// A session past its handshake.
fn started(notes: &Arc<Notes>, config: SessionConfig) -> (Kernel, Session) {
    let (mut kernel, device) = connected();
    kernel.offer(7, 45);
    let session = Session::start(device, notes.clone(), config).unwrap();
    let (unique, error, answer) = kernel.hear();
    assert_eq!((unique, error, answer.len()), (2, 0, 64));
    (kernel, session)
}

/// Closes the kernel's end and gives what was noted in between.
fn ended(kernel: Kernel, session: Session, notes: &Notes) -> Vec<String> {
    drop(kernel);
    session.join();
    let mut seen = notes.seen.lock().unwrap().split_off(2);
    assert_eq!(seen.pop().as_deref(), Some("destroy"));
    seen
}

#[test]
fn the_handshake_comes_first_and_destroy_last() {
    let notes = Arc::new(Notes::default());
    let (kernel, session) = started(&notes, ONE);
    assert_eq!(*notes.seen.lock().unwrap(), ["init 45", "ready 45"]);
    assert!(session.granted().flags.contains(InitFlags::INIT_EXT));
    assert!(ended(kernel, session, &notes).is_empty());
}

#[test]
fn a_kernel_too_old_is_refused() {
    for (major, minor) in [(6, 45), (7, 30)] {
        let (mut kernel, device) = connected();
        kernel.offer(major, minor);
        let error = Session::start(device, Arc::new(Notes::default()), ONE).unwrap_err();
        assert!(matches!(error, SessionError::Version { .. }), "{error}");
        assert!(error.to_string().contains("Linux 5.4"), "{error}");
        assert_eq!(kernel.hear(), (2, -libc::EPROTO, vec![]));
    }
}

#[test]
fn a_newer_major_version_is_asked_to_come_down() {
    let (mut kernel, device) = connected();
    kernel.offer(8, 3);
    kernel.offer(7, 45);
    let session = Session::start(device, Arc::new(Notes::default()), ONE).unwrap();
    let (_, error, answer) = kernel.hear();
    assert_eq!((error, &answer[..4]), (0, &7u32.to_ne_bytes()[..]));
    assert_eq!(kernel.hear().2.len(), 64);
    drop(kernel);
    session.join();
}

#[test]
fn what_is_not_a_handshake_ends_it() {
    let (mut kernel, device) = connected();
    kernel.ask_known(Opcode::Statfs, 2, &[]);
    let error = Session::start(device, Arc::new(Notes::default()), ONE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no FUSE handshake: Statfs came before INIT"
    );
    let (kernel, device) = connected();
    drop(kernel);
    let error = Session::start(device, Arc::new(Notes::default()), ONE).unwrap_err();
    assert!(matches!(error, SessionError::Unmounted));
}

#[test]
fn what_cannot_be_understood_is_refused_and_the_session_goes_on() {
    let notes = Arc::new(Notes::default());
    let (mut kernel, session) = started(&notes, ONE);
    kernel.ask(9999, 4, &[]);
    kernel.ask_known(Opcode::Lookup, 6, b"no end");
    kernel.ask_known(Opcode::Forget, 8, &[1]);
    kernel.socket.write_all(b"short").unwrap();
    kernel.ask_known(Opcode::Init, 10, &[0; 16]);
    kernel.ask_known(Opcode::Statfs, 12, &[]);
    let answers: Vec<_> = (0..4)
        .map(|_| kernel.hear())
        .map(|(u, error, _)| (u, error))
        .collect();
    let expected = [
        (4, -libc::ENOSYS),
        (6, -libc::EIO),
        (10, -libc::EPROTO),
        (12, 0),
    ];
    assert_eq!(answers, expected);
    assert_eq!(ended(kernel, session, &notes), ["handle Statfs"]);
}

#[test]
fn operations_newer_than_the_level_never_reach_the_handler() {
    let notes = Arc::new(Notes::default());
    let config = SessionConfig {
        kernel: KernelLevel::Linux5_14,
        ..ONE
    };
    let (mut kernel, session) = started(&notes, config);
    kernel.ask_known(Opcode::Tmpfile, 4, &[0; 17]);
    kernel.ask_known(Opcode::Syncfs, 6, &[0; 8]);
    assert_eq!(kernel.hear(), (4, -libc::ENOSYS, vec![]));
    assert_eq!(kernel.hear(), (6, 0, vec![]));
    assert_eq!(ended(kernel, session, &notes), ["handle Syncfs"]);
}

#[test]
fn forgets_and_known_interrupts_are_not_answered() {
    let notes = Arc::new(Notes {
        knows_interrupted: true,
        ..Notes::default()
    });
    let (mut kernel, session) = started(&notes, ONE);
    kernel.ask_known(Opcode::Forget, 4, &7u64.to_ne_bytes());
    kernel.ask_known(Opcode::BatchForget, 6, [1u64, 5, 1].as_bytes());
    kernel.ask_known(Opcode::Interrupt, 9, &8u64.to_ne_bytes());
    kernel.ask_known(Opcode::Destroy, 10, &[]);
    assert_eq!(kernel.hear(), (10, 0, vec![]));
    assert_eq!(
        ended(kernel, session, &notes),
        ["forget 1 7", "forget 5 1", "interrupt 8"]
    );
}

#[test]
fn a_panic_in_the_handler_costs_no_reader() {
    let notes = Arc::new(Notes::default());
    let (mut kernel, session) = started(&notes, ONE);
    kernel.ask_known(Opcode::Forget, 4, &666u64.to_ne_bytes());
    kernel.ask_known(Opcode::Statfs, 6, &[]);
    assert_eq!(kernel.hear(), (6, 0, vec![]));
    assert_eq!(ended(kernel, session, &notes), ["handle Statfs"]);
}

#[test]
fn an_interrupt_that_overtook_its_request_is_sent_back() {
    let notes = Arc::new(Notes::default());
    let (mut kernel, session) = started(&notes, ONE);
    kernel.ask_known(Opcode::Interrupt, 9, &8u64.to_ne_bytes());
    assert_eq!(kernel.hear(), (9, -libc::EAGAIN, vec![]));
    assert_eq!(ended(kernel, session, &notes), ["interrupt 8"]);
}

/// Whether the file is open must be known when its name goes by the next call of who closed it.
#[test]
fn no_request_overtakes_the_end_of_a_use() {
    const TURNS: u64 = 100;
    let notes = Arc::new(Notes {
        release_takes: Duration::from_micros(200),
        ..Notes::default()
    });
    let (mut kernel, session) = started(&notes, SessionConfig { readers: 3, ..ONE });
    for turn in 0..TURNS {
        kernel.ask_known(Opcode::Release, 4 * turn + 4, &[0; 24]);
        kernel.ask_known(Opcode::Statfs, 4 * turn + 6, &[]);
    }
    (0..2 * TURNS).for_each(|_| drop(kernel.hear()));
    let mut ahead = 0;
    for seen in ended(kernel, session, &notes) {
        ahead += if seen == "handle Release" { 1 } else { -1 };
        assert!(ahead >= 0, "a request overtook the end of a use");
    }
}

#[test]
fn readers_that_share_a_device_end_together() {
    let notes = Arc::new(Notes::default());
    let (mut kernel, device) = connected();
    kernel.offer(7, 45);
    let config = SessionConfig { readers: 3, ..ONE };
    // The socket cannot be cloned as /dev/fuse can, so all three read it.
    let session = Session::start(device, notes.clone(), config).unwrap();
    kernel.hear();
    assert_eq!(session.threads.len(), 3);
    kernel.ask_known(Opcode::Interrupt, 9, &8u64.to_ne_bytes());
    kernel.ask_known(Opcode::Statfs, 10, &[]);
    let mut answers = [kernel.hear().1, kernel.hear().1];
    answers.sort_unstable();
    assert_eq!(answers, [-libc::EAGAIN, 0], "one EAGAIN, not one a reader");
    let seen = ended(kernel, session, &notes);
    assert_eq!(seen.len(), 2);
}
