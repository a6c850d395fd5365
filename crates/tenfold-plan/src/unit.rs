//! Bandwidths, times and sizes as people write them.

use crate::error::{Error, Result};

/// Bits in decimal units, as links are rated; bytes with a capital B.
const BANDWIDTHS: [(&str, f64); 13] = [
    ("kb/s", 1e3 / 8.0),
    ("Mb/s", 1e6 / 8.0),
    ("Gb/s", 1e9 / 8.0),
    ("Tb/s", 1e12 / 8.0),
    ("kbit", 1e3 / 8.0),
    ("Mbit", 1e6 / 8.0),
    ("Gbit", 1e9 / 8.0),
    ("Tbit", 1e12 / 8.0),
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("TB/s", 1e12),
    ("B/s", 1.0),
];

const TIMES: [(&str, f64); 4] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];

const SIZES: [(&str, f64); 9] = [
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("B", 1.0),
];

/// Bytes a second, from a text such as `100Mb/s`.
pub fn bandwidth(text: &str) -> Result<f64> {
    let found = number(text, &BANDWIDTHS).filter(|value| *value > 0.0);
    found.ok_or_else(|| {
        Error::InvalidArgument(format!(
            "{text:?} is not a bandwidth; write bits as 100Mb/s or 10Gb/s, bytes as 12.5MB/s"
        ))
    })
}

/// Seconds, from a text such as `5ms`.
pub fn seconds(text: &str) -> Result<f64> {
    let wrong = || Error::InvalidArgument(format!("{text:?} is not a time; write it as 200us, 5ms or 1s"));
    number(text, &TIMES).ok_or_else(wrong)
}

/// Bytes, from a text such as `32MiB`; a bare number is bytes.
pub fn bytes(text: &str) -> Result<u64> {
    let value = number(text, &SIZES).or_else(|| text.trim().parse().ok());
    let whole = value.filter(|v| *v >= 1.0 && *v < 9e18);
    // In range, as checked; what is left of a byte is nothing that can be sent.
    whole.map(|v| v as u64).ok_or_else(|| {
        Error::InvalidArgument(format!("{text:?} is not a size; write it as 32MiB, 2GB or a number of bytes"))
    })
}

fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    let value: f64 = number.trim().parse().ok()?;
    let value = value * factor;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Bits a second, as links are rated.
pub fn show_bandwidth(bytes_per_second: f64) -> String {
    scaled(
        bytes_per_second * 8.0,
        &[("Tb/s", 1e12), ("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3), ("b/s", 0.0)],
    )
}

/// Seconds with a unit.
pub fn show_seconds(seconds: f64) -> String {
    scaled(seconds, &[("s", 1.0), ("ms", 1e-3), ("µs", 0.0)])
}

/// Bytes in powers of ten, as links count them.
pub fn show_bytes(bytes: f64) -> String {
    scaled(bytes, &[("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 0.0)])
}

/// A number with three digits or so and the largest unit that it reaches. The last unit's limit is zero.
fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let (unit, limit) = units.iter().find(|(_, limit)| value >= *limit).copied().unwrap_or(("", 0.0));
    let divisor = match (limit > 0.0, unit) {
        (true, _) => limit,
        (false, "µs") => 1e-6,
        (false, _) => 1.0,
    };
    let value = value / divisor;
    let digits = match value {
        v if v >= 100.0 || v == v.trunc() && v < 1e6 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn units_mean_what_they_say() {
        assert_eq!(bandwidth("100Mb/s").unwrap(), 12.5e6);
        assert_eq!(bandwidth("10 Gb/s").unwrap(), 1.25e9);
        assert_eq!(bandwidth("12.5MB/s").unwrap(), 12.5e6);
        assert_eq!(bandwidth("50Mbit").unwrap(), 6.25e6);
        assert!((seconds("5ms").unwrap() - 5e-3).abs() < 1e-12);
        assert_eq!(seconds("2s").unwrap(), 2.0);
        assert_eq!(bytes("32MiB").unwrap(), 32 << 20);
        assert_eq!(bytes("1152").unwrap(), 1152);
        assert_eq!(bytes("2GB").unwrap(), 2_000_000_000);
    }

    #[test]
    fn what_is_no_unit_is_refused() {
        for text in ["", "100", "fast", "-5Mb/s", "0Mb/s", "NaNMb/s", "infGb/s", "1e999Gb/s"] {
            assert!(bandwidth(text).is_err(), "{text}");
        }
        for text in ["", "5", "-1ms", "ms"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for text in ["", "-1", "0", "MiB", "1e30", "NaN"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [12.5e6, 1.25e9, 6.25e6, 150e6].map(show_bandwidth),
            ["100 Mb/s", "10 Gb/s", "50 Mb/s", "1.20 Gb/s"]
        );
        assert_eq!([1.5, 0.0421, 92.4e-6].map(show_seconds), ["1.50 s", "42.1 ms", "92.4 µs"]);
        assert_eq!([1152.0, 33554432.0].map(show_bytes), ["1.15 kB", "33.6 MB"]);
    }
}
