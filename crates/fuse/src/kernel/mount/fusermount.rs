//! Mounting and unmounting as an ordinary user, through the setuid helper `fusermount3`.
#![allow(unsafe_code, reason = "the helper must inherit one descriptor")]

use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, socketpair,
};

use super::error::MountError;
use super::options::{MountOptions, Unmount};
use super::table::{at, mounts};
use super::users::users;
use crate::kernel::device::Device;

const HELPER: &str = "fusermount3";
/// Where the helper looks for the socket.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// The helper opens /dev/fuse, mounts it and passes the descriptor over a socket. It finds the socket's
/// number in its environment.
pub(super) fn mount(point: &Path, options: &MountOptions) -> Result<Device, MountError> {
    let failed = |error| MountError::Io {
        what: "start",
        path: HELPER.into(),
        error,
    };
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(|errno| failed(errno.into()))?;
    let mut command = helper();
    command
        .arg("-o")
        .arg(option_list(options))
        .arg("--")
        .arg(point);
    command.env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string());
    let inherited = theirs.as_raw_fd();
    // SAFETY: between fork and exec only fcntl is called, which is async-signal-safe; the
    // descriptor is open in the child, because `theirs` lives until after the spawn.
    unsafe { command.pre_exec(move || keep_across_exec(inherited)) };
    let child = command.spawn().map_err(no_helper)?;
    drop(theirs);
    let device = receive_device(&ours);
    let complaint = finish(child).map_err(failed)?;
    match (device, complaint) {
        (Ok(Some(device)), _) => Ok(device),
        (_, Some(text)) => Err(explain(point, &text)),
        (Err(error), None) => Err(failed(error)),
        (Ok(None), None) => Err(MountError::Fusermount("it passed no device".into())),
    }
}

pub(super) fn unmount(point: &Path, how: Unmount) -> Result<(), MountError> {
    let mut command = helper();
    command.arg("-u");
    if how != Unmount::Clean {
        command.arg("-z");
    }
    let child = command.arg("--").arg(point).spawn().map_err(no_helper)?;
    let failed = |error| MountError::Io {
        what: "wait for",
        path: HELPER.into(),
        error,
    };
    match finish(child).map_err(failed)? {
        None => Ok(()),
        Some(text) => Err(explain(point, &text)),
    }
}

fn helper() -> Command {
    let mut command = Command::new(HELPER);
    // The helper's complaints are matched below, so they must not be translated.
    command.env("LC_ALL", "C").current_dir("/");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn no_helper(error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::NoFusermount,
        _ => MountError::Io {
            what: "start",
            path: HELPER.into(),
            error,
        },
    }
}

fn keep_across_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: the caller keeps the descriptor open; only its close-on-exec flag changes.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

/// Options in the helper's syntax: commas and backslashes in values are escaped.
fn option_list(options: &MountOptions) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = vec![
        format!("fsname={}", escape(&options.source)),
        format!("subtype={}", escape(&options.subtype)),
        format!("max_read={}", options.max_read),
    ];
    let flags = [
        (options.default_permissions, "default_permissions"),
        (options.allow_other, "allow_other"),
        (options.read_only, "ro"),
        (options.setuid, "suid"),
        (options.devices, "dev"),
        (!options.exec, "noexec"),
        (!options.access_times, "noatime"),
    ];
    list.extend(
        flags
            .iter()
            .filter(|(set, _)| *set)
            .map(|(_, name)| (*name).to_owned()),
    );
    list.join(",")
}

/// One byte and one descriptor; `None` where the helper closed the socket without.
fn receive_device(socket: &OwnedFd) -> io::Result<Option<Device>> {
    let mut byte = [0u8; 1];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags) {
            Err(nix::errno::Errno::EINTR) => slices = [IoSliceMut::new(&mut byte)],
            other => break other?,
        }
    };
    let passed = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
        _ => None,
    });
    // SAFETY: the kernel installed this descriptor for this message; nothing else owns it.
    let passed = passed.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    passed.map(Device::from_fd).transpose()
}

/// Waits for the helper; what it complained of, if it failed.
fn finish(mut child: Child) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_end(&mut text)?;
    }
    let status = child.wait()?;
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    Ok((!status.success()).then(|| {
        if text.is_empty() {
            status.to_string()
        } else {
            text
        }
    }))
}

fn explain(point: &Path, text: &str) -> MountError {
    let says = |part: &str| text.contains(part);
    let reason = || {
        text.trim_start_matches(HELPER)
            .trim_start_matches(": ")
            .to_owned()
    };
    if says("user_allow_other") {
        MountError::AllowOtherRefused
    } else if says("busy") {
        MountError::Busy {
            point: point.into(),
            users: users(point),
        }
    } else if says("device not found") || says("/dev/fuse: No such") {
        MountError::NoDevice
    } else if says("open /dev/fuse: Permission denied") {
        MountError::DeviceRefused
    } else if says("Transport endpoint is not connected") {
        MountError::Dead(point.into())
    } else if says("not found in") || says("not mounted") {
        // The helper knows only the mounts of the user that calls it.
        let is_mounted = mounts().is_ok_and(|mounts| at(&mounts, point).is_some());
        match is_mounted {
            true => MountError::NotPermitted {
                point: point.into(),
                reason: "another user mounted it".to_owned(),
            },
            false => MountError::NotMounted(point.into()),
        }
    } else if says("no write access") || says("not permitted") || says("Permission denied") {
        MountError::NotPermitted {
            point: point.into(),
            reason: reason(),
        }
    } else {
        MountError::Fusermount(reason())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_escaped_and_complete() {
        let options = MountOptions {
            source: "a,b\\c".into(),
            allow_other: true,
            exec: false,
            ..MountOptions::default()
        };
        assert_eq!(
            option_list(&options),
            "fsname=a\\,b\\\\c,subtype=glint,max_read=1048576,default_permissions,allow_other,\
             noexec"
        );
    }

    #[test]
    fn complaints_become_errors_of_their_own() {
        let point = Path::new("/nowhere");
        let of = |text| explain(point, text);
        let allow = "fusermount3: option allow_other only allowed if 'user_allow_other' is set \
                     in /etc/fuse.conf";
        assert!(matches!(of(allow), MountError::AllowOtherRefused));
        let busy = "fusermount3: failed to unmount /nowhere: Device or resource busy";
        assert!(matches!(of(busy), MountError::Busy { .. }));
        let missing = "fusermount3: entry for /nowhere not found in /etc/mtab";
        assert!(matches!(of(missing), MountError::NotMounted(_)));
        let of_others = explain(Path::new("/proc"), missing).to_string();
        assert!(of_others.contains("another user mounted it"), "{of_others}");
        let device = "fusermount3: failed to open /dev/fuse: Permission denied";
        assert!(matches!(of(device), MountError::DeviceRefused));
        let owner = "fusermount3: user has no write access to mountpoint /nowhere";
        let MountError::NotPermitted { reason, .. } = of(owner) else {
            panic!()
        };
        assert_eq!(reason, "user has no write access to mountpoint /nowhere");
    }
}
