//! The test suite pjdfstest, whole, on a mount.
// SEMANTICS: op.lookup, op.create, op.mkdir, op.mknod, op.symlink, op.link, op.unlink, op.rmdir, op.rename
// SEMANTICS: op.open, op.setattr, op.truncate, op.fallocate, who.caller

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mounted::{Cluster, TestUser, tool};

const LIMIT: Duration = Duration::from_secs(120);

/// Cases that may be skipped, each with why; any other that is skipped or fails is an error.
const SKIPPED: [(&str, &str); 2] = [
    (
        "link::link_count_max",
        "pathconf knows limits of a few file systems only, by their number",
    ),
    (
        "::erofs_",
        "remounting needs that no file is open, and other cases of the suite keep one: run apart",
    ),
];

/// All that Linux has; what it has not (chflags, NFSv4 ACLs) cannot be built for it.
const FEATURES: &str = "posix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\nstat_st_birthtime = {}\n";

/// Runs cases whose names contain `pattern`; the lines with what came of each.
fn run(cluster: &Cluster, users: &[TestUser; 2], pattern: &[&str]) -> Vec<String> {
    let local = cluster.local();
    let config = local.join("pjdfstest.toml");
    let [first, second] = users.each_ref().map(TestUser::name);
    let text = format!(
        "[features]\n{FEATURES}[settings]\nnaptime = 0.01\nallow_remount = {}\n\
         [dummy_auth]\nentries = [[\"{first}\", \"{first}\"], [\"{second}\", \"{second}\"]]\n",
        !pattern.is_empty()
    );
    fs::write(&config, text).unwrap();
    let mut suite = Command::new(tool("pjdfstest"));
    suite.arg("--configuration-file").arg(&config);
    suite.arg("--path").arg(cluster.root(0));
    suite.arg("--secondary-fs").arg(&local).args(pattern);
    suite.env("PATH", with_plain_mount(&local));
    let output = cluster.timed_for(LIMIT, "pjdfstest", || suite.output().unwrap());
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    let done = lines.iter().any(|line| line.starts_with("Summary: "));
    assert!(done, "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    lines
}

/// The suite remounts by `mount`, which for FUSE asks a helper of the type's name: one that does not.
fn with_plain_mount(local: &Path) -> String {
    let mount = local.join("bin/mount");
    fs::create_dir_all(local.join("bin")).unwrap();
    fs::write(
        &mount,
        "#!/bin/sh\nexec /bin/mount --internal-only \"$@\"\n",
    )
    .unwrap();
    fs::set_permissions(&mount, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", local.join("bin").display())
}

/// How many passed; what failed, or was skipped without being listed, fails the test.
fn judge(lines: &[String]) -> usize {
    let ends = |end: &'static str| lines.iter().filter(move |line| line.ends_with(end));
    let wrong: Vec<&String> = ends(" skipped")
        .filter(|line| !SKIPPED.iter().any(|(name, _)| line.contains(name)))
        .chain(ends(" FAILED"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", lines.join("\n"));
    ends(" ok").count()
}

#[test]
fn every_case_of_pjdfstest_that_linux_has_passes() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: users can be made and become by root only");
        return;
    }
    let cluster = Cluster::with_mounts(1);
    let users = ["one", "two"].map(TestUser::make);
    let passed = judge(&run(&cluster, &users, &[]));
    assert!(passed > 350, "only {passed} cases");
    // By themselves, with remounts allowed.
    let passed = judge(&run(&cluster, &users, &["::erofs_"]));
    assert!(passed > 10, "only {passed} cases");
    assert_eq!(fs::read_dir(cluster.root(0)).unwrap().count(), 0);
}
