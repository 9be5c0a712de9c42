//! Measurements leave nothing behind: no mount, no process, no namespace, no file but the tree.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::{
    Killed, NOBODY, OPEN_DEVICE, directory_of_nobody, eventually, finish, glint, needs_root,
    program,
};

/// Nothing that knows this directory is there any more.
#[track_caller]
fn nothing_is_left(dir: &Path) {
    let name = dir.to_str().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(name), "{mounts}");
    assert_eq!(processes_with(name), Vec::<String>::new());
    let left: Vec<_> = fs::read_dir(dir.join("work")).unwrap().flatten().collect();
    assert!(
        left.iter().all(|entry| entry.file_name() == "trees"),
        "{left:?}"
    );
}

fn processes_with(name: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|words| String::from_utf8_lossy(&words).replace('\0', " "))
        .filter(|words| words.contains(name))
        .collect()
}

fn namespaces_of(pid: u32) -> usize {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let prefix = format!("glint-{pid}-");
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .count()
}

/// What `glint bench` says of `words`, measured in `dir`.
fn measured(dir: &Path, words: &str) -> Value {
    let work = dir.join("work");
    let mut all = vec!["bench"];
    all.extend(words.split(' '));
    all.extend(["--json", "--work", work.to_str().unwrap()]);
    serde_json::from_str(glint(dir, &all).worked()).unwrap()
}

/// `glint bench` on its way with `words`, in the directory `work`.
fn started(words: &str, work: &Path) -> Child {
    let mut bench = Command::new(program());
    bench.arg("bench").args(words.split(' '));
    bench.arg("--work").arg(work);
    bench.stdin(Stdio::null()).stdout(Stdio::null());
    bench.stderr(Stdio::null()).spawn().unwrap()
}

/// The first sample of a row in a report's column.
fn sample<'r>(report: &'r Value, column: usize, row: &str) -> &'r Value {
    let steps = report["columns"][column]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["step"] == row).unwrap();
    &step["samples"][0]
}

#[test]
fn numbers_measure_every_promise_and_leave_nothing() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let words = "numbers --tree 60 --files 100 --mebibytes 8 --runs 1";
    let verdict = measured(dir.path(), words);
    let lines = verdict["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 20, "{verdict}");
    for line in lines {
        assert!(line["value"].is_number(), "{line}");
        let reference = &line["reference"];
        assert!(reference.is_null() || reference[1].is_number(), "{line}");
    }
    nothing_is_left(dir.path());
}

#[test]
fn a_walk_counts_requests_and_leaves_nothing() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let report = measured(
        dir.path(),
        "walk --tree 60 --system glint,glint-no-prefetch",
    );
    let rpcs = |column, row| sample(&report, column, row)["rpcs"].as_u64().unwrap();
    assert_eq!(rpcs(0, "find -uid 0, warm"), 0);
    assert!(
        rpcs(0, "find -uid 0, cold") < rpcs(1, "find -uid 0, cold"),
        "{report}"
    );
    nothing_is_left(dir.path());
}

#[test]
fn write_back_is_measured_beside_others_and_nothing_is_left() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let sizes = "--tree 60 --entries 48 --tasks 1,4 --time 100ms --files 20 --copies 2 \
        --rtts 0ms,2ms";
    let words = format!("bench wbc {sizes} --runs 1 --work work --out out");
    let words: Vec<&str> = words.split(' ').collect();
    glint(dir.path(), &words).worked();
    let json = fs::read_to_string(out.join("wbc.json")).unwrap();
    let document: Value = serde_json::from_str(&json).unwrap();
    let sections = document["sections"].as_array().unwrap();
    let names = sections
        .iter()
        .map(|section| section["name"].as_str().unwrap());
    let all = ["commands", "metadata", "profiles", "pathological", "rtt"];
    assert!(names.eq(all), "{document}");
    for section in sections {
        let times = section["tables"][0]["rows"].as_array().unwrap();
        let mut cells = times.iter().flat_map(|row| row.as_array().unwrap());
        assert!(!cells.any(|cell| cell == "missing"), "{section}");
        for figure in section["figures"].as_array().unwrap() {
            let file = format!("{}.svg", figure["name"].as_str().unwrap());
            let picture = fs::read_to_string(out.join(&file)).unwrap();
            assert!(picture.contains("<circle"), "{file}: {picture}");
        }
    }
    // Each create was a request where changes are written through.
    let requests = &sections[4]["tables"][1]["rows"];
    let frames = |row: usize| requests[row][1]["count"].as_u64().unwrap();
    assert!(frames(0) < frames(1), "{requests}");
    nothing_is_left(dir.path());
}

#[test]
fn the_talk_is_redrawn_and_nothing_is_left() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let sizes = "--files 20,40 --directory 20 --writers 0,2 --tree 60 --trees 2 --rtts 0.1ms,2ms \
        --pairs 2 --calls 40";
    let words = format!("bench xfast {sizes} --runs 1 --work work --out out");
    let words: Vec<&str> = words.split(' ').collect();
    glint(dir.path(), &words).worked();
    let json = fs::read_to_string(out.join("xfast.json")).unwrap();
    let document: Value = serde_json::from_str(&json).unwrap();
    let sections = document["sections"].as_array().unwrap();
    let names = sections
        .iter()
        .map(|section| section["name"].as_str().unwrap());
    assert!(
        names.eq(["flat", "writers", "grid", "trees", "rtt", "harmless"]),
        "{document}"
    );
    for section in sections {
        let tables = section["tables"].as_array().unwrap();
        let cells = tables
            .iter()
            .flat_map(|table| table["rows"].as_array().unwrap());
        let missing = |cell: &Value| cell == "missing" || cell["text"] == "WRONG";
        for row in cells {
            assert!(!row.as_array().unwrap().iter().any(missing), "{section}");
        }
        for figure in section["figures"].as_array().unwrap() {
            let file = format!("{}.svg", figure["name"].as_str().unwrap());
            let picture = fs::read_to_string(out.join(&file)).unwrap();
            assert!(picture.contains("<circle"), "{file}: {picture}");
        }
    }
    let cell = |section: usize, row: usize, column: usize| {
        let row = &sections[section]["tables"][0]["rows"][row];
        row[column]["count"].as_u64().unwrap()
    };
    // Listing 40 files: one request for each without prefetch, a few with it.
    assert!(cell(0, 1, 3) > 40 && cell(0, 1, 6) < 10, "{document}");
    // Trees: requests of the first mode and of the last.
    assert!(
        cell(3, 0, 1) > 100 && cell(3, 5, 1) < cell(3, 2, 1),
        "{document}"
    );
    let markdown = fs::read_to_string(out.join("xfast.md")).unwrap();
    assert!(markdown.contains("](rtt-time.svg)"), "{markdown}");
    nothing_is_left(dir.path());
}

#[test]
fn the_paper_on_ageing_is_redrawn() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let words = "bench aging --part tables,known --groups 100 --tables 1,8 --out out";
    let words: Vec<&str> = words.split(' ').collect();
    let said = glint(dir.path(), &words).worked().to_owned();
    let document: Value =
        serde_json::from_str(&fs::read_to_string(out.join("aging.json")).unwrap()).unwrap();
    let sections = document["sections"].as_array().unwrap();
    let table = |section: usize, title: &str| {
        let tables = sections[section]["tables"].as_array().unwrap();
        let table = tables.iter().find(|table| table["title"] == title);
        table.unwrap()["rows"].as_array().unwrap().clone()
    };
    let number = |row: &Value, column: usize| row[column]["number"].as_f64().unwrap();
    // At 5 % free: 1 MiB has fallen, 8 MiB has not.
    let steps = table(0, "Write rate, % of clean");
    assert_eq!(steps.len(), 20, "{said}");
    assert!(number(&steps[0], 1) < 60.0 && number(&steps[0], 2) > 75.0);
    let verdict = table(1, "What must hold");
    assert_eq!(verdict[0][3]["text"], "holds", "{said}");
    for section in sections {
        for kind in ["figures", "bitmaps"] {
            for figure in section[kind].as_array().into_iter().flatten() {
                let file = format!("{}.svg", figure["name"].as_str().unwrap());
                let picture = fs::read_to_string(out.join(&file)).unwrap();
                assert!(picture.contains("</svg>"), "{file}: {picture}");
            }
        }
    }
    let markdown = fs::read_to_string(out.join("aging.md")).unwrap();
    assert!(markdown.contains("](aging-map-1-mib-half-free.svg)"));
    // Virtual time: the same on every machine.
    let again = glint(dir.path(), &words).worked().to_owned();
    let numbers = |text: &str| text[text.find("## tables").unwrap()..].to_owned();
    assert_eq!(numbers(&again), numbers(&said));
}

#[test]
fn worn_trees_are_read_back_and_a_real_disk_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let ran = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        glint(dir.path(), &words)
    };
    let words = "bench aging --part git,churn --groups 2 --entries 2000 --commits 50 --json";
    let document: Value = serde_json::from_str(ran(words).worked()).unwrap();
    for section in document["sections"].as_array().unwrap() {
        let rows = section["tables"][1]["rows"].as_array().unwrap();
        let last = &rows[rows.len() - 1];
        assert!(last[4]["number"].as_f64().unwrap() > 1.0, "{section}");
    }
    let on = "bench aging --part tables --groups 2 --tables 1 --on . --json";
    let document: Value = serde_json::from_str(ran(on).worked()).unwrap();
    let tables = document["sections"][0]["tables"].as_array().unwrap();
    let mut rates = tables
        .iter()
        .filter(|table| table["title"] == "Rates by preallocation table");
    let rates = &rates.next().unwrap()["rows"][0];
    assert!(rates[1]["number"].as_f64().unwrap() > 0.0, "{document}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fs::write(dir.path().join("kept"), "bytes").unwrap();
    let refused = ran("bench aging --part tables --on kept --erase");
    assert!(
        refused
            .err
            .contains("neither a directory nor a block device")
    );
    assert_eq!(fs::read(dir.path().join("kept")).unwrap(), b"bytes");
    let refused = ran("bench aging --part scale --on .");
    assert!(refused.err.contains("leave --on out"), "{refused:?}");
}

#[test]
fn an_interrupted_xfast_keeps_what_it_has_and_cleans_up() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (work, out) = (dir.path().join("work"), dir.path().join("out"));
    let words = "xfast --part flat,writers --files 10 --directory 2000 --writers 3 --runs 50";
    let words = format!("{words} --out {}", out.display());
    let mut xfast = started(&words, &work);
    let beside = work.to_str().unwrap().to_owned();
    eventually("writers write", || {
        let shells = processes_with("/started.");
        out.join("flat.svg").exists() && !shells.is_empty() && is_mounted(&beside)
    });
    kill(Pid::from_raw(xfast.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(xfast.wait().unwrap().code(), Some(1));
    let markdown = fs::read_to_string(out.join("xfast.md")).unwrap();
    assert!(markdown.contains("## flat") && !markdown.contains("## writers"));
    nothing_is_left(dir.path());
}

#[test]
fn flat_measures_a_directory_that_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("named");
    fs::create_dir(&named).unwrap();
    let ran = glint(dir.path(), &["bench", "flat", "100", "named"]);
    let table = ran.worked();
    assert!(
        table.contains("create") && table.contains("unlink"),
        "{table}"
    );
    assert!(
        table.contains("--drop-caches"),
        "it says why nothing was cold: {table}"
    );
    assert_eq!(fs::read_dir(named).unwrap().count(), 0);
}

#[test]
fn progress_that_nobody_reads_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("named");
    fs::create_dir(&named).unwrap();
    let (_unread, mut pipe) = std::io::pipe().unwrap();
    fill(&mut pipe);
    let mut flat = Command::new(program());
    // Without a link there is no sshfs, which is said at once.
    flat.args(["bench", "flat", "100", "named", "--system", "sshfs"]);
    flat.current_dir(dir.path()).stderr(pipe);
    flat.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut flat = Killed(flat.spawn().unwrap());
    eventually("it ends", || flat.0.try_wait().unwrap().is_some());
    let mut table = String::new();
    let mut stdout = flat.0.stdout.take().unwrap();
    stdout.read_to_string(&mut table).unwrap();
    assert!(table.contains("unlink"), "{table}");
}

/// Until it takes nothing more.
fn fill(pipe: &mut std::io::PipeWriter) {
    let limit = fcntl(&*pipe, FcntlArg::F_GETPIPE_SZ).unwrap();
    pipe.write_all(&vec![b'x'; limit as usize]).unwrap();
}

#[test]
fn an_interrupted_demo_cleans_up() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    let mut demo = started("demo --tree 400", &work);
    // As soon as something is written through the mount.
    let below = format!("{}/run-", work.display());
    eventually("tar runs", || {
        let mut tars = processes_with("tar").into_iter();
        tars.any(|words| words.contains(&below) && words.contains("/mnt/"))
    });
    kill(Pid::from_raw(demo.id() as i32), Signal::SIGINT).unwrap();
    let status = demo.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    nothing_is_left(dir.path());
    assert_eq!(namespaces_of(demo.id()), 0);
}

#[test]
fn children_of_a_killed_measurement_end() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    let mut walk = started("walk --tree 400 --system glint --rtt 5ms", &work);
    let name = work.to_str().unwrap().to_owned();
    let mounts = || {
        processes_with(&name)
            .iter()
            .filter(|words| words.contains(" mount "))
            .count()
    };
    eventually("it is mounted", || mounts() == 1);
    walk.kill().unwrap();
    walk.wait().unwrap();
    let store = format!("{name}/run-");
    let serving = || {
        processes_with(&store)
            .iter()
            .any(|words| words.contains("glint "))
    };
    eventually("its processes end", || !serving());
    eventually("its mounts go", || !is_mounted(&name));
}

#[test]
fn what_a_killed_measurement_leaves_the_next_one_removes() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    let mut walk = started("walk --tree 400 --system ext4", &work);
    let name = work.to_str().unwrap().to_owned();
    eventually("ext4 is mounted", || {
        loop_devices_on(&name) == 1 && is_mounted(&name)
    });
    walk.kill().unwrap();
    walk.wait().unwrap();
    assert!(is_mounted(&name), "nothing was left to remove");
    eventually("its programs end", || processes_with(&name).is_empty());
    // Not of this work directory, though it begins alike.
    let other = dir.path().join("work-of-others");
    fs::create_dir_all(other.join("run-4194305-x")).unwrap();
    let report = measured(dir.path(), "walk --tree 60 --system ext4");
    assert!(
        sample(&report, 0, "tar -x")["seconds"].is_number(),
        "{report}"
    );
    nothing_is_left(dir.path());
    eventually("loop devices go", || loop_devices_on(&name) == 0);
    assert!(other.join("run-4194305-x").exists());
}

fn is_mounted(name: &str) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo");
    mounts.unwrap().contains(name)
}

/// How many have their file below a directory.
fn loop_devices_on(name: &str) -> usize {
    let disks = fs::read_dir("/sys/block").unwrap().flatten();
    let files =
        disks.filter_map(|disk| fs::read_to_string(disk.path().join("loop/backing_file")).ok());
    files.filter(|file| file.starts_with(name)).count()
}

#[test]
fn a_command_runs_behind_a_link() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let words = ["bench", "link", "--rtt", "20ms", "--", "sh", "-c"];
    let script = "test -n \"$GLINT_LINK_SERVER\" && ping -c 2 -q $GLINT_LINK_SERVER; exit 7";
    let ran = glint(dir.path(), &[&words[..], &[script]].concat());
    assert_eq!(ran.code, Some(7), "the command's exit code: {ran:?}");
    let average = ran
        .out
        .split(" = ")
        .nth(1)
        .and_then(|numbers| numbers.split('/').nth(1));
    let average: f64 = average.unwrap().parse().unwrap();
    assert!((20.0..60.0).contains(&average), "{ran:?}");
}

#[test]
fn without_root_a_transport_that_delays_stands_in() {
    if needs_root() {
        return;
    }
    let (dir, copy) = directory_of_nobody();
    let all = format!(
        "{OPEN_DEVICE} && exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {} bench \
         walk --tree 60 --rtt 5ms --work work --system glint,sshfs,local --json",
        copy.display()
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &all])
        .current_dir(dir.path());
    let ran = finish(&mut command);
    let report: Value = serde_json::from_str(ran.worked()).unwrap();
    assert!(
        ran.err.contains("a transport that delays stands in"),
        "{ran:?}"
    );
    let find = sample(&report, 0, "find -uid 0, cold");
    assert!(find["rpcs"].as_u64().unwrap() >= 2, "{find}");
    assert!(find["seconds"].as_f64().unwrap() >= 0.005, "{find}");
    assert!(
        report["columns"][1]["absent"]
            .as_str()
            .unwrap()
            .contains("root"),
        "{report}"
    );
    nothing_is_left(dir.path());
}
