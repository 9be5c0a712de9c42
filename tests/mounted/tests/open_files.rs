//! Files that are open or mapped on one mount, and directories that processes work in, while another mount
//! changes them.
// SEMANTICS: op.unlink, op.rename, op.rmdir, op.open, op.mmap, op.create, cache.side_effects, cache.pages

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mounted::{Cluster, Mapping, own_descriptors};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

fn text(file: &File) -> String {
    let mut bytes = vec![0; 100];
    let len = file.read_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

#[test]
fn a_file_removed_elsewhere_stays_usable_where_it_is_open() {
    let cluster = Cluster::with_mounts(2);
    for (number, holder) in [(0, 0), (1, 1)] {
        cluster.timed("unlink of an open file", || {
            let path = cluster.root(holder).join(format!("file{number}"));
            let other = cluster.root(1 - holder).join(format!("file{number}"));
            fs::write(&other, "before").unwrap();
            let file = open(&path);
            assert_eq!(text(&file), "before");
            fs::remove_file(&other).unwrap();
            assert!(!path.exists());
            assert_eq!(text(&file), "before");
            assert_eq!(file.metadata().unwrap().nlink(), 0);
            file.write_all_at(b"AFTER", 6).unwrap();
            file.sync_all().unwrap();
            assert_eq!(text(&file), "beforeAFTER");
            file.set_len(3).unwrap();
            assert_eq!(text(&file), "bef");
        });
    }
}

/// What tells this mount that a name goes is the lock on the directory, which nobody has while many
/// change that.
#[test]
fn a_file_removed_from_a_contested_directory_stays_usable_where_it_is_open() {
    let mut cluster = Cluster::with_mounts(2);
    let maker = cluster.mount();
    fs::create_dir(cluster.root(maker).join("dir")).unwrap();
    fs::write(cluster.root(maker).join("dir/file"), "before").unwrap();
    cluster.unmount(maker);
    cluster.timed("unlink of an open file", || {
        let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("dir"));
        assert_eq!(fs::read_dir(&here).unwrap().count(), 1);
        let file = File::open(here.join("file")).unwrap();
        for number in 0..60 {
            fs::write(there.join(format!("other{number}")), "").unwrap();
            assert_eq!(fs::read_dir(&here).unwrap().count(), number + 2);
        }
        fs::remove_file(there.join("file")).unwrap();
        assert!(!here.join("file").exists());
        assert_eq!(text(&file), "before");
    });
}

/// The lock on its new directory is not this mount's: nothing tells it there that the name goes.
#[test]
fn a_file_that_is_moved_and_then_removed_elsewhere_stays_usable_where_it_is_open() {
    let mut cluster = Cluster::with_mounts(2);
    let maker = cluster.mount();
    let modes = [
        RenameFlags::empty(),
        RenameFlags::NOREPLACE,
        RenameFlags::EXCHANGE,
    ];
    for (number, mode) in modes.into_iter().enumerate() {
        let dir = cluster.root(maker).join(format!("dir{number}"));
        for name in ["from", "to"] {
            fs::create_dir_all(dir.join(name)).unwrap();
            fs::write(dir.join(name).join("moved"), name).unwrap();
        }
        if mode != RenameFlags::EXCHANGE {
            fs::remove_file(dir.join("to/moved")).unwrap();
        }
    }
    cluster.unmount(maker);
    for (number, mode) in modes.into_iter().enumerate() {
        cluster.timed("a file that goes", || {
            let [here, there] =
                [0, 1].map(|mount| cluster.root(mount).join(format!("dir{number}")));
            assert_eq!(fs::read_dir(here.join("from")).unwrap().count(), 1);
            let (from, to) = (here.join("from/moved"), here.join("to/moved"));
            // Nobody has the lock on a directory that many change.
            for number in 0..60 {
                fs::write(there.join(format!("to/other{number}")), "").unwrap();
                let seen = fs::read_dir(here.join("to")).unwrap().count();
                assert_eq!(seen, number + 1 + usize::from(to.exists()));
            }
            let file = File::open(&from).unwrap();
            rustix::fs::renameat_with(CWD, &from, CWD, &to, mode).unwrap();
            fs::remove_file(there.join("to/moved")).unwrap();
            assert_eq!(text(&file), "from", "{mode:?}");
            assert_eq!(file.metadata().unwrap().nlink(), 0);
        });
    }
}

#[test]
fn a_file_replaced_elsewhere_stays_usable_where_it_is_open() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("rename over an open file", || {
        let (a, b) = (cluster.root(0), cluster.root(1));
        fs::write(a.join("old"), "old").unwrap();
        let file = open(&a.join("old"));
        assert_eq!(text(&file), "old");
        fs::write(b.join("new"), "new").unwrap();
        fs::rename(b.join("new"), b.join("old")).unwrap();
        assert_eq!(fs::read_to_string(a.join("old")).unwrap(), "new");
        assert_eq!(text(&file), "old");
        file.write_all_at(b"OLD!", 0).unwrap();
        assert_eq!(text(&file), "OLD!");
        assert_eq!(fs::read_to_string(b.join("old")).unwrap(), "new");
        assert!(!a.join("new").exists());
    });
}

/// A shell that works in `dir` and runs what it is told.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn start(dir: &Path) -> Shell {
        let mut child = Command::new("sh")
            .args([
                "-c",
                "while read line; do eval \"$line\" 2>&1 | tr '\\n' ' '; echo; done",
            ])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Shell {
            child,
            input,
            output,
        }
    }

    fn says(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn end(mut self) {
        drop(self.input);
        self.child.wait().unwrap();
    }
}

#[test]
fn a_working_directory_moves_with_its_directory() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("a moved working directory", || {
        let (a, b) = (cluster.root(0), cluster.root(1));
        fs::create_dir_all(b.join("here/inner")).unwrap();
        fs::create_dir(b.join("there")).unwrap();
        fs::write(b.join("here/inner/file"), "in").unwrap();
        let mut shell = Shell::start(&a.join("here/inner"));
        assert_eq!(shell.says("cat file"), "in");
        fs::rename(b.join("here"), b.join("there/moved")).unwrap();
        assert_eq!(shell.says("cat file"), "in");
        assert_eq!(shell.says("ls .."), "inner");
        // The kernel of this mount moves its own picture of the tree when it sees the new path.
        assert!(a.join("there/moved/inner").is_dir());
        assert_eq!(shell.says("ls ../.."), "moved");
        assert_eq!(shell.says("echo more > second; cat second"), "more");
        assert_eq!(
            fs::read_to_string(b.join("there/moved/inner/second")).unwrap(),
            "more\n"
        );
        assert!(!a.join("here").exists());
        shell.end();
    });
}

#[test]
fn a_working_directory_removed_elsewhere_is_empty_and_takes_nothing() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("a removed working directory", || {
        let (a, b) = (cluster.root(0), cluster.root(1));
        fs::create_dir(b.join("gone")).unwrap();
        let mut shell = Shell::start(&a.join("gone"));
        assert_eq!(shell.says("ls"), "");
        fs::remove_dir(b.join("gone")).unwrap();
        assert_eq!(shell.says("ls -a | grep -v '^[.]'"), "");
        assert!(
            shell.says("mkdir new").contains("No such file"),
            "made in a removed directory"
        );
        fs::create_dir(b.join("gone")).unwrap();
        fs::write(b.join("gone/other"), "").unwrap();
        assert_eq!(shell.says("ls"), "", "another directory of the same name");
        shell.end();
    });
}

#[test]
fn a_writer_elsewhere_is_seen_while_its_file_is_open() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("an open writer", || {
        let (a, b) = (cluster.root(0), cluster.root(1));
        let file = open(&a.join("file"));
        for round in 1..200u64 {
            let byte = [round as u8];
            file.write_all_at(&byte, (round - 1) * 100).unwrap();
            let stat = fs::metadata(b.join("file")).unwrap();
            assert_eq!(stat.len(), (round - 1) * 100 + 1, "size in round {round}");
            if round % 3 == 0 {
                let bytes = fs::read(b.join("file")).unwrap();
                assert_eq!(bytes.len() as u64, stat.len());
                assert_eq!(bytes.last(), Some(&byte[0]), "bytes in round {round}");
            }
            if round % 50 == 0 {
                file.set_len(round * 100 - 150).unwrap();
                assert_eq!(
                    fs::metadata(b.join("file")).unwrap().len(),
                    round * 100 - 150
                );
            }
        }
    });
}

#[test]
fn what_was_written_stays_through_a_rename_and_a_link() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("write, rename, link", || {
        let root = cluster.root(0);
        fs::write(root.join("made"), "text").unwrap();
        fs::rename(root.join("made"), root.join("moved")).unwrap();
        fs::hard_link(root.join("moved"), root.join("linked")).unwrap();
        for mount in [0, 1] {
            for name in ["moved", "linked"] {
                let path = cluster.root(mount).join(name);
                assert_eq!(
                    fs::read_to_string(path).unwrap(),
                    "text",
                    "{name} on {mount}"
                );
            }
        }
    });
}

/// After another mount has changed an open file, neither its attributes nor a name that it is then moved to
/// are covered. The kernel must look the name up again, which an open file cannot.
#[test]
fn an_open_file_that_another_mount_changed_is_asked_about_after_a_move_here() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = [0, 1].map(|mount| cluster.root(mount));
    let (from, to, there) = (here.join("file"), here.join("moved"), there.join("file"));
    fs::write(&from, "").unwrap();
    let file = open(&from);
    let path_only = rustix::fs::open(&from, OFlags::PATH, Mode::empty()).unwrap();
    for number in 0..100 {
        let mode = 0o600 + number % 2;
        fs::set_permissions(&there, Permissions::from_mode(mode)).unwrap();
        for (from, to) in [(&from, &to), (&to, &from)] {
            fs::rename(from, to).unwrap();
            let modes = [
                rustix::fs::fstat(&file).unwrap().st_mode,
                nix::sys::stat::fstat(&path_only).unwrap().st_mode,
                file.metadata().unwrap().mode(),
            ];
            assert_eq!(modes.map(|mode| mode & 0o777), [mode; 3], "{number}");
        }
    }
}

#[test]
fn mappings_of_two_mounts_are_coherent() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("mappings in turn", || {
        let len = 3 * 4096;
        fs::write(cluster.root(0).join("map"), vec![0; len]).unwrap();
        let maps = [0, 1].map(|at| Mapping::new(&cluster.root(at).join("map"), len).unwrap());
        for round in 0..100usize {
            let offset = (round * 1031) % len;
            let byte = round as u8 + 1;
            maps[round % 2].store(offset, &[byte]);
            assert_eq!(maps[1 - round % 2].load(offset), byte, "round {round}");
            let read = fs::read(cluster.root(1 - round % 2).join("map")).unwrap();
            assert_eq!(read[offset], byte, "read in round {round}");
        }
    });
}

#[test]
fn of_many_exclusive_creators_one_succeeds() {
    let cluster = Cluster::with_mounts(2);
    for round in 0..50 {
        let path = |writer: usize| cluster.root(writer % 2).join(format!("lock{round}"));
        let made: usize = cluster.timed("O_EXCL", || {
            thread::scope(|scope| {
                let creators: Vec<_> = (0..6)
                    .map(|writer| scope.spawn(move || File::create_new(path(writer)).is_ok()))
                    .collect();
                creators
                    .into_iter()
                    .map(|one| usize::from(one.join().unwrap()))
                    .sum()
            })
        });
        assert_eq!(made, 1, "round {round}");
    }
}

/// The end of a use elsewhere is known within seconds.
fn once_allowed<T>(mut call: impl FnMut() -> std::io::Result<T>) -> T {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {
                assert!(Instant::now() < until, "still busy");
                thread::sleep(Duration::from_millis(20));
            }
            result => return result.unwrap(),
        }
    }
}

#[test]
fn what_is_executed_on_one_mount_cannot_be_written_on_another() {
    own_descriptors();
    let cluster = Cluster::with_mounts(2);
    cluster.timed("ETXTBSY", || {
        let (a, b) = (cluster.root(0), cluster.root(1));
        fs::copy("/bin/sleep", a.join("sleep")).unwrap();
        fs::set_permissions(a.join("sleep"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(a.join("sleep")).arg("60").spawn().unwrap();
        let refused = OpenOptions::new().write(true).open(b.join("sleep"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ETXTBSY));
        let writer = once_allowed(|| OpenOptions::new().write(true).open(b.join("sleep")));
        let refused = Command::new(a.join("sleep")).arg("0").status();
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ETXTBSY));
        drop(writer);
        let run = once_allowed(|| Command::new(a.join("sleep")).arg("0").status());
        assert!(run.success());
    });
}

#[test]
fn a_large_directory_is_listed_whole_while_it_changes() {
    let cluster = Cluster::with_mounts(2);
    let (a, b) = (cluster.root(0), cluster.root(1));
    cluster.timed("making 1500 files", || {
        fs::create_dir(a.join("many")).unwrap();
        for number in 0..1500 {
            File::create(a.join(format!("many/stays{number}"))).unwrap();
        }
    });
    cluster.timed("listings beside changes", || {
        thread::scope(|scope| {
            let churn = scope.spawn(|| {
                for number in 0..300 {
                    let path = b.join(format!("many/passes{number}"));
                    File::create(&path).unwrap();
                    fs::remove_file(&path).unwrap();
                }
            });
            while !churn.is_finished() {
                let mut names: Vec<_> = fs::read_dir(a.join("many"))
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .filter(|name| name.starts_with("stays"))
                    .collect();
                let listed = names.len();
                names.sort();
                names.dedup();
                assert_eq!((listed, names.len()), (1500, 1500), "listed, different");
            }
        });
    });
}
