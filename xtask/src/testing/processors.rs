//! How idle the machine's processors were lately, from /proc/stat (proc(5)).

use std::time::Duration;

/// How long a measurement lasts.
const SPAN: Duration = Duration::from_millis(800);

/// Time that all processors spent, in ticks since the machine began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spent {
    idle: u64,
    all: u64,
}

impl Spent {
    fn read() -> Result<Spent, String> {
        let text = std::fs::read_to_string("/proc/stat")
            .map_err(|error| format!("cannot read /proc/stat: {error}"))?;
        Spent::parse(&text).ok_or_else(|| "/proc/stat has no line of all processors".to_owned())
    }

    /// The first line is `cpu` with user, nice, system, idle, iowait and so on.
    fn parse(text: &str) -> Option<Spent> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // A processor is free for tests where only something niced runs.
        let idle = ticks.get(1)? + ticks.get(3)? + ticks.get(4)?;
        // Guests' time is part of the user's.
        let all = ticks.iter().take(8).sum();
        Some(Spent { idle, all })
    }
}

/// The measurement.
#[derive(Debug, Default)]
pub struct Processors {
    began: Option<(Duration, Spent)>,
    idle: Option<f64>,
}

impl Processors {
    /// What was measured before counts no more.
    pub fn begin_anew(&mut self) {
        *self = Processors::default();
    }

    /// The share of time that was idle in the last whole span before `now`, 0 to 1; nothing until one is
    /// over.
    pub fn idle(&mut self, now: Duration) -> Result<Option<f64>, String> {
        match self.began {
            Some((began, _)) if now < began + SPAN => {}
            began => {
                let spent = Spent::read()?;
                if let Some((_, before)) = began {
                    let all = spent.all.saturating_sub(before.all).max(1);
                    self.idle = Some(spent.idle.saturating_sub(before.idle) as f64 / all as f64);
                }
                self.began = Some((now, spent));
            }
        }
        Ok(self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_counts() {
        let text = "cpu  10 1 5 100 20 0 2 0 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let spent = Spent {
            idle: 121,
            all: 138,
        };
        assert_eq!(Spent::parse(text), Some(spent));
        assert_eq!(Spent::parse("intr 5\n"), None);
    }

    #[test]
    fn nothing_is_measured_until_a_span_is_over() {
        let mut processors = Processors::default();
        assert_eq!(processors.idle(Duration::ZERO), Ok(None));
        assert!(processors.idle(SPAN).unwrap().is_some());
        processors.begin_anew();
        assert_eq!(processors.idle(SPAN * 2), Ok(None));
    }
}
