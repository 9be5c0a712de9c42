//! Who listens on a port of this machine, for the message that says why we can't.

use std::fs;
use std::path::Path;

use rpc::{Address, StartError};

/// A listening socket in the kernel's tables (proc(5)).
const LISTENING: &str = "0A";

/// Why a server did not start, and what to do about it.
pub fn why_not_started(error: &StartError) -> String {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let mend = match (error.cause.kind(), &error.address) {
        (AddrInUse, Some(Address::Tcp(host))) => holder_of(host),
        (AddrInUse, _) => "another server listens there; end it, or choose another --listen".into(),
        (AddrNotAvailable, _) => "this machine does not have that address".into(),
        (PermissionDenied, Some(Address::Tcp(_))) if !error.to_string().contains("insecure") => {
            "ports below 1024 are root's; choose another".into()
        }
        _ => return error.to_string(),
    };
    format!("{error}; {mend}")
}

fn holder_of(host: &str) -> String {
    let port = host
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    let choose = "choose another port with --listen";
    match port.and_then(holder) {
        Some(Holder { pid, command }) => {
            format!("the port is held by pid {pid} ({command}): end it, or {choose}")
        }
        None => format!("the port is held by a process of another user or namespace; {choose}"),
    }
}

/// A process.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    pid: u32,
    command: String,
}

fn holder(port: u16) -> Option<Holder> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|table| listeners(&fs::read_to_string(table).unwrap_or_default(), port))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| has_socket(*pid, &inodes))?;
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder {
        pid,
        command: command.trim_end().to_owned(),
    })
}

/// Inode numbers of the sockets that listen on `port`, from a table of proc(5).
fn listeners(table: &str, port: u16) -> Vec<String> {
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = fields.get(1)?.rsplit_once(':')?.1;
        let matches =
            u16::from_str_radix(local, 16) == Ok(port) && fields.get(3) == Some(&LISTENING);
        matches.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn has_socket(pid: u32, inodes: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        let inode = target
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.iter().any(|listed| listed == inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_table_of_sockets() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                     uid  timeout inode\n\
                     0: 0100007F:1F34 00000000:0000 0A 00000000:00000000 00:00000000 00000000     \
                     0        0 4242 1 0 100 0 0 10 0\n\
                     1: 0100007F:1F34 0100007F:9999 01 00000000:00000000 00:00000000 00000000     \
                     0        0 4343 1 0 100 0 0 10 0\n";
        assert_eq!(listeners(table, 7988), ["4242"]);
        assert!(listeners(table, 7989).is_empty());
    }
}
