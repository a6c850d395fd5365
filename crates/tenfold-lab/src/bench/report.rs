//! Raw figures with what is needed to repeat them: command, machine, commit, date.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::BenchArgs;

/// The machine a report comes from.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Processor by its own name.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Operating system and architecture.
    pub system: String,
    /// The accelerator that was measured, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

impl Machine {
    /// This machine.
    pub fn detect() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        // Hypervisors hide the model name; family and model number still tell the generation.
        let model = field("model").map_or(String::new(), |m| format!(" (model {m})"));
        Machine {
            cpu: field("model name").map_or("unknown".to_string(), |name| name + &model),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            device: None,
        }
    }
}

/// A figure against its bar.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// What was measured.
    pub what: String,
    /// What came out.
    pub value: f64,
    /// What it must reach.
    pub bar: f64,
    /// `at most` or `at least`.
    pub rule: &'static str,
    /// Whether it does.
    pub pass: bool,
}

/// Where and how figures were measured.
#[derive(Debug, Clone, Serialize)]
pub struct Origin {
    /// Name of the bench.
    pub bench: &'static str,
    /// Command line.
    pub command: String,
    /// UTC.
    pub date: String,
    /// Commit of the working folder, `unknown` outside a repository.
    pub commit: String,
    /// Version of the library.
    pub version: &'static str,
    /// Machine.
    pub machine: Machine,
}

impl Origin {
    /// This machine, now.
    pub(crate) fn new(bench: &'static str, command: &str, commit: String) -> Self {
        let (version, machine) = (env!("CARGO_PKG_VERSION"), Machine::detect());
        Origin { bench, command: command.to_string(), date: now(), commit, version, machine }
    }
}

/// Everything a bench found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where and how it was measured.
    #[serde(flatten)]
    pub origin: Origin,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
    /// Figures against bars.
    pub checks: Vec<Check>,
    /// Raw figures.
    pub rows: Vec<Value>,
}

impl Report {
    /// An empty report of a bench on this machine.
    pub fn new(args: &BenchArgs) -> Self {
        Report::with_name(args.what.name(), &args.command)
    }

    /// An empty report of any program that measures, by its name and its command line.
    pub(crate) fn with_name(bench: &'static str, command: &str) -> Self {
        let origin = Origin::new(bench, command, commit());
        Report { origin, notes: Vec::new(), checks: Vec::new(), rows: Vec::new() }
    }

    /// Whether every bar was met.
    pub fn has_passed(&self) -> bool {
        self.checks.iter().all(|c| c.pass)
    }

    pub(crate) fn row(&mut self, row: &impl Serialize) -> Result<()> {
        self.rows.push(serde_json::to_value(row).context("a row does not serialise")?);
        Ok(())
    }

    pub(super) fn at_most(&mut self, what: impl Into<String>, value: f64, bar: f64) -> bool {
        self.check(what.into(), value, bar, "at most", value <= bar)
    }

    pub(super) fn at_least(&mut self, what: impl Into<String>, value: f64, bar: f64) -> bool {
        self.check(what.into(), value, bar, "at least", value >= bar)
    }

    fn check(&mut self, what: String, value: f64, bar: f64, rule: &'static str, pass: bool) -> bool {
        self.checks.push(Check { what, value, bar, rule, pass });
        pass
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(crate) fn print_verdicts(&self, out: &mut dyn Write) -> io::Result<()> {
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        for c in &self.checks {
            let verdict = if c.pass { "pass" } else { "MISS" };
            writeln!(out, "{verdict}  {}: {} ({} {})", c.what, number(c.value), c.rule, number(c.bar))?;
        }
        Ok(())
    }

    /// Writes the report as JSON, beside its target first so that a full disk leaves the old one.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("the report does not serialise")?;
        let part = path.with_extension("json.part");
        fs::write(&part, text + "\n")
            .and_then(|()| fs::rename(&part, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Four significant digits or so.
pub(crate) fn number(v: f64) -> String {
    match v.abs() {
        a if a >= 1000.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.3}"),
        a if a >= 1e-4 || a == 0.0 => format!("{v:.5}"),
        _ => format!("{v:.3e}"),
    }
}

/// Commit of the working folder, and whether files differ from it.
pub(crate) fn commit() -> String {
    let git = |args: &[&str]| {
        let out = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_string())
    };
    match git(&["rev-parse", "HEAD"]) {
        Some(hash) => match git(&["status", "--porcelain", "--untracked-files=no"]) {
            Some(changes) if !changes.is_empty() => hash + " with changes",
            _ => hash,
        },
        None => "unknown".to_string(),
    }
}

/// This moment, UTC.
fn now() -> String {
    utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// Seconds since 1970 as `YYYY-MM-DDThh:mm:ssZ`.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years counted from March put the leap day last; 719468 days lie between 0000-03-01 and 1970.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_735_689_599), "2024-12-31T23:59:59Z");
    }
}
