//! The output of `cargo metadata`: our crates with their dependencies, and foreign packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// Our crates.
#[derive(Debug, Default)]
pub struct Workspace {
    /// In no particular order.
    pub crates: Vec<Crate>,
}

/// One of our crates.
#[derive(Debug, Clone, Default)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its folder, relative to the workspace.
    pub folder: String,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
}

/// An edge of the graph.
#[derive(Debug, Clone, Deserialize)]
pub struct Dependency {
    /// The package it leads to.
    pub name: String,
    /// `dev`, `build`, or nothing for an ordinary one.
    pub kind: Option<String>,
    /// Where it is, for a crate of ours.
    pub path: Option<String>,
}

impl Dependency {
    /// It leads to a crate of ours.
    pub fn is_ours(&self) -> bool {
        self.path.is_some()
    }

    /// Only tests see it.
    pub fn is_for_tests(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

/// A package of somebody else's.
#[derive(Debug, Clone, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence expression.
    pub license: Option<String>,
    /// Where it comes from; nothing for ours.
    pub source: Option<String>,
    #[serde(default)]
    manifest_path: String,
    #[serde(default)]
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
    target_directory: PathBuf,
}

impl Workspace {
    /// Asks cargo, without network.
    pub fn read(root: &Path) -> Result<Workspace, String> {
        let metadata = ask_cargo(root, &["--no-deps"])?;
        let base = Path::new(&metadata.workspace_root);
        let crates = metadata.packages.into_iter().map(|package| {
            let folder = Path::new(&package.manifest_path).parent();
            let folder = folder.and_then(|folder| folder.strip_prefix(base).ok());
            Crate {
                name: package.name,
                folder: folder.unwrap_or(base).display().to_string(),
                dependencies: package.dependencies,
            }
        });
        Ok(Workspace {
            crates: crates.collect(),
        })
    }
}

/// Every package of somebody else's that a build or test of ours on Linux uses.
pub fn foreign_packages(root: &Path) -> Result<Vec<Package>, String> {
    let metadata = ask_cargo(root, &["--filter-platform", "x86_64-unknown-linux-gnu"])?;
    let packages = metadata.packages.into_iter();
    Ok(packages
        .filter(|package| package.source.is_some())
        .collect())
}

/// Where build results go.
pub fn target_directory(root: &Path) -> Result<PathBuf, String> {
    Ok(ask_cargo(root, &["--no-deps"])?.target_directory)
}

fn ask_cargo(root: &Path, arguments: &[&str]) -> Result<Metadata, String> {
    // Cargo names itself to what it runs.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata failed: {}", said.trim()));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata said something unexpected: {error}"))
}
