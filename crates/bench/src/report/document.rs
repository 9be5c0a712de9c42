//! Several experiments in one document: Markdown with figures as files beside it, or JSON.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::bitmap::Bitmap;
use super::column::Column;
use super::figure::Figure;
use super::machine::machine;
use super::table::Table;
use crate::error::{BenchError, During, Result};

/// What a Markdown text does with figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figures {
    /// They are files in the same directory.
    Linked,
    /// There are none; tables hold every number.
    LeftOut,
}

/// One experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// In one word.
    pub name: String,
    /// What was done, on what, over what link.
    pub title: String,
    /// The medians.
    pub tables: Vec<Table>,
    /// The same to look at.
    pub figures: Vec<Figure>,
    /// Pictures of places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bitmaps: Vec<Bitmap>,
    /// What one must know to read them.
    pub notes: Vec<String>,
    /// Every run, of each system.
    pub runs: Vec<Column>,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Of its files, without an ending.
    pub name: String,
    /// What was measured.
    pub title: String,
    /// The machine and how busy it was.
    pub machine: String,
    /// In order.
    pub sections: Vec<Section>,
}

impl Document {
    /// Nothing measured yet, on this machine.
    pub fn new(name: impl Into<String>, title: impl Into<String>) -> Document {
        Document {
            name: name.into(),
            title: title.into(),
            machine: machine(),
            sections: Vec::new(),
        }
    }

    /// For people.
    pub fn markdown(&self, figures: Figures) -> String {
        let sections = self.sections.iter();
        let sections: String = sections.map(|section| section.markdown(figures)).collect();
        format!("# {}\n\n{}\n{sections}", self.title, self.machine)
    }

    /// Everything, each run included.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| BenchError::Invalid(format!("a number that JSON has not: {error}")))
    }

    /// Writes `NAME.md`, `NAME.json` and each figure into a directory, which is made if it is not
    /// there. Files of these names are replaced.
    pub fn write(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).during(|| format!("making {}", directory.display()))?;
        let put = |name: String, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).during(|| format!("writing {}", path.display()))
        };
        for figure in self.sections.iter().flat_map(|section| &section.figures) {
            put(figure.file_name(), figure.svg()?)?;
        }
        for bitmap in self.sections.iter().flat_map(|section| &section.bitmaps) {
            put(bitmap.file_name(), bitmap.svg()?)?;
        }
        put(format!("{}.json", self.name), self.json()?)?;
        put(format!("{}.md", self.name), self.markdown(Figures::Linked))
    }
}

impl Section {
    fn markdown(&self, figures: Figures) -> String {
        let mut parts = vec![format!("## {}: {}", self.name, self.title)];
        for table in &self.tables {
            parts.push(format!("**{}**", table.title));
            parts.push(table.markdown().trim_end().to_owned());
        }
        if figures == Figures::Linked {
            let link = |figure: &Figure| format!("![{}]({})", figure.title, figure.file_name());
            parts.extend(self.figures.iter().map(link));
            let link = |bitmap: &Bitmap| format!("![{}]({})", bitmap.title, bitmap.file_name());
            parts.extend(self.bitmaps.iter().map(link));
        }
        let notes: Vec<String> = self.all_notes().map(|note| format!("- {note}")).collect();
        if !notes.is_empty() {
            parts.push(notes.join("\n"));
        }
        let parts = parts.into_iter().map(|part| format!("\n{part}\n"));
        parts.collect()
    }

    /// Its own, what ">" means where it is used, and why cells are empty.
    fn all_notes(&self) -> impl Iterator<Item = String> + '_ {
        let capped = self.tables.iter().any(Table::has_capped);
        let capped = capped.then(|| {
            "\">\": stopped there, the whole is more; in figures such a point is a triangle"
                .to_owned()
        });
        let absent = self.runs.iter().filter_map(|column| {
            let why = column.absent.as_ref()?;
            Some(format!("{}not measured: {why}", self.of(column)))
        });
        let skipped = self.runs.iter().flat_map(|column| {
            column.steps.iter().filter_map(|runs| {
                let why = runs.skipped.as_ref()?;
                Some(format!("{}{}: {why}", self.of(column), runs.step))
            })
        });
        let own = self.notes.iter().cloned();
        own.chain(capped).chain(absent).chain(skipped)
    }

    /// Which system, where there are several.
    fn of(&self, column: &Column) -> String {
        match self.runs.len() {
            1 => String::new(),
            _ => format!("{}: ", column.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Axis, Cell, Point, Series};

    fn document() -> Document {
        let mut table = Table::new("all", ["RTT ms", "off s"]);
        table.rows.push(vec![Cell::Number(0.1), Cell::Number(1.5)]);
        table.rows.push(vec![Cell::Count(50), Cell::MoreThan(60.0)]);
        let mut runs = Column::new("Glint");
        runs.skip("off, 200 ms", "it fell over".to_owned());
        let point = |x, y, at_least| Point { x, y, at_least };
        let figure = Figure {
            name: "rtt".to_owned(),
            title: "a < b & c".to_owned(),
            x: Axis::logarithmic("round trip", "ms"),
            y: Axis::logarithmic("time", "s"),
            series: vec![Series {
                name: "off".to_owned(),
                points: vec![point(0.1, 1.5, false), point(50.0, 60.0, true)],
            }],
        };
        let section = Section {
            bitmaps: Vec::new(),
            name: "rtt".to_owned(),
            title: "find".to_owned(),
            tables: vec![table],
            figures: vec![figure],
            notes: vec!["cold".to_owned()],
            runs: vec![runs],
        };
        Document {
            name: "xfast".to_owned(),
            title: "A talk".to_owned(),
            machine: "2 processors".to_owned(),
            sections: vec![section],
        }
    }

    #[test]
    fn markdown_has_tables_links_and_reasons() {
        let expected = "\
# A talk

2 processors

## rtt: find

**all**

| RTT ms |  off s |
|--------|-------:|
| 0.100  |   1.50 |
| 50     | > 60.0 |

![a < b & c](rtt.svg)

- cold
- \">\": stopped there, the whole is more; in figures such a point is a triangle
- off, 200 ms: it fell over
";
        assert_eq!(document().markdown(Figures::Linked), expected);
        assert!(!document().markdown(Figures::LeftOut).contains("svg"));
    }

    #[test]
    fn files_are_written_and_json_is_read_back() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("new/figures");
        document().write(&directory).unwrap();
        document().write(&directory).unwrap();
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        let again: Document = serde_json::from_str(&read("xfast.json")).unwrap();
        assert_eq!(again, document());
        assert!(read("xfast.json").contains("\"more_than\": 60.0"));
        assert!(read("xfast.md").contains("(rtt.svg)"));
        assert!(read("rtt.svg").starts_with("<svg"));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = document().write(file.path()).unwrap_err().to_string();
        assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
    }
}
