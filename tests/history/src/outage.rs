//! Outages: a mount is evicted, or its process dies without a successor. They name the time in which calls of
//! that mount are excused, and the error numbers.

/// What ended what the mount had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The servers gave the mount up (crash.eviction).
    Evicted,
    /// Its process died without a supervisor (crash.mount).
    Died,
}

/// One outage of one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Which mount.
    pub mount: u32,
    /// Before this the mount was well. CLOCK_MONOTONIC in nanoseconds.
    pub begin: u64,
    /// From here on its calls are true again: it has dropped its caches, or is mounted anew.
    pub end: u64,
    /// Why.
    pub cause: Cause,
}

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// When the line of a log was written, in nanoseconds of the wall clock: `2026-01-31T12:34:56.789012Z …`.
pub fn wall_time(line: &str) -> Option<u64> {
    let (date, rest) = line.split_once('T')?;
    let (time, _) = rest.split_once('Z')?;
    let numbers = |text: &str, by: char| -> Option<Vec<u64>> {
        text.split(by).map(|word| word.parse().ok()).collect()
    };
    let (whole, part) = time.split_once('.').unwrap_or((time, "0"));
    let part = format!("{part:0<9}").get(..9)?.parse::<u64>().ok()?;
    match (&numbers(date, '-')?[..], &numbers(whole, ':')?[..]) {
        (&[year, month, day], &[hours, minutes, seconds]) => {
            let days = days_since_1970(year, month, day)?;
            let seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
            Some(seconds * SECOND + part)
        }
        _ => None,
    }
}

/// By the Gregorian calendar, which counts its years from March.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) {
        return None;
    }
    let year = year.checked_sub(u64::from(month <= 2))?;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.checked_sub(1)?;
    let leap_days = year / 4 - year / 100 + year / 400;
    (year * 365 + leap_days + day_of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_line() {
        let seconds = |line| wall_time(line).map(|time| time / SECOND);
        assert_eq!(seconds("1970-01-01T00:00:00Z x"), Some(0));
        assert_eq!(seconds("2000-02-29T12:00:00Z x"), Some(951_825_600));
        assert_eq!(seconds("2026-11-28T10:51:28Z x"), Some(1_795_863_088));
        let precise = wall_time("1970-01-01T00:00:01.000250Z ERROR Then");
        assert_eq!(precise, Some(SECOND + 250_000));
        assert_eq!(wall_time("mounted at /mnt"), None);
    }
}
