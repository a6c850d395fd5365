//! Standard output, and numbers for people.

use std::io::{ErrorKind, Write};

use serde::Serialize;

/// Prints text. A reader that stops early (`| head`) is no failure.
pub fn out(text: &str) -> anyhow::Result<()> {
    Stdout.write_all(text.as_bytes())?;
    Ok(Stdout.flush()?)
}

/// Standard output that ignores a closed pipe: the work goes on.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match std::io::stdout().write(bytes) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            result => result,
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match std::io::stdout().flush() {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    out(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// A number of bytes with three or four digits and a unit.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// Bytes a second, in powers of ten as links and memories are rated.
pub fn rate(bytes_per_second: f64) -> String {
    let (value, unit) = if bytes_per_second < 1e9 {
        (bytes_per_second / 1e6, "MB/s")
    } else {
        (bytes_per_second / 1e9, "GB/s")
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// A shape as `768x3072`; `scalar` without dimensions.
pub fn shape(shape: &[usize]) -> String {
    if shape.is_empty() {
        return "scalar".into();
    }
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// A small or large positive number with three digits, `0` if it is zero.
pub fn scientific(value: f64) -> String {
    if value == 0.0 { "0".into() } else { format!("{value:.2e}") }
}

/// A value, or a dash.
pub fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        assert_eq!(
            [0, 1023, 1024, 10 << 10, 150 << 20].map(bytes),
            ["0 B", "1023 B", "1.00 KiB", "10.0 KiB", "150 MiB"]
        );
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(
            [4.2e5, 98.76e6, 1.0e9, 123e9].map(rate),
            ["0.42 MB/s", "98.8 MB/s", "1.00 GB/s", "123 GB/s"]
        );
    }
}
