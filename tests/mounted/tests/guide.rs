//! Each command of README and of the guide runs as it stands there, in the order of its page.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mounted::glint;

/// Gives a page's commands a machine of their own: empty directories, two addresses, no other mounts.
/// Building would take long, and this test is a part of `make test`. So `make` only prints its commands, and
/// `cargo` runs examples that are built already.
const MACHINE: &str = r#"
set -eu
awk '$3 == "fuse.glint" { print $2 }' /proc/mounts | while read -r other; do umount --lazy "$other"; done
for place in /srv /mnt /run /var/log; do mount -t tmpfs none "$place"; done
ip link set lo up
ip address add 10.0.0.1/32 dev lo
ip address add 10.0.0.2/32 dev lo
make() { command make --dry-run --directory "$REPOSITORY" "$@" > /dev/null; }
cargo() { for last; do :; done; "$EXAMPLES/$last" 1000; }
cd "$HOME"
set -x
"#;

/// The lines of a page's blocks of shell commands.
fn commands(page: &str) -> String {
    let blocks = page.split("\n```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split("\n```").next().unwrap());
    blocks.map(|block| format!("{block}\n")).collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Runs a page's commands; the first that fails fails the test.
fn run(page: &str) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not tested: needs root, for a machine of its own");
        return;
    }
    let commands = commands(&fs::read_to_string(repository().join(page)).unwrap());
    assert!(!commands.is_empty(), "{page} has no commands");
    let home = tempfile::tempdir().unwrap();
    let (bin, release) = (home.path().join("bin"), home.path().join("target/release"));
    for place in [&bin, &release] {
        fs::create_dir_all(place).unwrap();
        symlink(glint(), place.join("glint")).unwrap();
    }
    let examples = std::env::current_exe().unwrap();
    let examples = examples.ancestors().nth(2).unwrap().join("examples");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let ran = Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["bash", "-c", &format!("{MACHINE}{commands}")])
        .env("HOME", home.path())
        .env("PATH", path)
        .env("REPOSITORY", repository())
        .env("EXAMPLES", examples)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(ran.status.success(), "{page}: {}\n{}", said[0], said[1]);
}

/// A test for each page; the last one is that no page is forgotten.
macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(#[test]
        fn $name() {
            run($page);
        })*
    };
}

pages! {
    readme: "README.md",
    one_machine: "docs/guide/one-machine.md",
    several_machines: "docs/guide/several-machines.md",
    failover: "docs/guide/failover.md",
    tuning: "docs/guide/tuning.md",
    why_is_it_slow: "docs/guide/slow.md",
    troubleshooting: "docs/guide/troubleshooting.md",
    benchmarks: "docs/guide/benchmarks.md",
    develop: "docs/guide/develop.md",
}

#[test]
fn each_page_of_the_guide_is_tested() {
    let mut pages: Vec<String> = fs::read_dir(repository().join("docs/guide"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/guide/{name}"))
        .collect();
    pages.sort();
    let mut tested: Vec<&str> = PAGES.to_vec();
    tested.retain(|page| *page != "README.md");
    tested.sort_unstable();
    assert_eq!(pages, tested);
}
