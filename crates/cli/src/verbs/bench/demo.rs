//! `glint bench demo`: a source tree's life over a slow link, with Glint and beside others.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::{BenchError, Event, Progress, Report, Step, StopFlag, WalkConfig, walk};
use clap::Args;

use super::rivals::{Rival, Rivals, link_settings, remove_stale};
use super::screen::Screen;
use super::walk::{Format, TreeSource, show, title};
use crate::output::say_lines;

/// Watch Glint unpack, walk, search, copy and remove a source tree over a slow link. Beside it run the local
/// disk, Glint with prefetch off, and sshfs over the same link.
///
/// Takes up to five minutes. Nothing stays mounted or running, and all files but the source tree's
/// tar file and the picture are removed; Ctrl-C at any point cleans up as well.
#[derive(Args)]
pub struct Demo {
    /// Where everything is stored meanwhile.
    #[arg(long, default_value = "demo-data")]
    work: PathBuf,
    /// The round trip of the link.
    #[arg(long, default_value = "5ms", value_parser = super::walk::duration)]
    rtt: Duration,
    /// The tree: a number of entries in the shape of Linux's source, kernel (Debian's source, which
    /// is downloaded first), or a tar file.
    #[arg(long, default_value = "20000")]
    tree: TreeSource,
    /// Seconds after which a step is stopped, and reported as longer than that; without prefetch and
    /// by sshfs after half of them.
    #[arg(long, default_value_t = 20)]
    cap: u64,
    /// How the report is shown.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Those that are soon done come first.
const SYSTEMS: [Rival; 4] = [
    Rival::Glint,
    Rival::Local,
    Rival::GlintNoPrefetch,
    Rival::Sshfs,
];

/// `du` is left out: it costs what `find` does.
const STEPS: [Step; 11] = [
    Step::Unpack,
    Step::SyncUnpacked,
    Step::FindCold,
    Step::FindWarm,
    Step::ListCold,
    Step::ListWarm,
    Step::GrepCold,
    Step::GrepWarm,
    Step::Copy,
    Step::SyncCopied,
    Step::Remove,
];

impl Demo {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
        let mut screen = Screen::with_table(labels());
        let report = self.measure(stop, &mut |event| screen.show(event));
        screen.clear();
        drop(screen);
        let report = report.map_err(|error| error.to_string())?;
        show(&report, self.format)?;
        let picture = self.work.join("demo.svg");
        draw(&report, &picture).map_err(|error| error.to_string())?;
        if self.format == Format::Text {
            let picture = picture.display();
            say_lines(format!("\n{}\nPicture: {picture}\n", shown(&report)));
        }
        Ok(())
    }

    fn measure(&self, stop: StopFlag, progress: &mut Progress) -> bench::Result<Report> {
        let work = std::path::absolute(&self.work).map_err(|source| BenchError::Io {
            doing: format!("finding {}", self.work.display()),
            source,
        })?;
        remove_stale(&work);
        let tree = self.tree.obtain(&work.join("trees"), &stop, progress)?;
        let patient = WalkConfig {
            cap: Duration::from_secs(self.cap),
            steps: STEPS.to_vec(),
            ..WalkConfig::new(tree, stop.clone())
        };
        let hasty = WalkConfig {
            cap: patient.cap / 2,
            ..patient.clone()
        };
        let link = format!(", {:?} from the server", self.rtt);
        let mut report = Report::new(title(&patient.tree, &link), labels());
        progress(Event::Line(self.introduction(&report)));
        let rivals = Rivals {
            systems: SYSTEMS.to_vec(),
            directories: Vec::new(),
            drop_caches: false,
            // A disk image is removed at once, a store file by file.
            like_disks: nix::unistd::geteuid().is_root(),
            settings: link_settings(self.rtt, None),
            work,
            stop,
        };
        let slow = [Rival::GlintNoPrefetch, Rival::Sshfs].map(Rival::label);
        rivals.run(&mut report, progress, &mut |system, progress| {
            let config = match slow.contains(&system.name()) {
                true => &hasty,
                false => &patient,
            };
            walk(system, config, progress)
        })?;
        Ok(report)
    }

    fn introduction(&self, report: &Report) -> String {
        let cap = Duration::from_secs(self.cap);
        format!(
            "{}\na step is stopped after {cap:?}; without prefetch and by sshfs after {:?}, to be \
             done in five minutes",
            report.title,
            cap / 2
        )
    }
}

fn labels() -> impl Iterator<Item = &'static str> {
    STEPS.into_iter().map(Step::label)
}

fn draw(report: &Report, path: &Path) -> bench::Result<()> {
    let svg = report.svg()?;
    std::fs::write(path, svg).map_err(|source| BenchError::Io {
        doing: format!("writing {}", path.display()),
        source,
    })
}

/// One sentence on what the table shows.
fn shown(report: &Report) -> String {
    let step = Step::FindCold.label();
    let times = report.columns.iter().filter_map(|column| {
        let sample = column.result(step)?;
        let more = if sample.capped { "more than " } else { "" };
        Some(format!("{} {more}{:.1} s", column.name, sample.seconds))
    });
    format!(
        "Shown: the first walk of the tree ({step}) took {}; each file that tar, cp and rm make or \
         remove costs Glint a round trip.",
        times.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use bench::{Column, Sample};

    use super::*;

    #[test]
    fn the_sentence_names_each_system_that_was_measured() {
        let mut report = Report::new("", labels());
        for (name, seconds, capped) in [("Glint", 2.04, false), ("sshfs", 10.0, true)] {
            let mut column = Column::new(name);
            let sample = Sample {
                seconds,
                capped,
                ..Sample::default()
            };
            column.add(Step::FindCold.label(), sample);
            report.keep(column);
        }
        report.keep(Column::absent("local disk", "it is broken"));
        let expected = "took Glint 2.0 s, sshfs more than 10.0 s; each file";
        assert!(shown(&report).contains(expected), "{}", shown(&report));
    }
}
