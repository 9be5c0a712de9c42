//! Mounting and unmounting by system call, as root.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};

use super::error::MountError;
use super::options::{MountOptions, Unmount};
use super::table::DeviceNumber;
use super::users::users;
use crate::kernel::device::Device;

/// A directory's bits in st_mode, octal.
const ROOT_MODE: &str = "40000";

pub(super) fn mount(point: &Path, options: &MountOptions) -> Result<Device, MountError> {
    let device = open_device()?;
    mount_on(point, options, &device)?;
    Ok(device)
}

pub(super) fn mount_on(
    point: &Path,
    options: &MountOptions,
    device: &Device,
) -> Result<(), MountError> {
    let kind = format!("fuse.{}", options.subtype);
    let data = data(device, options);
    let flags = flags(options);
    let source = Some(options.source.as_str());
    nix::mount::mount(
        source,
        point,
        Some(kind.as_str()),
        flags,
        Some(data.as_str()),
    )
    .map_err(|errno| match errno {
        Errno::ENODEV => MountError::NoKernelSupport,
        Errno::EPERM | Errno::EACCES => not_permitted(point, errno),
        _ => failed("mount on", point, errno),
    })
}

fn open_device() -> Result<Device, MountError> {
    Device::open().map_err(explain_open)
}

fn explain_open(error: io::Error) -> MountError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => MountError::NoDevice,
        // The node is there, the driver is not.
        Some(libc::ENODEV | libc::ENXIO) => MountError::NoKernelSupport,
        Some(libc::EACCES | libc::EPERM) => MountError::DeviceRefused,
        _ => MountError::Io {
            what: "open",
            path: "/dev/fuse".into(),
            error,
        },
    }
}

fn data(device: &Device, options: &MountOptions) -> String {
    let fd = device.as_fd().as_raw_fd();
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    let mut data = format!(
        "fd={fd},rootmode={ROOT_MODE},user_id={uid},group_id={gid},max_read={}",
        options.max_read
    );
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    data
}

fn flags(options: &MountOptions) -> MsFlags {
    let chosen = [
        (options.read_only, MsFlags::MS_RDONLY),
        (!options.setuid, MsFlags::MS_NOSUID),
        (!options.devices, MsFlags::MS_NODEV),
        (!options.exec, MsFlags::MS_NOEXEC),
        (!options.access_times, MsFlags::MS_NOATIME),
    ];
    chosen
        .iter()
        .filter(|(set, _)| *set)
        .map(|(_, flag)| *flag)
        .collect()
}

pub(super) fn remount(point: &Path, options: &MountOptions) -> Result<(), MountError> {
    let mut flags = flags(options) | MsFlags::MS_REMOUNT;
    if options.access_times {
        // Said aloud: without any word on them they stay as they are.
        flags |= MsFlags::MS_RELATIME;
    }
    let nothing = None::<&str>;
    nix::mount::mount(nothing, point, nothing, flags, nothing).map_err(|errno| match errno {
        Errno::EPERM | Errno::EACCES => not_permitted(point, errno),
        _ => failed("change the mount on", point, errno),
    })
}

pub(super) fn unmount(point: &Path, how: Unmount) -> Result<(), MountError> {
    let flags = match how {
        Unmount::Clean => MntFlags::UMOUNT_NOFOLLOW,
        Unmount::Lazy | Unmount::Abort => MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH,
    };
    nix::mount::umount2(point, flags).map_err(|errno| match errno {
        Errno::EBUSY => MountError::Busy {
            point: point.into(),
            users: users(point),
        },
        Errno::EPERM | Errno::EACCES => not_permitted(point, errno),
        Errno::EINVAL => MountError::NotMounted(point.into()),
        _ => failed("unmount", point, errno),
    })
}

/// Ends the connection: requests fail, readers see the mount as gone.
///
/// The control file belongs to who mounted, where the control file system is mounted; else it
/// takes a forced unmount, which aborts first whether or not it then succeeds.
pub(super) fn abort(point: &Path, number: DeviceNumber) -> Result<(), MountError> {
    if abort_connection(number.minor).is_ok() {
        return Ok(());
    }
    match nix::mount::umount2(point, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_FORCE) {
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(errno @ (Errno::EPERM | Errno::EACCES)) => Err(not_permitted(point, errno)),
        Err(errno) => Err(failed("abort", point, errno)),
    }
}

/// The same where the control file system is mounted.
pub(super) fn abort_connection(number: u32) -> io::Result<()> {
    std::fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1")
}

fn not_permitted(point: &Path, errno: Errno) -> MountError {
    MountError::NotPermitted {
        point: point.into(),
        reason: errno.desc().into(),
    }
}

fn failed(what: &'static str, point: &Path, errno: Errno) -> MountError {
    MountError::Io {
        what,
        path: point.into(),
        error: io::Error::from(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_opened_says_why() {
        let of = |number| explain_open(io::Error::from_raw_os_error(number));
        assert!(matches!(of(libc::ENOENT), MountError::NoDevice));
        assert!(matches!(of(libc::ENODEV), MountError::NoKernelSupport));
        assert!(matches!(of(libc::EACCES), MountError::DeviceRefused));
        assert!(of(libc::ENOENT).to_string().contains("modprobe fuse"));
        assert!(
            of(libc::EMFILE)
                .to_string()
                .starts_with("cannot open /dev/fuse: ")
        );
    }
}
