//! `glint bench demo`

use std::path::PathBuf;
use std::time::Duration;

use bench::{Progress, Report, StopFlag, WalkConfig};
use clap::Args;

use super::rivals::{Rival, Rivals, link_settings, remove_stale};
use super::screen::Screen;
use super::walk::{Format, TreeSource, labels, show, title, walk_all};

/// Watch Glint unpack, walk, search, copy and remove a real source tree over a slow link, beside
/// Glint with prefetch off, sshfs over the same link, and the local disk.
///
/// Takes up to an hour, or a few minutes with `--tree 5000`. Nothing stays mounted or running, and
/// all files but the source tree's tar file are removed; Ctrl-C at any point cleans up as well.
#[derive(Args)]
pub struct Demo {
    /// Where everything is stored meanwhile.
    #[arg(long, default_value = "demo-data")]
    work: PathBuf,
    /// The round trip of the link.
    #[arg(long, default_value = "5ms", value_parser = super::walk::duration)]
    rtt: Duration,
    /// The tree: kernel (Debian's, or one of its shape), a number of entries, or a tar file.
    #[arg(long, default_value = "kernel")]
    tree: TreeSource,
    /// Seconds after which a step is stopped, and reported as longer than that.
    #[arg(long, default_value_t = 120)]
    cap: u64,
    /// How the report is shown.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

const SYSTEMS: [Rival; 4] = [
    Rival::Glint,
    Rival::GlintNoPrefetch,
    Rival::Sshfs,
    Rival::Local,
];

impl Demo {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
        let mut screen = Screen::new();
        let report = self.measure(stop, &mut |event| screen.show(event));
        screen.clear();
        drop(screen);
        show(&report.map_err(|error| error.to_string())?, self.format)
    }

    fn measure(&self, stop: StopFlag, progress: &mut Progress) -> bench::Result<Report> {
        let work = std::path::absolute(&self.work).map_err(|source| bench::BenchError::Io {
            doing: format!("finding {}", self.work.display()),
            source,
        })?;
        remove_stale(&work);
        let tree = self.tree.obtain(&work.join("trees"), &stop, progress)?;
        let mut config = WalkConfig::new(tree, stop.clone());
        config.cap = Duration::from_secs(self.cap);
        let link = format!(", {:?} from the server", self.rtt);
        let mut report = Report::new(title(&config.tree, &link), labels());
        let rivals = Rivals {
            systems: SYSTEMS.to_vec(),
            directories: Vec::new(),
            drop_caches: false,
            like_disks: false,
            settings: link_settings(self.rtt, None),
            work,
            stop,
        };
        walk_all(&rivals, &config, &mut report, progress)?;
        Ok(report)
    }
}
