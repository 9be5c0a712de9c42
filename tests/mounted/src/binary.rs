//! The binary under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of `glint`: `GLINT_BINARY`, to test another build, or the one of this test's profile, built if it
/// is not there.
pub fn glint() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("GLINT_BINARY") {
        Some(given) => given.into(),
        None => build(),
    })
}

/// Cargo decides whether there is anything to build.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile_dir = test
        .ancestors()
        .nth(2)
        .expect("tests are in TARGET/PROFILE/deps");
    let target_dir = profile_dir
        .parent()
        .expect("tests are in TARGET/PROFILE/deps");
    // Tests of the profile `test` are in `debug`; the same profile shares what is built for them.
    let profile = match profile_dir.file_name() {
        Some(name) if name == "debug" => "test".into(),
        name => name.expect("a profile has a folder").to_owned(),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", "cli", "--profile"])
        .arg(profile)
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "glint does not build: {status}");
    profile_dir.join("glint")
}
