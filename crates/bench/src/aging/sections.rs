//! Tables and figures of aged targets: the paper's ten figures and what stands beside them.

use super::claims::Claim;
use super::paper::{Aged, Map, Rates};
use super::parameters::TARGETS_OF_UNIT;
use super::wear::{Tidied, Worn};
use crate::report::{Axis, Bitmap, Cell, Figure, Point, Section, Series, Table};

/// Rows of a picture: groups.
const PICTURED_GROUPS: usize = 48;
const GROUP_MIB: u32 = 128;
/// Longer runs are one bar of the histogram.
const LONGEST_MIB: u64 = 32;

fn point(x: f64, y: f64) -> Point {
    Point {
        x,
        y,
        at_least: false,
    }
}

fn section(name: &str, title: String) -> Section {
    Section {
        name: name.to_owned(),
        title,
        tables: Vec::new(),
        figures: Vec::new(),
        bitmaps: Vec::new(),
        notes: Vec::new(),
        runs: Vec::new(),
    }
}

/// Statements with what they need and what was measured.
pub fn claims_table(title: &str, claims: &[Claim]) -> Table {
    let mut table = Table::new(title, ["statement", "needs", "here", ""]);
    for claim in claims {
        let verdict = if claim.holds { "holds" } else { "does not" };
        let words = [&claim.statement, &claim.needs, &claim.measured];
        let cells = words.map(|words| Cell::from(words.as_str()));
        table
            .rows
            .push(cells.into_iter().chain([verdict.into()]).collect());
    }
    table
}

/// Clean and least rates, a row for each.
fn rates_table(aged: &[Aged]) -> Table {
    let head = [
        "table",
        "clean write MB/s",
        "clean read MB/s",
        "write at 5 % free, % of clean",
        "read",
        "least write, % of clean",
        "read ",
    ];
    let mut table = Table::new("Rates by preallocation table", head);
    for aged in aged {
        let (first, worst) = (aged.first(), aged.worst());
        let parts = [first.write, first.read, worst.write, worst.read];
        let numbers = [aged.clean.write, aged.clean.read]
            .into_iter()
            .chain(parts.map(|part| part * 100.0));
        let name = Cell::from(aged.name.as_str());
        table.rows.push(
            [name]
                .into_iter()
                .chain(numbers.map(Cell::Number))
                .collect(),
        );
    }
    table
}

/// Rates as per cents of clean, a row for each step.
fn steps_table(title: &str, aged: &[Aged], of: fn(&Rates) -> f64) -> Table {
    let names = aged.iter().map(|aged| aged.name.clone());
    let mut table = Table::new(title, ["% free".to_owned()].into_iter().chain(names));
    let steps = aged.iter().map(|aged| aged.steps.len()).min().unwrap_or(0);
    for step in 0..steps {
        let free = aged[0].steps[step].free.round() as u64;
        let parts = aged
            .iter()
            .map(|aged| Cell::Number(of(&aged.steps[step].rates) / of(&aged.clean) * 100.0));
        table
            .rows
            .push([Cell::Count(free)].into_iter().chain(parts).collect());
    }
    table
}

/// Per cents of clean against per cent free, a line for each.
fn parts_figure(name: &str, title: &str, aged: &[Aged], of: fn(&Rates) -> f64) -> Figure {
    let series = |aged: &Aged| Series {
        name: aged.name.clone(),
        points: aged
            .steps
            .iter()
            .map(|step| point(step.free, of(&step.rates) / of(&aged.clean) * 100.0))
            .collect(),
    };
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        x: Axis::linear("free space", "%"),
        y: Axis::linear("rate, against the same table when clean", "%"),
        series: aged.iter().map(series).collect(),
    }
}

/// The paper's figures 7 to 10: both rates of a unit against per cent free, the clean ones at 100.
fn unit_figure(aged: &Aged) -> Figure {
    let series = |name: &str, of: fn(&Rates) -> f64| {
        let of_unit = |rates: &Rates| of(rates) * TARGETS_OF_UNIT / 1000.0;
        let steps = aged.steps.iter().filter(|step| step.free < 99.9);
        let steps = steps.map(|step| point(step.free, of_unit(&step.rates)));
        Series {
            name: name.to_owned(),
            points: steps.chain([point(100.0, of_unit(&aged.clean))]).collect(),
        }
    };
    Figure {
        name: format!("aging-rates-{}", file_word(&aged.name)),
        title: format!("Rates of a unit, preallocation {}", aged.name),
        x: Axis::linear("free space", "%"),
        y: Axis::linear("rate of eight targets", "GB/s"),
        series: vec![
            series("write", |rates| rates.write),
            series("read", |rates| rates.read),
        ],
    }
}

/// The paper's figures 3 to 6: how much space lies in runs of which length.
fn contiguous_figure(aged: &[&Aged]) -> Figure {
    let series = |aged: &Aged| {
        let part = |mib: u64| match mib == LONGEST_MIB {
            true => longest(aged),
            false => aged.part_in_runs_of(mib),
        };
        Series {
            name: aged.name.clone(),
            points: (1..=LONGEST_MIB)
                .map(|mib| point(mib as f64, part(mib) * 100.0))
                .collect(),
        }
    };
    Figure {
        name: "aging-contiguous".to_owned(),
        title: "Contiguous space of the files that fill the target".to_owned(),
        x: Axis::logarithmic("length of a run (32: and more)", "MiB"),
        y: Axis::linear("space in such runs", "%"),
        series: aged.iter().map(|aged| series(aged)).collect(),
    }
}

fn longest(aged: &Aged) -> f64 {
    let runs = aged.contiguous.iter();
    let long = runs.filter(|runs| runs.mib >= LONGEST_MIB);
    long.map(|runs| runs.part).fold(0.0, |sum, part| sum + part)
}

fn contiguous_table(aged: &[Aged]) -> Table {
    let lengths: Vec<u64> = (0..=5).map(|order| 1 << order).collect();
    let words = lengths.iter().map(|mib| match *mib == LONGEST_MIB {
        true => format!("{mib} MiB and more"),
        false => format!("{mib} MiB"),
    });
    let head = ["table".to_owned()].into_iter().chain(words);
    let head = head.chain(["others".to_owned()]);
    let mut table = Table::new("Space in runs of which length, % of all", head);
    for aged in aged {
        let part = |mib: &u64| match *mib == LONGEST_MIB {
            true => longest(aged),
            false => aged.part_in_runs_of(*mib),
        };
        let parts: Vec<f64> = lengths.iter().map(part).collect();
        let others = 1.0 - parts.iter().sum::<f64>();
        let cells = parts.into_iter().chain([others.max(0.0)]);
        let cells = cells.map(|part| Cell::Number(part * 100.0));
        let name = Cell::from(aged.name.as_str());
        table.rows.push([name].into_iter().chain(cells).collect());
    }
    table
}

/// The paper's figures 1 and 2, and the target half free.
fn pictures(aged: &Aged) -> impl Iterator<Item = Bitmap> {
    aged.maps.iter().map(|Map { when, used }| {
        let shown = used.len().min(PICTURED_GROUPS * GROUP_MIB as usize);
        let groups = shown / GROUP_MIB as usize;
        Bitmap::new(
            &format!("aging-map-{}-{}", file_word(&aged.name), file_word(when)),
            &format!(
                "{}, {when}: {groups} groups of 128 cells of 1 MiB; dark: used",
                aged.name
            ),
            GROUP_MIB,
            &used[..shown],
        )
    })
}

fn file_word(name: &str) -> String {
    name.to_lowercase().replace(' ', "-")
}

/// The paper's experiment for each table.
pub fn tables(title: String, aged: &[Aged], claims: &[Claim]) -> Section {
    let mut section = section("tables", title);
    if !claims.is_empty() {
        section
            .tables
            .push(claims_table("The paper's statements", claims));
    }
    section.tables.extend([
        rates_table(aged),
        steps_table("Write rate, % of clean", aged, |rates| rates.write),
        steps_table("Read rate, % of clean", aged, |rates| rates.read),
        contiguous_table(aged),
    ]);
    let papers: Vec<&Aged> = aged
        .iter()
        .filter(|aged| ["1 MiB", "2 MiB", "4 MiB", "8 MiB"].contains(&aged.name.as_str()))
        .collect();
    let shown = match papers.is_empty() {
        true => aged.iter().collect(),
        false => papers,
    };
    section.figures.push(contiguous_figure(&shown));
    section
        .figures
        .extend(shown.iter().map(|aged| unit_figure(aged)));
    let write: fn(&Rates) -> f64 = |rates| rates.write;
    section.figures.extend([
        parts_figure("aging-write", "Write rate as the target ages", aged, write),
        parts_figure(
            "aging-read",
            "Read rate as the target ages",
            aged,
            |rates| rates.read,
        ),
    ]);
    section
        .bitmaps
        .extend(shown.iter().flat_map(|aged| pictures(aged)));
    section
}

/// A further question about the same experiment.
pub fn question(
    name: &str,
    title: &str,
    aged: &[Aged],
    claims: &[Claim],
    notes: &[&str],
) -> Section {
    let mut section = section(name, title.to_owned());
    if !claims.is_empty() {
        section.tables.push(claims_table("What must hold", claims));
    }
    section.tables.push(rates_table(aged));
    let figure = |direction: &str, of: fn(&Rates) -> f64| {
        parts_figure(
            &format!("aging-{name}-{direction}"),
            &format!("{title}: {direction}"),
            aged,
            of,
        )
    };
    section.figures.extend([
        figure("write", |rates| rates.write),
        figure("read", |rates| rates.read),
    ]);
    section.notes = notes.iter().map(|note| (*note).to_owned()).collect();
    section
}

/// A tree that was worn, read against its fresh copy.
pub fn wear(
    name: &str,
    title: String,
    (worn, tidied): (&[Worn], &[Tidied]),
    claims: &[Claim],
    notes: &[&str],
) -> Section {
    let mut section = section(name, title);
    section.tables.push(claims_table("What must hold", claims));
    let head = [
        "steps",
        "files written, % of all",
        "read s",
        "copy s",
        "ratio",
        "singly s",
        "copy s ",
        "ratio ",
    ];
    let mut table = Table::new("Reading all files in the order of a walk", head);
    for worn in worn {
        let numbers = [
            worn.rewritten * 100.0,
            worn.aged,
            worn.fresh,
            worn.aged / worn.fresh,
            worn.aged_singly,
            worn.fresh_singly,
            worn.aged_singly / worn.fresh_singly,
        ];
        let numbers = numbers.into_iter().map(Cell::Number);
        let steps = Cell::Count(worn.steps);
        table
            .rows
            .push([steps].into_iter().chain(numbers).collect());
    }
    section.tables.push(table);
    section.tables.push(tidied_table(tidied));
    let ratio = |name: &str, of: fn(&Worn) -> f64| Series {
        name: name.to_owned(),
        points: worn
            .iter()
            .map(|worn| point(worn.steps as f64, of(worn)))
            .collect(),
    };
    section.figures.push(Figure {
        name: format!("aging-{name}"),
        title: format!("{name}: reading all, against a fresh copy"),
        x: Axis::linear("steps", ""),
        y: Axis::linear("times as long", ""),
        series: vec![
            ratio("512 files at once", |worn| worn.aged / worn.fresh),
            ratio("one after the other", |worn| {
                worn.aged_singly / worn.fresh_singly
            }),
        ],
    });
    section.notes = notes.iter().map(|note| (*note).to_owned()).collect();
    section
}

/// What idle time does to a worn tree.
fn tidied_table(tidied: &[Tidied]) -> Table {
    let head = [
        "rounds",
        "moved, % of all",
        "work s",
        "read s",
        "copy s",
        "ratio",
    ];
    let mut table = Table::new("The same after idle time, 512 files at once", head);
    for round in tidied {
        let numbers = [
            round.moved * 100.0,
            round.seconds,
            round.read,
            round.fresh,
            round.read / round.fresh,
        ];
        let numbers = numbers.into_iter().map(Cell::Number);
        let rounds = Cell::Count(round.rounds);
        table
            .rows
            .push([rounds].into_iter().chain(numbers).collect());
    }
    table
}

/// Conclusions with each number of the model larger and smaller.
pub fn scale(percent: u32, rows: &[(String, Vec<Claim>)]) -> Section {
    let title = format!("the statements with each number of the model {percent} % off");
    let mut section = section("scale", title);
    let statements = rows.first().map(|(_, claims)| claims.iter());
    let statements = statements.into_iter().flatten();
    let head = statements.map(|claim| claim.statement.clone());
    let mut table = Table::new("What holds", ["model".to_owned()].into_iter().chain(head));
    for (name, claims) in rows {
        let cell = |claim: &Claim| {
            let verdict = if claim.holds { "holds" } else { "does not" };
            Cell::Text(format!("{verdict}: {}", claim.measured))
        };
        let name = Cell::from(name.as_str());
        table
            .rows
            .push([name].into_iter().chain(claims.iter().map(cell)).collect());
    }
    section.tables.push(table);
    section
}
