//! Where control sockets are, and whose.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use fuse::kernel::Mount;
use fuse::kernel::mount::{MountEntry, MountError, mounts, resolve};
use nix::unistd::{Uid, User, geteuid};

use super::listening::{listened_at, listens};
use super::{Answer, Question, ask_all, identity};
use crate::output::shown;

/// What to do with a mount whose process has ended.
const REVIVAL: &str = "glint umount takes it off, and glint mount at its place does too, and mounts \
                       anew";
/// How long it is looked where a process may stand still.
const LOOKED_MAX: Duration = Duration::from_secs(1);
/// What the names of servers' sockets begin with.
const SERVER: &str = "serve-";
/// And those of mounts' processes.
const MOUNT: &str = "mount-";

/// Somebody to ask.
#[derive(Debug)]
pub struct Endpoint {
    /// Who it is, for people.
    pub name: String,
    /// The mount point, the directory that is served, or, where that is not known, the socket.
    pub at: PathBuf,
    pub(super) socket: PathBuf,
    /// Whose process it must be, if not root's.
    pub(super) owner: Uid,
}

/// Where the sockets of a user's processes may be, best first. One per mount, named by its device
/// number, and one per directory that is served, named by where it is stored. Only what belongs to
/// the user counts, so that nobody locks somebody out who takes the name of a directory in /tmp
/// first.
fn directories_of(user: Uid) -> Vec<PathBuf> {
    if user.is_root() {
        return vec![PathBuf::from("/run/glint")];
    }
    let session = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if user == geteuid() && !dir.is_empty() => Some(PathBuf::from(dir)),
        _ => None,
    };
    let of_system = PathBuf::from(format!("/run/user/{user}"));
    let parents = session.into_iter().chain([of_system]);
    let parents = parents.filter(|dir| dir.is_absolute() && is_owned(dir, user));
    let mut all: Vec<PathBuf> = parents.map(|dir| dir.join("glint")).collect();
    // One that is empty, or told from where this process stands, is another's nowhere.
    let temporary = Some(std::env::temp_dir()).filter(|dir| dir.is_absolute());
    let temporary = temporary.unwrap_or_else(|| PathBuf::from("/tmp"));
    all.push(temporary.join(format!("glint-{user}")));
    let home = User::from_uid(user).ok().flatten().map(|user| user.dir);
    all.extend(home.map(|home| home.join(".cache/glint")));
    all.dedup();
    all
}

fn is_owned(dir: &Path, user: Uid) -> bool {
    let found = std::fs::symlink_metadata(dir);
    found.is_ok_and(|found| found.is_dir() && found.uid() == user.as_raw())
}

/// Where sockets of a user's processes are, best first: also where another environment has put them, as
/// that of a login has. There the kernel's list of sockets leads. Only what belongs to the user counts.
fn directories_in_use(user: Uid) -> Vec<PathBuf> {
    let mut all = directories_of(user);
    all.retain(|dir| is_owned(dir, user));
    for dir in looked(move || directories_listened_in(user)).unwrap_or_default() {
        if !all.contains(&dir) {
            all.push(dir);
        }
    }
    all
}

/// The directories where processes listen at sockets that are named as this program names them.
fn directories_listened_in(user: Uid) -> Vec<PathBuf> {
    let own_name = format!("glint-{user}");
    let directory = |socket: PathBuf| {
        let is_ours = is_socket_name(&socket.file_name()?.to_string_lossy());
        let dir = socket.parent().filter(|_| is_ours)?;
        let name = dir.file_name()?;
        (name == "glint" || *name == *own_name).then(|| dir.to_owned())
    };
    let listened = listened_at().into_iter().filter_map(directory);
    listened.filter(|dir| is_owned(dir, user)).collect()
}

/// `123:4.sock` of a mount, and those of processes and servers.
fn is_socket_name(name: &str) -> bool {
    let of_mount = |name: &str| name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b':'));
    let stem = name.split('.').next().unwrap_or_default();
    name.ends_with(".sock")
        && (of_mount(stem) || stem.starts_with(SERVER) || stem.starts_with(MOUNT))
}

/// What `look` finds, if it does so in time: it waits where the process of a file system stands still. Then
/// it stays behind; this program soon ends.
fn looked<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || said.send(look()));
    heard.recv_timeout(LOOKED_MAX).ok()
}

/// This user's directory for sockets; made if it is not there. Nobody else sees what is in it; that of
/// root others may pass through, to the sockets of mounts that are for everybody.
pub fn directory() -> Result<PathBuf, String> {
    let mut refused = Vec::new();
    for path in directories_of(geteuid()) {
        match made_private(path) {
            Ok(path) => return Ok(path),
            Err(reason) => refused.push(reason),
        }
    }
    Err(refused.join("; "))
}

/// The directory, made if it is not there, and open to nobody but this user.
pub fn made_private(path: PathBuf) -> Result<PathBuf, String> {
    let user = geteuid();
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(&path).map_err(failed)?;
    let found = std::fs::symlink_metadata(&path).map_err(failed)?;
    if !found.is_dir() || found.uid() != user.as_raw() {
        return Err(format!(
            "{} belongs to another user; remove it",
            path.display()
        ));
    }
    let mode = match user.is_root() {
        true => 0o711,
        false => 0o700,
    };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    Ok(path)
}

fn socket_in(directory: &Path, major: u32, minor: u32) -> PathBuf {
    directory.join(format!("{major}:{minor}.sock"))
}

fn socket_in_dir_of(directory: &Path, stored: &std::fs::Metadata) -> PathBuf {
    directory.join(format!("{SERVER}{:x}-{}.sock", stored.dev(), stored.ino()))
}

/// Where other users ask the process that listens at `own`, if they may. At `own` its user and root may ask
/// everything; here others may ask a mount that is for everybody what it tells everybody.
pub(super) fn public(own: &Path) -> PathBuf {
    own.with_extension("public.sock")
}

/// A process of `owner` belongs to another user, and need not answer this one.
pub(super) fn is_of_others(owner: Uid) -> bool {
    let me = geteuid();
    !me.is_root() && me != owner
}

/// Where this process answers for what it mounts.
pub fn path_for_mount(mount: &Mount) -> Result<PathBuf, String> {
    let number = mount.number().ok_or("the mount is gone already")?;
    Ok(socket_in(&directory()?, number.major, number.minor))
}

/// Where it does once the mount is off too, when another mount may have its device number.
pub fn path_for_process() -> Result<PathBuf, String> {
    Ok(directory()?.join(socket_name_of(std::process::id())))
}

fn socket_name_of(pid: u32) -> String {
    format!("{MOUNT}{pid}.sock")
}

/// Where this process answers for the targets of `dir`.
pub fn path_for_dir(dir: &Path) -> Result<PathBuf, String> {
    let found = std::fs::metadata(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(socket_in_dir_of(&directory()?, &found))
}

/// Where a process of `user` may have a socket.
fn sockets_of(user: Uid, socket: impl Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
    let owned = directories_in_use(user).into_iter();
    owned.map(|dir| socket(&dir)).collect()
}

/// The one of them where a process listens, or else one that is left of a process. Of a process of
/// another boot, or another directory, a socket of the same name may be left.
fn living(all: &[PathBuf]) -> Option<PathBuf> {
    let living = all.iter().find(|socket| listens(socket));
    let left = || all.iter().find(|socket| socket.exists());
    living.or_else(left).or(all.first()).cloned()
}

/// All that is in this user's directories.
fn own_entries() -> impl Iterator<Item = std::fs::DirEntry> {
    let owned = directories_in_use(geteuid()).into_iter();
    let listed = owned.filter_map(|dir| std::fs::read_dir(dir).ok());
    listed.flat_map(|listed| listed.flatten())
}

/// The processes that have mounted something as this user, and the sockets that are named by them.
fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    own_entries().filter_map(|entry| {
        let name = entry.file_name();
        let pid = name.to_str()?.strip_prefix(MOUNT)?.strip_suffix(".sock")?;
        Some((pid.parse().ok()?, entry.path()))
    })
}

impl Endpoint {
    /// The mount at (or above) `path`.
    pub fn of_mount(path: &Path) -> Result<Endpoint, String> {
        // The point itself is not touched: its process may stand still.
        let point = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let listed = listed()?
            .into_iter()
            .rev()
            .find(|mount| mount.point == point);
        let entry = match listed {
            Some(entry) => entry,
            None => mount_of(path)?.entry,
        };
        Ok(Endpoint::at(path, &entry))
    }

    fn at(point: &Path, entry: &MountEntry) -> Endpoint {
        let (owner, number) = (Uid::from_raw(entry.user.unwrap_or_default()), entry.number);
        // Elsewhere the number may be of an earlier mount, of another user.
        let socket = |dir: &Path| {
            let own = socket_in(dir, number.major, number.minor);
            match is_of_others(owner) {
                true => public(&own),
                false => own,
            }
        };
        let nowhere = || socket(&directories_of(owner)[0]);
        let socket = living(&sockets_of(owner, socket)).unwrap_or_else(nowhere);
        let name = format!("the mount at {}", shown(&point.to_string_lossy()));
        let at = point.to_owned();
        Endpoint {
            name,
            at,
            socket,
            owner,
        }
    }

    /// The process that serves the targets in `dir`.
    pub fn of_dir(dir: &Path) -> Result<Endpoint, String> {
        let found =
            std::fs::metadata(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let owner = Uid::from_raw(found.uid());
        let socket = |dir: &Path| socket_in_dir_of(dir, &found);
        let mut all = sockets_of(geteuid(), socket);
        if owner != geteuid() {
            all.extend(sockets_of(owner, socket));
        }
        let nowhere = || socket(&directories_of(geteuid())[0]);
        let socket = living(&all).unwrap_or_else(nowhere);
        let mut own = directories_in_use(geteuid()).into_iter();
        let owner = match own.any(|dir| socket.starts_with(dir)) {
            true => geteuid(),
            false => owner,
        };
        let name = format!("the server of {}", shown(&dir.to_string_lossy()));
        let at = dir.to_owned();
        let endpoint = Endpoint {
            name,
            at,
            socket,
            owner,
        };
        match endpoint.is_there() {
            true => Ok(endpoint),
            false => Err(format!(
                "no server of this user has {} on this machine; start it with glint serve",
                dir.display()
            )),
        }
    }

    /// Why nobody listens there, and what to do. Only of a mount whose process is known to have ended it is
    /// said that it may be taken off.
    pub(super) fn why_silent(&self) -> String {
        let name = self.socket.file_name().unwrap_or_default();
        if name.to_string_lossy().starts_with(SERVER) {
            return "its process has died; start it again with glint serve".to_owned();
        }
        if is_dead(&self.at) {
            return format!("its process has died; {REVIVAL}");
        }
        let looked = directories_of(self.owner).into_iter();
        let looked: Vec<String> = looked.map(|dir| shown(&dir.to_string_lossy())).collect();
        format!(
            "its process cannot be found, and may live: no socket of it is in {}, nor among those that \
             /proc/net/unix lists; a process in another network namespace is asked from there",
            looked.join(", ")
        )
    }

    /// The process of a mount of this user's at `point` that is off, and that has yet to end.
    pub fn of_ending(point: &Path) -> Option<Endpoint> {
        let point = std::path::absolute(point).ok()?;
        let all = processes().map(|(_, socket)| {
            let name = format!("the process of the mount at {}", point.display());
            let at = point.clone();
            Endpoint {
                name,
                at,
                socket,
                owner: geteuid(),
            }
        });
        let all: Vec<Endpoint> = all.filter(Endpoint::is_there).collect();
        let answers = ask_all(&all, &Question::Status);
        let is_it = |answer: &Result<Answer, String>| match answer {
            Ok(Answer::Status(status)) => status.ending && status.mounted_at == point,
            _ => false,
        };
        let mut asked = all.into_iter().zip(answers);
        asked.find_map(|(endpoint, answer)| is_it(&answer).then_some(endpoint))
    }

    /// The process that listens there, as another name of its socket says, though it may not answer.
    /// None: nobody listens, or it is no mount of this user's.
    pub fn process(&self) -> Option<u32> {
        let found = identity(&self.socket).filter(|_| self.is_there())?;
        processes().find_map(|(pid, socket)| (identity(&socket) == Some(found)).then_some(pid))
    }

    /// The same process by its own name, which stays its own when the mount is off and another one has
    /// the device number.
    pub fn of_process(&self, pid: u32) -> Endpoint {
        Endpoint {
            name: self.name.clone(),
            at: self.at.clone(),
            socket: self.socket.with_file_name(socket_name_of(pid)),
            owner: self.owner,
        }
    }

    /// Every mount of this machine, and every server of this user. A process that both serves and
    /// mounts, or serves several directories, is there once.
    pub fn all() -> Result<Vec<Endpoint>, String> {
        let mounts = listed()?.into_iter();
        let mut all: Vec<Endpoint> = mounts
            .map(|entry| Endpoint::at(&entry.point, &entry))
            .collect();
        let mut seen: Vec<_> = all.iter().map(|mount| identity(&mount.socket)).collect();
        for entry in own_entries() {
            let is_server = entry.file_name().to_string_lossy().starts_with(SERVER);
            let (socket, found) = (entry.path(), identity(&entry.path()));
            let server = Endpoint {
                name: format!("the server at {}", shown(&socket.to_string_lossy())),
                at: socket.clone(),
                socket,
                owner: geteuid(),
            };
            // Of a server that was killed the socket stays.
            if is_server && !seen.contains(&found) && server.is_there() {
                seen.push(found);
                all.push(server);
            }
        }
        Ok(all)
    }
}

/// The process of the mount at `point` has ended, as far as this user is told. One that stands still has not.
fn is_dead(point: &Path) -> bool {
    let point = point.to_owned();
    let found = looked(move || rustix::fs::statfs(&point));
    found.is_some_and(|found| found.is_err_and(|error| error == rustix::io::Errno::NOTCONN))
}

/// The Glint mount that a path is on.
pub struct OnMount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// The path, seen from there.
    pub inside: PathBuf,
    entry: MountEntry,
}

/// Which mount the file is on that a path leads to.
pub fn mount_of(path: &Path) -> Result<OnMount, String> {
    mount_with(path, resolved(path)?)
}

/// Which mount the very file is on that has this path, though it be a symbolic link.
pub fn mount_of_entry(path: &Path) -> Result<OnMount, String> {
    let (Some(name), false) = (path.file_name(), ends_in_slash(path)) else {
        return mount_of(path);
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    mount_with(path, resolved(parent)?.join(name))
}

/// It means the directory that it leads to.
fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

fn resolved(path: &Path) -> Result<PathBuf, String> {
    resolve(path).map_err(|error| match error {
        MountError::Io { error, .. } if error.kind() == ErrorKind::NotConnected => format!(
            "the mount at {} is dead: its process has ended; {REVIVAL}",
            shown(&path.to_string_lossy())
        ),
        other => other.to_string(),
    })
}

fn mount_with(path: &Path, resolved: PathBuf) -> Result<OnMount, String> {
    let all = mounts().map_err(|error| error.to_string())?;
    let ours = all
        .into_iter()
        .filter(|mount| resolved.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.as_os_str().len())
        .filter(|mount| mount.kind == "fuse.glint")
        .ok_or_else(|| format!("{} is not on a Glint mount", path.display()))?;
    let inside = resolved
        .strip_prefix(&ours.point)
        .unwrap_or(&resolved)
        .to_owned();
    Ok(OnMount {
        point: ours.point.clone(),
        inside,
        entry: ours,
    })
}

/// Every Glint mount on this machine.
fn listed() -> Result<Vec<MountEntry>, String> {
    let all = mounts().map_err(|error| error.to_string())?;
    let ours = all.into_iter().filter(|mount| mount.kind == "fuse.glint");
    Ok(ours.collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_is_found_where_another_environment_has_put_it() {
        let session = tempfile::tempdir().unwrap();
        let directory = session.path().join("glint");
        let socket = |dir: &Path| socket_in(dir, 4_000_000, 7);
        let before = living(&sockets_of(geteuid(), socket));
        std::fs::create_dir(&directory).unwrap();
        let _listener = UnixListener::bind(socket(&directory)).unwrap();
        let found = living(&sockets_of(geteuid(), socket));
        assert_eq!(found, Some(socket(&directory)));
        assert_ne!(before, found);
        // It counts for its owner only.
        let other = Uid::from_raw(geteuid().as_raw() + 1);
        assert!(!sockets_of(other, socket).contains(&socket(&directory)));
    }

    #[test]
    fn of_a_mount_whose_process_is_not_found_it_is_not_said_that_it_has_died() {
        let endpoint = Endpoint {
            name: "the mount at /".into(),
            at: "/".into(),
            socket: "/nowhere/4000000:7.sock".into(),
            owner: geteuid(),
        };
        let error = endpoint.ask(&Question::Status).unwrap_err();
        assert!(error.contains("cannot be found"), "{error}");
        assert!(
            !error.contains("died") && !error.contains("umount"),
            "{error}"
        );
    }
}
