//! Stories as scripts, compared with their traces. In `tests/scripts`, lines with `>` are commands and
//! indented lines what followed; a comment at the top says what is shown. `UPDATE_EXPECT=1` rewrites them.
//! The table and caches are audited after each command.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::World;

/// With fewer, rules of docs/locks.md would be without a story.
const STORIES_MIN: usize = 40;

fn stories() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = fs::read_dir(folder).expect("the folder of scripts");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

/// The script with its trace made anew.
fn replay(script: &str) -> Result<String, String> {
    let mut world = World::default();
    let mut text = String::new();
    for line in script.lines().filter(|line| !line.starts_with("  ")) {
        text.push_str(line);
        text.push('\n');
        let Some(command) = line.strip_prefix("> ") else {
            continue;
        };
        for said in world.run(command).map_err(|why| format!("{line}: {why}"))? {
            text.push_str(&format!("  {said}\n"));
        }
    }
    Ok(text)
}

#[test]
fn every_story_goes_as_written() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in stories() {
        count += 1;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let script = fs::read_to_string(&path).expect("a readable script");
        assert!(
            script.starts_with("# "),
            "{name} does not say what it shows"
        );
        match replay(&script) {
            Ok(text) if text == script => {}
            Ok(text) if update => fs::write(&path, text).expect("a writable script"),
            Ok(text) => wrong.push(format!("{name} went otherwise:\n{text}")),
            Err(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= STORIES_MIN, "only {count} stories");
}

#[test]
fn a_wrong_trace_is_noticed() {
    let script = "> enqueue A 1 r1 PR LOOKUP\n  refused A/1 contended\n";
    let replayed = replay(script).expect("a good script");
    assert_ne!(replayed, script);
    assert!(replay("> enqueue A 1 r1 XX LOOKUP\n").is_err());
}
