//! Test programs, as cargo builds and names them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::program_list::names;

/// A program of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Crate and target, as `mounted::pairs`; a crate's unit tests have the crate's name.
    pub name: String,
    /// Where it was built.
    pub path: PathBuf,
    /// The crate's folder, in which tests run.
    pub folder: PathBuf,
}

impl Program {
    /// Whether the program has a test with `part` in its name.
    pub fn has_test(&self, part: &str) -> Result<bool, String> {
        let output = Command::new(&self.path)
            .args([part, "--list"])
            .current_dir(&self.folder)
            .output()
            .map_err(|error| format!("cannot list the tests of {}: {error}", self.name))?;
        let listed = String::from_utf8_lossy(&output.stdout);
        let mut names = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"));
        Ok(names.any(|name| name.contains(part)))
    }
}

/// All that is built for tests.
#[derive(Debug, Default)]
pub struct Built {
    /// The test programs.
    pub programs: VecDeque<Program>,
    /// The binary that tests on mounts start. Without it each of them would have cargo build another, of
    /// which it alone is the workspace, with other features of what it depends on.
    pub glint: Option<PathBuf>,
    /// The simulator, which some tests have run beside them.
    pub simulator: Option<PathBuf>,
    /// What the compiler and clippy complained about, now or when a crate was built before.
    pub warnings: usize,
}

/// What cargo says of each thing that it has built.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    /// As cargo would show it.
    rendered: Option<String>,
    /// Where it is; the compiler's own summary is nowhere.
    spans: Vec<serde_json::Value>,
}

impl Diagnostic {
    fn is_warning(&self) -> bool {
        self.level == "warning" && !self.spans.is_empty()
    }
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Message {
    /// The program called so, but for its own tests.
    fn binary(&self, name: &str) -> Option<PathBuf> {
        let target = self.target.as_ref()?;
        let is_named = target.name == name && target.kind.iter().any(|kind| kind == "bin");
        let is_test = self.profile.as_ref()?.test;
        self.executable.clone().filter(|_| is_named && !is_test)
    }

    fn into_program(self) -> Option<Program> {
        let is_test = self.reason == "compiler-artifact" && self.profile?.test;
        let (path, target) = (self.executable.filter(|_| is_test)?, self.target?);
        let folder = self.manifest_path?.parent()?.to_owned();
        let package = folder.file_name()?.to_string_lossy().into_owned();
        let is_own = target.kind.iter().any(|kind| kind == "test");
        let name = match is_own {
            true => format!("{package}::{}", target.name),
            false => package,
        };
        Some(Program { name, path, folder })
    }
}

/// The cargo that runs this, which names itself to what it runs.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Builds the test programs of one crate, or of all.
pub fn build(root: &Path, package: Option<&str>) -> Result<Built, String> {
    let packages = match package {
        Some(name) => vec!["--package", name],
        None => vec!["--workspace"],
    };
    let failed = |error: std::io::Error| format!("cannot run cargo test: {error}");
    let mut cargo = Command::new(cargo())
        .args(["test", "--no-run"])
        .args(packages)
        .arg("--message-format=json")
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let said = cargo.stdout.take().map(BufReader::new);
    let said = said.into_iter().flat_map(BufRead::lines);
    let built = read_messages(said, &mut std::io::stderr());
    let status = cargo.wait().map_err(failed)?;
    match status.success() {
        true => built,
        false => Err("the tests do not build; see cargo's messages above".to_owned()),
    }
}

/// Shows what the compiler says, as it says it.
fn read_messages(
    said: impl Iterator<Item = std::io::Result<String>>,
    shown: &mut impl Write,
) -> Result<Built, String> {
    let mut built = Built::default();
    for line in said {
        let line = line.map_err(|error| format!("cannot hear cargo: {error}"))?;
        if !line.starts_with('{') {
            continue;
        }
        let message: Message = serde_json::from_str(&line)
            .map_err(|error| format!("cargo said something unexpected: {error}: {line:?}"))?;
        if let Some(diagnostic) = &message.message {
            built.warnings += usize::from(diagnostic.is_warning());
            let rendered = diagnostic.rendered.as_deref().unwrap_or_default();
            // Nobody reads where this fails.
            let _ = shown.write_all(rendered.as_bytes());
        }
        built.glint = message.binary("glint").or(built.glint);
        built.simulator = message.binary("glint-sim").or(built.simulator);
        built.programs.extend(message.into_program());
    }
    Ok(built)
}

/// The programs in the order in which they start: first those that `long` names, as it names them.
/// Those on mounts are next: they wait most, and others fill their pauses.
pub fn in_order(programs: VecDeque<Program>, long: &[String]) -> VecDeque<Program> {
    let mut programs = Vec::from(programs);
    programs.sort_by_cached_key(|program| {
        let place = long.iter().position(|name| *name == program.name);
        let is_mounted = program.name.starts_with("mounted");
        (
            place.unwrap_or(long.len()),
            !is_mounted,
            program.name.clone(),
        )
    });
    programs.into()
}

/// Names of programs in the list `path`, in its order.
pub fn names_in(root: &Path, path: &str) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(root.join(path))
        .map_err(|error| format!("cannot read {path}: {error}"))?;
    let name = |(line, name): (usize, Result<&str, &str>)| {
        let name = name.map(str::to_owned);
        name.map_err(|entry| {
            format!("{path}:{line}: {entry:?} is not `NAME: reason`; give the reason")
        })
    };
    names(&text).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: &str, shown: &mut Vec<u8>) -> Result<Built, String> {
        read_messages(said.lines().map(|line| Ok(line.to_owned())), shown)
    }

    #[test]
    fn warnings_are_shown_and_those_that_are_somewhere_count() {
        let said = concat!(
            r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"unused\n","spans":[{"line_start":1}]}}"#,
            "\n",
            r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"1 warning\n","spans":[]}}"#,
            "\n",
        );
        let mut shown = Vec::new();
        assert_eq!(read(said, &mut shown).unwrap().warnings, 1);
        assert_eq!(shown, b"unused\n1 warning\n");
        assert!(read("{x", &mut shown).is_err());
    }

    #[test]
    fn cargo_names_test_programs_and_others() {
        let said = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/rpc/Cargo.toml","target":{"name":"rpc","kind":["lib"]},"profile":{"test":true},"executable":"/t/rpc-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/w/tests/mounted/Cargo.toml","target":{"name":"pairs","kind":["test"]},"profile":{"test":true},"executable":"/t/pairs-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/rpc/Cargo.toml","target":{"name":"rpc","kind":["lib"]},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml","target":{"name":"glint","kind":["bin"]},"profile":{"test":true},"executable":"/t/glint-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml","target":{"name":"glint","kind":["bin"]},"profile":{"test":false},"executable":"/t/glint"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/sim/Cargo.toml","target":{"name":"glint-sim","kind":["bin"]},"profile":{"test":false},"executable":"/t/glint-sim"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
            "\n",
        );
        let built = read(said, &mut Vec::new()).unwrap();
        let names = built.programs.iter().map(|program| program.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["rpc", "mounted::pairs", "cli"]);
        assert_eq!(built.glint.as_deref(), Some(Path::new("/t/glint")));
        assert_eq!(built.simulator.as_deref(), Some(Path::new("/t/glint-sim")));
    }
    #[test]
    fn long_programs_start_first_and_those_on_mounts_before_others() {
        let program = |name: &str| Program {
            name: name.to_owned(),
            path: PathBuf::new(),
            folder: PathBuf::new(),
        };
        let programs = ["a", "mounted::b", "mounted::a", "z", "y"].map(program);
        let ordered = in_order(programs.into(), &["z".to_owned(), "mounted::b".to_owned()]);
        let names: Vec<_> = ordered.iter().map(|program| &program.name[..]).collect();
        assert_eq!(names, ["z", "mounted::b", "mounted::a", "a", "y"]);
    }
}
