//! sshfs over a link: its own sshd at the server's end, its own keys, a mount at the client's end.
//!
//! Nothing of the person's ssh set-up is read or changed.

use std::fs::{self, File, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::link::Link;
use crate::mount_point::MountPoint;
use crate::process::{Running, output};
use crate::scratch::own_directory;
use crate::workload::{Cold, System};

const SSHD: &str = "/usr/sbin/sshd";
/// sshd insists on it, and leaves it empty.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";
/// Free in a namespace of our own; elsewhere far from the usual ones.
const PORT: u16 = 20_222;
/// The cipher that needs the least time on processors with AES instructions.
const CIPHER: &str = "aes128-gcm@openssh.com";
/// How long sshd and sshfs may take to be ready.
const READY_PATIENCE: Duration = Duration::from_secs(20);
const READY_TURN: Duration = Duration::from_millis(20);
const GRACE: Duration = Duration::from_secs(2);

/// A mounted sshfs and its server. Removed on drop, with all files.
#[derive(Debug)]
pub struct Sshfs<'a> {
    // Dropped in this order: the mount, the client, the server, the directory.
    point: MountPoint,
    client: Option<Running>,
    _server: Server,
    files: Files,
    link: &'a Link,
    stop: StopFlag,
}

/// Where everything is.
#[derive(Debug)]
struct Files {
    directory: TempDir,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl<'a> Sshfs<'a> {
    /// Needs root, sshfs and openssh-server. The served files are in a new directory in `base`, on the
    /// local disk.
    pub fn create(link: &'a Link, base: &Path, stop: &StopFlag) -> Result<Sshfs<'a>> {
        for (program, package) in [
            (SSHD, "openssh-server"),
            ("/usr/bin/sshfs", "sshfs"),
            ("/usr/bin/ssh-keygen", "openssh-client"),
        ] {
            if !Path::new(program).exists() {
                return Err(BenchError::unavailable(
                    format!("{program} is not installed"),
                    format!("apt-get install {package}"),
                ));
            }
        }
        let files = Files {
            directory: own_directory(base)?,
        };
        let doing = || "making the server's directory";
        fs::create_dir(files.path("served")).during(doing)?;
        make_keys(&files, link)?;
        let server = Server::start(&files, link, stop)?;
        let mut sshfs = Sshfs {
            point: MountPoint::create(files.path("mnt"))?,
            client: None,
            _server: server,
            files,
            link,
            stop: stop.clone(),
        };
        sshfs.mount()?;
        Ok(sshfs)
    }

    fn mount(&mut self) -> Result<()> {
        let client = Running::start_group(&mut self.command()?)?;
        let client = self.client.insert(client);
        // sshd writes its own.
        fs::write(self.files.path("sshfs.pid"), client.id().to_string())
            .during(|| "writing a file for sshfs's process id")?;
        let log = self.files.path("sshfs.log");
        let point = &self.point;
        ready("sshfs", client, &log, &self.stop, || point.is_mounted())
    }

    /// In the foreground, so that it is ours to end.
    fn command(&self) -> Result<Command> {
        let files = &self.files;
        let mut command = self.link.client().command("sshfs");
        let served = files.path("served");
        command
            .arg(format!(
                "root@{}:{}",
                self.link.server_address(),
                served.display()
            ))
            .arg(self.point.path())
            .args(["-f", "-p", &PORT.to_string(), "-F", "/dev/null"]);
        for option in [
            format!("IdentityFile={}", files.path("client_key").display()),
            format!("UserKnownHostsFile={}", files.path("known_hosts").display()),
            "GlobalKnownHostsFile=/dev/null".into(),
            "StrictHostKeyChecking=yes".into(),
            "IdentitiesOnly=yes".into(),
            "BatchMode=yes".into(),
            "ConnectTimeout=10".into(),
            format!("Ciphers={CIPHER}"),
        ] {
            command.arg("-o").arg(option);
        }
        let log = log(&files.path("sshfs.log"))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Ok(command)
    }

    fn unmount(&mut self) -> Result<()> {
        self.point.unmount()?;
        if let Some(mut client) = self.client.take() {
            client.terminate(GRACE)?;
        }
        Ok(())
    }
}

impl System for Sshfs<'_> {
    fn name(&self) -> &str {
        "sshfs"
    }

    fn root(&self) -> &Path {
        self.point.path()
    }

    fn make_cold(&mut self) -> Result<Cold> {
        self.unmount()?;
        self.mount()?;
        Ok(Cold::Done)
    }

    fn back_door(&self) -> Option<PathBuf> {
        Some(self.files.path("served"))
    }

    fn is_throwaway(&self) -> bool {
        true
    }
}

/// The running sshd.
#[derive(Debug)]
struct Server {
    _sshd: Running,
    _separation: Option<MountPoint>,
}

impl Server {
    fn start(files: &Files, link: &Link, stop: &StopFlag) -> Result<Server> {
        // Removed again if it was not there, and only if it is empty.
        let separation = match Path::new(PRIVILEGE_SEPARATION).exists() {
            true => None,
            false => Some(MountPoint::create(PRIVILEGE_SEPARATION.into())?),
        };
        let configuration = files.path("sshd_config");
        fs::write(&configuration, server_configuration(files, link))
            .during(|| format!("writing {}", configuration.display()))?;
        let log_path = files.path("sshd.log");
        let mut command = link.server().command(SSHD);
        command.args(["-D", "-e", "-f"]).arg(&configuration);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut sshd = Running::start_group(command.stderr(log(&log_path)?))?;
        let address = (link.server_address(), PORT);
        ready("sshd", &mut sshd, &log_path, stop, || {
            let connected = link.server().run(|| TcpStream::connect(address));
            matches!(connected, Ok(Ok(_)))
        })?;
        Ok(Server {
            _sshd: sshd,
            _separation: separation,
        })
    }
}

fn server_configuration(files: &Files, link: &Link) -> String {
    let host_key = files.path("host_key");
    let authorized = files.path("authorized_keys");
    format!(
        "ListenAddress {}\nPort {PORT}\nHostKey {}\nAuthorizedKeysFile {}\n\
         StrictModes no\nUsePAM no\nUseDNS no\nPidFile {}\n\
         PubkeyAuthentication yes\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
         AllowUsers root\nForceCommand internal-sftp\nSubsystem sftp internal-sftp\n",
        link.server_address(),
        host_key.display(),
        authorized.display(),
        files.path("sshd.pid").display()
    )
}

/// Makes a key for each side and tells the other side about it.
fn make_keys(files: &Files, link: &Link) -> Result<()> {
    for name in ["host_key", "client_key"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "glint-bench", "-f"]);
        output(keygen.arg(files.path(name)))?;
    }
    let public = |name: &str| {
        let path = files.path(name);
        fs::read_to_string(&path).during(|| format!("reading {}", path.display()))
    };
    let host = format!(
        "[{}]:{PORT} {}",
        link.server_address(),
        public("host_key.pub")?
    );
    for (name, content) in [
        ("known_hosts", host),
        ("authorized_keys", public("client_key.pub")?),
    ] {
        let path = files.path(name);
        fs::write(&path, content)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o600)))
            .during(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// A new, empty log.
fn log(path: &Path) -> Result<File> {
    File::create(path).during(|| format!("writing {}", path.display()))
}

/// Waits until a daemon is ready; its log is the reason if it ends instead.
fn ready(
    name: &str,
    daemon: &mut Running,
    log: &Path,
    stop: &StopFlag,
    is_ready: impl Fn() -> bool,
) -> Result<()> {
    let failed = |ending: &str| BenchError::Failed {
        program: name.into(),
        ending: ending.into(),
        said: fs::read_to_string(log)
            .unwrap_or_default()
            .trim()
            .to_string(),
    };
    let start = Instant::now();
    while start.elapsed() < READY_PATIENCE {
        stop.check()?;
        if is_ready() {
            return Ok(());
        }
        if daemon.ended_within(READY_TURN)? {
            daemon.reap()?;
            return Err(failed("ended at once"));
        }
    }
    Err(failed("was not ready in time"))
}
