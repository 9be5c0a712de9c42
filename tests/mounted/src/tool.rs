//! Conformance tests that are not ours, which `make tools` installs.

use std::path::{Path, PathBuf};

/// The program `name`: of the `PATH`, or where `make tools` puts it.
pub fn tool(name: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([workspace.join("target/tools/bin")])
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed; run `make tools`"))
}
