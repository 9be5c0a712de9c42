//! Network interfaces: name, address, size of packets, up; in the calling thread's namespace
//! (netdevice(7)).
#![allow(unsafe_code)] // ioctl and the unions of struct ifreq have no safe form.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

use crate::error::{During, Result};

nix::ioctl_read_bad!(set_address, libc::SIOCSIFADDR as libc::c_int, libc::ifreq);
nix::ioctl_read_bad!(set_mask, libc::SIOCSIFNETMASK as libc::c_int, libc::ifreq);
nix::ioctl_read_bad!(set_mtu, libc::SIOCSIFMTU as libc::c_int, libc::ifreq);
nix::ioctl_read_bad!(get_flags, libc::SIOCGIFFLAGS as libc::c_int, libc::ifreq);
nix::ioctl_read_bad!(set_flags, libc::SIOCSIFFLAGS as libc::c_int, libc::ifreq);

/// A `struct ifreq`: an interface's name and one value for or from the kernel.
pub(crate) struct InterfaceRequest(libc::ifreq);

impl InterfaceRequest {
    /// Names longer than the kernel's 15 bytes are cut.
    pub(crate) fn named(name: &str) -> InterfaceRequest {
        // SAFETY: ifreq is plain data for which all zeroes is a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1]
            .iter_mut()
            .zip(name.bytes())
        {
            *to = from as libc::c_char;
        }
        InterfaceRequest(request)
    }

    pub(crate) fn set_flags(&mut self, flags: libc::c_short) {
        self.0.ifr_ifru.ifru_flags = flags;
    }

    fn flags(&self) -> libc::c_short {
        // SAFETY: every bit pattern is a valid c_short, and all of the union is initialised.
        unsafe { self.0.ifr_ifru.ifru_flags }
    }

    fn set_address(&mut self, address: Ipv4Addr) {
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr {
                s_addr: u32::from_ne_bytes(address.octets()),
            },
            sin_zero: [0; 8],
        };
        // SAFETY: sockaddr_in and sockaddr are plain data of the same size, and sockaddr_in is what
        // the kernel reads for AF_INET.
        self.0.ifr_ifru.ifru_addr =
            unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(address) };
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::ifreq {
        &mut self.0
    }
}

/// The name in a request, which the kernel may have chosen.
pub(crate) fn name_of(request: &InterfaceRequest) -> String {
    let bytes = request.0.ifr_name.iter().map(|&byte| byte as u8);
    String::from_utf8_lossy(&bytes.take_while(|&byte| byte != 0).collect::<Vec<u8>>()).into_owned()
}

/// Gives an interface its address in a network of four, its packet size, and brings it up.
pub(crate) fn configure(name: &str, address: Ipv4Addr, mtu: u16) -> Result<()> {
    quiet(name);
    let socket = handle()?;
    let fd = socket.as_raw_fd();
    let mut request = InterfaceRequest::named(name);
    request.set_address(address);
    // SAFETY: here and below, the request lives through the call, which reads or writes one ifreq.
    unsafe { set_address(fd, request.as_mut_ptr()) }
        .during(|| format!("giving {name} the address {address}"))?;
    request.set_address(Ipv4Addr::new(255, 255, 255, 252));
    // SAFETY: as above.
    unsafe { set_mask(fd, request.as_mut_ptr()) }
        .during(|| format!("giving {name} its network"))?;
    let mut request = InterfaceRequest::named(name);
    request.0.ifr_ifru.ifru_mtu = libc::c_int::from(mtu);
    // SAFETY: as above.
    unsafe { set_mtu(fd, request.as_mut_ptr()) }
        .during(|| format!("setting the packet size of {name} to {mtu}"))?;
    bring_up(name)
}

/// Brings an interface up.
pub(crate) fn bring_up(name: &str) -> Result<()> {
    let socket = handle()?;
    let fd = socket.as_raw_fd();
    let mut request = InterfaceRequest::named(name);
    // SAFETY: the request lives through the call, which fills in its flags.
    unsafe { get_flags(fd, request.as_mut_ptr()) }.during(|| format!("looking at {name}"))?;
    request.set_flags(request.flags() | libc::IFF_UP as libc::c_short);
    // SAFETY: the request lives through the call, which reads its flags.
    unsafe { set_flags(fd, request.as_mut_ptr()) }.during(|| format!("bringing {name} up"))?;
    Ok(())
}

/// Without IPv6 an idle link carries no packets at all. Where the switch is missing, so is IPv6.
fn quiet(name: &str) {
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
}

/// Any socket of the namespace will do to speak about its interfaces.
fn handle() -> Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).during(|| "opening a socket")
}
