//! Accepting connections.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, Shutdown, SockFlag, SockType, UnixAddr};
use nix::sys::stat::{SFlag, lstat};

use super::carrier::Transport;
use super::mem::MemPort;
use super::socket::{Socket, check_loopback};
use crate::address::Address;

/// Something that connections come to.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        path: PathBuf,
        /// Of the socket, which may be replaced while it is listened on.
        identity: (u64, u64),
    },
    Mem(Arc<MemPort>),
}

impl Listener {
    /// Listens on `address`; beyond loopback only if `insecure` was said.
    pub(crate) fn bind(address: &Address, insecure: bool) -> io::Result<Listener> {
        match address {
            Address::Tcp(host) => {
                let addresses: Vec<_> = host.to_socket_addrs()?.collect();
                for address in &addresses {
                    check_loopback(address, insecure)?;
                }
                Ok(Listener::Tcp(TcpListener::bind(&*addresses)?))
            }
            Address::Unix(path) => Ok(Listener::Unix {
                listener: bind_unix(path)?,
                path: path.clone(),
                identity: identity(path)?,
            }),
            Address::Mem(port) => {
                port.listen()?;
                Ok(Listener::Mem(port.clone()))
            }
            Address::Delayed(..) => {
                let text = "an emulated link is for connecting, not for listening";
                Err(io::Error::new(ErrorKind::InvalidInput, text))
            }
        }
    }

    /// Where it really listens: the port chosen, if none was given.
    pub(crate) fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Listener::Tcp(listener) => Address::Tcp(listener.local_addr()?.to_string()),
            Listener::Unix { path, .. } => Address::Unix(path.clone()),
            Listener::Mem(port) => Address::Mem(port.clone()),
        })
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> io::Result<Arc<dyn Transport>> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Ok(Arc::new(Socket::tcp(stream, peer)?))
            }
            Listener::Unix { listener, path, .. } => {
                let (stream, _) = listener.accept()?;
                Ok(Arc::new(Socket::unix(stream, path)?))
            }
            Listener::Mem(port) => Ok(Arc::new(port.accept()?)),
        }
    }

    /// Stops listening; `accept` returns an error from now on.
    pub(crate) fn close(&self) {
        match self {
            // On Linux, shutting a listening socket down wakes the thread that waits in accept. An
            // error means that it was shut down before.
            Listener::Tcp(listener) => {
                let _ = socket::shutdown(listener.as_raw_fd(), Shutdown::Both);
            }
            Listener::Unix {
                listener,
                path,
                identity: bound,
            } => {
                let _ = socket::shutdown(listener.as_raw_fd(), Shutdown::Both);
                if identity(path).is_ok_and(|found| found == *bound) {
                    let _ = nix::unistd::unlink(path);
                }
            }
            Listener::Mem(port) => port.close(),
        }
    }
}

/// Binds `path`. A socket that a dead server left there is replaced, and nothing else.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            if SFlag::S_IFMT.bits() & lstat(path)?.st_mode != SFlag::S_IFSOCK.bits() {
                let text = "a file that is not a socket is there; remove it, or listen elsewhere";
                return Err(io::Error::new(ErrorKind::AlreadyExists, text));
            }
            match has_listener(path) {
                true => Err(error),
                false => {
                    nix::unistd::unlink(path)?;
                    UnixListener::bind(path)
                }
            }
        }
        other => other,
    }
}

/// A process listens there, or may. One whose queue is full is not waited for.
fn has_listener(path: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let connected = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .and_then(|fd| socket::connect(fd.as_raw_fd(), &UnixAddr::new(path)?));
    connected != Err(Errno::ECONNREFUSED)
}

/// The file that a path leads to: its device and inode number.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = lstat(path)?;
    Ok((found.st_dev, found.st_ino))
}
