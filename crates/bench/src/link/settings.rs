//! What a link does to packets, and how a person writes it: `rtt 5ms`, `bandwidth 1gbit`, `loss 0.1%`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};

/// Longest round trip and jitter: beyond it nothing but a mistake in units makes sense.
const RTT_MAX: Duration = Duration::from_secs(60);
/// Below this rate large segments would be milliseconds long on the wire.
const LARGE_SEGMENT_RATE: u64 = 200_000_000;

/// How the link behaves now. May change while connections are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkSettings {
    /// Added to a round trip; half of it in each direction.
    pub rtt: Duration,
    /// A round trip varies by at most this much either way, evenly distributed; order is kept.
    pub jitter: Duration,
    /// Bits per second of IP packets, in each direction; none is unlimited.
    pub bandwidth: Option<u64>,
    /// Packets lost per million, in each direction.
    pub loss_ppm: u32,
}

impl LinkSettings {
    /// Sets one value from its name and text, as a command or a flag gives them.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "rtt" => self.rtt = parse_duration(value)?,
            "jitter" => self.jitter = parse_duration(value)?,
            "bandwidth" => self.bandwidth = parse_bandwidth(value)?,
            "loss" => self.loss_ppm = parse_loss(value)?,
            _ => {
                return Err(BenchError::Invalid(format!(
                    "a link has no \"{key}\"; it has rtt, jitter, bandwidth, loss"
                )));
            }
        }
        Ok(())
    }

    /// Whether segments of many packets may cross as one. Not when each packet is to be lost on its
    /// own, nor when the link is so slow that one segment would block it for milliseconds.
    pub(crate) fn large_segments(&self) -> bool {
        self.loss_ppm == 0 && self.bandwidth.is_none_or(|rate| rate >= LARGE_SEGMENT_RATE)
    }
}

impl fmt::Display for LinkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rtt {:?} jitter {:?} bandwidth ", self.rtt, self.jitter)?;
        match self.bandwidth {
            Some(rate) => write!(f, "{rate}bit")?,
            None => f.write_str("unlimited")?,
        }
        write!(f, " loss {}%", f64::from(self.loss_ppm) / 10_000.0)
    }
}

/// `5ms`, `0.2ms`, `100us`, `1s`, `0`.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let bad = || BenchError::Invalid(format!("\"{text}\" is no time; write 5ms, 100us or 1s"));
    let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "" if number == 0.0 => 1.0,
        _ => return Err(bad()),
    };
    let time = Duration::try_from_secs_f64(number * scale).map_err(|_| bad())?;
    if time > RTT_MAX {
        return Err(BenchError::Invalid(format!(
            "{text} is longer than a minute"
        )));
    }
    Ok(time)
}

/// `1gbit`, `100mbit`, `64kbit`, `9600bit`, `unlimited`.
pub fn parse_bandwidth(text: &str) -> Result<Option<u64>> {
    if text == "unlimited" {
        return Ok(None);
    }
    let bad = || {
        BenchError::Invalid(format!(
            "\"{text}\" is no bandwidth; write 1gbit, 100mbit, 64kbit or unlimited"
        ))
    };
    let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
    let scale = match unit {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(bad()),
    };
    let rate = number * scale;
    // Slower than 8 kbit/s, one packet would take seconds.
    if !(8e3..=1e12).contains(&rate) {
        return Err(BenchError::Invalid(format!(
            "{text} is out of range; a link has between 8kbit and 1000gbit"
        )));
    }
    Ok(Some(rate as u64))
}

/// `0.1%`, `0`, `100%`; in packets per million.
pub fn parse_loss(text: &str) -> Result<u32> {
    let bad = || BenchError::Invalid(format!("\"{text}\" is no loss; write 0.1% or 0"));
    let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
    if !(unit == "%" || number == 0.0) || !(0.0..=100.0).contains(&number) {
        return Err(bad());
    }
    Ok((number * 10_000.0).round() as u32)
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let number = text[..split].parse().ok()?;
    Some((number, &text[split..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_person_writes() {
        let mut settings = LinkSettings::default();
        for (key, value) in [
            ("rtt", "5ms"),
            ("jitter", "0.2ms"),
            ("bandwidth", "1.5gbit"),
            ("loss", "0.1%"),
        ] {
            settings.set(key, value).unwrap();
        }
        assert_eq!(settings.rtt, Duration::from_millis(5));
        assert_eq!(settings.jitter, Duration::from_micros(200));
        assert_eq!(settings.bandwidth, Some(1_500_000_000));
        assert_eq!(settings.loss_ppm, 1000);
        assert_eq!(
            settings.to_string(),
            "rtt 5ms jitter 200µs bandwidth 1500000000bit loss 0.1%"
        );
        settings.set("bandwidth", "unlimited").unwrap();
        settings.set("loss", "0").unwrap();
        settings.set("rtt", "0").unwrap();
        assert_eq!((settings.bandwidth, settings.loss_ppm), (None, 0));
        assert!(settings.large_segments());
    }

    #[test]
    fn refuses_nonsense_and_keeps_the_old_value() {
        let before = LinkSettings {
            rtt: Duration::from_millis(1),
            ..LinkSettings::default()
        };
        let mut settings = before;
        for (key, value) in [
            ("rtt", "5"),
            ("rtt", "ms"),
            ("rtt", "-1ms"),
            ("rtt", "61s"),
            ("rtt", "1e400s"),
            ("rtt", ""),
            ("rtt", "5µs"),
            ("jitter", "1.2.3ms"),
            ("bandwidth", "0gbit"),
            ("bandwidth", "5"),
            ("bandwidth", "9999999gbit"),
            ("loss", "101%"),
            ("loss", "1"),
            ("speed", "1"),
        ] {
            let error = settings.set(key, value).unwrap_err().to_string();
            assert!(
                error.contains(if key == "speed" { key } else { value }),
                "{error}"
            );
        }
        assert_eq!(settings, before);
    }
}
