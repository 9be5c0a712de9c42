//! A TUN device: IP packets of one network namespace as reads and writes of a file. With segmentation
//! offload, a read brings up to 64 KiB behind a 10-byte header (`struct virtio_net_hdr`), which is passed on
//! unread to the other end (Documentation/networking/tuntap.rst).
#![allow(unsafe_code)] // ioctl has no safe form.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::interface::{InterfaceRequest, name_of};
use crate::error::{BenchError, During, Result};

const DEVICE: &str = "/dev/net/tun";
/// Bytes of `struct virtio_net_hdr` before each packet.
const HEADER_BYTES: usize = 10;
/// Where `gso_type` and `gso_size` are in it.
const GSO_TYPE: usize = 1;
const GSO_SIZE: usize = 4;
/// IP and TCP headers with time stamps: what each packet cut from a segment repeats.
const REPEATED_HEADER_BYTES: u64 = 52;

/// From linux/if_tun.h; not in the libc crate.
const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;
const TUN_F_TSO_ECN: libc::c_uint = 0x08;

nix::ioctl_write_int_bad!(set_offload, libc::TUNSETOFFLOAD as libc::c_int);
nix::ioctl_readwrite_bad!(set_interface, libc::TUNSETIFF as libc::c_int, libc::ifreq);

/// An open device; it disappears when closed.
#[derive(Debug)]
pub(crate) struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Makes a device in the calling thread's network namespace. `name` may hold one `%d`, for which
    /// the kernel puts the first free number.
    pub(crate) fn create(name: &str) -> Result<Tun> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE)
            .map_err(unavailable)?;
        let mut request = InterfaceRequest::named(name);
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.set_flags(flags as libc::c_short);
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives in `request`.
        unsafe { set_interface(file.as_raw_fd(), request.as_mut_ptr()) }
            .map_err(|error| unavailable(error.into()))?;
        let tun = Tun {
            file,
            name: name_of(&request),
        };
        tun.offer_large_segments(true)?;
        Ok(tun)
    }

    /// The device's name in its namespace.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the kernel may hand over segments of many packets; open connections follow.
    pub(crate) fn offer_large_segments(&self, large: bool) -> Result<()> {
        let mut offload = TUN_F_CSUM;
        if large {
            offload |= TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        }
        // SAFETY: TUNSETOFFLOAD takes an integer.
        unsafe { set_offload(self.file.as_raw_fd(), offload as libc::c_int) }
            .during(|| format!("setting the offloads of {}", self.name))?;
        Ok(())
    }

    /// The next packet with its header, none if there is none now.
    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(room) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Hands a packet with its header to the kernel of this end.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What a segment is once it is cut for the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OnWire {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl OnWire {
    /// Of a packet with its header, as [`Tun::receive`] gives it.
    pub(crate) fn of(packet: &[u8]) -> OnWire {
        let bytes = packet.len().saturating_sub(HEADER_BYTES) as u64;
        let whole = OnWire { packets: 1, bytes };
        let Some(header) = packet.first_chunk::<HEADER_BYTES>() else {
            return whole;
        };
        let size = u64::from(u16::from_ne_bytes([header[GSO_SIZE], header[GSO_SIZE + 1]]));
        if header[GSO_TYPE] == 0 || size == 0 {
            return whole;
        }
        let payload = bytes.saturating_sub(REPEATED_HEADER_BYTES);
        let packets = payload.div_ceil(size).max(1);
        OnWire {
            packets,
            bytes: bytes + (packets - 1) * REPEATED_HEADER_BYTES,
        }
    }
}

fn unavailable(error: io::Error) -> BenchError {
    match error.kind() {
        ErrorKind::NotFound => BenchError::unavailable(
            format!("{DEVICE} is missing"),
            "load the tun module, or give the container the device",
        ),
        ErrorKind::PermissionDenied => BenchError::unavailable(
            format!("no permission to make a TUN device ({error})"),
            "run as root, or with CAP_NET_ADMIN",
        ),
        _ if error.raw_os_error() == Some(libc::ENODEV) => {
            BenchError::unavailable("this kernel has no TUN devices", "load the tun module")
        }
        _ => BenchError::Io {
            doing: "making a TUN device".into(),
            source: error,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_packets_of_a_segment() {
        let mut packet = vec![0u8; HEADER_BYTES + 52 + 3000];
        let plain = OnWire {
            packets: 1,
            bytes: 3052,
        };
        assert_eq!(OnWire::of(&packet), plain);
        packet[GSO_TYPE] = 1;
        packet[GSO_SIZE..][..2].copy_from_slice(&1448u16.to_ne_bytes());
        let cut = OnWire {
            packets: 3,
            bytes: 3052 + 2 * 52,
        };
        assert_eq!(OnWire::of(&packet), cut);
        assert_eq!(
            OnWire::of(&[0; 3]),
            OnWire {
                packets: 1,
                bytes: 0
            }
        );
    }
}
